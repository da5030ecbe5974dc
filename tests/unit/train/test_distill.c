/* test_distill.c - tests distillation: compares the divergence with a reference in double, and its gradient with finite
 * differences.
 *
 * Also tests a model that is its own teacher, the recovery of pruned models, and invariants of a step.
 * tests/live/test_distill_torch.py compares values with PyTorch. */
#include "layer/loss/distillation_kl.h"
#include "mha/model_create.h"
#include "mha/prune.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "support/reference/layer_ref.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"
#define BERT "models/bert-tiny" /* a model without an output head */

static const char *const folders[] = {GPT2, "families/llama-f32", "models/gemma2-tiny", "models/bert-mlm-tiny", BERT};
enum { FOLDERS = sizeof folders / sizeof *folders, B = 3, L = 12 };

static int32_t ids[B * L], labels[B * L];
static uint8_t mask[B * L];

/* Returns a batch of three texts. The second text is padded. */
static mha_model_input input_of(void)
{
    train_texts(1, B, L, ids);
    for (int n = 0; n < B * L; n++) {
        mask[n] = n / L != 1 || n % L < 7;
        labels[n] = mask[n] && n % 3 == 0 ? ids[n] : MHA_IGNORE;
    }
    return (mha_model_input){.size = sizeof(mha_model_input), .batch = B, .length = L, .ids = ids, .mask = mask};
}

/* A model without the last two heads of layer 0, which are a whole group if heads share keys. */
typedef struct pruned {
    mha_model_edit *made;
    mha_model *model;
} pruned;

