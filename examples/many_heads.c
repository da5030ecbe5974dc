/* many_heads.c - runs the same sentence through a list of two heads, and through one matrix split into two heads.
 * Prints the same digits as PyTorch for seed 123. */
#include <mha/mha.h>
#include <stdio.h>

enum { BATCH = 2, TOKENS = 6, D_IN = 3, D_OUT = 4 };

/* "Your journey starts with one step" twice, with three features per word. */
static const float inputs[BATCH][TOKENS][D_IN] = {{{0.43f, 0.15f, 0.89f},
                                                   {0.55f, 0.87f, 0.66f},
                                                   {0.57f, 0.85f, 0.64f},
                                                   {0.22f, 0.58f, 0.33f},
                                                   {0.77f, 0.25f, 0.10f},
                                                   {0.05f, 0.80f, 0.55f}},
                                                  {{0.43f, 0.15f, 0.89f},
                                                   {0.55f, 0.87f, 0.66f},
                                                   {0.57f, 0.85f, 0.64f},
                                                   {0.22f, 0.58f, 0.33f},
                                                   {0.77f, 0.25f, 0.10f},
                                                   {0.05f, 0.80f, 0.55f}}};

/* Initializes the layer from seed 123, runs it and prints the output of the first sentence. */
static mha_status show(const char *name, mha_variant *layer, mha_error *err)
{
    float output[BATCH][TOKENS][D_OUT];
    mha_rng rng;
    const mha_variant_input in = {.size = sizeof in, .batch = BATCH, .q_len = TOKENS, .query = inputs};
    mha_rng_manual_seed(&rng, 123);
    mha_status status = mha_variant_init(layer, &rng, err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, output, NULL, err);
    if (status != MHA_OK) return status;
    printf("%s, %lld parameters\n", name, (long long)mha_variant_parameter_count(layer));
    for (int i = 0; i < TOKENS; i++)
        printf("%8.4f%8.4f%8.4f%8.4f\n", (double)output[0][i][0], (double)output[0][i][1], (double)output[0][i][2],
               (double)output[0][i][3]);
    return MHA_OK;
}

int main(void)
{
    mha_error err;
    mha_variant *list = NULL, *split = NULL;
    const mha_stacked_heads_options stacked = {.size = sizeof stacked,
                                               .d_in = D_IN,
                                               .d_out = D_OUT,
                                               .num_heads = 2,
                                               .context_length = TOKENS,
                                               .plain_matrices = 1};
    const mha_weight_split_options one_matrix = {
        .size = sizeof one_matrix, .d_in = D_IN, .d_out = D_OUT, .num_heads = 2, .context_length = TOKENS};

    mha_status status = mha_stacked_heads_create(NULL, &stacked, &list, &err);
    if (status == MHA_OK) status = show("a list of two heads", list, &err);
    if (status == MHA_OK) status = mha_weight_split_create(NULL, &one_matrix, &split, &err);
    if (status == MHA_OK) status = show("one matrix split into two heads", split, &err);
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    mha_variant_free(list);
    mha_variant_free(split);
    return status != MHA_OK;
}
