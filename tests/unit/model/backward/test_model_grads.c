/* test_model_grads.c - compares gradients of whole models with finite differences and with those of a loss that the
 * caller computes, and tests training steps and labels. tests/golden/verify/test_verify_models.sh compares recorded
 * gradients. */
#include "mha/layer.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/passes/grads_case.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = GRADS_B, L = GRADS_L };

/* ---- forward pass ---- */

static void test_forward_is_bitwise_identical(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++)
        for (int holes = 0; holes < 2; holes++) {
            mha_model *model = case_open(NULL, grads_families[f]);
            mha_model_grads *grads = grads_create(model, 0, holes);
            const mha_model_info *info = mha_model_describe(model);
            const int64_t V = info->vocab, E = info->hidden;
            mha_model_input input = grads_input(model, holes);
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
                if (!grads_mask[r]) continue;
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
    const double up = grads_loss(grads, input, gates, NULL);
    gates[n] = was - step;
    const double down = grads_loss(grads, input, gates, NULL);
    gates[n] = was;
    return (up - down) / (2 * (double)step);
}

/* Gradients of gates must equal finite differences of the loss, for random gates near 1. */
static void test_gates_against_differences(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++) {
        mha_model *model = case_open(NULL, grads_families[f]);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t count = info->layers * B * info->heads;
        mha_model_grads *grads = grads_create(model, 1, f % 2);
        const mha_model_input input = grads_input(model, f == 1);
        float *gates = random_floats(9, 1, count, 0.1, 1), *dgates = random_floats(9, 2, count, 1, 0);
        double largest = 0;
        grads_loss(grads, &input, gates, dgates);
        for (int64_t n = 0; n < count; n++)
            largest = fmax(largest, fabs((double)dgates[n]));
        for (int64_t n = 0; n < count; n++) {
            const double near = difference(grads, &input, gates, n, 0x1p-6f);
            /* Richardson extrapolation of two differences, with an error of fourth order in the step */
            const double want = (4 * near - difference(grads, &input, gates, n, 0x1p-5f)) / 3;
            if (!(fabs((double)dgates[n] - want) < 2e-3 * largest))
                fail_msg("%s: gradient of gate %d: got %g, expected %g by finite differences", grads_families[f],
                         (int)n, (double)dgates[n], want);
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
    mha_model *model = case_open(NULL, grads_families[0]);
    mha_file *file = case_file("models/bert-mlm-tiny/model.safetensors");
    assert_int_equal(mha_model_describe(model)->heads, H);
    assert_int_equal(mha_model_describe(model)->hidden, E);
    mha_model_grads *grads = grads_create(model, 0, 0);
    const mha_model_input input = grads_input(model, false);
    const int64_t layers = mha_model_describe(model)->layers;
    float *dgates = malloc((size_t)(layers * B * H) * sizeof *dgates);
    grads_loss(grads, &input, NULL, dgates);
    for (int64_t layer = 0; layer < layers; layer++) {
        char name[100];
        snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.output.dense.weight", (int)layer);
        float *weight = case_floats(file, name);
        const float *gradient = grads_tensor(grads, name)->data;
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

/* ---- gradients of a loss that the caller computes ---- */

/* If the caller computes the cross-entropy of the logits, the loss and the gradients must be bitwise identical to those
 * of mha_model_grads_loss. */
static void test_steps_are_the_loss(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++) {
        mha_model *model = case_open(NULL, grads_families[f]);
        const mha_model_info *info = mha_model_describe(model);
        const int shift = info->causal ? 1 : 0;
        mha_model_grads *grads = grads_create(model, 0, 0);
        const mha_model_input input = grads_input(model, false);
        float *logits = malloc((size_t)(B * L * info->vocab) * sizeof *logits);
        const mha_model_output out = {.size = sizeof out, .logits = logits};
        int32_t asked[B * L];
        int64_t count = 0;
        double loss = 0;
        const double want_loss = grads_loss(grads, &input, NULL, NULL);
        float *want = grads_all(grads, &count);
        mha_model_grads_zero(grads);
        assert_int_equal(mha_model_grads_forward(grads, &input, &out, NULL), MHA_OK);
        for (int n = 0; n < B * L; n++)
            asked[n] = n % L + shift < L ? grads_labels[n + shift] : MHA_IGNORE;
        const mha_cross_entropy_args args = {.size = sizeof args,
                                             .rows = B * L,
                                             .classes = info->vocab,
                                             .logits = logits,
                                             .labels = asked,
                                             .dlogits = logits};
        assert_int_equal(mha_cross_entropy(NULL, &args, &loss, NULL, NULL), MHA_OK);
        const mha_model_gradient gradient = {.size = sizeof gradient, .logits = logits};
        assert_int_equal(mha_model_grads_backward(grads, &gradient, NULL), MHA_OK);
        float *got = grads_all(grads, &count);
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
    mha_model *model = case_open(NULL, "models/bert-tiny");
    mha_model_grads *grads = grads_create(model, 0, 0);
    const mha_model_input input = grads_input(model, false);
    float *c = random_floats(5, 1, B * L * E, 1, 0), *d = random_floats(5, 2, B * E, 1, 0), hidden[B * L * E];
    float pooled[B * E], gates[COUNT], dgates[COUNT], again[COUNT], embeddings[B * L * E];
    const mha_model_output out = {.size = sizeof out, .last_hidden = hidden, .pooled = pooled};
    mha_model_gradient gradient = {.size = sizeof gradient, .last_hidden = c, .pooled = d, .gates = dgates};
    for (int n = 0; n < COUNT; n++)
        gates[n] = 1;
    gradient.embeddings = embeddings;
    assert_int_equal(mha_model_grads_forward(grads, &input, NULL, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_backward(grads, &gradient, NULL), MHA_OK);
    const mha_named_tensor *words = grads_tensor(grads, "embeddings.word_embeddings.weight");
    float *sum = calloc((size_t)(words->shape[0] * E), sizeof *sum);
    assert_int_equal(mha_embedding_backward("id", sum, words->shape[0], E, grads_ids, B * L, embeddings, NULL), MHA_OK);
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
                f[side] += grads_mask[i / E] ? (double)c[i] * (double)hidden[i] : 0;
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
        const int64_t elements = case_elements(&own[n]);
        for (int64_t i = 0; i < elements; i++)
            ((float *)own[n].data)[i] -= rate * ((const float *)gradient[n].data)[i];
    }
}

/* Each step of gradient descent must reduce the loss of a model that is opened with the new weights. */
static void test_descent(void **state)
{
    (void)state;
    for (int f = 0; f < GRADS_FAMILIES; f++) {
        char path[100];
        snprintf(path, sizeof path, "%s/model.safetensors", grads_families[f]);
        mha_file *file = case_file(path);
        mha_model_options options = {.size = sizeof options, .no_tokenizer = 1};
        mha_named_tensor *own = NULL;
        double before = INFINITY;
        int64_t count = 0;
        for (int step = 0; step < 4; step++) {
            mha_model *model = case_model(NULL, grads_families[f], &options);
            mha_model_grads *grads = grads_create(model, 0, 0);
            const mha_model_input input = grads_input(model, false);
            const double loss = grads_loss(grads, &input, NULL, NULL), rate = 1e-4;
            int64_t numbers = 0;
            if (step == 0) own = copy_parameters(grads, file, &count);
            options.tensors = own, options.tensor_count = count;
            float *all = grads_all(grads, &numbers);
            double square = 0;
            for (int64_t n = 0; n < numbers; n++)
                square += (double)all[n] * (double)all[n];
            if (step > 0 && !(loss < before))
                fail_msg("%s: the loss must fall in every step (got %g, then %g)", grads_families[f], before, loss);
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
    mha_model *model = case_open(NULL, grads_families[1]);
    mha_model_grads *grads = grads_create(model, 0, 0);
    const mha_model_input input = grads_input(model, false);
    double loss = 0, same = 0;
    int64_t counted = 0, count = 0;
    mha_model_loss_args args = {.size = sizeof args};
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, &counted, NULL), MHA_OK);
    assert_int_equal(counted, L - 1 + 8 - 1); /* all unmasked tokens except the first of each sequence */
    for (int n = 0; n < B * L; n++)
        grads_labels[n] = grads_mask[n] ? grads_ids[n] : MHA_IGNORE;
    args.labels = grads_labels;
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &same, NULL, NULL), MHA_OK);
    assert_true(same == loss);
    args.scale = 0.25;
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &same, NULL, NULL), MHA_OK);
    assert_true(fabs(same - 0.25 * (double)counted * loss) < 1e-9 * same);
    for (int n = 0; n < B * L; n++)
        grads_labels[n] = MHA_IGNORE;
    args.scale = 0;
    mha_model_grads_zero(grads);
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, &counted, NULL), MHA_OK);
    assert_true(isnan(loss) && counted == 0);
    float *all = grads_all(grads, &count);
    for (int64_t n = 0; n < count; n++)
        assert_true(all[n] == 0);
    free(all);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_bitwise_identical),
        cmocka_unit_test(test_gates_against_differences),
        cmocka_unit_test(test_gates_agree_with_the_output_projection),
        cmocka_unit_test(test_steps_are_the_loss),
        cmocka_unit_test(test_states_and_pooler),
        cmocka_unit_test(test_descent),
        cmocka_unit_test(test_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