static pruned prune(const mha_model *teacher)
{
    const mha_model_info *info = mha_model_describe(teacher);
    uint8_t *keep = malloc((size_t)(info->layers * info->heads));
    pruned p = {0};
    mha_error err = {0};
    memset(keep, 1, (size_t)(info->layers * info->heads));
    memset(keep + info->heads - 2, 0, 2);
    if (mha_prune(teacher, keep, NULL, &p.made, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_edit_open(p.made, &p.model, &err) != MHA_OK) fail_msg("%s", err.message);
    free(keep);
    return p;
}

static void release(pruned *p)
{
    mha_model_free(p->model);
    mha_model_edit_free(p->made);
}

static mha_trainer *trainer_of(const mha_model *model, const mha_train_options *o)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    if (mha_trainer_create(model, o, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    return t;
}

static mha_train_batch batch_of(const mha_trainer *t, const mha_model_input *input)
{
    return (mha_train_batch){.input = input, .labels = mha_trainer_model(t)->info.causal ? NULL : labels};
}

static mha_train_report step(mha_trainer *t, const mha_model_input *input)
{
    mha_train_report report;
    mha_error err = {0};
    const mha_train_batch batch = batch_of(t, input);
    if (mha_trainer_step(t, &batch, 1, &report, &err) != MHA_OK) fail_msg("%s", err.message);
    return report;
}

/* Returns weights of all loss terms that the model supports, different for each term. */
static mha_model_distill all_terms(const mha_model *m, double of_labels)
{
    mha_model_distill d = {.hidden = 0.7, .text = 1.3};
    if (m->lm_head) d.logits = 0.6, d.temperature = 1.5, d.labels = of_labels;
    return d;
}

/* ---- divergence of one row ---- */

static double softmax_at(const float *x, int n, double temperature, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, (double)x[i] / temperature);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp((double)x[i] / temperature - most);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
    return most + log(sum);
}

static void test_divergence_against_doubles(void **state)
{
    (void)state;
    static const int classes[] = {1, 2, 17, 1023, 1024, 1025, 5000};
    static const double temperatures[] = {1, 2, 0.7};
    enum { ROWS = 5, MOST = 5000 };
    double *p = malloc(MOST * sizeof *p), *q = malloc(MOST * sizeof *q);
    for (int n = 0; n < 7 * 3; n++) {
        const int width = classes[n / 3];
        const double T = temperatures[n % 3];
        float *x = random_floats(7, (uint64_t)n, ROWS * width, 3, 1);
        float *y = random_floats(8, (uint64_t)n, ROWS * width, 3, -2);
        float *dx = random_floats(9, (uint64_t)n, ROWS * width, 1, 0);
        float *before = random_floats(9, (uint64_t)n, ROWS * width, 1, 0);
        const mha__divergence d = {
            .rows = ROWS, .classes = width, .logits = x, .teacher = y, .temperature = T, .scale = 0.3, .dlogits = dx};
        double loss = 0, want = 0;
        assert_int_equal(mha__divergence_run(NULL, &d, &loss, NULL), MHA_OK);
        for (int r = 0; r < ROWS; r++) {
            const float *own = x + r * width, *other = y + r * width;
            const double of_own = softmax_at(own, width, T, q), of_other = softmax_at(other, width, T, p);
            for (int i = 0; i < width; i++) {
                const double got = (double)dx[r * width + i] - (double)before[r * width + i];
                want += 0.3 * T * T * p[i] * ((double)(other[i] - own[i]) / T - of_other + of_own);
                assert_true(fabs(got - 0.3 * T * (q[i] - p[i])) < 4e-7);
            }
        }
        assert_true(fabs(loss - want) < 1e-6 * (1 + want));
        free(x), free(y), free(dx), free(before);
    }
    free(p), free(q);
}

/* Compares the divergence of two rows and its gradient with references in double. The temperature T may be so high that
 * the rows nearly agree, or so low that one class has a probability of 1. */
static void expect_divergence(const float *x, const float *y, int width, double T)
{
    double *p = malloc((size_t)width * sizeof *p), *q = malloc((size_t)width * sizeof *q);
    float *dx = calloc((size_t)width, sizeof *dx);
    const mha__divergence d = {
        .rows = 1, .classes = width, .logits = x, .teacher = y, .temperature = T, .scale = 1, .dlogits = dx};
    const double tiny = 1e-15 * T * T; /* limit of the rounding error of the sum */
    double loss = 0, want = 0, most = 0, off = 0;
    assert_int_equal(mha__divergence_run(NULL, &d, &loss, NULL), MHA_OK);
    const double apart = softmax_at(x, width, T, q) - softmax_at(y, width, T, p);
    for (int i = 0; i < width; i++) {
        const double slope = T * (q[i] - p[i]);
        want += T * T * p[i] * (((double)y[i] - (double)x[i]) / T + apart);
        most = fmax(most, fabs(slope));
        off = fmax(off, fabs((double)dx[i] - slope));
    }
    if (!(loss >= 0) || fabs(loss - want) > 1e-4 * want + tiny)
        fail_msg("T = %g, %d classes: got %.9g, expected %.9g", T, width, loss, want);
    if (off > 1e-3 * most + 1e-8 * T)
        fail_msg("T = %g, %d classes: error of the gradients must be at most %g (got %g)", T, width,
                 1e-3 * most + 1e-8 * T, off);
    free(p), free(q), free(dx);
}

static void test_divergence_at_the_limits_of_temperature(void **state)
{
    (void)state;
    static const int classes[] = {2, 64, 1025, 5000};
    static const double temperatures[] = {MHA__COOLEST, 0.01, 0.1, 10, 100, MHA__HOTTEST};
    static const float ranges[] = {0.1F, 1, 20};
    for (int n = 0; n < 4 * 6 * 3; n++) {
        const int width = classes[n / 18];
        float *x = random_floats(7, (uint64_t)n, width, ranges[n % 3], 0);
        float *y = random_floats(8, (uint64_t)n, width, ranges[n % 3], 30);
        expect_divergence(x, y, width, temperatures[n / 3 % 6]);
        free(x), free(y);
    }
}

/* ---- a model that is its own teacher ---- */

static void test_a_copy_of_the_teacher_has_no_gradient(void **state)
{
    (void)state;
    const mha_model_input input = input_of();
    for (int f = 0; f < FOLDERS; f++)
        for (int cls = 0; cls < 2; cls++) {
            mha_model *model = case_open(NULL, folders[f]);
            mha_model_grads *grads = NULL;
            mha_error err = {0};
            double loss = 1;
            int64_t count = 0, counted = 0;
            mha_model_loss_args args = {.size = sizeof args, .teacher = model, .distill = all_terms(model, 0)};
            args.distill.pool = cls ? MHA_POOL_CLS : MHA_POOL_MEAN;
            assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
            if (mha_model_grads_loss(grads, &input, &args, &loss, &counted, &err) != MHA_OK)
                fail_msg("%s", err.message);
            assert_true(loss == 0);
            assert_int_equal(counted, model->info.causal ? 2 * (L - 1) + 6 : 2 * L + 7);
            const mha_named_tensor *g = mha_model_grads_list(grads, &count);
            for (int64_t n = 0; n < count; n++)
                for (int64_t i = 0; i < g[n].shape[0] * (g[n].rank > 1 ? g[n].shape[1] : 1); i++)
                    if (((const float *)g[n].data)[i] != 0)
                        fail_msg("%s: gradient of %s must be 0 (got %g)", folders[f], g[n].name,
                                 (double)((const float *)g[n].data)[i]);
            mha_model_grads_free(grads);
            mha_model_free(model);
        }
}

/* Gates must be applied to the heads of the student, but not to those of the teacher. */
static void test_gates_apply_to_the_student_only(void **state)
{
    (void)state;
    mha_model_input input = input_of();
    mha_model *model = case_open(NULL, GPT2);
    const int64_t cells = model->info.layers * B * model->info.heads;
    float *gates = calloc((size_t)cells, sizeof *gates);
    mha_model_grads *grads = NULL;
    double loss = 0;
    const mha_model_loss_args args = {
        .size = sizeof args, .teacher = model, .distill = {.logits = 1, .hidden = 1}, .loss_only = 1};
    input.gates = gates;
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, NULL, NULL), MHA_OK);
    assert_true(loss > 1e-4);
    for (int64_t n = 0; n < cells; n++)
        gates[n] = 1;
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, NULL, NULL), MHA_OK);
    assert_true(loss == 0);
    free(gates);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

