/* plan.h - the structs of a plan and of a call, which all files of src/attn use. */
#ifndef MHA_ATTN_PLAN_PLAN_H
#define MHA_ATTN_PLAN_PLAN_H

#include "base/ctx.h"
#include "kernel/kernel.h"
#include "mha/attn_grads.h"

/* Sizes that determine the order of sums and therefore the rounding of results. They never depend on threads, batch or
 * lengths. MHA_ATTN_CHUNK (attn.h), a multiple of MHA__KEY_BLOCK, is another such size. MHA__LEVELS is only an upper
 * bound. */
enum {
    MHA__TILE_Q = 128,  /* most queries per task; a multiple of twice every kernel's nr */
    MHA__WIDE = 1024,   /* heads with more elements are processed in groups of MHA__COLUMNS columns: tile_wide.c */
    MHA__COLUMNS = 512, /* a multiple of the blocks of q8_0 and q4_0 */
    MHA__LEVELS = 54    /* levels of the merge tree: enough for 2^63 / MHA_ATTN_CHUNK chunks */
};

/* The storage type of an operand. */
typedef struct mha__stored {
    mha_dtype dtype;
    size_t size; /* bytes per element, or per block of q8_0 and q4_0 */
    int type;    /* an mha__half for kernels that read the stored type directly; -1 for the kernels' real */
    /* mha__kernels.widen and narrow for this type. Both are NULL if it is the kernels' real; narrow is also NULL for
     * the types that are only read: q8_0, q4_0 and f8_e4m3. */
    void (*widen)(int64_t rows, int64_t n, const void *src, int64_t row_stride, int64_t col_stride, void *dst,
                  int64_t dst_stride);
    void (*narrow)(int64_t rows, int64_t n, const void *src, int64_t src_stride, void *dst, int64_t row_stride,
                   int64_t col_stride);
} mha__stored;

/* The division and memory of the backward pass; see backward_plan.c. */
typedef struct mha__bwd_plan {
    int64_t tasks, parts; /* number of tasks (batch, key/value head, part of the rows); parts per key/value head */
    int workers;          /* number of workers with scratch memory: min(threads, tasks) */
    int64_t slots;        /* tasks that store dk and dv sums at the same time, if parts is 1 */
    bool head_sums;       /* true if dslopes, dsinks or dgates need one sum per head */
    int64_t q_stride, v_stride;            /* row strides for D and Dv elements, rounded up to whole panels */
    int64_t key_rows;                      /* rows of the dk and dv sums */
    size_t worker_bytes, key_bytes, bytes; /* bytes per worker, of the dk and dv sums, and in total */
    size_t uses_at;                        /* offset of the list of the uses of pages in the workspace */
} mha__bwd_plan;

/* The copies of operands in the workspace; see staging.c. Sizes are 0 for operands that are read in place. */
typedef struct mha__staging {
    size_t at;      /* offset of the copies in the workspace */
    size_t k, v, q; /* bytes of each copy; v and q are read by the backward pass only */
} mha__staging;

/* A plan; immutable after creation. */
struct mha_attn_plan {
    mha_ctx *ctx;
    const struct mha__attn_engine *engine; /* the engine that runs the plan; see engine/engine.h */
    mha_attn_desc desc;                    /* the caller's description, with all defaults set; see params.h */
    mha_dtype weights;                     /* type to which probabilities are rounded before the product with v */
    const mha__kernels *kernels;
    const mha__pairs *pairs; /* the bf16 pair kernels if q, k and v are bf16, else NULL */
    mha__stored q, kv, bias; /* storage types; out is stored like q */
    int decode_rows;         /* tiles of up to this many rows use the decode kernels */
    int streams;             /* tiles of up to this many rows read the keys of a chunk before its values */
    bool folded;             /* the queries of all heads of a group are the rows of one tile */
    const char *unfolded;    /* reason why the queries are not folded; NULL if they are folded */
    int64_t heads, rows;     /* tile grid: computed heads and q_len; if folded, kv_heads and rows per group */
    int64_t group;           /* grid heads per key/value head, for a plan without a head list */
    int64_t tile_rows;       /* rows per tile, at most MHA__TILE_Q; a multiple of every kernel's nr */
    int64_t tiles;           /* tiles per batch entry and head; for packed sequences, an upper bound for all sequences
                              * together */
    int64_t tasks;           /* tiles times grid heads, times batch unless sequences are packed */
    int64_t parts;           /* parts of the keys, each a separate task; 1 if there are enough tiles */
    int64_t part_chunks;     /* chunks per part: a power of two, so that a part is a subtree of the merge tree */
    size_t part_bytes;       /* bytes of the partial result of one part */
    int64_t together;        /* number of consecutive tasks that process the same part; often tiles of one head */
    bool rotated;            /* rows of k and v are rotated (math/types/q4_0.h), so queries and sums are rotated too */
    bool wide;               /* heads are wider than MHA__WIDE, and products are not those of bf16 pairs */
    bool single_block;       /* all keys form one block, and one kernel call computes a tile: forward_single_block.c */
    int workers;             /* maximum number of threads used; 1 if the work is too small to wake other threads */
    int levels;              /* maximum number of partial results that wait to be merged */
    int64_t o_stride;        /* row stride of a partial result: Dv rounded up to whole panels */
    bool packed;             /* the rows of all sequences are packed; so are the keys, unless they are paged */
    bool packed_keys;
    bool positional;     /* causal or windowed: rows have positions */
    bool scored;         /* an input changes individual scores or masks individual keys */
    size_t worker_bytes; /* scratch memory per worker; see scratch.c */
    mha__bwd_plan bwd;   /* division of the backward pass; all zeros without MHA_ATTN_GRADS */
    mha__staging staging;
};

