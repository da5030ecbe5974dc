/* three_inputs.c - computes attention with two heads from the queries of one sequence to the keys and values of another
 * sequence, with a mask for padding keys. Prints the same digits as PyTorch for seed 3. */
#include <mha/mha.h>
#include <stdio.h>

enum { BATCH = 2, LQ = 3, LK = 5, D_IN = 6, D_OUT = 8, HEADS = 2 };
static float query[BATCH * LQ * D_IN], key[BATCH * LK * D_IN], value[BATCH * LK * D_IN], output[BATCH * LQ * D_OUT];
static const float padding[BATCH][LK] = {{0, 0, 0, 0, 1}, {0, 0, 0, 1, 1}}; /* padding mask: 1 = masked key */

int main(void)
{
    mha_rng rng;
    mha_error err;
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    mha_step_view weights;
    const mha_qkv_attention_options options = {
        .size = sizeof options, .input_dim = D_IN, .num_heads = HEADS, .output_dim = D_OUT};
    const mha_variant_input in = {.size = sizeof in,
                                  .batch = BATCH,
                                  .q_len = LQ,
                                  .kv_len = LK,
                                  .query = query,
                                  .key = key,
                                  .value = value,
                                  .blocked = {.data = padding, .rank = 3, .shape = {BATCH, 1, LK}},
                                  .want_weights = 1};

    mha_rng_manual_seed(&rng, 3);
    mha_status status = mha_qkv_attention_create(NULL, &options, &layer, &err);
    if (status == MHA_OK) status = mha_variant_init(layer, &rng, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, query, BATCH * LQ * D_IN, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, key, BATCH * LK * D_IN, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, value, BATCH * LK * D_IN, &err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, &err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, output, trace, &err);

    if (status == MHA_OK && mha_trace_step(trace, MHA_STEP_WEIGHTS, &weights)) {
        const float *w = weights.data; /* weights of sequence 0, head 0 */
        for (int64_t i = 0; i < LQ; i++)
            for (int64_t j = 0; j < LK; j++)
                printf("%8.4f%s", (double)w[i * weights.stride[2] + j * weights.stride[3]], j + 1 < LK ? "" : "\n");
    }
    for (int d = 0; status == MHA_OK && d < D_OUT; d++)
        printf("%8.4f%s", (double)output[d], d + 1 < D_OUT ? "" : "\n");
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    mha_trace_free(trace);
    mha_variant_free(layer);
    return status != MHA_OK;
}
