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
 *   - Memory grows with L, not with L x L, unless all probabilities are asked for.
 *   - Masked means unread: NaN, Inf or garbage in a key or value that a row may not see never reaches that row.
 *   - A row that sees no key gives out = 0, probs = 0 and lse = -infinity (or its sink, where there is one).
 *   - NaN and Inf in what a row does see propagate to that row only; nothing is scrubbed.
 *   - bf16 and f16 are read exactly, all arithmetic is in f32, and out is rounded once, to nearest even. On tile
 *     hardware bf16 is multiplied as it is and weights are rounded to bf16 before they meet values; the plan says so.
 *   - What is not built yet is refused by the plan (MHA_ERR_UNSUPPORTED), never ignored.
 *
 * After: Vaswani et al. 2017 (attention); Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (tiling).
 */
#ifndef MHA_ATTN_H
#define MHA_ATTN_H

#include "mha/ctx.h"
#include "mha/stats.h"

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

/* How far the scores of args.scores have come. Raw and softcapped ones know no masks: every key within the lengths of
 * the sequence has its own. A biased one is -infinity where the row may not see the key. Probabilities are those of
 * probs. */
typedef enum mha_scores {
    MHA_SCORES_RAW = 0,    /* scale * q k */
    MHA_SCORES_SOFTCAPPED, /* after softcap */
    MHA_SCORES_BIASED,     /* after slopes, bias and all masks */
    MHA_SCORES_PROBS       /* after softmax */
} mha_scores;

/* What the call brings besides q, k, v, and what it wants besides out. The plan is made for exactly these. */
enum {
    MHA_ATTN_KEEP = 1 << 0,          /* args.keep          boolean mask                          */
    MHA_ATTN_BIAS = 1 << 1,          /* args.bias          added to the scores                   */
    MHA_ATTN_Q_LENS = 1 << 2,        /* args.q_lens        rows of each sequence                 */
    MHA_ATTN_KV_LENS = 1 << 3,       /* args.kv_lens       keys of each sequence                 */
    MHA_ATTN_CU_SEQLENS = 1 << 4,    /* args.cu_seqlens_*  packed sequences                      */
    MHA_ATTN_PREFIX_LENS = 1 << 5,   /* args.prefix_lens   prefix-LM                             */
    MHA_ATTN_BLOCK_KEEP = 1 << 6,    /* args.block_keep    block-sparse mask                     */
    MHA_ATTN_BLOCK_TABLE = 1 << 7,   /* args.block_table   k and v in pages                      */
    MHA_ATTN_SLOPES = 1 << 8,        /* args.slopes        ALiBi                                 */
    MHA_ATTN_SINKS = 1 << 9,         /* args.sinks         one more logit in the denominator     */
    MHA_ATTN_GATES = 1 << 10,        /* args.gates         factor on each head's output          */
    MHA_ATTN_HEAD_LIST = 1 << 11,    /* args.head_list     compute only these heads              */
    MHA_ATTN_DROPOUT_KEEP = 1 << 12, /* args.dropout_keep  explicit dropout mask                */
    MHA_ATTN_MAP_HEADS = 1 << 13,    /* args.map_heads     probs, scores and on_rows of these heads only */
    MHA_ATTN_MAP_ROWS = 1 << 14      /* args.map_rows      probs, scores and on_rows of these rows only  */
};
enum {
    MHA_ATTN_LSE = 1 << 0,    /* args.lse    natural log-sum-exp of each row */
    MHA_ATTN_PROBS = 1 << 1,  /* args.probs  a map of probabilities: B H Lq Lk of them, or of chosen heads and rows */
    MHA_ATTN_STATS = 1 << 2,  /* args.stats  statistics at O(L) memory */
    MHA_ATTN_SCORES = 1 << 3, /* args.scores  a map of scores at the stage desc.scores, likewise */
    MHA_ATTN_GRADS = 1 << 4,  /* the plan also serves mha_attn_backward (attn_grads.h) */
    MHA_ATTN_ROWS = 1 << 5,   /* args.on_rows  rows of probabilities, shown and forgotten, at O(L) memory (stats.h) */
    MHA_ATTN_PARTIAL = 1 << 6 /* args.partial  of shards of keys, for mha_attn_merge_partials */
};

