/* test_distill.c - tests distillation: compares the gradient of the loss with finite differences. Also tests a model
 * that is its own teacher, the recovery of pruned models, and errors.
 *
 * tests/live/test_distill_torch.py compares values with PyTorch. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/train/distill_case.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a model that is its own teacher ---- */

static void test_a_copy_of_the_teacher_has_no_gradient(void **state)
{
    (void)state;
    const mha_model_input input = distill_input();
    for (int f = 0; f < FOLDERS; f++)
        for (int cls = 0; cls < 2; cls++) {
            mha_model *model = case_open(NULL, distill_folders[f]);
            mha_model_grads *grads = NULL;
            mha_error err = {0};
            double loss = 1;
            int64_t count = 0, counted = 0;
            mha_model_loss_args args = {.size = sizeof args, .teacher = model, .distill = distill_terms(model, 0)};
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
                        fail_msg("%s: gradient of %s must be 0 (got %g)", distill_folders[f], g[n].name,
                                 (double)((const float *)g[n].data)[i]);
            mha_model_grads_free(grads);
            mha_model_free(model);
        }
}

/* Gates must be applied to the heads of the student, but not to those of the teacher. */
static void test_gates_apply_to_the_student_only(void **state)
{
    (void)state;
    mha_model_input input = distill_input();
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
    const mha_model_input input = distill_input();
    for (int n = 0; n < FOLDERS * 4; n++) {
        mha_model *teacher = case_open(NULL, distill_folders[n / 4]);
        distill_student p = distill_prune(teacher);
        mha_train_options o = {.size = sizeof o, .teacher = teacher, .distill = distill_terms(teacher, 0.4)};
        if (n % 4 == 0) o.distill = (mha_model_distill){.hidden = 1};
        if (n % 4 == 1) o.distill = (mha_model_distill){.text = 1};
        if (n % 4 == 2 && teacher->lm_head) o.distill = (mha_model_distill){.logits = 1, .temperature = 3};
        mha_trainer *t = distill_trainer(p.model, &o);
        const mha_train_batch batch = distill_batch(t, &input);
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
            fail_msg("%s, terms %d: expected derivative %g from differences, got %g from the gradient",
                     distill_folders[n / 4], n % 4, slope, norm);
        mha_trainer_free(t);
        distill_release(&p);
        mha_model_free(teacher);
    }
}

/* ---- recovery of pruned models ---- */

/* After two heads are removed, distillation must reduce the loss. Tensors without a gradient must not change, whatever
 * the weight decay. */
static void test_a_pruned_model_recovers(void **state)
{
    (void)state;
    const mha_model_input input = distill_input();
    const mha_model_distill terms[] = {{.hidden = 1}, {.logits = 1}, {.text = 1}};
    for (int n = 0; n < FOLDERS * 3; n++) {
        /* skips the logits of the last model, which has no output head */
        if (n % 3 == 1 && n / 3 == FOLDERS - 1) continue;
        mha_model *teacher = case_open(NULL, distill_folders[n / 3]);
        const mha_train_options o = {
            .size = sizeof o, .rate = 3e-3, .decay = 0.01, .teacher = teacher, .distill = terms[n % 3]};
        distill_student p = distill_prune(teacher);
        mha_trainer *t = distill_trainer(p.model, &o), *before = distill_trainer(p.model, &o);
        const double lost = distill_step(t, &input).loss;
        for (int k = 0; k < 60; k++)
            distill_step(t, &input);
        const double left = distill_step(t, &input).loss;
        print_message("%s, term %d: distance to the teacher %.3g before, %.3g after\n", distill_folders[n / 3], n % 3,
                      lost, left);
        assert_true(left < 0.5 * lost);
        for (int64_t k = 0; k < t->count; k++) {
            const mha__role role = t->parameter[k].role;
            const bool of_logits = role >= MHA__LM_DENSE && role <= MHA__LM_HEAD;
            const bool out_of_reach = role == MHA__POOLER || (of_logits && n % 3 != 1);
            const size_t bytes = (size_t)t->parameter[k].count * sizeof(float);
            const bool same = memcmp(t->list[k].data, before->list[k].data, bytes) == 0;
            if (same != out_of_reach)
                fail_msg("%s: %s must %schange", distill_folders[n / 3], t->list[k].name, out_of_reach ? "not " : "");
        }
        mha_trainer_free(t), mha_trainer_free(before);
        distill_release(&p);
        mha_model_free(teacher);
    }
}

static void test_usual_terms(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *model = case_open(NULL, distill_folders[f]);
        const mha_train_options o = {.size = sizeof o, .teacher = model};
        mha_trainer *t = distill_trainer(model, &o);
        const mha_model_distill *d = &t->o.distill;
        const double of_logits = model->lm_head ? 0.5 : 0;
        assert_true(d->labels == of_logits && d->logits == of_logits && d->temperature == 2);
        assert_true(d->hidden == (model->lm_head ? 0 : 1) && d->text == 0);
        mha_trainer_free(t);
        mha_model_free(model);
    }
}

/* ---- error messages ---- */

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

static void test_refusals(void **state)
{
    (void)state;
    mha_model *gpt2 = case_create(
        NULL, "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 50}", 1);
    mha_model *wide = case_create(
        NULL, "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 50}", 1);
    mha_model *words = case_create(
        NULL, "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 51}", 1);
    mha_model *bert = case_create(NULL,
                                  "{\"model_type\": \"bert\", \"hidden_size\": 16, \"num_hidden_layers\": 1, "
                                  "\"num_attention_heads\": 2, \"intermediate_size\": 32, \"vocab_size\": 50}",
                                  1);
    mha_model *headless = case_open(NULL, BERT);
    mha_model *empty = case_model(NULL, GPT2, &(mha_model_options){.size = sizeof(mha_model_options), .no_weights = 1});
    const mha_model_distill none = {0}, states = {.hidden = 1}, text = {.text = 1}, logits = {.logits = 1};
    expect_refused(gpt2, words, none, MHA_ERR_ARG, "vocabulary of the teacher must have 50 tokens (got 51)");
    expect_refused(gpt2, wide, states, MHA_ERR_ARG,
                   "hidden_size of the teacher must be 16, that of the model, to compare states (got 32)");
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
    mha_trainer *t = distill_trainer(gpt2, &o);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_of_the_teacher_has_no_gradient),
        cmocka_unit_test(test_gates_apply_to_the_student_only),
        cmocka_unit_test(test_gradient_against_differences),
        cmocka_unit_test(test_a_pruned_model_recovers),
        cmocka_unit_test(test_usual_terms),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
