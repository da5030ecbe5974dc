/* merge_sizes.h - the argument checks and scratch sizes shared by mha_attn_merge and mha_attn_merge_partials. */
#ifndef MHA_ATTN_FORWARD_MERGE_SIZES_H
#define MHA_ATTN_FORWARD_MERGE_SIZES_H

#include "mha/attn.h"

enum {
    MHA__MERGE_ROWS = 8,   /* number of rows that are merged at a time */
    MHA__MERGE_VECTOR = 16 /* elements of the widest vector; kernels process maxima and sums in whole vectors */
};

typedef struct mha__merge_sizes {
    int64_t batch, heads, q_len, v_head_dim, count;
    int64_t min_count; /* minimum number of parts */
    int64_t width;     /* elements per row of the widest operand */
    const void *parts;
} mha__merge_sizes;

/* Checks each size, that the size of the largest operand in bytes does not overflow, and that `parts` is not NULL if
 * count is positive. Returns MHA_ERR_ARG with the field and its value. */
mha_status mha__merge_check_sizes(const mha__merge_sizes *sizes, mha_error *err);

#endif