enum { MHA_HEAD_DIM_MAX = 1024 };

/* Where a call lies within a larger one that is computed in shards: sequence, head, row and key 0 of the call are
 * sequence `batch`, head `head`, row `row` and key `key` of the whole. Dropout and positions are those of the whole;
 * data, lengths and lists describe the shard. All >= 0. */
typedef struct mha_shard {
    int64_t batch, head, row, key;
} mha_shard;

/* What is to be computed. Zero every field that is not needed. */
typedef struct mha_attn_desc {
    size_t size;              /* sizeof(mha_attn_desc) */
    int64_t batch;            /* B   > 0; with MHA_ATTN_CU_SEQLENS the number of sequences */
    int64_t heads;            /* H   > 0 */
    int64_t kv_heads;         /* Hkv 0 = H; else divides H */
    int64_t q_len;            /* Lq  >= 0; 0 writes nothing; with MHA_ATTN_CU_SEQLENS of all sequences together */
    int64_t kv_len;           /* Lk  >= 0; 0 gives zeros; likewise */
    int64_t head_dim;         /* D   1..MHA_HEAD_DIM_MAX */
    int64_t v_head_dim;       /* Dv  0 = D; else 1..MHA_HEAD_DIM_MAX */
    mha_dtype dtype;          /* of q and out: f32 (default), bf16, f16, f64 */
    mha_dtype kv_dtype;       /* of k and v: f32, bf16, f16, q8_0; f64 with dtype f64 only; default: dtype */
    mha_dtype bias_dtype;     /* as kv_dtype; default: f32, or f64 when dtype is f64 */
    double scale;             /* 0 = 1/sqrt(D); finite */
    double softcap;           /* 0 = off; else s becomes softcap * tanh(s / softcap), before bias and masks; > 0, and
                               * 1 / softcap finite (f32: 2.94e-39 and more) */
    int causal;               /* 1: row i sees keys j <= i + offset */
    mha_align align;          /* see mha_align */
    mha_window window;        /* see mha_window */
    int64_t max_q_len;        /* Mq  0 = Lq; rows of the longest sequence, at most; only with MHA_ATTN_CU_SEQLENS */
    int64_t max_kv_len;       /* Mk  0 = Lk; its keys; likewise, and not with MHA_ATTN_BLOCK_TABLE */
    int64_t keep_keys;        /* keys that args.keep describes, of [B, H, Mq, keep_keys] bytes; keys beyond are masked.
                               * 0 = all Mk, never "none": for a mask of no keys leave MHA_ATTN_KEEP out and set kv_len
                               * = 0, or kv_lens of 0, which mask all keys and read nothing */
    int64_t block_q, block_k; /* rows and keys of a block of args.block_keep; 0 without it */
    int64_t page_size, pages; /* of args.block_table: keys in a page, a power of two >= 16; pages that k and v have */
    int64_t listed_heads;     /* entries of args.head_list, 1..H; 0 without it */
    int64_t map_heads;        /* entries of args.map_heads; 0 without it */
    int64_t map_rows;         /* entries of args.map_rows for each sequence; 0 without it */
    int64_t top_keys;         /* 0..32 keys of each row in args.stats->top_* */
    double dropout;           /* 0..1, on the probabilities; see below */
    mha_scores scores;        /* stage of args.scores; 0 without it */
    uint32_t inputs;          /* MHA_ATTN_KEEP ... */
    uint32_t outputs;         /* MHA_ATTN_LSE ... */
    mha_shard shard;          /* zero = the call is the whole; see below */
} mha_attn_desc;

