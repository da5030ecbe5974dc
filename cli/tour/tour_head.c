/* tour_head.c - computes one head step by step: initializes five words and three matrices, projects the words, and runs
 * the operator. */
#include "tour/tour_head.h"

const char *const tour_head_words[TOKENS] = {"Once", "upon", "a", "time", "there"};

/* Computes y = x w. A linear layer computes x W^T, so a matrix stored as [in, out] requires `transposed`. */
static mha_status multiply(tour *t, const float *x, const float *w, float *y)
{
    const mha_matrix matrix = {.weight = w, .transposed = 1, .out = WIDTH};
    mha_linear *linear = NULL;
    mha_status status = mha_linear_create_stack(t->ctx, WIDTH, &matrix, 1, MHA_ACT_NONE, &linear, &t->error);
    if (status == MHA_OK) status = mha_linear_forward(linear, x, TOKENS, y, &t->error);
    mha_linear_free(linear);
    return status;
}

mha_status tour_head_begin(tour *t, tour_head *h)
{
    const int32_t words[TOKENS] = {0, 1, 2, 3, 4};
    float table[TOKENS * WIDTH];
    mha_rng rng;
    mha_rng_manual_seed(&rng, TOUR_SEED);
    mha_status status = mha_rng_embedding(&rng, TOKENS, WIDTH, -1, table, &t->error);
    if (status == MHA_OK)
        status = mha_embedding_forward("words", table, TOKENS, WIDTH, words, TOKENS, 0, h->x, &t->error);
    mha_rng_manual_seed(&rng, TOUR_SEED);
    if (status == MHA_OK) status = mha_rng_rand(&rng, h->w_q, WIDTH * WIDTH, &t->error);
    if (status == MHA_OK) status = mha_rng_rand(&rng, h->w_k, WIDTH * WIDTH, &t->error);
    if (status == MHA_OK) status = mha_rng_rand(&rng, h->w_v, WIDTH * WIDTH, &t->error);
    if (status == MHA_OK) status = multiply(t, h->x, h->w_q, h->q);
    if (status == MHA_OK) status = multiply(t, h->x, h->w_k, h->k);
    if (status == MHA_OK) status = multiply(t, h->x, h->w_v, h->v);
    return status;
}

mha_attn_desc tour_head_desc(void)
{
    return (mha_attn_desc){.size = sizeof(mha_attn_desc),
                           .batch = 1,
                           .heads = 1,
                           .q_len = TOKENS,
                           .kv_len = TOKENS,
                           .head_dim = WIDTH,
                           .outputs = MHA_ATTN_SCORES | MHA_ATTN_PROBS};
}

mha_status tour_head_attend(tour *t, tour_head *h, const mha_attn_desc *desc)
{
    const mha_attn_args args = {.size = sizeof args,
                                .q.data = h->q,
                                .k.data = h->k,
                                .v.data = h->v,
                                .out.data = h->out,
                                .scores.data = h->scores,
                                .probs.data = h->weights};
    return mha_attention(t->ctx, desc, &args, &t->error);
}
