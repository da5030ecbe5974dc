/* batched_product.c - multiplies each of two heads [3, 4] by its transpose: head by head with a linear layer, then both
 * heads together as attention scores. Prints the same digits as PyTorch for head @ head.transpose(-2, -1). */
#include <mha/mha.h>
#include <stdio.h>

enum { HEADS = 2, ROWS = 3, D = 4 };

static const float a[HEADS][ROWS][D] = {
    {{0.1855f, 0.8812f, 1.3211f, 0.8098f}, {0.3116f, 0.9549f, 1.6063f, 1.1493f}, {0.3395f, 0.9652f, 1.6530f, 1.2084f}},
    {{0.3129f, 0.8747f, 1.5012f, 1.0955f}, {0.2865f, 0.7897f, 1.4100f, 1.0398f}, {0.2990f, 0.8040f, 1.4025f, 1.0361f}}};
static float one[HEADS][ROWS][ROWS], all[HEADS][ROWS][ROWS], out[HEADS][ROWS][D];

static void print(const char *name, float m[HEADS][ROWS][ROWS])
{
    printf("%s\n", name);
    for (int row = 0; row < HEADS * ROWS; row++)
        printf("%8.4f%8.4f%8.4f\n", (double)m[row / ROWS][row % ROWS][0], (double)m[row / ROWS][row % ROWS][1],
               (double)m[row / ROWS][row % ROWS][2]);
}

/* Computes y = x x^T: a linear layer computes y = x W^T, here with W = x. */
static mha_status square(const float *x, float *y, mha_error *err)
{
    mha_linear *linear = NULL;
    mha_status status = mha_linear_create(NULL, D, ROWS, x, NULL, &linear, err);
    if (status == MHA_OK) status = mha_linear_forward(linear, x, ROWS, y, err);
    mha_linear_free(linear);
    return status;
}

int main(void)
{
    mha_error err;
    mha_status status = MHA_OK;
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = HEADS,
                                .q_len = ROWS,
                                .kv_len = ROWS,
                                .head_dim = D,
                                .scale = 1, /* no scaling; the default, 0, divides by sqrt(D) */
                                .outputs = MHA_ATTN_SCORES};
    const mha_attn_args args = {
        .size = sizeof args, .q.data = a, .k.data = a, .v.data = a, .out.data = out, .scores.data = all};

    for (int h = 0; h < HEADS && status == MHA_OK; h++)
        status = square(a[h][0], one[h][0], &err);
    if (status == MHA_OK) status = mha_attention(NULL, &desc, &args, &err);
    if (status != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;
    print("head by head", one);
    print("both together", all);
}
