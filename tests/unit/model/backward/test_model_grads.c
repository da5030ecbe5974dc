/* test_model_grads.c - tests gradients of whole models: invariants, finite differences and bitwise identity.
 * tests/golden/verify/test_verify_models.sh compares recorded gradients. */
#include "mha/model_grads.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, L = 12 };

static const char *const families[] = {
    "models/bert-mlm-tiny", "models/gpt2-tiny", "models/gemma2-tiny", "families2/gpt-neox-parallel",
    "families2/granite",    "families2/phi3",   "families2/olmo2",    "families2/modernbert",
    "families2/gemma3",     "families2/cohere", "families2/mpnet"};
enum { FAMILIES = sizeof families / sizeof *families };

static int32_t ids[B * L], labels[B * L];
static uint8_t mask[B * L];

/* Returns a batch of two sequences. If `holes` is true, one token of each is masked; otherwise, the second sequence is
 * shorter and padded. */
static mha_model_input input_of(const mha_model *model, bool holes)
{
    const int32_t vocab = (int32_t)mha_model_describe(model)->vocab;
    for (int n = 0; n < B * L; n++) {
        ids[n] = (7 + 31 * n) % vocab;
        labels[n] = n % 3 == 1 ? MHA_IGNORE : (5 + 17 * n) % vocab;
        mask[n] = holes ? n != 3 && n != L + 1 : n < L + 8;
        if (!mask[n]) labels[n] = MHA_IGNORE;
    }
    return (mha_model_input){.size = sizeof(mha_model_input), .batch = B, .length = L, .ids = ids, .mask = mask};
}

static mha_model *open_model(mha_ctx *ctx, const char *folder)
{
    return case_model(ctx, folder, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1});
}

