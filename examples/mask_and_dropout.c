/* mask_and_dropout.c - applies the causal mask and dropout to the attention weights of five words. Prints the same
 * digits as PyTorch for seed 123. */
#include <mha/mha.h>
#include <stdio.h>

enum { TOKENS = 5, WIDTH = 4 };
static float x[TOKENS * WIDTH], q[TOKENS * WIDTH], k[TOKENS * WIDTH], v[TOKENS * WIDTH], out[TOKENS * WIDTH];
static float scores[TOKENS * TOKENS], weights[TOKENS * TOKENS], dropped[TOKENS * TOKENS];

static void print(const char *name, const float *matrix)
{
    printf("%s\n", name);
    for (int n = 0; n < TOKENS * TOKENS; n++)
        printf("%12.5g%s", (double)matrix[n], (n + 1) % TOKENS ? "" : "\n");
}

/* Computes y = x w, with w [in, out] sampled from [0, 1). */
static mha_status project(mha_rng *rng, float *y, mha_error *err)
{
    float w[WIDTH * WIDTH];
    const mha_matrix matrix = {.weight = w, .transposed = 1, .out = WIDTH};
    mha_linear *linear = NULL;
    mha_status status = mha_rng_rand(rng, w, WIDTH * WIDTH, err);
    if (status == MHA_OK) status = mha_linear_create_stack(NULL, WIDTH, &matrix, 1, MHA_ACT_NONE, &linear, err);
    if (status == MHA_OK) status = mha_linear_forward(linear, x, TOKENS, y, err);
    mha_linear_free(linear);
    return status;
}

int main(void)
{
    mha_rng rng;
    mha_error err;
    mha_attn_desc desc = {
        .size = sizeof desc, .batch = 1, .heads = 1, .q_len = TOKENS, .kv_len = TOKENS, .head_dim = WIDTH};
    mha_attn_args args = {.size = sizeof args, .q.data = q, .k.data = k, .v.data = v, .out.data = out};
    desc.causal = 1;
    desc.scores = MHA_SCORES_BIASED; /* requests the scores after the mask */
    desc.outputs = MHA_ATTN_SCORES | MHA_ATTN_PROBS;
    args.scores.data = scores;
    args.probs.data = weights;

    mha_rng_manual_seed(&rng, 123);
    mha_status status = mha_rng_embedding(&rng, TOKENS, WIDTH, -1, x, &err);
    mha_rng_manual_seed(&rng, 123);
    if (status == MHA_OK) status = project(&rng, q, &err);
    if (status == MHA_OK) status = project(&rng, k, &err);
    if (status == MHA_OK) status = project(&rng, v, &err);
    if (status == MHA_OK) status = mha_attention(NULL, &desc, &args, &err);

    mha_rng_manual_seed(&rng, 123);
    if (status == MHA_OK)
        status = mha_rng_dropout(&rng, 0.2, MHA_RNG_ROUTE_DEFAULT, weights, dropped, TOKENS * TOKENS, &err);
    if (status != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;
    print("masked scores", scores);
    print("weights", weights);
    print("weights after dropout", dropped);
}