/* The data of one call. Strides count elements; all zero = contiguous (types.h). A pointer whose flag the description
 * does not set must be NULL. Nothing is read or written outside the shapes below. Data is aligned to its element; a
 * pointer that is not, and strides that reach further than bytes can be counted, are MHA_ERR_ARG.
 *
 * What is written must not overlap anything else, but for out on exactly q; this is looked at byte by byte, not by
 * ranges, so out may lie between what is read, as in other columns of packed rows [L, q | k | v | out]. (It is exact
 * where strides have something in common. Two views of unlike strides that lie in each other's range and would take
 * more than 16384 comparisons count as overlapping.)
 *
 * All masks compose by AND: lengths, causal or window (widened by the prefix), keep and block_keep. A bias of -infinity
 * also masks. Order of the score: scale, softcap, slopes and bias, mask, sink, softmax, dropout, gate.
 *
 * Dropout: a probability is set to 0 or multiplied by 1 / (1 - dropout), after softmax and before V, so lse and probs
 * do not change; dropout = 1 gives 0. Entry (b, h, i, j) is dropped if x < dropout * 2^32, where x is the first word of
 * Philox4x32-10 with the key dropout_seed (low word first) and the counter (b, h, i, j), each taken modulo 2^32: i
 * and j are row and key of the call (of their sequence, when packed), h counts all heads, also with a list. Nothing
 * else enters, so any tiling, thread count and backward pass draw the same. With MHA_ATTN_DROPOUT_KEEP nothing is
 * drawn.
 *
 * Shards: with desc.shard, dropout and positions count from the start of the whole: row i stands at position
 * shard.row + i + offset among keys shard.key + j, and a prefix ends at key prefix_lens[b] of the whole. args.offsets
 * are those of the whole. Bottom-right needs the lengths of the whole, so a shard with a first row or key uses top-left
 * or offsets. Shards of whole sequences, head groups and rows are bitwise identical to the whole call, dq included.
 * The other gradients are sums over rows: they are bitwise identical unless rows are divided.
 *
 * Packed sequences: with MHA_ATTN_CU_SEQLENS the sequences lie one after another along the length axis. Sequence b is
 * rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] of q, out and lse, and keys cu_seqlens_k[b] to cu_seqlens_k[b + 1] of k
 * and v; it is attended on its own, with positions counted from its own start. These five are [1, H, Lq or Lk,
 * width], so stride[0] is not used and all-zero strides mean [H, L, width]; the usual [L, H, width] is {0, width, H *
 * width, 1}. Everything else has an entry for each sequence: lengths, offsets, slopes, sinks and gates, and keep, bias,
 * block_keep, dropout_keep, probs and scores, whose rows and keys are counted from the start of the sequence. Those six
 * are as long as the longest sequence may be, desc.max_q_len by desc.max_kv_len; what lies beyond a shorter one is
 * neither read nor written. Bottom-right is that of each sequence. With pages only the queries are packed: kv_len is
 * that of every sequence as without packing, kv_lens says how much of it each one uses, cu_seqlens_k is not read, and
 * stats.received is [B, H, Lk]. The same sequence gives the same bits, packed or alone.
 *
 * Host memory: lengths, offsets, lists and tables (every input of integers) lie in host memory and are read while the
 * arguments are checked. Checks never read or write any other operand.
 *
 * A list of heads: out, lse, probs and scores have desc.listed_heads heads instead of H, in the order of the list;
 * everything else still counts all H. Heads that are not listed are not computed. Out must not be q then.
 *
 * Maps of chosen heads and rows: with MHA_ATTN_MAP_HEADS head n of probs and scores is head map_heads[n] of out, and
 * with MHA_ATTN_MAP_ROWS their row n is row map_rows[b][n] of sequence b, where a negative entry counts from its end
 * (-1 is its last row, q_lens counted). Entries may come in any order and more than once; one that names no row of its
 * sequence is not written. These are the bits of the whole maps, at the memory of what was asked for, and rows of which
 * nothing was asked for cost nothing (a panel of 8 to 32 adjacent rows is computed together). The lists also say what
 * on_rows is shown: each of their rows once, in the order of heads and rows, however they are listed.
 *
 * Keys and values of q8_0: a row is ceil(D / 32) blocks of 34 bytes (types.h), and views and strides count blocks.
 * They give the bits that their f32 values, scale * q, would give.
 *
 * Pages: with MHA_ATTN_BLOCK_TABLE k and v are views of desc.pages pages, and key j of batch b is key j % page_size of
 * page block_table[b][j / page_size]. Sequences may share pages, pages may stand in any order, and strides are as free
 * as anywhere. An entry of -1 is a dropped page: its keys are masked and never read. Entries are looked at as far as
 * kv_lens[b] (or Lk) reaches; one that is neither -1 nor a page is MHA_ERR_ARG. The same keys give the same bits, dense
 * or in pages of any size; pages of 128 keys and more are used where they lie, smaller ones are gathered by blocks. */
