/* attn.h - the attention operator: describe, plan, run.
 *
 *     O = softmax(softcap(scale * Q K^T) + bias, over the keys that row may see) V      for every (b, h)
 *
 * Names: B batch, H query heads, Hkv key/value heads, Lq and Lk lengths, D head width of q and k, Dv of v;
 * b, h, i (query), j (key), d are their indices. Query head h reads key/value head h / (H / Hkv).
 *
 * The short way, for those who call it once:
 *
 *     mha_attn_desc desc = { .size = sizeof desc, .batch = 1, .heads = 12, .q_len = 512, .kv_len = 512,
 *                            .head_dim = 64, .causal = 1 };
 *     mha_attn_args args = { .size = sizeof args, .q.data = q, .k.data = k, .v.data = v, .out.data = out };
 *     mha_error err;
 *     if (mha_attention(NULL, &desc, &args, &err) != MHA_OK) fprintf(stderr, "%s\n", err.message);
 *
 * The long way separates what can fail from what must be fast: mha_attn_plan_create() checks everything and
 * allocates everything, mha_attn_forward() does neither, so a plan is made once and run many times.
 *
 * What may be relied on (docs/numerics.md has the reasons):
 *   - The same bits for any thread count, batch size and position in the batch, and for a row computed alone or with
 *     others, on one ISA and build.
 *   - Memory grows with L, not with L x L, unless probabilities are asked for.
 *   - Masked means unread: NaN, Inf or garbage in a key or value that a row may not see never reaches that row.
 *   - A row that sees no key gives out = 0, probs = 0 and lse = -infinity.
 *   - NaN and Inf in what a row does see propagate to that row only; nothing is scrubbed.
 *   - What is not built yet is refused by the plan (MHA_ERR_UNSUPPORTED), never ignored.
 *
 * After: Vaswani et al. 2017 (attention); Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (tiling).
 */
#ifndef MHA_ATTN_H
#define MHA_ATTN_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where query row i stands among the keys: at position i + offset. It matters to causal, window and slopes, and must
 * be named whenever one of these is on and Lq != Lk (or the lengths of a sequence differ): no silent convention. */
typedef enum mha_align {
    MHA_ALIGN_UNSET = 0,
    MHA_ALIGN_TOP_LEFT,     /* offset 0 */
    MHA_ALIGN_BOTTOM_RIGHT, /* offset = keys - queries of that sequence, counting its lengths */
    MHA_ALIGN_OFFSETS       /* args.offsets[b]: with a KV cache, the number of past tokens */
} mha_align;

/* Keys from p - left to p + right, both included, p = i + offset; -1 = open on that side. */
typedef struct mha_window {
    int on; /* 0 = no window */
    int64_t left, right;
} mha_window;

typedef enum mha_precision {
    MHA_PRECISION_DEFAULT = 0, /* never less accurate than plain arithmetic in the type */
    MHA_PRECISION_SPLIT        /* f32 products may run as split bf16 products on tile hardware */
} mha_precision;

/* What the call brings besides q, k, v, and what it wants besides out. The plan is made for exactly these. */
enum {
    MHA_ATTN_KEEP = 1 << 0,         /* args.keep          boolean mask                          */
    MHA_ATTN_BIAS = 1 << 1,         /* args.bias          added to the scores                   */
    MHA_ATTN_Q_LENS = 1 << 2,       /* args.q_lens        rows of each sequence                 */
    MHA_ATTN_KV_LENS = 1 << 3,      /* args.kv_lens       keys of each sequence                 */
    MHA_ATTN_CU_SEQLENS = 1 << 4,   /* args.cu_seqlens_*  packed sequences                      */
    MHA_ATTN_PREFIX_LENS = 1 << 5,  /* args.prefix_lens   prefix-LM                             */
    MHA_ATTN_BLOCK_KEEP = 1 << 6,   /* args.block_keep    block-sparse mask                     */
    MHA_ATTN_BLOCK_TABLE = 1 << 7,  /* args.block_table   k and v in pages                      */
    MHA_ATTN_SLOPES = 1 << 8,       /* args.slopes        ALiBi                                 */
    MHA_ATTN_SINKS = 1 << 9,        /* args.sinks         one more logit in the denominator     */
    MHA_ATTN_GATES = 1 << 10,       /* args.gates         factor on each head's output          */
    MHA_ATTN_HEAD_LIST = 1 << 11,   /* args.head_list     compute only these heads              */
    MHA_ATTN_DROPOUT_KEEP = 1 << 12 /* args.dropout_keep  explicit dropout mask                 */
};
enum {
    MHA_ATTN_LSE = 1 << 0,   /* args.lse    natural log-sum-exp of each row */
    MHA_ATTN_PROBS = 1 << 1, /* args.probs  probabilities, B H Lq Lk of them */
    MHA_ATTN_STATS = 1 << 2  /* args.stats  statistics at O(L) memory */
};

