/* split_heads.c - splits and merges heads without a separate transpose, by describing the heads with strides. Every
 * word attends only to itself, so the output is v, read with one set of strides and written with another. */
#include <mha/mha.h>
#include <stdio.h>

enum { WORDS = 4, HEADS = 2, D = 3, WIDTH = HEADS * D };

static const float rows[WORDS][WIDTH] = {{0.7924f, 0.4975f, 0.5119f, 0.4034f, 0.6843f, 0.3314f},
                                         {0.9629f, 0.7819f, 0.5565f, 0.5319f, 0.2773f, 0.2841f},
                                         {0.3263f, 0.7731f, 0.5472f, 0.6618f, 0.3387f, 0.6278f},
                                         {0.7786f, 0.0196f, 0.0878f, 0.0646f, 0.6827f, 0.6362f}};

static mha_status copy(mha_cview from, mha_view to, mha_error *err)
{
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = HEADS,
                                .q_len = WORDS,
                                .kv_len = WORDS,
                                .head_dim = D,
                                .window = {.on = 1, .left = 0, .right = 0}};
    const mha_attn_args args = {.size = sizeof args, .q = from, .k = from, .v = from, .out = to};
    return mha_attention(NULL, &desc, &args, err);
}

int main(void)
{
    float heads[HEADS][WORDS][D], merged[WORDS][WIDTH];
    mha_error err;
    /* strides of batch, head, word, element: in a row of the projection, heads are D elements apart */
    const mha_cview by_word = {rows, {0, D, WIDTH, 1}}, by_head = {heads, {0, (int64_t)WORDS * D, D, 1}};
    mha_status status = copy(by_word, (mha_view){heads, {0, (int64_t)WORDS * D, D, 1}}, &err);
    if (status == MHA_OK) status = copy(by_head, (mha_view){merged, {0, D, WIDTH, 1}}, &err);
    if (status != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;

    int same = 0;
    for (int h = 0; h < HEADS; h++) {
        printf("head %d\n", h);
        for (int i = 0; i < WORDS; i++)
            printf("%8.4f%8.4f%8.4f\n", (double)heads[h][i][0], (double)heads[h][i][1], (double)heads[h][i][2]);
    }
    for (int n = 0; n < WORDS * WIDTH; n++)
        same += merged[n / WIDTH][n % WIDTH] == rows[n / WIDTH][n % WIDTH];
    printf("merged: %d of %d elements equal the input\n", same, WORDS * WIDTH);
}