typedef struct mha_attn_args {
    size_t size;                 /* sizeof(mha_attn_args) */
    mha_cview q;                 /* [B, H,   Lq, D ] */
    mha_cview k;                 /* [B, Hkv, Lk, D ]   with block_table [pages, Hkv, page_size, D ] */
    mha_cview v;                 /* [B, Hkv, Lk, Dv]   with block_table [pages, Hkv, page_size, Dv] */
    mha_view out;                /* [B, H,   Lq, Dv]  may be exactly q, nothing else may overlap */
    mha_cview keep;              /* [B, H, Mq, keep_keys] of bytes; non-zero = may be seen; zero strides broadcast */
    mha_cview bias;              /* [B, H, Mq, Mk] of bias_dtype; zero strides broadcast */
    const int64_t *q_lens;       /* [B] 0..Lq; rows beyond see no key: zeros, lse -infinity or sink */
    const int64_t *kv_lens;      /* [B] 0..Lk; keys beyond are not read */
    const int64_t *offsets;      /* [B] with MHA_ALIGN_OFFSETS; any sign */
    const int64_t *cu_seqlens_q; /* [B + 1] ascending from 0 to Lq; equal neighbours are a sequence without rows */
    const int64_t *cu_seqlens_k; /* [B + 1] ascending from 0 to Lk */
    const int64_t *prefix_lens;  /* [B] 0..shard.key + Mk; keys before it are seen whatever causal and window say. One
                                  * beyond the keys of a sequence means all of them; any with MHA_ATTN_PARTIAL */
    mha_cview block_keep;        /* [B, H, ceil(Mq / block_q), ceil(Mk / block_k)] of bytes; non-zero = its rows may see
                                  * its keys; zero strides broadcast; keys that no row may see cost nothing */
    mha_cview block_table;       /* [B, ceil(Lk / page_size)] of int32; see below. All-zero strides: contiguous */
    mha_cview slopes; /* [B, H] of f32, f64 for f64; zero strides broadcast; score -= slope * |i + offset - j| */
    mha_cview sinks;  /* [B, H] likewise; exp(sink) joins the denominator only */
    mha_cview gates;  /* [B, H] likewise; out *= gate; lse and probs do not change */
    const int32_t *head_list; /* [listed_heads] 0..H-1 */
    mha_cview dropout_keep;   /* [B, H, Mq, Mk] of bytes; 0 = dropped, instead of drawing; zero strides broadcast */
    uint64_t dropout_seed;
    const int32_t *map_heads; /* [desc.map_heads] 0..listed_heads - 1 */
    mha_cview map_rows;       /* [B, desc.map_rows] of int64, -Mq..Mq - 1; all-zero strides: contiguous */
    mha_view lse;             /* [B, H, Lq] (stride[3] unused) of f32, f64 for f64 */
    mha_view probs;           /* [B, H, Mq, Mk] of f32, f64 for f64; before dropout; masked entries are 0. See maps */
    mha_view scores;          /* [B, H, Mq, Mk] of f32, f64 for f64; beyond the lengths -infinity, or 0 for probs */
    const mha_attn_stats *stats; /* see above */
    mha_attn_visitor on_rows;    /* likewise */
    mha_view partial;            /* [B, H, Lq, 2 + Dv] of f32, f64 for f64: maximum, sum, unnormalized output */
} mha_attn_args;

