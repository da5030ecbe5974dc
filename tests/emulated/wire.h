/* wire.h - what remote_attn.c (here) and serve_attn.c (on the emulated CPU) say to each other over a pipe.
 *
 * A request is a wire_request and, for a call, the arrays of its description in the order of wire_inputs and
 * wire_outputs (as they are before: not all of a map is written), contiguous and of full shape. A reply is an
 * mha_error (status MHA_OK for success) and, after a call that succeeded, the arrays of wire_outputs. A request for
 * gradients has, in place of outputs, the shapes of the wanted results (wire_gradients), then dout, out, lse and, if
 * present, dlse; the reply has the results. Both CPUs are little-endian with 64-bit pointers, so structs travel as
 * they are. Not f64, and no statistics. */
#ifndef EMULATED_WIRE_H
#define EMULATED_WIRE_H

#include "mha/attn_grads.h"
#include <stdio.h>
#include <string.h>

enum { WIRE_PLAN = 1, WIRE_CALL = 2, WIRE_BACKWARD = 3 };

typedef struct wire_request {
    int64_t what;
    mha_attn_desc desc;
    uint64_t dropout_seed;
} wire_request;

/* ---- where an array is among the arguments ---- */

/* A view of its own strides; one whose strides may be all zero to broadcast; a pointer to a list. */
typedef enum wire_kind { WIRE_VIEW, WIRE_MASK, WIRE_LIST } wire_kind;

typedef struct wire_field {
    size_t offset; /* within mha_attn_args */
    wire_kind kind;
} wire_field;

#define WIRE_FIELD(name, kind)              \
    {                                       \
        offsetof(mha_attn_args, name), kind \
    }
static const wire_field wire_inputs[] = {WIRE_FIELD(q, WIRE_VIEW),
                                         WIRE_FIELD(k, WIRE_VIEW),
                                         WIRE_FIELD(v, WIRE_VIEW),
                                         WIRE_FIELD(keep, WIRE_MASK),
                                         WIRE_FIELD(bias, WIRE_MASK),
                                         WIRE_FIELD(dropout_keep, WIRE_MASK),
                                         WIRE_FIELD(block_keep, WIRE_MASK),
                                         WIRE_FIELD(slopes, WIRE_MASK),
                                         WIRE_FIELD(sinks, WIRE_MASK),
                                         WIRE_FIELD(gates, WIRE_MASK),
                                         WIRE_FIELD(block_table, WIRE_VIEW),
                                         WIRE_FIELD(map_rows, WIRE_VIEW),
                                         WIRE_FIELD(q_lens, WIRE_LIST),
                                         WIRE_FIELD(kv_lens, WIRE_LIST),
                                         WIRE_FIELD(offsets, WIRE_LIST),
                                         WIRE_FIELD(prefix_lens, WIRE_LIST),
                                         WIRE_FIELD(cu_seqlens_q, WIRE_LIST),
                                         WIRE_FIELD(cu_seqlens_k, WIRE_LIST),
                                         WIRE_FIELD(head_list, WIRE_LIST),
                                         WIRE_FIELD(map_heads, WIRE_LIST)};
static const wire_field wire_outputs[] = {WIRE_FIELD(out, WIRE_VIEW), WIRE_FIELD(lse, WIRE_VIEW),
                                          WIRE_FIELD(probs, WIRE_VIEW), WIRE_FIELD(scores, WIRE_VIEW)};
enum {
    WIRE_INPUTS = sizeof wire_inputs / sizeof *wire_inputs,
    WIRE_OUTPUTS = sizeof wire_outputs / sizeof *wire_outputs
};

/* ---- its shape ---- */

typedef struct wire_array {
    int64_t dim[4]; /* [n] for lists */
    size_t size;    /* bytes of an element */
    int present;
} wire_array;

/* The description with what 0 stands for, as far as shapes need it. */
static inline mha_attn_desc wire_filled(const mha_attn_desc *desc)
{
    mha_attn_desc d = *desc;
    if (!d.kv_heads) d.kv_heads = d.heads;
    if (!d.v_head_dim) d.v_head_dim = d.head_dim;
    if (!d.max_q_len) d.max_q_len = d.q_len;
    if (!d.max_kv_len) d.max_kv_len = d.kv_len;
    if (!d.keep_keys) d.keep_keys = d.max_kv_len;
    return d;
}

static inline size_t wire_count(const wire_array *a)
{
    return a->present ? (size_t)(a->dim[0] * a->dim[1] * a->dim[2] * a->dim[3]) : 0;
}

static inline size_t wire_size(mha_dtype dtype, size_t otherwise)
{
    return dtype == MHA_DTYPE_DEFAULT ? otherwise : dtype == MHA_Q8_0 ? 34 : mha_dtype_size(dtype);
}

