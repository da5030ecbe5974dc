/* wire.h - what remote_attn.c (here) and serve_attn.c (on the emulated CPU) say to each other over a pipe.
 *
 * A request is a wire_request and, for a call, the arrays of its description in the order of wire_inputs(), contiguous
 * and of full shape. A reply is an mha_error (status MHA_OK for success) and, after a call that succeeded, the arrays
 * of wire_outputs(). Both CPUs are little-endian with 64-bit pointers, so structs travel as they are; f32 only. */
#ifndef EMULATED_WIRE_H
#define EMULATED_WIRE_H

#include "mha/attn.h"
#include <stdio.h>

enum { WIRE_PLAN = 1, WIRE_CALL = 2, WIRE_ARRAYS = 8 };

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

/* q, k, v, keep, bias, q_lens, kv_lens, offsets. */
static inline void wire_inputs(const mha_attn_desc *d, wire_array a[WIRE_ARRAYS])
{
    const int64_t B = d->batch, H = d->heads, Hkv = d->kv_heads, Lq = d->q_len, Lk = d->kv_len;
    const uint32_t in = d->inputs;
    a[0] = (wire_array){{B, H, Lq, d->head_dim}, 4, 1};
    a[1] = (wire_array){{B, Hkv, Lk, d->head_dim}, 4, 1};
    a[2] = (wire_array){{B, Hkv, Lk, d->v_head_dim}, 4, 1};
    a[3] = (wire_array){{B, H, Lq, d->keep_keys}, 1, (in & MHA_ATTN_KEEP) != 0};
    a[4] = (wire_array){{B, H, Lq, Lk}, 4, (in & MHA_ATTN_BIAS) != 0};
    a[5] = (wire_array){{B, 1, 1, 1}, 8, (in & MHA_ATTN_Q_LENS) != 0};
    a[6] = (wire_array){{B, 1, 1, 1}, 8, (in & MHA_ATTN_KV_LENS) != 0};
    a[7] = (wire_array){{B, 1, 1, 1}, 8, d->align == MHA_ALIGN_OFFSETS};
}

/* out, lse, probs. */
static inline void wire_outputs(const mha_attn_desc *d, wire_array a[3])
{
    const int64_t B = d->batch, H = d->heads, Lq = d->q_len;
    a[0] = (wire_array){{B, H, Lq, d->v_head_dim}, 4, 1};
    a[1] = (wire_array){{B, H, Lq, 1}, 4, (d->outputs & MHA_ATTN_LSE) != 0};
    a[2] = (wire_array){{B, H, Lq, d->kv_len}, 4, (d->outputs & MHA_ATTN_PROBS) != 0};
}

#endif