/* An immutable plan; any number of threads may run it at once, each with a workspace of its own. */
typedef struct mha_attn_plan mha_attn_plan;

/* Plans, allocates the workspace, runs, frees. Allocates twice: the plan and its workspace. */
MHA_API mha_status mha_attention(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err);

/* Checks the description and chooses kernel and tiles. Errors: MHA_ERR_ARG naming the field and its value;
 * MHA_ERR_UNSUPPORTED naming what is not built; MHA_ERR_MEMORY. `ctx` must outlive the plan. */
MHA_API mha_status mha_attn_plan_create(mha_ctx *ctx, const mha_attn_desc *desc, mha_attn_plan **out, mha_error *err);
MHA_API void mha_attn_plan_free(mha_attn_plan *plan);

/* Bytes of scratch memory a forward (or backward) call needs; 64-byte aligned; dead after the call. May be 0. */
MHA_API size_t mha_attn_plan_workspace(const mha_attn_plan *plan);

/* What the weights are rounded to before they are multiplied with V, and likewise P and dS of the backward pass: f32,
 * f64, or bf16 where products are made in pairs of bf16. */
MHA_API mha_dtype mha_attn_plan_weights(const mha_attn_plan *plan);

/* Says what was chosen and why: one sentence per line, or a JSON object
 * {kernel, few: null or {rows, tiles, needs, otherwise}, isa, dtype, kv_dtype, products, weights, register_rows,
 * register_columns, chunk, tile_q, tile_k, tasks, folded, parts, threads, workspace, flops (of all pairs: masks do not
 * lower it), bytes, outputs: {out: true, lse: true, probs: [shape], scores: [shape], stage, stats: true, top_keys,
 * on_rows: true},
 * backward: null or {kernel, tasks, parts, threads, flops}, refused: [{path, reason}]}.
 * `isa` names the set of kernels that runs, which may hold some of older ISAs: f32 on amx is AVX-512 code, and
 * `products` says whether pairs of bf16 are multiplied, which is what amx and avx512bf16 add. `bytes`: q, k, v, masks
 * and bias as if none repeated, and all results, once each; numbers per head or sequence are not counted.
 * `folded`: the queries of all heads of a group are the rows of one tile. `kernel` is fwd_few, as when text is
 * generated, where all tiles have so few rows that reading k and v takes the time; fwd_one_block where at most 128 keys
 * and nothing but lengths, causal and window make a call short; else fwd_tiled. `few` says which tiles have few rows,
 * and what fwd_few needs of the strides of a call.
 * Like snprintf: writes at most `capacity` bytes, terminated, and returns the length that the whole text has. */
MHA_API size_t mha_attn_plan_describe(const mha_attn_plan *plan, int json, char *text, size_t capacity);

/* Runs the plan. `workspace` has mha_attn_plan_workspace() bytes, `workspace_bytes` says so.
 * Neither allocates, logs nor locks (a pool of more than one thread is woken, see ctx.h).
 * Errors: MHA_ERR_ARG for a NULL pointer that the description asked for, a workspace too small or not aligned, or a
 * length out of range; nothing has been written then.
 * Cost: about 2 B H Lq Lk (D + Dv) operations, fewer where tiles are masked away. */
MHA_API mha_status mha_attn_forward(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace,
                                    size_t workspace_bytes, mha_error *err);

/* ---- results over disjoint keys ---- */

/* What one call said about some of the keys. */
typedef struct mha_attn_part {
    mha_cview out; /* [B, H, Lq, Dv] */
    mha_cview lse; /* [B, H, Lq] (stride[3] unused) */
} mha_attn_part;

typedef struct mha_attn_merge_args {
    size_t size;                             /* sizeof(mha_attn_merge_args) */
    int64_t batch, heads, q_len, v_head_dim; /* B, H > 0; Lq >= 0; Dv 1..MHA_HEAD_DIM_MAX */
    mha_dtype dtype;                         /* of every out and lse: f32 (default) or f64 */
    int64_t count;                           /* of parts; 0 gives what an empty row gives */
    const mha_attn_part *parts;              /* [count] */
    mha_view out; /* [B, H, Lq, Dv]  may be exactly the out of a part; nothing else may overlap */
    mha_view lse; /* [B, H, Lq]  may be exactly the lse of a part; likewise; data NULL: not wanted */
} mha_attn_merge_args;

