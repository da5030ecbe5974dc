/* wire.h - what remote_attn.c (here) and serve_attn.c (on the emulated CPU) say to each other over a pipe.
 *
 * A request is a wire_request and, for a call, the arrays of its description in the order of wire_inputs(), contiguous
 * and of full shape. A reply is an mha_error (status MHA_OK for success) and, after a call that succeeded, the arrays
 * of wire_outputs(). A request for gradients has, behind the inputs of the call, the shapes of the wanted results
 * (wire_gradients), then dout, out, lse and, if present, dlse; the reply has the results. Both
 * CPUs are little-endian with 64-bit pointers, so structs travel as they are; f32 only. */
#ifndef EMULATED_WIRE_H
#define EMULATED_WIRE_H

#include "mha/attn_grads.h"
#include <stdio.h>
#include <string.h>

enum { WIRE_PLAN = 1, WIRE_CALL = 2, WIRE_BACKWARD = 3, WIRE_ARRAYS = 16 };

typedef struct wire_request {
    int64_t what;
    mha_attn_desc desc; /* with kv_heads, v_head_dim and keep_keys resolved */
} wire_request;

/* One array: its shape, or [B] for lengths. */
typedef struct wire_array {
    int64_t dim[4];
    size_t size; /* bytes of an element */
    int present;
} wire_array;

static inline size_t wire_count(const wire_array *a)
{
    return a->present ? (size_t)(a->dim[0] * a->dim[1] * a->dim[2] * a->dim[3]) : 0;
}

static inline size_t wire_size(mha_dtype dtype, size_t otherwise)
{
    return dtype == MHA_DTYPE_DEFAULT ? otherwise : mha_dtype_size(dtype);
}

/* q, k, v, keep, bias, q_lens, kv_lens, offsets, slopes, sinks, gates, prefix_lens, block_keep, head_list,
 * cu_seqlens_q, cu_seqlens_k. */
static inline void wire_inputs(const mha_attn_desc *d, wire_array a[WIRE_ARRAYS])
{
    const int64_t B = d->batch, H = d->heads, Hkv = d->kv_heads, Lq = d->q_len, Lk = d->kv_len;
    const uint32_t in = d->inputs;
    const size_t q = wire_size(d->dtype, 4), kv = wire_size(d->kv_dtype, q);
    const int64_t all = in & MHA_ATTN_CU_SEQLENS ? 1 : B;
    a[0] = (wire_array){{all, H, Lq, d->head_dim}, q, 1};
    a[1] = (wire_array){{all, Hkv, Lk, d->head_dim}, kv, 1};
    a[2] = (wire_array){{all, Hkv, Lk, d->v_head_dim}, kv, 1};
    a[13] = (wire_array){{d->listed_heads, 1, 1, 1}, 4, (in & MHA_ATTN_HEAD_LIST) != 0};
    a[14] = a[15] = (wire_array){{B + 1, 1, 1, 1}, 8, (in & MHA_ATTN_CU_SEQLENS) != 0};
    a[3] = (wire_array){{B, H, Lq, d->keep_keys}, 1, (in & MHA_ATTN_KEEP) != 0};
    a[4] = (wire_array){{B, H, Lq, Lk}, wire_size(d->bias_dtype, 4), (in & MHA_ATTN_BIAS) != 0};
    a[5] = (wire_array){{B, 1, 1, 1}, 8, (in & MHA_ATTN_Q_LENS) != 0};
    a[6] = (wire_array){{B, 1, 1, 1}, 8, (in & MHA_ATTN_KV_LENS) != 0};
    a[7] = (wire_array){{B, 1, 1, 1}, 8, d->align == MHA_ALIGN_OFFSETS};
    a[8] = (wire_array){{B, H, 1, 1}, 4, (in & MHA_ATTN_SLOPES) != 0};
    a[9] = (wire_array){{B, H, 1, 1}, 4, (in & MHA_ATTN_SINKS) != 0};
    a[10] = (wire_array){{B, H, 1, 1}, 4, (in & MHA_ATTN_GATES) != 0};
    a[11] = (wire_array){{B, 1, 1, 1}, 8, (in & MHA_ATTN_PREFIX_LENS) != 0};
    a[12] = (wire_array){{0}, 1, (in & MHA_ATTN_BLOCK_KEEP) != 0};
    if (a[12].present)
        memcpy(a[12].dim, ((int64_t[]){B, H, (Lq + d->block_q - 1) / d->block_q, (Lk + d->block_k - 1) / d->block_k}),
               sizeof a[12].dim);
}

/* Shapes of what a backward pass reads and gives. An axis of a gradient that is summed over has one place. */
typedef struct wire_gradients {
    wire_array read[4];    /* dout, out, lse, dlse */
    wire_array written[7]; /* dq, dk, dv, dbias, dslopes, dsinks, dgates */
} wire_gradients;

/* out, lse, probs. */
static inline void wire_outputs(const mha_attn_desc *d, wire_array a[3])
{
    const int64_t B = d->inputs & MHA_ATTN_CU_SEQLENS ? 1 : d->batch, Lq = d->q_len;
    const int64_t H = d->inputs & MHA_ATTN_HEAD_LIST ? d->listed_heads : d->heads;
    a[0] = (wire_array){{B, H, Lq, d->v_head_dim}, wire_size(d->dtype, 4), 1};
    a[1] = (wire_array){{B, H, Lq, 1}, 4, (d->outputs & MHA_ATTN_LSE) != 0};
    a[2] = (wire_array){{B, H, Lq, d->kv_len}, 4, (d->outputs & MHA_ATTN_PROBS) != 0};
}

#endif