/* ---- gradient of the loss ---- */

/* The derivative of the loss along its gradient must equal the norm of the gradient, for each term alone and for all
 * terms. */
static void test_gradient_against_differences(void **state)
{
    (void)state;
    const mha_model_input input = input_of();
    for (int n = 0; n < FOLDERS * 4; n++) {
        mha_model *teacher = case_open(NULL, folders[n / 4]);
        pruned p = prune(teacher);
        mha_train_options o = {.size = sizeof o, .teacher = teacher, .distill = all_terms(teacher, 0.4)};
        if (n % 4 == 0) o.distill = (mha_model_distill){.hidden = 1};
        if (n % 4 == 1) o.distill = (mha_model_distill){.text = 1};
        if (n % 4 == 2 && teacher->lm_head) o.distill = (mha_model_distill){.logits = 1, .temperature = 3};
        mha_trainer *t = trainer_of(p.model, &o);
        const mha_train_batch batch = batch_of(t, &input);
        const mha_model_loss_args args = {
            .size = sizeof args, .labels = batch.labels, .teacher = teacher, .distill = o.distill};
        double loss[2], squares = 0;
        assert_int_equal(mha_model_grads_loss(t->grads, &input, &args, NULL, NULL, NULL), MHA_OK);
        for (int64_t k = 0; k < t->count; k++)
            for (int64_t i = 0; i < t->parameter[k].count; i++)
                squares += pow((double)((const float *)t->gradients[k].data)[i], 2);
        const double norm = sqrt(squares), by = 0x1p-11;
        for (int side = 0; side < 2; side++) {
            for (int64_t k = 0; k < t->count; k++)
                for (int64_t i = 0; i < t->parameter[k].count; i++)
                    ((float *)t->list[k].data)[i] +=
                        (float)((side ? -2 : 1) * by / norm) * ((const float *)t->gradients[k].data)[i];
            assert_int_equal(mha_trainer_refresh(t, NULL), MHA_OK);
            assert_int_equal(mha_trainer_loss(t, &batch, 1, &loss[side], NULL, NULL), MHA_OK);
        }
        const double slope = (loss[0] - loss[1]) / (2 * by);
        if (!(fabs(slope - norm) < 5e-3 * norm))
            fail_msg("%s, terms %d: expected derivative %g from differences, got %g from the gradient", folders[n / 4],
                     n % 4, slope, norm);
        mha_trainer_free(t);
        release(&p);
        mha_model_free(teacher);
    }
}

/* ---- recovery of pruned models ---- */

/* After two heads are removed, distillation must reduce the loss. Tensors without a gradient must not change, whatever
 * the weight decay. */