/* What is to be computed. Zero every field that is not needed. */
typedef struct mha_attn_desc {
    size_t size;              /* sizeof(mha_attn_desc) */
    int64_t batch;            /* B   > 0 */
    int64_t heads;            /* H   > 0 */
    int64_t kv_heads;         /* Hkv 0 = H; else divides H */
    int64_t q_len;            /* Lq  >= 0; 0 writes nothing */
    int64_t kv_len;           /* Lk  >= 0; 0 gives zeros */
    int64_t head_dim;         /* D   1..512 */
    int64_t v_head_dim;       /* Dv  0 = D; else 1..512 */
    mha_dtype dtype;          /* of q and out: f32 (default), f64 */
    mha_dtype kv_dtype;       /* of k and v; default: dtype */
    mha_dtype bias_dtype;     /* default: f32, or f64 when dtype is f64 */
    double scale;             /* 0 = 1/sqrt(D); finite */
    double softcap;           /* 0 = off; else s becomes softcap * tanh(s / softcap), before bias and masks; > 0 */
    int causal;               /* 1: row i sees keys j <= i + offset */
    mha_align align;          /* see mha_align */
    mha_window window;        /* see mha_window */
    int64_t keep_keys;        /* keys that args.keep describes; 0 = Lk; keys beyond are masked */
    int64_t block_q, block_k; /* block sizes of args.block_keep */
    int64_t page_size;        /* keys in a page of args.block_table */
    int64_t listed_heads;     /* entries of args.head_list */
    double dropout;           /* 0..1, on the probabilities, kept ones scaled by 1/(1-dropout) */
    mha_precision precision;
    uint32_t inputs;  /* MHA_ATTN_KEEP ... */
    uint32_t outputs; /* MHA_ATTN_LSE ... */
} mha_attn_desc;

/* The data of one call. Strides count elements; all zero = contiguous (types.h). A pointer whose flag is not set in
 * the description is not read. Nothing is read or written outside the shapes below. Data is aligned to its element; a
 * pointer that is not, and strides that reach further than bytes can be counted, are MHA_ERR_ARG.
 *
 * All masks compose by AND: lengths, causal or window, and keep. A bias of -infinity also masks. Order of the score:
 * scale, softcap, bias, mask, softmax. */
typedef struct mha_attn_args {
    size_t size;                 /* sizeof(mha_attn_args) */
    mha_cview q;                 /* [B, H,   Lq, D ] */
    mha_cview k;                 /* [B, Hkv, Lk, D ] */
    mha_cview v;                 /* [B, Hkv, Lk, Dv] */
    mha_view out;                /* [B, H,   Lq, Dv]  may be exactly q, nothing else may overlap */
    mha_cview keep;              /* [B, H, Lq, keep_keys] of bytes; non-zero = may be seen; zero strides broadcast */
    mha_cview bias;              /* [B, H, Lq, Lk] of bias_dtype; zero strides broadcast */
    const int64_t *q_lens;       /* [B] 0..Lq; rows beyond give zeros (lse -infinity) */
    const int64_t *kv_lens;      /* [B] 0..Lk; keys beyond are not read */
    const int64_t *offsets;      /* [B] with MHA_ALIGN_OFFSETS; any sign */
    const int64_t *cu_seqlens_q; /* [B + 1] ascending from 0 */
    const int64_t *cu_seqlens_k; /* [B + 1] */
    const int64_t *prefix_lens;  /* [B] keys before it are seen whatever causal and window say */
    mha_cview block_keep;        /* [1, H or 1, ceil(Lq / block_q), ceil(Lk / block_k)] of bytes */
    mha_cview block_table;       /* [B, pages] of int32 */
    mha_cview slopes;            /* [B, H] of f32; score -= slope * |i + offset - j| */
    mha_cview sinks;             /* [1, H] of f32 */
    mha_cview gates;             /* [B, H] of f32 */
    const int32_t *head_list;    /* [listed_heads] */
    mha_cview dropout_keep;      /* [B, H, Lq, Lk] of bytes */
    uint64_t dropout_seed;
    mha_view lse;   /* [B, H, Lq] (stride[3] unused) of f32, f64 for f64 */
    mha_view probs; /* [B, H, Lq, Lk] of f32, f64 for f64; before dropout; masked entries are 0 */
    struct mha_attn_stats *stats;
} mha_attn_args;

/* An immutable plan; any number of threads may run it at once, each with a workspace of its own. */
typedef struct mha_attn_plan mha_attn_plan;

/* Plans, allocates the workspace, runs, frees. Costs one allocation more than mha_attn_forward. */
MHA_API mha_status mha_attention(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err);

/* Checks the description and chooses kernel and tiles. Errors: MHA_ERR_ARG naming the field and its value;
 * MHA_ERR_UNSUPPORTED naming what is not built; MHA_ERR_MEMORY. `ctx` must outlive the plan. */
MHA_API mha_status mha_attn_plan_create(mha_ctx *ctx, const mha_attn_desc *desc, mha_attn_plan **out, mha_error *err);
MHA_API void mha_attn_plan_free(mha_attn_plan *plan);

/* Bytes of scratch memory a forward call needs; 64-byte aligned; dead after the call. May be 0. */
MHA_API size_t mha_attn_plan_workspace(const mha_attn_plan *plan);

/* Says what was chosen and why: one sentence per line, or a JSON object
 * {kernel, isa, tile_q, tile_k, threads, workspace, flops, bytes, refused: [{path, reason}]}.
 * Like snprintf: writes at most `capacity` bytes, terminated, and returns the length that the whole text has. */
MHA_API size_t mha_attn_plan_describe(const mha_attn_plan *plan, int json, char *text, size_t capacity);

/* Runs the plan. `workspace` has mha_attn_plan_workspace() bytes, `workspace_bytes` says so.
 * Neither allocates, logs nor locks (a pool of more than one thread is woken, see ctx.h).
 * Errors: MHA_ERR_ARG for a NULL pointer that the description asked for, a workspace too small or not aligned, or a
 * length out of range; nothing has been written then.
 * Cost: about 2 B H Lq Lk (D + Dv) operations, fewer where tiles are masked away. */
MHA_API mha_status mha_attn_forward(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace,
                                    size_t workspace_bytes, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