/* A call: the arguments with all strides set. */
typedef struct mha__call {
    const mha_attn_plan *plan;
    mha_attn_args args;
    mha_attn_stats stats;         /* args.stats with all strides set */
    mha_attn_functions functions; /* a copy of args.functions; all zeros if there are none */
    mha_attn_rope rope;           /* a copy of args.rope with all defaults set; all zeros if there is none */
    bool staged_keys;             /* args.k is the dense copy in the workspace, even if the keys are paged */
    int64_t first_key; /* index of the sequence's first key in stats.received; 0 unless sequences are packed */
    char *workspace;
} mha__call;

/* A call of the backward pass. */
typedef struct mha__bwd_call {
    mha__call call;
    mha_attn_grads grads; /* the gradients, with all strides set */
} mha__bwd_call;

/* Returns the stride of rows of `width` elements in scratch memory: whole panels, and one more panel if rows are wide.
 * Without it, the rows of a tile would be a multiple of 4 KiB apart for usual widths, and would compete for few sets of
 * the L1 cache. */
static inline int64_t mha__padded(const mha__kernels *kernels, int64_t width)
{
    const int64_t nr = kernels->nr, whole = (width + nr - 1) / nr * nr;
    return width > MHA__COLUMNS ? whole + nr : whole;
}

/* Returns the number of sums in stats.received per head: kv_len, times the number of sequences if queries are packed
 * and keys are not. */
static inline int64_t mha__received_keys(const mha_attn_plan *plan)
{
    return plan->desc.kv_len * (plan->packed && !plan->packed_keys ? plan->desc.batch : 1);
}

/* Return the number of rows and keys of sequence b, before q_lens and kv_lens apply. */
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

/* Return the number of existing rows and keys of sequence b. */
static inline int64_t mha__mask_queries(const mha__call *call, int64_t b)
{
    return call->args.q_lens ? call->args.q_lens[b] : mha__rows_of(call, b);
}
static inline int64_t mha__mask_keys(const mha__call *call, int64_t b)
{
    return call->args.kv_lens ? call->args.kv_lens[b] : mha__keys_of(call, b);
}

/* Maximum of positions and lengths: sums of a few such values do not overflow. */
static const int64_t MHA__POSITION_MAX = INT64_C(1) << 60;

/* Offsets and windows may be any int64. Positions beyond the limit act as infinite. */
static inline int64_t mha__clamp_position(int64_t x)
{
    return mha__max64(-MHA__POSITION_MAX, mha__min64(x, MHA__POSITION_MAX));
}

/* Returns the position of row i of sequence b among the keys of the call, minus i. */
static inline int64_t mha__offset_of(const mha__call *call, int64_t b)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int64_t shift = mha__clamp_position(d->shard.row) - mha__clamp_position(d->shard.key);
    if (d->align == MHA_ALIGN_BOTTOM_RIGHT) return mha__mask_keys(call, b) - mha__mask_queries(call, b);
    return d->align == MHA_ALIGN_OFFSETS ? mha__clamp_position(call->args.offsets[b]) + shift : shift;
}

/* Returns the query index of row `row` of the grid within its head. */
static inline int64_t mha__query_of(const mha_attn_plan *plan, int64_t row)
{
    return plan->folded ? row % plan->desc.q_len : row;
}

/* Returns the distance between the heads of a folded group in a view of the call, in elements; see bind_args.c. */
static inline int64_t mha__folded_stride(const mha_attn_plan *plan, const int64_t stride[4])
{
    return stride[1] / (plan->desc.heads / plan->desc.kv_heads);
}

/* Returns the level of the smallest subtree of the merge tree that begins at `key` and contains `keys` keys; -1 if no
 * such subtree begins there. */
static inline int mha__chunk_level(int64_t key, int64_t keys)
{
    int level = 0;
    while (INT64_C(1) << level < keys / MHA_ATTN_CHUNK + (keys % MHA_ATTN_CHUNK > 0))
        level++;
    return key % MHA_ATTN_CHUNK || key / MHA_ATTN_CHUNK % (INT64_C(1) << level) ? -1 : level;
}

/* Splits a work item into its task and part. If a plan has parts, a work item is one part of one task. The heads of
 * a group process the same part consecutively, so that all heads after the first one find their keys in the CPU
 * cache. */
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

/* Returns the number of operations without masking; for packed sequences, assumes equal lengths. */
static inline double mha__plan_flops(const mha_attn_plan *plan)
{
    const mha_attn_desc *d = &plan->desc;
    const double batch = plan->packed_keys ? 1 / (double)d->batch : plan->packed ? 1 : (double)d->batch;
    return 2.0 * batch * (double)d->listed_heads * (double)d->q_len * (double)d->kv_len *
           (double)(d->head_dim + d->v_head_dim);
}

/* Returns the address of element [b, h, i, j] of a view. */
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

/* Restricts a packed view to the sequence that begins at row `rows` of the view. A view without data stays without
 * data. */
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

/* Returns element n of an array of f32 or f64 (`size` bytes each). */
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

/* Returns the slope, sink or gate of head h of sequence b. */
static inline double mha__per_head(const mha__call *call, const mha_cview *view, int64_t b, int64_t h)
{
    const size_t size = call->plan->kernels->real_size;
    return mha__real_at(mha__at(view, size, b, h, 0, 0), 0, size);
}

#endif