static void test_a_pruned_model_recovers(void **state)
{
    (void)state;
    const mha_model_input input = input_of();
    const mha_model_distill terms[] = {{.hidden = 1}, {.logits = 1}, {.text = 1}};
    for (int n = 0; n < FOLDERS * 3; n++) {
        /* skips the logits of the last model, which has no output head */
        if (n % 3 == 1 && n / 3 == FOLDERS - 1) continue;
        mha_model *teacher = case_open(NULL, folders[n / 3]);
        const mha_train_options o = {
            .size = sizeof o, .rate = 3e-3, .decay = 0.01, .teacher = teacher, .distill = terms[n % 3]};
        pruned p = prune(teacher);
        mha_trainer *t = trainer_of(p.model, &o), *before = trainer_of(p.model, &o);
        const double lost = step(t, &input).loss;
        for (int k = 0; k < 60; k++)
            step(t, &input);
        const double left = step(t, &input).loss;
        print_message("%s, term %d: distance to the teacher %.3g before, %.3g after\n", folders[n / 3], n % 3, lost,
                      left);
        assert_true(left < 0.5 * lost);
        for (int64_t k = 0; k < t->count; k++) {
            const mha__role role = t->parameter[k].role;
            const bool of_logits = role >= MHA__LM_DENSE && role <= MHA__LM_HEAD;
            const bool out_of_reach = role == MHA__POOLER || (of_logits && n % 3 != 1);
            const size_t bytes = (size_t)t->parameter[k].count * sizeof(float);
            const bool same = memcmp(t->list[k].data, before->list[k].data, bytes) == 0;
            if (same != out_of_reach)
                fail_msg("%s: %s must %schange", folders[n / 3], t->list[k].name, out_of_reach ? "not " : "");
        }
        mha_trainer_free(t), mha_trainer_free(before);
        release(&p);
        mha_model_free(teacher);
    }
}

static void test_usual_terms(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *model = case_open(NULL, folders[f]);
        const mha_train_options o = {.size = sizeof o, .teacher = model};
        mha_trainer *t = trainer_of(model, &o);
        const mha_model_distill *d = &t->o.distill;
        const double of_logits = model->lm_head ? 0.5 : 0;
        assert_true(d->labels == of_logits && d->logits == of_logits && d->temperature == 2);
        assert_true(d->hidden == (model->lm_head ? 0 : 1) && d->text == 0);
        mha_trainer_free(t);
        mha_model_free(model);
    }
}

/* ---- invariants of a step ---- */

static void test_batches_of_a_step_are_summed(void **state)
{
    (void)state;
    const mha_model_input whole = input_of();
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *teacher = case_open(NULL, folders[f]);
        pruned p = prune(teacher);
        const mha_train_options o = {.size = sizeof o, .teacher = teacher, .distill = all_terms(teacher, 0.4)};
        mha_train_report report[3];
        for (int n = 0; n < 3; n++) {
            mha_trainer *t = trainer_of(p.model, &o);
            mha_model_input part[2] = {whole, whole};
            int64_t starts[] = {0, L, L + 7, 2 * L + 7};
            int32_t packed[2 * L + 7], of_packed[2 * L + 7];
            mha_train_batch batch[2] = {batch_of(t, &part[0]), batch_of(t, &part[1])};
            if (n == 1) { /* a batch of one text and a batch of two texts */
                part[0].batch = 1, part[1].batch = 2;
                part[1].ids += L, part[1].mask += L;
                if (batch[1].labels) batch[1].labels += L;
            }
            if (n == 2) { /* packed texts instead of padded texts */
                memcpy(packed, ids, (L + 7) * sizeof *ids), memcpy(packed + L + 7, ids + 2 * L, L * sizeof *ids);
                memcpy(of_packed, labels, (L + 7) * sizeof *ids);
                memcpy(of_packed + L + 7, labels + 2 * L, L * sizeof *ids);
                part[0].ids = packed, part[0].mask = NULL, part[0].starts = starts;
                if (batch[0].labels) batch[0].labels = of_packed;
            }
            assert_int_equal(mha_trainer_step(t, batch, n == 1 ? 2 : 1, &report[n], NULL), MHA_OK);
            mha_trainer_free(t);
        }
        for (int n = 1; n < 3; n++) {
            assert_int_equal(report[0].labels, report[n].labels);
            assert_true(fabs(report[0].loss - report[n].loss) < 1e-6 * (1 + report[0].loss));
            assert_true(fabs(report[0].norm - report[n].norm) < 1e-5 * (1 + report[0].norm));
        }
        release(&p);
        mha_model_free(teacher);
    }
}

/* Results must be bitwise identical for any number of threads, with and without recomputation, and after saving and
 * resuming. */
