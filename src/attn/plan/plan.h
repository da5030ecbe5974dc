/* plan.h - what a plan holds, and what one call of it is made of. Shared by the files of src/attn. */
#ifndef MHA_ATTN_PLAN_PLAN_H
#define MHA_ATTN_PLAN_PLAN_H

#include "base/ctx.h"
#include "kernel/kernel.h"
#include "mha/attn_grads.h"

/* Cuts that fix the bits (never change with threads, batch or lengths), and one that does not. */
enum {
    MHA__CHUNK = MHA_ATTN_CHUNK, /* keys of a leaf of the merge tree; a multiple of MHA__KEY_BLOCK */
    MHA__TILE_Q = 128,           /* queries of one task: a multiple of every kernel's nr */
    MHA__LEVELS = 54             /* of the merge tree: more than 2^63 / MHA__CHUNK leaves need */
};

/* How one operand is stored. */
typedef struct mha__stored {
    mha_dtype dtype;
    size_t size; /* bytes of an element, or of a block of q8_0 */
    int type;    /* for kernels that read it where it lies: an mha__half, or -1 for the kernels' real */
    /* mha__kernels.widen and narrow of this type; NULL for the real, and narrow also for q8_0, which is only read */
    void (*widen)(int64_t rows, int64_t n, const void *src, int64_t row_stride, int64_t col_stride, void *dst,
                  int64_t dst_stride);
    void (*narrow)(int64_t rows, int64_t n, const void *src, int64_t src_stride, void *dst, int64_t row_stride,
                   int64_t col_stride);
} mha__stored;

/* The cuts of the backward pass and its memory; see backward_plan.c. */
typedef struct mha__bwd_plan {
    int64_t tasks, parts;                  /* (batch, key/value head, part of the rows); parts of each */
    int workers;                           /* with scratch memory: threads, but no more than tasks */
    int64_t slots;                         /* tasks that keep dk and dv at one time, where there is one part */
    bool head_sums;                        /* one sum per head: of dslopes, dsinks or dgates */
    int64_t q_stride, v_stride;            /* of rows of D and of Dv numbers: whole panels */
    int64_t key_rows;                      /* of the sums for dk and dv */
    size_t worker_bytes, key_bytes, bytes; /* of one worker, of those sums, of all */
} mha__bwd_plan;

/* Immutable once made. */
struct mha_attn_plan {
    mha_ctx *ctx;
    const struct mha__attn_engine *engine; /* engine/engine.h */
    mha_attn_desc desc;                    /* every default resolved; see params.h */
    mha_dtype weights;                     /* to which probabilities are rounded before they multiply v */
    const mha__kernels *kernels;
    const mha__pairs *pairs; /* those of the kernels where q, k and v are bf16, else NULL: see tile_pairs.h */
    mha__stored q, kv, bias; /* out is stored as q */
    int few;                 /* rows of a tile that go to the kernels for few queries: this many at most */
    bool folded;             /* few queries: those of all heads of a group are the rows of one tile, head by head */
    int64_t heads, rows; /* of the grid of tiles: heads computed and q_len, or, folded, kv_heads and a group's rows */
    int64_t group;       /* heads of the grid to a key/value head, if all are computed */
    int64_t tiles;       /* of rows, per batch and head; of packed sequences: of all of them together, at most */
    int64_t tasks;       /* tiles for each head of the grid, and each batch if sequences are not packed */
    int64_t parts;       /* of the keys, each a task of its own; 1 where there are tiles enough */
    int64_t part_chunks; /* chunks in a part: a power of two, so that a part is a subtree of the merge tree */
    size_t part_bytes;   /* of the result of one part */
    int64_t together;    /* heads that take the same part one after another: those of a group */
    bool one_block;      /* all keys are one block, and one call of a kernel does it all: forward_single_block.c */
    int workers;         /* threads that may take part: 1 where the work is too small to wake anybody */
    int levels;          /* partial results that may wait to be merged */
    int64_t o_stride;    /* of a row of a partial result: Dv rounded up to whole panels */
    bool packed;         /* sequences lie one after another: rows, and also keys unless these are in pages */
    bool packed_keys;
    bool positional;     /* causal or a window: rows have positions */
    bool scored;         /* an input changes scores or masks keys one by one */
    size_t worker_bytes; /* of scratch memory; see scratch.c */
    mha__bwd_plan bwd;   /* zeros without MHA_ATTN_GRADS */
};

/* One call: the arguments with every stride filled in. */
typedef struct mha__call {
    const mha_attn_plan *plan;
    mha_attn_args args;
    mha_attn_stats stats; /* args.stats, likewise */
    int64_t first_key;    /* of the sequence among those of a head in stats.received; 0 without packed ones */
    char *workspace;
} mha__call;