static mha_model_grads *create(const mha_model *model, int no_parameters, int recompute)
{
    const mha_model_grads_options o = {.size = sizeof o, .no_parameters = no_parameters, .recompute = recompute};
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    if (mha_model_grads_create(model, &o, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    return grads;
}

static double loss_of(mha_model_grads *grads, const mha_model_input *input, const float *gates, float *dgates)
{
    const mha_model_loss_args args = {sizeof args, .labels = labels, .dgates = dgates};
    mha_model_input gated = *input;
    double loss = 0;
    mha_error err = {0};
    gated.gates = gates;
    if (mha_model_grads_loss(grads, &gated, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    return loss;
}

static const mha_named_tensor *tensor_of(const mha_model_grads *grads, const char *name)
{
    int64_t count = 0;
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++)
        if (strcmp(list[n].name, name) == 0) return &list[n];
    fail_msg("gradients must include \"%s\"", name);
    return NULL;
}

/* Copies all gradients to one array and returns the number of elements. */
static int64_t gather(const mha_model_grads *grads, float *to)
{
    int64_t count = 0, total = 0;
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++) {
        int64_t elements = 1;
        for (int d = 0; d < list[n].rank; d++)
            elements *= list[n].shape[d];
        memcpy(to + total, list[n].data, (size_t)elements * sizeof *to);
        total += elements;
    }
    return total;
}

static float *all_of(const mha_model_grads *grads, int64_t *count)
{
    float *all = malloc((size_t)1 << 21);
    *count = gather(grads, all);
    assert_true(*count > 0 && (size_t)*count * sizeof *all <= (size_t)1 << 21);
    return all;
}

/* ---- forward pass ---- */

static void test_forward_is_bitwise_identical(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int holes = 0; holes < 2; holes++) {
            mha_model *model = open_model(NULL, families[f]);
            mha_model_grads *grads = create(model, 0, holes);
            const mha_model_info *info = mha_model_describe(model);
            const int64_t V = info->vocab, E = info->hidden;
            mha_model_input input = input_of(model, holes);
            float *gates = random_floats(9, 3, info->layers * B * info->heads, 0.5, 1);
            if (holes) input.gates = gates;
            float *logits[2], *hidden[2];
            for (int n = 0; n < 2; n++) {
                logits[n] = calloc((size_t)(B * L * V), sizeof(float));
                hidden[n] = calloc((size_t)(B * L * E), sizeof(float));
                const mha_model_output out = {.size = sizeof out, .logits = logits[n], .last_hidden = hidden[n]};
                assert_int_equal(n ? mha_model_forward(model, &input, &out, NULL)
                                   : mha_model_grads_forward(grads, &input, &out, NULL),
                                 MHA_OK);
            }
            for (int64_t r = 0; r < B * L; r++) {
                if (!mask[r]) continue;
                assert_memory_equal(logits[0] + r * V, logits[1] + r * V, (size_t)V * sizeof(float));
                assert_memory_equal(hidden[0] + r * E, hidden[1] + r * E, (size_t)E * sizeof(float));
            }
            for (int n = 0; n < 2; n++) {
                free(logits[n]);
                free(hidden[n]);
            }
            free(gates);
            mha_model_grads_free(grads);
            mha_model_free(model);
        }
}

/* ---- gradients of gates ---- */

/* Returns the derivative of the loss with respect to gate n, from a central difference. */
static double difference(mha_model_grads *grads, const mha_model_input *input, float *gates, int64_t n, float step)
{
    const float was = gates[n];
    gates[n] = was + step;
    const double up = loss_of(grads, input, gates, NULL);
    gates[n] = was - step;
    const double down = loss_of(grads, input, gates, NULL);
    gates[n] = was;
    return (up - down) / (2 * (double)step);
}

/* Gradients of gates must equal finite differences of the loss, for random gates near 1. */
static void test_gates_against_differences(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        mha_model *model = open_model(NULL, families[f]);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t count = info->layers * B * info->heads;
        mha_model_grads *grads = create(model, 1, f % 2);
        const mha_model_input input = input_of(model, f == 1);
        float *gates = random_floats(9, 1, count, 0.1, 1), *dgates = random_floats(9, 2, count, 1, 0);
        double largest = 0;
        loss_of(grads, &input, gates, dgates);
        for (int64_t n = 0; n < count; n++)
            largest = fmax(largest, fabs((double)dgates[n]));
        for (int64_t n = 0; n < count; n++) {
            const double near = difference(grads, &input, gates, n, 0x1p-6f);
            /* Richardson extrapolation of two differences, with an error of fourth order in the step */
            const double want = (4 * near - difference(grads, &input, gates, n, 0x1p-5f)) / 3;
            if (!(fabs((double)dgates[n] - want) < 2e-3 * largest))
                fail_msg("%s: gradient of gate %d: got %g, expected %g by finite differences", families[f], (int)n,
                         (double)dgates[n], want);
        }
        assert_true(largest > 1e-3);
        free(gates);
        free(dgates);
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
}

/* The gradient of a gate, summed over sequences, must be <Wo_h, dWo_h>, since Wo is the only matrix that multiplies the
 * head's output. */
static void test_gates_agree_with_the_output_projection(void **state)
{
    (void)state;
    enum { H = 6, D = 8, E = 48 };
    mha_model *model = open_model(NULL, families[0]);
    mha_file *file = case_file("models/bert-mlm-tiny/model.safetensors");
    assert_int_equal(mha_model_describe(model)->heads, H);
    assert_int_equal(mha_model_describe(model)->hidden, E);
    mha_model_grads *grads = create(model, 0, 0);
    const mha_model_input input = input_of(model, false);
    const int64_t layers = mha_model_describe(model)->layers;
    float *dgates = malloc((size_t)(layers * B * H) * sizeof *dgates);
    loss_of(grads, &input, NULL, dgates);
    for (int64_t layer = 0; layer < layers; layer++) {
        char name[100];
        snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.output.dense.weight", (int)layer);
        float *weight = case_floats(file, name);
        const float *gradient = tensor_of(grads, name)->data;
        for (int h = 0; h < H; h++) {
            double sum = 0, want = 0;
            for (int n = 0; n < B; n++)
                want += (double)dgates[(layer * B + n) * H + h];
            for (int n = 0; n < E * D; n++)
                sum += (double)weight[n / D * E + h * D + n % D] * (double)gradient[n / D * E + h * D + n % D];
            assert_true(fabs(sum - want) < 1e-5 * (1 + fabs(want)));
        }
        free(weight);
    }
    free(dgates);
    mha_file_free(file);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

/* ---- bitwise identity ---- */

static void test_threads_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        float *first = NULL;
        double first_loss = 0;
        for (int n = 0; n < 4; n++) {
            const mha_ctx_options o = {.size = sizeof o, .threads = n % 2 ? 5 : 1};
            mha_ctx *ctx = NULL;
            int64_t count = 0;
            assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
            mha_model *model = open_model(ctx, families[f]);
            mha_model_grads *grads = create(model, 0, n / 2);
            const mha_model_input input = input_of(model, false);
            const double loss = loss_of(grads, &input, NULL, NULL);
            float *all = all_of(grads, &count);
            if (!first) first = all, first_loss = loss;
            assert_true(loss == first_loss);
            assert_memory_equal(all, first, (size_t)count * sizeof *all);
            if (all != first) free(all);
            mha_model_grads_free(grads);
            mha_model_free(model);
            mha_ctx_free(ctx);
        }
        free(first);
    }
}

