/* params.h - the only place that checks a description or arguments, and that knows their defaults. */
#ifndef MHA_ATTN_PLAN_PARAMS_H
#define MHA_ATTN_PLAN_PARAMS_H

#include "attn/plan/operand_table.h"
#include "attn/plan/plan.h"

/* Checks `desc` and copies it with every default filled in: kv_heads, listed_heads, v_head_dim, dtypes, scale,
 * max_q_len, max_kv_len, keep_keys; a window that is off is {0, -1, -1}. MHA_ERR_ARG for what makes no sense, then
 * MHA_ERR_UNSUPPORTED for what is not built. */
mha_status mha__attn_resolve(const mha_attn_desc *desc, mha_attn_desc *resolved, mha_error *err);

/* MHA_ERR_ARG naming the field unless `width` is from 1, or 0 where that has a meaning, to MHA_HEAD_DIM_MAX. */
mha_status mha__attn_check_width(const char *field, int64_t width, bool zero, mha_error *err);

/* Returns MHA_ERR_ARG naming the field unless `dtype` is the default, a floating type, or q8_0 with `cache`. */
mha_status mha__attn_check_dtype(const char *field, mha_dtype dtype, bool cache, mha_error *err);

/* True if a row's position among the keys decides what it sees. */
bool mha__attn_positional(const mha_attn_desc *resolved);

/* Checks the arguments of one call and copies them with every stride filled in. */
mha_status mha__attn_bind(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace, size_t workspace_bytes,
                          mha__call *call, mha_error *err);

/* The same for a call of the backward pass. */
mha_status mha__attn_bind_grads(const mha_attn_plan *plan, const mha_attn_args *args, const mha_attn_grads *grads,
                                void *workspace, size_t workspace_bytes, mha__bwd_call *call, mha_error *err);

/* The part of it that forward and backward share: all but out and the other results, and the workspace. */
mha_status mha__attn_bind_inputs(const mha_attn_plan *plan, const mha_attn_args *args, mha__call *call, mha_error *err);
mha_status mha__attn_check_workspace(const void *workspace, size_t bytes, size_t need, mha_error *err);

/* Those about lengths, packing and the list of heads (lengths.c). */
mha_status mha__bind_lengths(mha__call *call, mha_error *err);

/* What a call reads: q, k and v first, then every input of its description. Returns how many. */
typedef struct mha__input {
    mha__operand operand;
    size_t size;
} mha__input;
int mha__attn_inputs(const mha_attn_plan *plan, const mha_attn_args *args, mha__input list[MHA__INPUT_ROWS]);

#endif