/* One call of the backward pass. */
typedef struct mha__bwd_call {
    mha__call call;
    mha_attn_grads grads; /* with every stride filled in */
} mha__bwd_call;

/* Keys of one head of the call whose sums are kept at once: those of all its sequences, where these share a head. */
static inline int64_t mha__received_keys(const mha_attn_plan *plan)
{
    return plan->desc.kv_len * (plan->packed && !plan->packed_keys ? plan->desc.batch : 1);
}

/* Rows and keys of sequence b, before any lengths. */
static inline int64_t mha__rows_of(const mha__call *call, int64_t b)
{
    const int64_t *cu = call->args.cu_seqlens_q;
    return call->plan->packed ? cu[b + 1] - cu[b] : call->plan->desc.q_len;
}
static inline int64_t mha__keys_of(const mha__call *call, int64_t b)
{
    const int64_t *cu = call->args.cu_seqlens_k;
    return call->plan->packed_keys ? cu[b + 1] - cu[b] : call->plan->desc.kv_len;
}

/* Which query of its head row `row` of the grid is. */
static inline int64_t mha__query_of(const mha_attn_plan *plan, int64_t row)
{
    return plan->folded ? row % plan->desc.q_len : row;
}

/* From one head of a folded group to the next, in numbers of a view of the call; see bind_args.c. */
static inline int64_t mha__folded_stride(const mha_attn_plan *plan, const int64_t stride[4])
{
    return stride[1] / (plan->desc.heads / plan->desc.kv_heads);
}

/* Returns the level of the subtree of the merge tree that begins at `key` and holds `keys` keys; -1 if none does. */
static inline int mha__chunk_level(int64_t key, int64_t keys)
{
    int level = 0;
    while (INT64_C(1) << level < keys / MHA__CHUNK + (keys % MHA__CHUNK > 0))
        level++;
    return key % MHA__CHUNK || key / MHA__CHUNK % (INT64_C(1) << level) ? -1 : level;
}

/* Where there are parts, an item of work is a part of a task. Heads of a group that take the same part follow each
 * other: the second finds its keys in the caches. */
static inline void mha__item_split(const mha_attn_plan *plan, int64_t item, int64_t *task, int64_t *part)
{
    const int64_t heads = plan->together, items = plan->parts * heads, within = item % items;
    *task = item / items * heads + within % heads;
    *part = within / heads;
}
static inline int64_t mha__item_of(const mha_attn_plan *plan, int64_t task, int64_t part)
{
    const int64_t heads = plan->together;
    return (task / heads * plan->parts + part) * heads + task % heads;
}

/* Operations if nothing is masked; of packed sequences, if all are of one length. */
static inline double mha__plan_flops(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    const double batch = plan->packed_keys ? 1 / (double)d->batch : plan->packed ? 1 : (double)d->batch;
    return 2.0 * batch * (double)d->listed_heads * (double)d->q_len * (double)d->kv_len *
           (double)(d->head_dim + d->v_head_dim);
}

/* The element of a view at [b, h, i, j], or [b, h, i, 0]. */
static inline const void *mha__at(const mha_cview *v, size_t size, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t element = b * v->stride[0] + h * v->stride[1] + i * v->stride[2] + j * v->stride[3];
    return (const char *)v->data + element * (int64_t)size;
}
static inline void *mha__at_out(const mha_view *v, size_t size, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t element = b * v->stride[0] + h * v->stride[1] + i * v->stride[2] + j * v->stride[3];
    return (char *)v->data + element * (int64_t)size;
}

/* Makes a packed view one of a single sequence that begins `rows` rows after its first; absent views stay absent. */
static inline void mha__skip_rows(mha_cview *view, size_t size, int64_t rows)
{
    if (view->data) view->data = mha__at(view, size, 0, 0, rows, 0);
    view->stride[0] = 0;
}
static inline void mha__skip_rows_out(mha_view *view, size_t size, int64_t rows)
{
    if (view->data) view->data = mha__at_out(view, size, 0, 0, rows, 0);
    view->stride[0] = 0;
}

/* Number n of an array of reals of `size` bytes, f32 or f64. */
static inline double mha__real_at(const void *reals, int64_t n, size_t size)
{
    return size == sizeof(double) ? ((const double *)reals)[n] : (double)((const float *)reals)[n];
}
static inline void mha__put_real(void *reals, int64_t n, size_t size, double value)
{
    if (size == sizeof(double))
        ((double *)reals)[n] = value;
    else
        ((float *)reals)[n] = (float)value;
}

/* Slope, sink or gate of head h of sequence b. */
static inline double mha__per_head(const mha__call *call, const mha_cview *view, int64_t b, int64_t h)
{
    const size_t size = call->plan->kernels->real_size;
    return mha__real_at(mha__at(view, size, b, h, 0, 0), 0, size);
}

#endif