/* Gradients must be bitwise identical if weights are packed for the backward pass, and if only some parameters have
 * gradients. */
static void test_packed_weights_and_parts_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        mha_model *model = open_model(NULL, families[f]);
        const mha_model_info *info = mha_model_describe(model);
        const mha_model_input input = input_of(model, false);
        const size_t gates = (size_t)(info->layers * B * info->heads);
        mha_model_grads *all = create(model, 0, 0);
        float *want = calloc(gates, sizeof *want), *dgates = calloc(gates, sizeof *dgates);
        const double loss = loss_of(all, &input, NULL, want);
        for (int n = 0; n < 4; n++) {
            const mha_model_grads_options o = {
                .size = sizeof o, .pack = n % 2, .attention_only = n < 2, .no_parameters = n >= 2};
            mha_model_grads *some = NULL;
            assert_int_equal(mha_model_grads_create(model, &o, &some, NULL), MHA_OK);
            assert_true(loss_of(some, &input, NULL, dgates) == loss);
            assert_memory_equal(dgates, want, gates * sizeof *want);
            int64_t count = 0;
            const mha_named_tensor *list = mha_model_grads_list(some, &count);
            /* at least two attention matrices per layer */
            assert_true(n < 2 ? count >= 2 * info->layers : count == 0);
            for (int64_t t = 0; t < count; t++) {
                size_t elements = 1;
                for (int d = 0; d < list[t].rank; d++)
                    elements *= (size_t)list[t].shape[d];
                assert_non_null(strstr(list[t].name, "att"));
                assert_memory_equal(list[t].data, tensor_of(all, list[t].name)->data, elements * sizeof(float));
            }
            mha_model_grads_free(some);
        }
        mha_model_grads_free(all);
        free(want);
        free(dgates);
        mha_model_free(model);
    }
}

/* Changing masked tokens must leave all gradients bitwise identical. */
static void test_masked_tokens_have_no_effect(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int holes = 0; holes < 2; holes++) {
            mha_model *model = open_model(NULL, families[f]);
            mha_model_grads *grads = create(model, 0, 0);
            const mha_model_input input = input_of(model, holes);
            float *all[2];
            int64_t count = 0;
            for (int n = 0; n < 2; n++) {
                mha_model_grads_zero(grads);
                loss_of(grads, &input, NULL, NULL);
                all[n] = all_of(grads, &count);
                for (int r = 0; r < B * L; r++)
                    if (!mask[r]) ids[r] = (ids[r] + 1) % 100;
            }
            assert_memory_equal(all[0], all[1], (size_t)count * sizeof(float));
            free(all[0]);
            free(all[1]);
            mha_model_grads_free(grads);
            mha_model_free(model);
        }
}

