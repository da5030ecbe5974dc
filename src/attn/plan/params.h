/* params.h - functions that check descriptions and arguments and set defaults. No other code checks them. */
#ifndef MHA_ATTN_PLAN_PARAMS_H
#define MHA_ATTN_PLAN_PARAMS_H

#include "attn/plan/operand_table.h"
#include "attn/plan/plan.h"

/* Checks `desc` and copies it with all defaults set: kv_heads, listed_heads, v_head_dim, dtypes, scale,
 * max_q_len, max_kv_len, keep_keys; a window that is off becomes {0, -1, -1}. Returns MHA_ERR_ARG for an invalid
 * description, and MHA_ERR_UNSUPPORTED for a valid description that is not supported. */
mha_status mha__attn_resolve(const mha_attn_desc *desc, mha_attn_desc *resolved, mha_error *err);

/* Returns MHA_ERR_ARG with the field name unless `width` is from 1 to MHA_HEAD_DIM_MAX, or 0 if `zero` is set. */
mha_status mha__attn_check_width(const char *field, int64_t width, bool zero, mha_error *err);

/* Returns MHA_ERR_ARG with the field name unless `dtype` is the default, a floating type, or a
 * type that only caches store (q8_0, q4_0, f8_e4m3) if `cache` is set. */
mha_status mha__attn_check_dtype(const char *field, mha_dtype dtype, bool cache, mha_error *err);

/* Returns MHA_ERR_UNSUPPORTED if this build has no kernels for the dtype of a call: f64 on WASI. */
mha_status mha__attn_check_kernels(mha_dtype dtype, mha_error *err);

/* Returns MHA_ERR_UNSUPPORTED with the field name if rows of `width` keys or values cannot be stored as `dtype`. */
mha_status mha__attn_check_blocks(const char *field, int64_t width, mha_dtype dtype, mha_error *err);

/* Returns true if the keys that a row attends to depend on its position. */
bool mha__attn_positional(const mha_attn_desc *resolved);

/* Checks the arguments of a call and copies them with all strides set. The plan needs a workspace of `need`
 * bytes. */
mha_status mha__attn_bind(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace, size_t workspace_bytes,
                          size_t need, mha__call *call, mha_error *err);

/* Same as mha__attn_bind for a call of the backward pass. */
mha_status mha__attn_bind_grads(const mha_attn_plan *plan, const mha_attn_args *args, const mha_attn_grads *grads,
                                void *workspace, size_t workspace_bytes, size_t need, mha__bwd_call *call,
                                mha_error *err);

/* Check, for both passes, all inputs except gradients, and the workspace. */
mha_status mha__attn_bind_inputs(const mha_attn_plan *plan, const mha_attn_args *args, mha__call *call, mha_error *err);
mha_status mha__attn_check_workspace(const void *workspace, size_t bytes, size_t need, mha_error *err);

/* Checks lengths, packing and the list of heads (lengths.c). */
mha_status mha__bind_lengths(mha__call *call, mha_error *err);

/* Lists the inputs of a call: q, k, v, then the inputs whose flags are set in its description. Returns their number. */
typedef struct mha__input {
    mha__operand operand;
    size_t size;
} mha__input;
enum { MHA__INPUTS = MHA__INPUT_ROWS + 4 }; /* the rows of the table, and the views of args.rope */
int mha__attn_inputs(const mha_attn_plan *plan, const mha_attn_args *args, mha__input list[MHA__INPUTS]);

#endif