static inline int64_t wire_blocks(int64_t length, int64_t size)
{
    return size > 0 ? (length + size - 1) / size : 0;
}

/* Numbers, or blocks of q8_0, of a row of keys or values. */
static inline int64_t wire_width(const mha_attn_desc *d, int64_t width)
{
    return d->kv_dtype == MHA_Q8_0 ? wire_blocks(width, 32) : width;
}

static inline void wire_shape_inputs(const mha_attn_desc *d, wire_array a[WIRE_INPUTS])
{
    const int64_t B = d->batch, H = d->heads, Hkv = d->kv_heads, rows = d->max_q_len, most = d->max_kv_len;
    const uint32_t in = d->inputs;
    const size_t q = wire_size(d->dtype, 4), kv = wire_size(d->kv_dtype, q);
    const int paged = (in & MHA_ATTN_BLOCK_TABLE) != 0, packed = (in & MHA_ATTN_CU_SEQLENS) != 0;
    const int64_t caches = paged ? d->pages : packed ? 1 : B, keys = paged ? d->page_size : d->kv_len;
    const wire_array all[WIRE_INPUTS] = {
        {{packed ? 1 : B, H, d->q_len, d->head_dim}, q, 1},
        {{caches, Hkv, keys, wire_width(d, d->head_dim)}, kv, 1},
        {{caches, Hkv, keys, wire_width(d, d->v_head_dim)}, kv, 1},
        {{B, H, rows, d->keep_keys}, 1, (in & MHA_ATTN_KEEP) != 0},
        {{B, H, rows, most}, wire_size(d->bias_dtype, 4), (in & MHA_ATTN_BIAS) != 0},
        {{B, H, rows, most}, 1, (in & MHA_ATTN_DROPOUT_KEEP) != 0},
        {{B, H, wire_blocks(rows, d->block_q), wire_blocks(most, d->block_k)}, 1, (in & MHA_ATTN_BLOCK_KEEP) != 0},
        {{B, H, 1, 1}, 4, (in & MHA_ATTN_SLOPES) != 0},
        {{B, H, 1, 1}, 4, (in & MHA_ATTN_SINKS) != 0},
        {{B, H, 1, 1}, 4, (in & MHA_ATTN_GATES) != 0},
        {{B, wire_blocks(d->kv_len, d->page_size), 1, 1}, 4, paged},
        {{B, d->map_rows, 1, 1}, 8, (in & MHA_ATTN_MAP_ROWS) != 0},
        {{B, 1, 1, 1}, 8, (in & MHA_ATTN_Q_LENS) != 0},
        {{B, 1, 1, 1}, 8, (in & MHA_ATTN_KV_LENS) != 0},
        {{B, 1, 1, 1}, 8, d->align == MHA_ALIGN_OFFSETS},
        {{B, 1, 1, 1}, 8, (in & MHA_ATTN_PREFIX_LENS) != 0},
        {{B + 1, 1, 1, 1}, 8, packed},
        {{B + 1, 1, 1, 1}, 8, packed && !paged},
        {{d->listed_heads, 1, 1, 1}, 4, (in & MHA_ATTN_HEAD_LIST) != 0},
        {{d->map_heads, 1, 1, 1}, 4, (in & MHA_ATTN_MAP_HEADS) != 0}};
    memcpy(a, all, sizeof all);
}

static inline void wire_shape_outputs(const mha_attn_desc *d, wire_array a[WIRE_OUTPUTS])
{
    const int64_t B = d->inputs & MHA_ATTN_CU_SEQLENS ? 1 : d->batch;
    const int64_t H = d->inputs & MHA_ATTN_HEAD_LIST ? d->listed_heads : d->heads;
    const int64_t heads = d->inputs & MHA_ATTN_MAP_HEADS ? d->map_heads : H;
    const int64_t rows = d->inputs & MHA_ATTN_MAP_ROWS ? d->map_rows : d->max_q_len;
    const wire_array all[WIRE_OUTPUTS] = {
        {{B, H, d->q_len, d->v_head_dim}, wire_size(d->dtype, 4), 1},
        {{B, H, d->q_len, 1}, 4, (d->outputs & MHA_ATTN_LSE) != 0},
        {{d->batch, heads, rows, d->max_kv_len}, 4, (d->outputs & MHA_ATTN_PROBS) != 0},
        {{d->batch, heads, rows, d->max_kv_len}, 4, (d->outputs & MHA_ATTN_SCORES) != 0}};
    memcpy(a, all, sizeof all);
}

enum { WIRE_GRADS = 8 };

/* Shapes of what a backward pass reads and gives. An axis of a gradient that is summed over has one place. */
typedef struct wire_gradients {
    wire_array read[4];             /* dout, out, lse, dlse */
    wire_array written[WIRE_GRADS]; /* dq, dk, dv, dbias, dslopes, dsinks, dgates, row_taylor */
} wire_gradients;

#endif