/* Merges results of the same rows over disjoint keys (shards, pieces of a cache, a prefix computed once) into the
 * result over all of them:
 *
 *     lse = log sum over parts of exp(lse_n)        out = sum over parts of exp(lse_n - lse) out_n
 *
 * In any strides; all zero = contiguous. The same parts in the same order give the same bits; another order or another
 * cut agrees within rounding. A part that saw nothing (lse -infinity) changes no bit, and its out is not read; if no
 * part saw anything, out is 0 and lse -infinity. A NaN in a part's lse, or an lse of +infinity, makes the row NaN;
 * NaN and Inf in a part's out reach the row. A sink must have joined one part only; gates and head lists merge as
 * they are. `ctx` (NULL = the default one) says which ISA; runs on the calling thread, allocates nothing, uses 70 KiB
 * of stack. Errors: MHA_ERR_ARG naming the field and its value, also where a result overlaps a part; nothing has been
 * written then. */
MHA_API mha_status mha_attn_merge(mha_ctx *ctx, const mha_attn_merge_args *args, mha_error *err);

/* ---- partial results of shards of keys ---- */

/* Keys per chunk. A call merges the results of its chunks in a binary tree: chunk c holds keys 1024 c to 1024 c +
 * 1023 of the whole, and a subtree holds 2^n chunks from a multiple of 2^n on. A partial result must cover exactly
 * one subtree; only the last one may have fewer keys. */
enum { MHA_ATTN_CHUNK = 1024 };

/* Returns the number of keys of the largest subtree that begins at `key` and ends at or before `end`: the keys of one
 * call with MHA_ATTN_PARTIAL. A shard of several subtrees needs one call for each. Returns 0 if `key` is not the first
 * key of a chunk, or is not less than `end`. */
MHA_API int64_t mha_attn_subtree(int64_t key, int64_t end);

/* The partial result of one call: `key` is its desc.shard.key, `kv_len` its desc.kv_len. */
typedef struct mha_attn_partial {
    mha_cview rows; /* [B, H, Lq, 2 + Dv] args.partial of the call */
    int64_t key, kv_len;
} mha_attn_partial;

typedef struct mha_attn_merge_partials_args {
    size_t size;                             /* sizeof(mha_attn_merge_partials_args) */
    int64_t batch, heads, q_len, v_head_dim; /* B, H > 0; Lq >= 0; Dv 1..MHA_HEAD_DIM_MAX */
    mha_dtype dtype;                         /* of out: f32 (default), bf16, f16, f64 */
    int64_t count;                           /* number of parts, at least 1 */
    const mha_attn_partial *parts;           /* [count] each begins at the key where the previous one ends */
    mha_cview sinks;                         /* [B, H] as in mha_attn_args; data NULL: none */
    mha_cview gates;                         /* likewise */
    mha_view out;                            /* [B, H, Lq, Dv] */
    mha_view lse;                            /* [B, H, Lq] (stride[3] unused); data NULL: not computed */
} mha_attn_merge_partials_args;

/* Merges partial results of the same rows over adjacent shards of keys. The merge follows the tree of a single call:
 * out and lse are bitwise identical to those of one call over all keys with the same context, however the keys were
 * divided. Partial results include neither sinks nor gates; the merge applies them. Runs on the calling thread with the
 * ISA of `ctx` (NULL = the default context) and allocates its scratch memory. Errors: MHA_ERR_ARG naming the field and
 * its value, also if a part is not one subtree or an output overlaps a part; MHA_ERR_MEMORY. On error nothing has been
 * written. */
MHA_API mha_status mha_attn_merge_partials(mha_ctx *ctx, const mha_attn_merge_partials_args *args, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