static void test_bits(void **state)
{
    (void)state;
    const mha_model_input input = input_of();
    const char *folder = files_folder();
    for (int f = 0; f < FOLDERS; f++) {
        float *first = NULL;
        for (int n = 0; n < 4; n++) {
            mha_ctx *ctx = NULL;
            const mha_ctx_options c = {.size = sizeof c, .threads = n % 3 + 1};
            assert_int_equal(mha_ctx_create(&c, &ctx, NULL), MHA_OK);
            mha_model *teacher = case_open(ctx, folders[f]);
            pruned p = prune(teacher);
            const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
            const mha_train_options o = {.size = sizeof o,
                                         .decay = 0.1,
                                         .clip = 1,
                                         .recompute = n == 1,
                                         .teacher = teacher,
                                         .distill = all_terms(teacher, 0.4)};
            mha_trainer *t = trainer_of(p.model, &o);
            mha_error err = {0};
            int64_t count = 0;
            step(t, &input);
            if (n == 3) {
                if (mha_trainer_save(t, folder, &over, &err) != MHA_OK) fail_msg("%s", err.message);
                mha_trainer_free(t);
                if (mha_trainer_resume(ctx, folder, &o, &t, &err) != MHA_OK) fail_msg("%s", err.message);
            }
            step(t, &input);
            float *weights = train_weights(t, &count);
            if (first) assert_memory_equal(first, weights, (size_t)count * sizeof *first);
            if (first) free(weights);
            if (!first) first = weights;
            mha_trainer_free(t);
            release(&p);
            mha_model_free(teacher);
            mha_ctx_free(ctx);
        }
        free(first);
    }
    files_remove(folder);
}

/* Without labels, a loss with a label term must be NaN and its gradients 0. Without the label term, the loss of the
 * hidden states must be finite and its gradients not 0. */