/* Packed sequences must have the same loss and gradients as a padded batch of the same sequences. */
static void test_packed_is_padded(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        mha_model *model = open_model(NULL, families[f]);
        const int64_t heads = mha_model_describe(model)->heads, gates = mha_model_describe(model)->layers * B * heads;
        mha_model_grads *grads = create(model, 0, 0);
        mha_model_input input = input_of(model, false);
        const int64_t starts[B + 1] = {0, L, L + 8};
        float *all[2], *dgates[2];
        double loss[2];
        int64_t count = 0;
        for (int n = 0; n < 2; n++) {
            dgates[n] = malloc((size_t)gates * sizeof(float));
            mha_model_grads_zero(grads);
            loss[n] = loss_of(grads, &input, NULL, dgates[n]);
            all[n] = all_of(grads, &count);
            input.mask = NULL, input.starts = starts; /* the end of the second sequence without its padding */
        }
        assert_true(loss[0] == loss[1]);
        assert_memory_equal(dgates[0], dgates[1], (size_t)gates * sizeof(float));
        assert_memory_equal(all[0], all[1], (size_t)count * sizeof(float));
        for (int n = 0; n < 2; n++) {
            free(all[n]);
            free(dgates[n]);
        }
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
}

/* Gradients must be added up over several calls until they are set to zero. The same object must accept batches of
 * different sizes. */
static void test_gradients_add_up(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, families[1]);
    mha_model_grads *grads = create(model, 0, 0);
    mha_model_input input = input_of(model, false);
    int64_t count = 0;
    loss_of(grads, &input, NULL, NULL);
    float *once = all_of(grads, &count);
    input.batch = 1;
    loss_of(grads, &input, NULL, NULL);
    mha_model_grads_zero(grads);
    float *nothing = all_of(grads, &count);
    for (int64_t n = 0; n < count; n++)
        assert_true(nothing[n] == 0);
    input.batch = B;
    loss_of(grads, &input, NULL, NULL);
    float *again = all_of(grads, &count);
    assert_memory_equal(once, again, (size_t)count * sizeof *once);
    loss_of(grads, &input, NULL, NULL);
    float *twice = all_of(grads, &count);
    for (int64_t n = 0; n < count; n++)
        assert_true(fabsf(twice[n] - 2 * once[n]) <= 1e-5f * (1 + fabsf(once[n])));
    float *all[] = {once, nothing, again, twice};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        free(all[n]);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

/* ---- gradients of a loss that the caller computes ---- */

/* If the caller computes the cross-entropy of the logits, the loss and the gradients must be bitwise identical to those
 * of mha_model_grads_loss. */
static void test_steps_are_the_loss(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        mha_model *model = open_model(NULL, families[f]);
        const mha_model_info *info = mha_model_describe(model);
        const int shift = info->causal ? 1 : 0;
        mha_model_grads *grads = create(model, 0, 0);
        const mha_model_input input = input_of(model, false);
        float *logits = malloc((size_t)(B * L * info->vocab) * sizeof *logits);
        const mha_model_output out = {.size = sizeof out, .logits = logits};
        int32_t asked[B * L];
        int64_t count = 0;
        double loss = 0;
        const double want_loss = loss_of(grads, &input, NULL, NULL);
        float *want = all_of(grads, &count);
        mha_model_grads_zero(grads);
        assert_int_equal(mha_model_grads_forward(grads, &input, &out, NULL), MHA_OK);
        for (int n = 0; n < B * L; n++)
            asked[n] = n % L + shift < L ? labels[n + shift] : MHA_IGNORE;
        const mha_cross_entropy_args args = {.size = sizeof args,
                                             .rows = B * L,
                                             .classes = info->vocab,
                                             .logits = logits,
                                             .labels = asked,
                                             .dlogits = logits};
        assert_int_equal(mha_cross_entropy(NULL, &args, &loss, NULL, NULL), MHA_OK);
        const mha_model_gradient gradient = {.size = sizeof gradient, .logits = logits};
        assert_int_equal(mha_model_grads_backward(grads, &gradient, NULL), MHA_OK);
        float *got = all_of(grads, &count);
        assert_true(fabs(loss - want_loss) < 1e-12 * loss);
        for (int64_t n = 0; n < count; n++)
            assert_true(fabsf(got[n] - want[n]) <= 1e-6f * (1 + fabsf(want[n])));
        free(logits);
        free(want);
        free(got);
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
}

