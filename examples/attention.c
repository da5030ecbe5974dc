/* attention.c - computes causal attention with two heads over four tokens: token i attends to tokens 0..i. */
#include <mha/mha.h>
#include <stdio.h>

enum { H = 2, L = 4, D = 8 };
static float q[H * L * D], k[H * L * D], v[H * L * D], out[H * L * D], probs[H * L * L];

int main(void)
{
    for (int n = 0; n < H * L * D; n++)
        q[n] = k[n] = v[n] = (float)(n % 5);

    mha_attn_desc desc = {.size = sizeof desc, .batch = 1, .heads = H, .q_len = L, .kv_len = L, .head_dim = D};
    mha_attn_args args = {.size = sizeof args, .q.data = q, .k.data = k, .v.data = v, .out.data = out};
    desc.causal = 1;
    desc.outputs = MHA_ATTN_PROBS;
    args.probs.data = probs;
    mha_error err;
    if (mha_attention(NULL, &desc, &args, &err) != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;
    for (float *p = probs; p < probs + L * L; p += L) /* rows of head 0 */
        printf("token %d attends to tokens 0..3 with weights %.3f %.3f %.3f %.3f\n", (int)(p - probs) / L, p[0], p[1],
               p[2], p[3]);
}
