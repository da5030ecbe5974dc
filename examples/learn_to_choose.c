/* learn_to_choose.c - trains head pruning to learn which head to keep. There are two kinds of sequences, and a teacher
 * uses one head for each kind. Three layers that keep one of two heads per sequence learn to reproduce the teacher. In
 * the published form, the choice has no gradient and is never trained, so each head must handle both kinds. With soft
 * or straight-through gates, the choice is also trained. */
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 32, TOKENS = 4, WIDTH = 16, HEADS = 2, NUMBERS = BATCH * TOKENS * WIDTH, STEPS = 400, LAST = 50 };
static float x[NUMBERS], target[NUMBERS], y[NUMBERS], dy[NUMBERS];

static mha_status create(mha_selection selection, uint64_t seed, mha_rng *rng, mha_variant **layer, mha_error *err)
{
    const mha_head_pruning_options options = {
        .size = sizeof options, .d_model = WIDTH, .num_heads = HEADS, .prune_ratio = 0.5, .selection = selection};
    mha_rng_manual_seed(rng, seed);
    const mha_status status = mha_head_pruning_create(NULL, &options, layer, err);
    return status == MHA_OK ? mha_variant_init(*layer, rng, err) : status;
}

/* Sets the teacher's predictor to keep head 0 if element 0 of the tokens is greater than element 1, and head 1
 * otherwise. */
static mha_status teach(mha_variant *teacher, mha_error *err)
{
    int64_t count;
    const mha_named_tensor *list = mha_variant_parameters(teacher, &count);
    for (int64_t p = 0; p < count; p++) {
        float *w = list[p].data;
        if (strcmp(list[p].name, "head_importance.bias") == 0) memset(w, 0, HEADS * sizeof *w);
        if (strcmp(list[p].name, "head_importance.weight") != 0) continue;
        memset(w, 0, sizeof *w * HEADS * WIDTH);
        w[0] = w[WIDTH + 1] = 1;
    }
    return mha_variant_update(teacher, err);
}

/* Samples random tokens; sequence b is of kind b % 2. */
static mha_status draw(mha_rng *rng, mha_error *err)
{
    const mha_status status = mha_rng_randn(rng, x, NUMBERS, err);
    for (int row = 0; row < BATCH * TOKENS; row++)
        for (int kind = 0; kind < HEADS; kind++)
            x[row * WIDTH + kind] = row / TOKENS % HEADS == kind;
    return status;
}

/* Takes one step of gradient descent on the mean squared error; `loss` is the error before the step. */
static mha_status step(mha_variant *layer, const mha_variant_input *in, mha_trace *trace, double *loss, mha_error *err)
{
    const float rate = 10;
    const mha_variant_gradient g = {.size = sizeof g, .output = dy};
    int64_t count;
    mha_status status = mha_variant_forward(layer, in, y, trace, err);
    *loss = 0;
    for (int n = 0; n < NUMBERS; n++) {
        dy[n] = 2 * (y[n] - target[n]) / NUMBERS;
        *loss += (double)((y[n] - target[n]) * (y[n] - target[n])) / NUMBERS;
    }
    if (status == MHA_OK) status = mha_variant_zero_gradients(layer, err);
    if (status == MHA_OK) status = mha_variant_backward(layer, in, trace, &g, err);
    if (status != MHA_OK) return status;
    const mha_named_tensor *value = mha_variant_parameters(layer, &count), *grad = mha_variant_gradients(layer, &count);
    for (int64_t p = 0; p < count; p++)
        for (int64_t n = 0; n < value[p].shape[0] * (value[p].rank == 2 ? value[p].shape[1] : 1); n++)
            ((float *)value[p].data)[n] -= rate * ((const float *)grad[p].data)[n];
    return mha_variant_update(layer, err);
}

/* Returns the number of sequences in the last batch that match the best assignment of one head to each kind. */
static int suited(const mha_trace *trace)
{
    int same = 0;
    int64_t count;
    for (int b = 0; b < BATCH; b++)
        same += *mha_trace_chosen(trace, b, &count) == b % HEADS;
    return same > BATCH / 2 ? same : BATCH - same;
}

/* Trains a layer on new sequences in every step. The sequences are the same for all three layers. Sets *error to the
 * mean error of the last steps. */
static mha_status learn(const char *name, mha_selection selection, const mha_variant *teacher, double *error,
                        mha_error *err)
{
    mha_rng rng;
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = x};
    mha_status status = create(selection, 2, &rng, &layer, err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, err);
    *error = 0;
    for (int n = 0; status == MHA_OK && n < STEPS; n++) {
        double loss = 0;
        status = draw(&rng, err);
        if (status == MHA_OK) status = mha_variant_forward(teacher, &in, target, NULL, err);
        if (status == MHA_OK) status = step(layer, &in, trace, &loss, err);
        if (n >= STEPS - LAST) *error += loss / LAST;
    }
    if (status == MHA_OK)
        printf("%-18smean squared error %.5f, the right head for %d of %d sequences\n", name, *error, suited(trace),
               BATCH);
    mha_trace_free(trace);
    mha_variant_free(layer);
    return status;
}

int main(void)
{
    mha_rng rng;
    mha_error err;
    mha_variant *teacher = NULL;
    double hard = 0, soft = 0, through = 0;
    mha_status status = create(MHA_SELECTION_HARD, 1, &rng, &teacher, &err);
    if (status == MHA_OK) status = teach(teacher, &err);
    if (status == MHA_OK) status = learn("as published", MHA_SELECTION_HARD, teacher, &hard, &err);
    if (status == MHA_OK) status = learn("soft gates", MHA_SELECTION_SOFT, teacher, &soft, &err);
    if (status == MHA_OK) status = learn("straight-through", MHA_SELECTION_STRAIGHT_THROUGH, teacher, &through, &err);
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    if (status == MHA_OK && soft < hard / 5 && through < hard / 5) puts("the layers learned to choose");
    mha_variant_free(teacher);
    return status != MHA_OK;
}
