/* params.h - the only place that checks a description or arguments, and that knows their defaults. */
#ifndef MHA_ATTN_PARAMS_H
#define MHA_ATTN_PARAMS_H

#include "attn/plan.h"

/* Checks `desc` and copies it with every default filled in: kv_heads, listed_heads, v_head_dim, dtypes, scale,
 * keep_keys; a window that is off is {0, -1, -1}. MHA_ERR_ARG for what makes no sense, then MHA_ERR_UNSUPPORTED for
 * what is not built. */
mha_status mha__attn_resolve(const mha_attn_desc *desc, mha_attn_desc *resolved, mha_error *err);

/* True if a row's position among the keys decides what it sees. */
bool mha__attn_positional(const mha_attn_desc *resolved);

/* Checks the arguments of one call and copies them with every stride filled in. */
mha_status mha__attn_bind(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace, size_t workspace_bytes,
                          mha__call *call, mha_error *err);

/* Fills in the strides of a view of this shape, and refuses NULL. An output is also refused where the first `dims` of
 * its axes make numbers overlap. */
mha_status mha__bind_input(const char *name, mha_cview *view, const int64_t extent[4], size_t size, mha_error *err);
mha_status mha__bind_output(const char *name, mha_view *view, const int64_t extent[4], int dims, size_t size,
                            mha_error *err);

#endif
