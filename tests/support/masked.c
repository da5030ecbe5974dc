/* masked.c - implements masked.h. */
#include "support/masked.h"

#include <string.h>

const mha_attn_desc masked_desc = {.size = sizeof masked_desc,
                                   .batch = 3,
                                   .heads = 6,
                                   .kv_heads = 2,
                                   .q_len = 67,
                                   .kv_len = 131,
                                   .head_dim = 40,
                                   .v_head_dim = 24,
                                   .causal = 1,
                                   .align = MHA_ALIGN_BOTTOM_RIGHT,
                                   .window = {1, 50, -1},
                                   .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS |
                                             MHA_ATTN_GATES | MHA_ATTN_PREFIX_LENS,
                                   .top_keys = 3,
                                   .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS | MHA_ATTN_STATS};

mha_attn_desc masked_halves(void)
{
    mha_attn_desc d = masked_desc;
    d.dtype = MHA_BF16;
    d.kv_dtype = MHA_F16;
    d.bias_dtype = MHA_BF16;
    return d;
}

mha_attn_desc masked_bf16(mha_attn_desc d)
{
    d.dtype = d.kv_dtype = d.bias_dtype = MHA_BF16;
    return d;
}

bool masked_multiplies_bf16(mha_ctx *ctx)
{
    return strcmp(mha_ctx_isa(ctx), "avx512bf16") == 0 || strcmp(mha_ctx_isa(ctx), "amx") == 0;
}