/* For the loss f = <c, last hidden> + <d, pooled>, gate gradients must equal finite differences. A second backward call
 * after the same forward call must give the same gradients. The gradient of the word embeddings must be the sum of the
 * gradients of the input embeddings. */
static void test_states_and_pooler(void **state)
{
    (void)state;
    enum { H = 4, E = 48, LAYERS = 3, COUNT = LAYERS * B * H };
    mha_model *model = open_model(NULL, "models/bert-tiny");
    mha_model_grads *grads = create(model, 0, 0);
    const mha_model_input input = input_of(model, false);
    float *c = random_floats(5, 1, B * L * E, 1, 0), *d = random_floats(5, 2, B * E, 1, 0), hidden[B * L * E];
    float pooled[B * E], gates[COUNT], dgates[COUNT], again[COUNT], embeddings[B * L * E];
    const mha_model_output out = {.size = sizeof out, .last_hidden = hidden, .pooled = pooled};
    mha_model_gradient gradient = {.size = sizeof gradient, .last_hidden = c, .pooled = d, .gates = dgates};
    for (int n = 0; n < COUNT; n++)
        gates[n] = 1;
    gradient.embeddings = embeddings;
    assert_int_equal(mha_model_grads_forward(grads, &input, NULL, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_backward(grads, &gradient, NULL), MHA_OK);
    const mha_named_tensor *words = tensor_of(grads, "embeddings.word_embeddings.weight");
    float *sum = calloc((size_t)(words->shape[0] * E), sizeof *sum);
    assert_int_equal(mha_embedding_backward("id", sum, words->shape[0], E, ids, B * L, embeddings, NULL), MHA_OK);
    assert_memory_equal(sum, words->data, (size_t)(words->shape[0] * E) * sizeof *sum);
    gradient.gates = again;
    assert_int_equal(mha_model_grads_backward(grads, &gradient, NULL), MHA_OK);
    assert_memory_equal(again, dgates, sizeof dgates);
    for (int n = 0; n < COUNT; n++) {
        double f[2] = {0};
        for (int side = 0; side < 2; side++) {
            gates[n] = side ? 1 + 0x1p-6f : 1 - 0x1p-6f;
            mha_model_input gated = input;
            gated.gates = gates;
            assert_int_equal(mha_model_grads_forward(grads, &gated, &out, NULL), MHA_OK);
            for (int i = 0; i < B * L * E; i++)
                f[side] += mask[i / E] ? (double)c[i] * (double)hidden[i] : 0;
            for (int i = 0; i < B * E; i++)
                f[side] += (double)d[i] * (double)pooled[i];
        }
        gates[n] = 1;
        const double want = (f[1] - f[0]) * 0x1p5;
        if (!(fabs((double)dgates[n] - want) < 3e-3 * (1 + fabs(want))))
            fail_msg("gradient of gate %d: got %g, expected %g by finite differences", n, (double)dgates[n], want);
    }
    free(c);
    free(d);
    free(sum);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

/* ---- training ---- */

/* Returns a copy of every parameter, with which a model can be opened (options.tensors). */
static mha_named_tensor *copy_parameters(const mha_model_grads *grads, const mha_file *file, int64_t *count)
{
    const mha_named_tensor *list = mha_model_grads_list(grads, count);
    mha_named_tensor *own = malloc((size_t)*count * sizeof *own);
    for (int64_t n = 0; n < *count; n++) {
        own[n] = list[n];
        own[n].name = mha_file_find(file, list[n].name)->name;
        own[n].data = case_floats(file, own[n].name);
    }
    return own;
}

static void descend(const mha_named_tensor *own, const mha_named_tensor *gradient, int64_t count, float rate)
{
    for (int64_t n = 0; n < count; n++) {
        int64_t elements = 1;
        for (int d = 0; d < own[n].rank; d++)
            elements *= own[n].shape[d];
        for (int64_t i = 0; i < elements; i++)
            ((float *)own[n].data)[i] -= rate * ((const float *)gradient[n].data)[i];
    }
}

/* Each step of gradient descent must reduce the loss of a model that is opened with the new weights. */
static void test_descent(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        char path[100];
        snprintf(path, sizeof path, "%s/model.safetensors", families[f]);
        mha_file *file = case_file(path);
        mha_model_options options = {.size = sizeof options, .no_tokenizer = 1};
        mha_named_tensor *own = NULL;
        double before = INFINITY;
        int64_t count = 0;
        for (int step = 0; step < 4; step++) {
            mha_model *model = case_model(NULL, families[f], &options);
            mha_model_grads *grads = create(model, 0, 0);
            const mha_model_input input = input_of(model, false);
            const double loss = loss_of(grads, &input, NULL, NULL), rate = 1e-4;
            int64_t numbers = 0;
            if (step == 0) own = copy_parameters(grads, file, &count);
            options.tensors = own, options.tensor_count = count;
            float *all = all_of(grads, &numbers);
            double square = 0;
            for (int64_t n = 0; n < numbers; n++)
                square += (double)all[n] * (double)all[n];
            if (step > 0 && !(loss < before))
                fail_msg("%s: the loss must fall in every step (got %g, then %g)", families[f], before, loss);
            before = loss;
            descend(own, mha_model_grads_list(grads, &count), count, (float)(rate / (1 + sqrt(square))));
            free(all);
            mha_model_grads_free(grads);
            mha_model_free(model);
        }
        for (int64_t n = 0; n < count; n++)
            free(own[n].data);
        free(own);
        mha_file_free(file);
    }
}

/* ---- labels ---- */

static void test_labels(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, families[1]);
    mha_model_grads *grads = create(model, 0, 0);
    const mha_model_input input = input_of(model, false);
    double loss = 0, same = 0;
    int64_t counted = 0, count = 0;
    mha_model_loss_args args = {.size = sizeof args};
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, &counted, NULL), MHA_OK);
    assert_int_equal(counted, L - 1 + 8 - 1); /* all unmasked tokens except the first of each sequence */
    for (int n = 0; n < B * L; n++)
        labels[n] = mask[n] ? ids[n] : MHA_IGNORE;
    args.labels = labels;
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &same, NULL, NULL), MHA_OK);
    assert_true(same == loss);
    args.scale = 0.25;
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &same, NULL, NULL), MHA_OK);
    assert_true(fabs(same - 0.25 * (double)counted * loss) < 1e-9 * same);
    for (int n = 0; n < B * L; n++)
        labels[n] = MHA_IGNORE;
    args.scale = 0;
    mha_model_grads_zero(grads);
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, &counted, NULL), MHA_OK);
    assert_true(isnan(loss) && counted == 0);
    float *all = all_of(grads, &count);
    for (int64_t n = 0; n < count; n++)
        assert_true(all[n] == 0);
    free(all);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

