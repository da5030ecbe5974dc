/* standard_mha.c - runs multi-head attention with a boolean mask on three sequences with five, four and three unmasked
 * keys. The first query of the last sequence attends to no key. Prints the same digits as PyTorch for seed 13. */
#include <mha/mha.h>
#include <stdio.h>

enum { BATCH = 3, LQ = 3, LK = 5, WIDTH = 8, HEADS = 4 };
static float query[BATCH * LQ * WIDTH], key[BATCH * LK * WIDTH], value[BATCH * LK * WIDTH], y[BATCH * LQ * WIDTH];

/* The mask of each sequence and query, shared by all heads; 1 = unmasked key. */
static const uint8_t keep[BATCH][1][LQ][LK] = {{{{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}},
                                               {{{1, 1, 1, 1, 0}, {1, 1, 1, 1, 0}, {1, 1, 1, 1, 0}}},
                                               {{{0, 0, 0, 0, 0}, {1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}}}};

/* Prints the weights of head 0 for the queries of a sequence. */
static void print_weights(const mha_step_view *weights, int64_t b)
{
    const float *w = (const float *)weights->data + b * weights->stride[0];
    printf("weights of sequence %d\n", (int)b);
    for (int64_t i = 0; i < LQ; i++)
        for (int64_t j = 0; j < LK; j++)
            printf("%8.4f%s", (double)w[i * weights->stride[2] + j * weights->stride[3]], j + 1 < LK ? "" : "\n");
}

int main(void)
{
    mha_rng rng;
    mha_error err;
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    mha_step_view weights;
    const mha_standard_mha_options options = {.size = sizeof options, .d_model = WIDTH, .num_heads = HEADS};
    const mha_variant_input in = {.size = sizeof in,
                                  .batch = BATCH,
                                  .q_len = LQ,
                                  .kv_len = LK,
                                  .query = query,
                                  .key = key,
                                  .value = value,
                                  .keep = {.data = keep, .rank = 4, .shape = {BATCH, 1, LQ, LK}},
                                  .want_weights = 1};

    mha_rng_manual_seed(&rng, 13);
    mha_status status = mha_standard_mha_create(NULL, &options, &layer, &err);
    if (status == MHA_OK) status = mha_variant_init(layer, &rng, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, query, BATCH * LQ * WIDTH, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, key, BATCH * LK * WIDTH, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, value, BATCH * LK * WIDTH, &err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, &err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, y, trace, &err);

    for (int64_t b = 0; status == MHA_OK && b < BATCH; b++)
        if (mha_trace_step(trace, MHA_STEP_WEIGHTS, &weights)) print_weights(&weights, b);
    for (int d = 0; status == MHA_OK && d < WIDTH;
         d++) /* the output of the query without unmasked keys: the mean of all values */
        printf("%8.4f%s", (double)y[(BATCH - 1) * LQ * WIDTH + d], d + 1 < WIDTH ? "" : "\n");
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    mha_trace_free(trace);
    mha_variant_free(layer);
    return status != MHA_OK;
}
