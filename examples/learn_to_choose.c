/* learn_to_choose.c - head pruning whose predictor learns: gradient descent on a layer that keeps two of four heads,
 * with soft gates, until it repeats what another layer does. */
#include <mha/mha.h>
#include <stdio.h>

enum { BATCH = 8, TOKENS = 4, WIDTH = 16, NUMBERS = BATCH * TOKENS * WIDTH, STEPS = 300 };
static float x[NUMBERS], target[NUMBERS], y[NUMBERS], dy[NUMBERS];

static mha_status step(mha_variant *layer, const mha_variant_input *in, mha_trace *trace, double *loss, mha_error *err)
{
    const mha_variant_gradient g = {.size = sizeof g, .output = dy};
    mha_status status = mha_variant_forward(layer, in, y, trace, err);
    *loss = 0;
    for (int n = 0; n < NUMBERS; n++) {
        dy[n] = 2 * (y[n] - target[n]) / NUMBERS;
        *loss += (double)((y[n] - target[n]) * (y[n] - target[n])) / NUMBERS;
    }
    if (status == MHA_OK) status = mha_variant_zero_gradients(layer, err);
    if (status == MHA_OK) status = mha_variant_backward(layer, in, trace, &g, err);
    if (status != MHA_OK) return status;
    int64_t count;
    const mha_named_tensor *value = mha_variant_parameters(layer, &count), *grad = mha_variant_gradients(layer, &count);
    for (int64_t p = 0; p < count; p++)
        for (int64_t n = 0; n < value[p].shape[0] * (value[p].rank == 2 ? value[p].shape[1] : 1); n++)
            ((float *)value[p].data)[n] -= 1.0f * ((const float *)grad[p].data)[n];
    return mha_variant_update(layer, err);
}

int main(void)
{
    mha_rng rng;
    mha_error err;
    mha_variant *teacher = NULL, *learner = NULL;
    mha_trace *trace = NULL;
    double first = 0, last = 0;
    const mha_standard_mha_options all = {.size = sizeof all, .d_model = WIDTH, .num_heads = 4};
    const mha_head_pruning_options half = {
        .size = sizeof half, .d_model = WIDTH, .num_heads = 4, .prune_ratio = 0.5, .selection = MHA_SELECTION_SOFT};
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = x};

    mha_rng_manual_seed(&rng, 1);
    mha_status status = mha_standard_mha_create(NULL, &all, &teacher, &err);
    if (status == MHA_OK) status = mha_head_pruning_create(NULL, &half, &learner, &err);
    if (status == MHA_OK) status = mha_variant_init(teacher, &rng, &err);
    if (status == MHA_OK) status = mha_variant_init(learner, &rng, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x, NUMBERS, &err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, &err);
    if (status == MHA_OK) status = mha_variant_forward(teacher, &in, target, NULL, &err);
    for (int n = 0; status == MHA_OK && n < STEPS; n++)
        status = step(learner, &in, trace, n ? &last : &first, &err);
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    printf("mean squared error %.5f, after %d steps %.5f: %s\n", first, STEPS, last,
           last < first / 10 ? "it has learned" : "it has not learned");
    mha_trace_free(trace);
    mha_variant_free(teacher);
    mha_variant_free(learner);
    return status != MHA_OK;
}