/* ---- error messages and failed allocations ---- */

static void refused(mha_status got, mha_status want, const mha_error *err, const char *part)
{
    assert_int_equal(got, want);
    if (!strstr(err->message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err->message);
}

static int refuse_hidden(void *user, int64_t entry, const float *x)
{
    (void)user, (void)entry, (void)x;
    return 1;
}

static void test_refusals(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_model *model = open_model(NULL, families[1]), *encoder = open_model(NULL, "models/bert-tiny");
    mha_model *empty =
        case_model(NULL, families[1], &(mha_model_options){.size = sizeof(mha_model_options), .no_weights = 1});
    mha_model_grads *grads = create(model, 1, 0), *of_encoder = create(encoder, 0, 0), *none = NULL;
    mha_model_input input = input_of(model, false);
    float x[4];
    int64_t count = 1;
    assert_true(!mha_model_grads_list(grads, &count) && count == 0);
    refused(mha_model_grads_create(empty, NULL, &none, &err), MHA_ERR_ARG, &err, "no_weights");
    mha_model *half =
        case_model(NULL, families[1], &(mha_model_options){.size = sizeof(mha_model_options), .dtype = MHA_F16});
    refused(mha_model_grads_create(half, NULL, &none, &err), MHA_ERR_UNSUPPORTED, &err,
            "dtype of the model must be f32 or bf16 for gradients (got f16)");
    mha_model_free(half);
    refused(mha_model_grads_create(NULL, NULL, &none, &err), MHA_ERR_ARG, &err, "model must not be NULL");
    refused(mha_model_grads_backward(grads, NULL, &err), MHA_ERR_ARG, &err,
            "mha_model_grads_forward must be called first");
    mha_model_output out = {.size = sizeof out, .on_hidden = refuse_hidden};
    refused(mha_model_grads_forward(grads, &input, &out, &err), MHA_ERR_UNSUPPORTED, &err, "on_hidden");
    out = (mha_model_output){.size = sizeof out, .pooled = x};
    refused(mha_model_grads_forward(grads, &input, &out, &err), MHA_ERR_UNSUPPORTED, &err, "must have a pooler");
    labels[4] = 1 << 20;
    mha_model_loss_args args = {.size = sizeof args, .labels = labels};
    refused(mha_model_grads_loss(grads, &input, &args, NULL, NULL, &err), MHA_ERR_ARG, &err, "1048576");
    args.scale = NAN;
    refused(mha_model_grads_loss(grads, &input, &args, NULL, NULL, &err), MHA_ERR_ARG, &err, "scale");
    refused(mha_model_grads_loss(of_encoder, &input, &args, NULL, NULL, &err), MHA_ERR_UNSUPPORTED, &err,
            "must have an output head");
    ids[2] = -1;
    refused(mha_model_grads_forward(grads, &input, NULL, &err), MHA_ERR_ARG, &err,
            "ids[2] must be from 0 to 639 (got -1)");
    refused(mha_model_grads_backward(grads, NULL, &err), MHA_ERR_ARG, &err,
            "mha_model_grads_forward must be called first");
    mha_model_cache *cache = NULL;
    const mha_model_cache_options o = {.size = sizeof o, .batch = B, .tokens = 2 * L};
    assert_int_equal(mha_model_cache_create(model, &o, &cache, NULL), MHA_OK);
    input = input_of(model, false);
    input.cache = cache;
    refused(mha_model_grads_forward(grads, &input, NULL, &err), MHA_ERR_UNSUPPORTED, &err, "cache");
    mha_model_cache_free(cache);
    mha_model_grads_free(grads);
    mha_model_grads_free(of_encoder);
    mha_model_free(model);
    mha_model_free(encoder);
    mha_model_free(empty);
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory. The next
 * call on the same object must succeed. */
static void test_no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx, families[0]);
    const mha_model_input input = input_of(model, false);
    const mha_model_loss_args args = {.size = sizeof args, .labels = labels};
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        mha_model_grads *grads = NULL;
        memory.budget = memory.calls + n;
        status = mha_model_grads_create(model, NULL, &grads, NULL);
        if (status == MHA_OK) status = mha_model_grads_loss(grads, &input, &args, NULL, NULL, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        memory.budget = -1;
        if (grads && status != MHA_OK)
            assert_int_equal(mha_model_grads_loss(grads, &input, &args, NULL, NULL, NULL), MHA_OK);
        mha_model_grads_free(grads);
        assert_int_equal(memory.live, live);
    }
    assert_true(n > 20);
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_bitwise_identical),
        cmocka_unit_test(test_gates_against_differences),
        cmocka_unit_test(test_gates_agree_with_the_output_projection),
        cmocka_unit_test(test_threads_and_recomputation_change_no_bit),
        cmocka_unit_test(test_packed_weights_and_parts_change_no_bit),
        cmocka_unit_test(test_masked_tokens_have_no_effect),
        cmocka_unit_test(test_packed_is_padded),
        cmocka_unit_test(test_gradients_add_up),
        cmocka_unit_test(test_steps_are_the_loss),
        cmocka_unit_test(test_states_and_pooler),
        cmocka_unit_test(test_descent),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
