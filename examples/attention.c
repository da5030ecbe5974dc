/* attention.c - computes causal attention over four tokens with one head of width 8, and prints its weights. */
#include <mha/mha.h>
#include <stdio.h>

int main(void)
{
    float x[4][8], out[4][8], weights[4][4];
    for (int n = 0; n < 4 * 8; n++)
        x[n / 8][n % 8] = (float)(n % 5);
    mha_attn_desc desc = {.size = sizeof desc, .batch = 1, .heads = 1, .q_len = 4, .kv_len = 4, .head_dim = 8};
    mha_attn_args args = {.size = sizeof args, .q.data = x, .k.data = x, .v.data = x, .out.data = out};
    desc.causal = 1;
    desc.outputs = MHA_ATTN_PROBS;
    args.probs.data = weights;
    mha_error err;
    if (mha_attention(NULL, &desc, &args, &err) != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;
    for (int i = 0; i < 4; i++)
        printf("token %d attends to tokens 0..3 with weights %.3f %.3f %.3f %.3f\n", i, weights[i][0], weights[i][1],
               weights[i][2], weights[i][3]);
}