static void test_no_label_is_no_loss(void **state)
{
    (void)state;
    const mha_model_input input = input_of();
    mha_model *model = case_open(NULL, GPT2);
    pruned p = prune(model);
    mha_model_grads *g = NULL;
    mha_error err = {0};
    int64_t count = 0, counted = -1;
    double loss = 0;
    for (int n = 0; n < B * L; n++)
        labels[n] = MHA_IGNORE;
    mha_model_loss_args args = {
        .size = sizeof args, .labels = labels, .teacher = model, .distill = {.labels = 0.5, .hidden = 0.5, .text = 1}};
    assert_int_equal(mha_model_grads_create(p.model, NULL, &g, &err), MHA_OK);
    for (int round = 0; round < 2; round++) {
        if (mha_model_grads_loss(g, &input, &args, &loss, &counted, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_true(round ? isfinite(loss) : isnan(loss));
        const mha_named_tensor *list = mha_model_grads_list(g, &count);
        double most = 0;
        for (int64_t n = 0; n < count; n++)
            for (int64_t i = 0; i < list[n].shape[0] * (list[n].rank == 2 ? list[n].shape[1] : 1); i++)
                most = fmax(most, fabs((double)((const float *)list[n].data)[i]));
        assert_true(round ? most > 0 : most == 0);
        args.distill.labels = 0;
    }
    mha_model_grads_free(g);
    release(&p);
    mha_model_free(model);
}

/* ---- error messages and failed allocations ---- */

static void expect_refused(const mha_model *m, const mha_model *teacher, mha_model_distill d, mha_status want,
                           const char *part)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    const mha_train_options o = {.size = sizeof o, .teacher = teacher, .distill = d};
    assert_int_equal(mha_trainer_create(m, &o, &t, &err), want);
    if (!strstr(err.message, part)) fail_msg("the error message must contain \"%s\" (got \"%s\")", part, err.message);
    assert_null(t);
}

static mha_model *create(const char *config)
{
    mha_model *m = NULL;
    mha_error err = {0};
    if (mha_model_create(NULL, config, NULL, &m, &err) != MHA_OK) fail_msg("%s", err.message);
    return m;
}

static void test_refusals(void **state)
{
    (void)state;
    mha_model *gpt2 =
        create("{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 50}");
    mha_model *wide =
        create("{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 50}");
    mha_model *words =
        create("{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 51}");
    mha_model *bert = create("{\"model_type\": \"bert\", \"hidden_size\": 16, \"num_hidden_layers\": 1, "
                             "\"num_attention_heads\": 2, \"intermediate_size\": 32, \"vocab_size\": 50}");
    mha_model *headless = case_open(NULL, BERT);
    mha_model *empty = case_model(NULL, GPT2, &(mha_model_options){.size = sizeof(mha_model_options), .no_weights = 1});
    const mha_model_distill none = {0}, states = {.hidden = 1}, text = {.text = 1}, logits = {.logits = 1};
    expect_refused(gpt2, words, none, MHA_ERR_ARG, "vocabulary of the teacher must have 50 tokens (got 51)");
    expect_refused(gpt2, wide, states, MHA_ERR_ARG,
                   "hidden_size of the teacher must be 16 with hidden or text (got 32)");
    expect_refused(gpt2, wide, text, MHA_ERR_ARG, "hidden_size of the teacher must be 16");
    expect_refused(gpt2, bert, logits, MHA_ERR_ARG, "teacher must be a decoder like the model (got an encoder)");
    expect_refused(gpt2, empty, none, MHA_ERR_ARG, "teacher must have weights");
    expect_refused(headless, headless, logits, MHA_ERR_UNSUPPORTED, "teacher must have logits");
    expect_refused(headless, headless, (mha_model_distill){.labels = 1}, MHA_ERR_UNSUPPORTED,
                   "checkpoint must have an output head for logits");
    expect_refused(headless, NULL, none, MHA_ERR_UNSUPPORTED, "checkpoint must have an output head for logits");
    expect_refused(gpt2, NULL, states, MHA_ERR_ARG, "teacher must not be NULL");
    expect_refused(gpt2, gpt2, (mha_model_distill){.hidden = -1}, MHA_ERR_ARG, "hidden must be at least 0 (got -1)");
    expect_refused(gpt2, gpt2, (mha_model_distill){.text = NAN}, MHA_ERR_ARG, "text must be at least 0 (got nan)");
    expect_refused(gpt2, gpt2, (mha_model_distill){.temperature = -2}, MHA_ERR_ARG,
                   "temperature must be from 0.001 to 1000 (got -2");
    expect_refused(gpt2, gpt2, (mha_model_distill){.temperature = 1001}, MHA_ERR_ARG,
                   "temperature must be from 0.001 to 1000 (got 1001)");
    expect_refused(gpt2, gpt2, (mha_model_distill){.temperature = 9e-4}, MHA_ERR_ARG,
                   "temperature must be from 0.001 to 1000 (got 0.0009)");
    expect_refused(gpt2, gpt2, (mha_model_distill){.pool = (mha_pool)9}, MHA_ERR_ARG,
                   "pool must be a value of mha_pool (got 9)");
    /* for distillation of logits alone, the teacher may have a different hidden_size */
    const mha_train_options o = {.size = sizeof o, .teacher = wide};
    mha_trainer *t = trainer_of(gpt2, &o);
    mha_error err = {0};
    int32_t id = 1;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 1, .ids = &id};
    const mha_train_batch batch = {.input = &input};
    assert_int_equal(mha_trainer_step(t, &batch, 1, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "batches must contain at least one label for the loss (got none in 1)");
    mha_trainer_free(t);
    mha_model_free(gpt2), mha_model_free(wide), mha_model_free(words), mha_model_free(bert);
    mha_model_free(headless), mha_model_free(empty);
}

/* With a budget of 0, 1, 2, ... allocations, each failed step must return MHA_ERR_MEMORY. The next step must
 * succeed. */
static void test_no_memory(void **state)
{
    (void)state;
    const mha_model_input input = input_of();
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, "models/bert-mlm-tiny");
    const mha_train_options o = {.size = sizeof o, .teacher = model, .distill = all_terms(model, 0.5)};
    mha_trainer *t = trainer_of(model, &o);
    const mha_train_batch batch = batch_of(t, &input);
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        memory.budget = memory.calls + n;
        status = mha_trainer_step(t, &batch, 1, NULL, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
    }
    memory.budget = -1;
    assert_true(n > 10);
    step(t, &input);
    mha_trainer_free(t);
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divergence_against_doubles),
        cmocka_unit_test(test_divergence_at_the_limits_of_temperature),
        cmocka_unit_test(test_a_copy_of_the_teacher_has_no_gradient),
        cmocka_unit_test(test_gates_apply_to_the_student_only),
        cmocka_unit_test(test_gradient_against_differences),
        cmocka_unit_test(test_a_pruned_model_recovers),
        cmocka_unit_test(test_usual_terms),
        cmocka_unit_test(test_batches_of_a_step_are_summed),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_no_label_is_no_loss),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
