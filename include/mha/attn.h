/* attn.h - the attention operator: describe, plan, run.
 *
 * O = softmax(softcap(scale * Q K^T) + bias, over the keys that the row may attend to) V      for every (b, h)
 *
 * Notation: B sequences, H query heads, Hkv key/value heads, Lq queries and Lk keys, D head width of q and k, Dv head
 * width of v. Indices: b sequence, h head, i query row, j key, d element. Query head h reads key/value head h / (H /
 * Hkv).
 *
 * A single call:
 *
 *     mha_attn_desc desc = { .size = sizeof desc, .batch = 1, .heads = 12, .q_len = 512, .kv_len = 512,
 *                            .head_dim = 64, .causal = 1 };
 *     mha_attn_args args = { .size = sizeof args, .q.data = q, .k.data = k, .v.data = v, .out.data = out };
 *     mha_error err;
 *     if (mha_attention(NULL, &desc, &args, &err) != MHA_OK) fprintf(stderr, "%s\n", err.message);
 *
 * For repeated calls, mha_attn_plan_create() checks the description and allocates the plan once. mha_attn_forward()
 * then runs it any number of times without allocating.
 *
 * Guarantees (explained in docs/numerics.md):
 *   - For a given ISA and build, the result of a row is bitwise identical for any thread count, batch size and position
 *     in the batch, whether the row is computed alone or with other rows.
 *   - Memory grows with L, not with L x L, unless all probabilities are requested.
 *   - Masked keys and values are not read: NaN, Inf or garbage in them never affects a row that may not attend to them.
 *   - A row that attends to no key gives out = 0, probs = 0 and lse = -infinity (or lse = its sink, if it has one).
 *   - NaN and Inf in keys and values propagate only to the rows that attend to them.
 *   - bf16 and f16 operands are converted to f32 exactly, arithmetic is in f32, and out is rounded once, to nearest
 *     even. If the CPU multiplies bf16 directly, bf16 operands are not converted, and weights are rounded to bf16
 *     before the product with V; mha_attn_plan_describe reports whether this is the case.
 *   - Unsupported options make plan creation fail with MHA_ERR_UNSUPPORTED; nothing is silently ignored.
 *
 * After: Vaswani et al. 2017 (attention); Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (tiling). */
#ifndef MHA_ATTN_H
#define MHA_ATTN_H

#include "mha/ctx.h"
#include "mha/score_functions.h"
#include "mha/stats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The position of query row i among the keys is i + offset. Causal masks, windows, slopes, functions and the default
 * positions of a rotary embedding depend on it. If one of them is set and Lq != Lk (or the two lengths of a sequence
 * differ), the alignment must be set: there is no default. */
typedef enum mha_align {
    MHA_ALIGN_UNSET = 0,
    MHA_ALIGN_TOP_LEFT,     /* offset 0 */
    MHA_ALIGN_BOTTOM_RIGHT, /* offset = keys - queries of the sequence, after q_lens and kv_lens apply */
    MHA_ALIGN_OFFSETS       /* offset = args.offsets[b]; with a KV cache, the number of cached tokens */
} mha_align;

/* Row i attends to keys p - left to p + right inclusive, where p = i + offset; -1 = open on that side. */
typedef struct mha_window {
    int on; /* 0 = no window */
    int64_t left, right;
} mha_window;

/* The stage of args.scores. Raw and softcapped scores are computed before masking, so every key within the length of
 * its sequence has such scores. A biased score is -infinity if the row may not attend to the key. At the stage
 * MHA_SCORES_PROBS, args.scores receives the same probabilities as args.probs. */
typedef enum mha_scores {
    MHA_SCORES_RAW = 0,    /* scale * q k */
    MHA_SCORES_SOFTCAPPED, /* after softcap */
    MHA_SCORES_BIASED,     /* after functions, slopes, bias and all masks */
    MHA_SCORES_PROBS       /* after softmax */
} mha_scores;

/* Flags of the optional inputs (besides q, k and v) and of the optional outputs (besides out). A call must pass exactly
 * the operands whose flags are set in its plan. */
enum {
    MHA_ATTN_KEEP = 1 << 0,          /* args.keep          boolean mask                          */
    MHA_ATTN_BIAS = 1 << 1,          /* args.bias          added to the scores                   */
    MHA_ATTN_Q_LENS = 1 << 2,        /* args.q_lens        number of rows of each sequence       */
    MHA_ATTN_KV_LENS = 1 << 3,       /* args.kv_lens       number of keys of each sequence       */
    MHA_ATTN_CU_SEQLENS = 1 << 4,    /* args.cu_seqlens_*  packed sequences                      */
    MHA_ATTN_PREFIX_LENS = 1 << 5,   /* args.prefix_lens   keys visible to all rows (prefix-LM)  */
    MHA_ATTN_BLOCK_KEEP = 1 << 6,    /* args.block_keep    block-sparse mask                     */
    MHA_ATTN_BLOCK_TABLE = 1 << 7,   /* args.block_table   k and v in pages                      */
    MHA_ATTN_SLOPES = 1 << 8,        /* args.slopes        ALiBi slopes of the heads             */
    MHA_ATTN_SINKS = 1 << 9,         /* args.sinks         an additional logit in the denominator */
    MHA_ATTN_GATES = 1 << 10,        /* args.gates         factor on each head's output          */
    MHA_ATTN_HEAD_LIST = 1 << 11,    /* args.head_list     compute only these heads              */
    MHA_ATTN_DROPOUT_KEEP = 1 << 12, /* args.dropout_keep  explicit dropout mask                */
    MHA_ATTN_MAP_HEADS = 1 << 13,    /* args.map_heads     probs, scores and on_rows of these heads only */
    MHA_ATTN_MAP_ROWS = 1 << 14,     /* args.map_rows      probs, scores and on_rows of these rows only  */
    MHA_ATTN_FUNCTIONS = 1 << 15,    /* args.functions     user functions of scores and masks (score_functions.h) */
    MHA_ATTN_ROPE_Q = 1 << 16,       /* args.rope          rotary embedding of the queries              */
    MHA_ATTN_ROPE_K = 1 << 17        /* args.rope          rotary embedding of the keys                 */
};
enum {
    MHA_ATTN_LSE = 1 << 0,    /* args.lse    natural log-sum-exp of each row */
    MHA_ATTN_PROBS = 1 << 1,  /* args.probs  probabilities, of all or of selected heads and rows */
    MHA_ATTN_STATS = 1 << 2,  /* args.stats  statistics, in O(L) memory */
    MHA_ATTN_SCORES = 1 << 3, /* args.scores  scores at stage desc.scores, of all or of selected heads and rows */
    MHA_ATTN_GRADS = 1 << 4,  /* the plan also supports mha_attn_backward (attn_grads.h) */
    MHA_ATTN_ROWS = 1 << 5,   /* args.on_rows  rows of probabilities passed to a visitor, in O(L) memory (stats.h) */
    MHA_ATTN_PARTIAL = 1 << 6 /* args.partial  the result of a shard of keys, for mha_attn_merge_partials */
};

enum { MHA_HEAD_DIM_MAX = 4096 };

/* The position of a shard within a larger call: sequence, head, row and key 0 of the shard are sequence `batch`,
 * head `head`, row `row` and key `key` of the whole call. Dropout and positions are those of the whole call; data,
 * lengths and lists describe the shard. All fields must be from 0 to 2^60. */
typedef struct mha_shard {
    int64_t batch, head, row, key;
} mha_shard;

/* A rotary embedding, as in rope.h: cos and sin of each position 0, 1, ..., which mha_rope_angles() computes. Elements
 * first + i and first + R/2 + i of a row form pair i; if `interleaved`, elements first + 2 i and first + 2 i + 1. All
 * other elements of the row are unchanged. */
typedef struct mha_attn_rope {
    size_t size;           /* sizeof(mha_attn_rope) */
    int64_t first;         /* index of the first rotated element; 0 <= first <= D - R */
    int64_t rotary_dim;    /* R  0 = D - first; even, 2..D - first */
    int interleaved;       /* 1 = pairs of adjacent elements */
    int64_t positions;     /* number of rows of cos and sin; every position must be below it */
    const void *cos, *sin; /* [positions, R/2] contiguous, f32 (f64 if dtype is f64) */
    mha_cview q_positions; /* [B, Mq] of int64; all-zero strides: contiguous. data NULL: row i of a sequence has
                              * position i + offset (mha_align) */
    mha_cview k_positions; /* [B, Mk] of int64; all-zero strides: contiguous. data NULL: key j has position j */
} mha_attn_rope;

/* Description of a call. Set unused fields to zero. */
typedef struct mha_attn_desc {
    size_t size;          /* sizeof(mha_attn_desc) */
    int64_t batch;        /* B   > 0; number of sequences, packed or not */
    int64_t heads;        /* H   > 0 */
    int64_t kv_heads;     /* Hkv 0 = H; else must divide H */
    int64_t q_len;        /* Lq  >= 0; with MHA_ATTN_CU_SEQLENS, total number of queries of all sequences */
    int64_t kv_len;       /* Lk  >= 0; 0 sets out to 0; with MHA_ATTN_CU_SEQLENS, total number of keys of all
                           * sequences */
    int64_t head_dim;     /* D   1..MHA_HEAD_DIM_MAX */
    int64_t v_head_dim;   /* Dv  0 = D; else 1..MHA_HEAD_DIM_MAX */
    mha_dtype dtype;      /* type of q and out: f32 (default), bf16, f16, f64 */
    mha_dtype kv_dtype;   /* type of k and v: f32, bf16, f16, q8_0, q4_0, f8_e4m3 (MHA_ATTN_GRADS: only the first
                             three); f64 if and only if dtype is f64; default: dtype */
    mha_dtype bias_dtype; /* type of args.bias: f32, bf16, f16; f64 if and only if dtype is f64; default: f32, or f64 if
                           * dtype is f64 */
    double scale;         /* 0 = 1/sqrt(D); finite in f32 (f64 if dtype is f64), like softcap */
    double softcap;       /* 0 = off; otherwise > 0: a score s becomes softcap * tanh(s / softcap), before bias and
                           * masks; 1 / softcap must be finite (in f32: softcap at least 2.94e-39) */
    int causal;           /* 1 = row i attends to keys j <= i + offset */
    mha_align align;      /* see mha_align */
    mha_window window;    /* see mha_window */
    int64_t max_q_len;    /* Mq  0 = Lq; upper bound of rows per sequence; only with MHA_ATTN_CU_SEQLENS */
    int64_t max_kv_len;   /* Mk  0 = Lk; upper bound of keys per sequence; not with MHA_ATTN_BLOCK_TABLE */
    int64_t keep_keys;    /* keys per row of args.keep, which has [B, H, Mq, keep_keys] bytes; later keys are masked.
                           * 0 = all Mk. To mask all keys, set kv_len or kv_lens to 0 instead */
    int64_t block_q, block_k; /* rows and keys per block of args.block_keep; 0 if unused */
    int64_t page_size, pages; /* for args.block_table: keys per page, a power of two >= 16; number of pages in k and
                               * v */
    int64_t listed_heads;     /* number of entries in args.head_list, 1..H; 0 if unused */
    int64_t map_heads;        /* number of entries in args.map_heads; 0 if unused */
    int64_t map_rows;         /* number of entries in args.map_rows per sequence; 0 if unused */
    int64_t top_keys;         /* number of entries per row in args.stats->top_*, 0..32 */
    double dropout;           /* dropout probability of the attention weights, 0..1; see mha_attn_args */
    mha_scores scores;        /* stage of args.scores; 0 if unused */
    uint32_t inputs;          /* OR of the input flags, MHA_ATTN_KEEP ... */
    uint32_t outputs;         /* OR of the output flags, MHA_ATTN_LSE ... */
    mha_shard shard;          /* all 0 = the call is not a shard; see mha_attn_args */
} mha_attn_desc;

/* The data of a call. Strides count elements; all zero = contiguous (types.h). A pointer must be NULL unless the
 * description sets its flag. Nothing outside the shapes below is read or written. Data must be aligned to its element
 * type; misaligned pointers, and strides whose byte offsets overflow, are MHA_ERR_ARG.
 *
 * Outputs must not overlap any other operand, except that out may be exactly q. Overlap is determined per element, not
 * per address range, so out may be interleaved with inputs, for example in other columns of packed rows [L, q | k | v |
 * out]. (Views with unrelated strides in overlapping ranges count as overlapping after 16384 comparisons.)
 *
 * Masks combine by AND: lengths, causal or window (widened by the prefix), keep, block_keep and functions. A bias of
 * -infinity also masks. Order of operations: scale, softcap, functions.score, slopes and bias, mask, sink, softmax,
 * dropout, gate.
 *
 * Dropout: a probability is set to 0 or multiplied by 1 / (1 - dropout), after softmax and before V, so lse and probs
 * do not change; dropout = 1 gives 0. Entry (b, h, i, j) is dropped if x < dropout * 2^32, where x is the first word of
 * Philox4x32-10 with the key dropout_seed (low word first) and the counter (b, h, i, j), each taken modulo 2^32: i and
 * j are the row and the key within the call (within the sequence, if packed), and h counts all heads, even with a head
 * list. Therefore the mask does not depend on tiling or threads, and the backward pass samples the same one. With
 * MHA_ATTN_DROPOUT_KEEP nothing is sampled.
 *
 * Shards: with desc.shard, dropout and positions count from the start of the whole call: row i has position shard.row +
 * i + offset among keys shard.key + j, a prefix ends at key prefix_lens[b] of the whole call, and args.offsets are
 * those of the whole call. Bottom-right alignment needs the lengths of the whole call, so a shard whose `row` or `key`
 * is not 0 must use top-left or offsets; with MHA_ATTN_ROPE_Q also if rope->q_positions is given, since it is not in
 * the plan. Shards of whole sequences, head groups and rows are bitwise identical to the whole call, dq included. All
 * other gradients are sums over rows, so they are bitwise identical unless rows are divided. dk and dv of a shard of
 * keys that begins and ends at multiples of 128 keys, or ends with the last key, are bitwise identical too.
 *
 * Packed sequences: with MHA_ATTN_CU_SEQLENS the sequences are concatenated along the length axis. Sequence b has rows
 * cu_seqlens_q[b] to cu_seqlens_q[b + 1] of q, out and lse, and keys cu_seqlens_k[b] to cu_seqlens_k[b + 1] of k and v.
 * It attends only to itself, with positions counted from its own start. These five operands are [1, H, Lq or Lk,
 * width], so stride[0] is not used and all-zero strides mean [H, L, width]; the usual [L, H, width] is {0, width, H *
 * width, 1}. All other operands have one entry per sequence: lengths, offsets, slopes, sinks and gates, and keep, bias,
 * block_keep, dropout_keep, probs and scores, whose rows and keys count from the start of the sequence. The operands
 * from keep to scores have the size of the longest sequence, desc.max_q_len by desc.max_kv_len; elements beyond a
 * shorter sequence are neither read nor written. Bottom-right alignment applies per sequence. With pages, only the
 * queries are packed: kv_len applies to every sequence as without packing, kv_lens gives the keys in use, cu_seqlens_k
 * is not read, and stats.received is [B, H, Lk]. The results of a sequence are bitwise identical whether it is packed
 * or computed alone.
 *
 * Bias by distance: relative position biases have one element per head and distance j - i, from 1 - Lq to Lk - 1, in a
 * table [H, W] with W = Lq + Lk - 1. No bias of Lq x Lk elements is needed: the view {table + Lq - 1, {0, W, -1, 1}}
 * reads table[h][j - i + Lq - 1], and grads.dbias with such strides is the gradient of the table. Buckets of distances
 * (T5) are the caller's: fill the table from them, and add its gradient to them.
 *
 * Host memory: lengths, offsets, lists and tables (all integer inputs) must be in host memory; they are read while the
 * arguments are checked. The checks do not access any other operand.
 *
 * List of heads: out, lse, probs and scores have desc.listed_heads heads instead of H, in the order of the list; all
 * other operands still have H. Heads that are not listed are not computed. With a head list, out must not be q.
 *
 * Maps of selected heads and rows: with MHA_ATTN_MAP_HEADS head n of probs and scores is head map_heads[n] of out. With
 * MHA_ATTN_MAP_ROWS row n of probs and scores is row map_rows[b][n] of sequence b; a negative entry counts from the end
 * of the sequence (-1 is its last row, after q_lens). Entries may have any order and may repeat; an entry that is not a
 * row of its sequence is not written. Elements are bitwise identical to those of full maps. Only the requested entries
 * take memory, and rows without requested entries cost no time (a panel of 8 to 32 adjacent rows is computed together).
 * The lists also restrict on_rows: it receives each listed row once, in the order of heads and rows.
 *
 * Rotary embedding: MHA_ATTN_ROPE_Q rotates the rows of q, and MHA_ATTN_ROPE_K those of k, by the angles of their
 * positions before the scores are computed. Set both flags if q and k are projections, and only MHA_ATTN_ROPE_Q if k
 * contains rotated keys, as a KV cache usually does (cache.h: mha_cache_attend). q and k are not modified. 16-bit
 * elements are converted to f32, rotated, and rounded to their type; q8_0, q4_0 and f8_e4m3 are dequantized, rotated
 * and quantized again, with a second rounding error. Results are bitwise identical to those of mha_rope_turn() on q and
 * k, followed by the call without these flags. The backward pass returns dq and dk with respect to q and k before the
 * rotation. Positions are those of args.rope: their values must be from 0 to rope->positions - 1 for each row and key
 * within the lengths; with a shard, the default positions are those of the whole call. Positions and angles of rows
 * beyond the lengths are not read. A row of q is rotated when its tile is opened, and needs no further memory; keys are
 * read by many tiles, so each key is rotated once, into the workspace (B Hkv Lk D elements of kv_dtype). The backward
 * pass needs such a copy of q, too.
 *
 * Keys and values in q8_0: a row is ceil(D / 32) blocks of 34 bytes (types.h), and views and strides count blocks.
 * Results are bitwise identical to those for the dequantized f32 values, scale * q. The same applies to f8_e4m3, whose
 * rows are D bytes.
 *
 * Keys and values in q4_0: a row is D / 32 blocks of 18 bytes, and D and Dv must be multiples of 32. The blocks contain
 * rotated rows (mha_cache_append rotates them): each block of 32 elements is multiplied by the Hadamard matrix of order
 * 32 / sqrt(32), which is orthonormal and symmetric. The operator rotates each row of q before the scores, and each row
 * of out after the sum of values, so that q and out are not rotated. A non-finite element of q or of the sum affects
 * the 32 elements of its block. MHA_ATTN_PARTIAL is not supported.
 *
 * Pages: with MHA_ATTN_BLOCK_TABLE k and v are views of desc.pages pages, and key j of batch b is key j % page_size of
 * page block_table[b][j / page_size]. Sequences may share pages, and pages may have any order and any strides. An entry
 * of -1 is a dropped page: its keys are masked and never read. Entries are checked up to kv_lens[b] (or Lk); an entry
 * that is neither -1 nor a page number is MHA_ERR_ARG. Results are bitwise identical for dense keys and pages of any
 * size; pages of 128 keys and more are used in place, smaller ones are gathered block by block. */
typedef struct mha_attn_args {
    size_t size;                 /* sizeof(mha_attn_args) */
    mha_cview q;                 /* [B, H,   Lq, D ] */
    mha_cview k;                 /* [B, Hkv, Lk, D ]   with block_table [pages, Hkv, page_size, D ] */
    mha_cview v;                 /* [B, Hkv, Lk, Dv]   with block_table [pages, Hkv, page_size, Dv] */
    mha_view out;                /* [B, H,   Lq, Dv]  may be exactly q; any other overlap is an error */
    mha_cview keep;              /* [B, H, Mq, keep_keys] of bytes; non-zero = visible; zero strides broadcast */
    mha_cview bias;              /* [B, H, Mq, Mk] of bias_dtype; zero strides broadcast */
    const int64_t *q_lens;       /* [B] 0..Lq; rows from q_lens[b] on attend to no key: out = 0, lse = -infinity or the
                                  * sink */
    const int64_t *kv_lens;      /* [B] 0..Lk; keys from kv_lens[b] on are not read */
    const int64_t *offsets;      /* [B] read with MHA_ALIGN_OFFSETS; may be negative */
    const int64_t *cu_seqlens_q; /* [B + 1] ascending from 0 to Lq; equal neighbors are an empty sequence */
    const int64_t *cu_seqlens_k; /* [B + 1] ascending from 0 to Lk */
    const int64_t *prefix_lens;  /* [B] 0..shard.key + Mk: keys below prefix_lens[b] are visible despite causal and
                                  * window. A value beyond a sequence selects all of its keys; with MHA_ATTN_PARTIAL
                                  * there is no upper limit */
    mha_cview block_keep;        /* [B, H, ceil(Mq / block_q), ceil(Mk / block_k)] of bytes; non-zero = the
                                  * block's rows may attend to its keys; zero strides broadcast; keys masked for every
                                  * row are skipped */
    mha_cview block_table;       /* [B, ceil(Lk / page_size)] of int32 (Pages, above); all-zero strides: contiguous */
    mha_cview slopes; /* [B, H] f32 (f64 if dtype is f64); zero strides broadcast; score -= slope * |i + offset - j| */
    mha_cview sinks;  /* [B, H] like slopes; exp(sink) is added to the denominator only */
    mha_cview gates;  /* [B, H] like slopes; out *= gate, also where out is 0 (an infinite gate gives NaN); lse and
                       * probs do not change */
    const int32_t *head_list; /* [listed_heads] 0..H-1 */
    mha_cview dropout_keep;   /* [B, H, Mq, Mk] of bytes; 0 = dropped; replaces sampling; zero strides broadcast */
    uint64_t dropout_seed;
    const int32_t *map_heads;    /* [desc.map_heads] 0..listed_heads - 1 */
    mha_cview map_rows;          /* [B, desc.map_rows] of int64, -Mq..Mq - 1; all-zero strides: contiguous */
    mha_view lse;                /* [B, H, Lq] (stride[3] unused) f32 (f64 if dtype is f64) */
    mha_view probs;              /* [B, H, Mq, Mk] f32 (f64 if dtype is f64); before dropout; masked entries are 0 */
    mha_view scores;             /* [B, H, Mq, Mk] f32 (f64 if dtype is f64); -infinity beyond the lengths (0 at the
                                  * stage probs) */
    const mha_attn_stats *stats; /* see stats.h */
    mha_attn_visitor on_rows;    /* see stats.h */
    mha_view partial;            /* [B, H, Lq, 2 + Dv] f32 (f64 if dtype is f64); per row: maximum score, sum of
                                  * exponentials, unnormalized output */
    const mha_attn_functions *functions; /* see score_functions.h */
    const mha_attn_rope *rope;           /* the rotary embedding of MHA_ATTN_ROPE_Q and MHA_ATTN_ROPE_K */
} mha_attn_args;

/* An immutable plan. Any number of threads may run it concurrently, each with its own workspace. */
typedef struct mha_attn_plan mha_attn_plan;

/* Creates a plan, allocates its workspace, runs the forward pass, and frees plan and workspace. */
MHA_API mha_status mha_attention(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err);

/* Checks the description, selects kernels and divides the work. Errors: MHA_ERR_ARG naming the field and its value;
 * MHA_ERR_UNSUPPORTED naming the unsupported option; MHA_ERR_MEMORY. `ctx` must outlive the plan. */
MHA_API mha_status mha_attn_plan_create(mha_ctx *ctx, const mha_attn_desc *desc, mha_attn_plan **out, mha_error *err);
MHA_API void mha_attn_plan_free(mha_attn_plan *plan);

/* Returns the workspace size of a forward or backward call in bytes; may be 0. The workspace must be 64-byte-aligned;
 * its content is undefined between calls. */
MHA_API size_t mha_attn_plan_workspace(const mha_attn_plan *plan);

/* Returns the type that probabilities are rounded to before the product with V (in the backward pass, P and dS): f32,
 * f64, or bf16 with bf16 products. */
MHA_API mha_dtype mha_attn_plan_weights(const mha_attn_plan *plan);

/* Describes the plan and the reasons for its choices: one sentence per line, or a JSON object if `json` is 1. Like
 * snprintf, writes at most `capacity` bytes, including a NUL, and returns the length of the whole text.
 *
 *     key               type or unit      meaning
 *     kernel            string            fwd_decode if all tiles have so few rows that reading k and v dominates,
 *                                         as in token generation; fwd_single_block with at most 128 keys and no
 *                                         inputs besides lengths, causal and window; else fwd_tiled
 *     decode            object or null    decode kernels; null if the plan does not use them:
 *       rows            integer             maximum number of rows of a tile that they compute
 *       tiles           string              the tiles that have so few rows: all, none, ...
 *       needs           string              strides that fwd_decode requires; known only for a call
 *       otherwise       string              the kernel for other strides
 *     isa               string            instruction set of the kernels in use; may be older than that of the
 *                                         context: with amx, f32 runs AVX-512 code
 *     dtype, kv_dtype   string            types of q and out, and of k and v
 *     products          string            elements that are multiplied: f32, f64, or pairs of bf16, which amx and
 *                                         avx512bf16 multiply directly
 *     weights           string            see mha_attn_plan_weights
 *     tile_q, tile_k    integer           queries per tile, keys per block
 *     register_rows     integer           rows of a register tile
 *     register_columns  integer           columns of a register tile
 *     chunk             integer           keys per chunk (MHA_ATTN_CHUNK)
 *     tasks             integer           number of tiles of the call
 *     folded            boolean           the rows of a tile are the queries of all heads of a group
 *     parts             integer           parts of the keys of a tile, which threads compute separately (split-KV)
 *     threads           integer           maximum number of threads of a call
 *     workspace         bytes             see mha_attn_plan_workspace
 *     flops             operations        multiplications and additions if nothing is masked
 *     bytes             bytes             q, k, v, masks and bias without broadcasting, and all outputs, once each;
 *                                         operands with one entry per head or sequence are not counted
 *     copies            object            rotated or gathered operands in the workspace:
 *       k, v, q         bytes               v and q are copied for the backward pass only
 *     rotated           boolean           k and v are stored in rotated blocks (q4_0)
 *     outputs           object            the outputs that are written:
 *       out             boolean             true; likewise lse, stats, on_rows and partial, if requested
 *       probs, scores   4 integers          shape, if requested
 *       stage           string              stage of the scores, if requested: raw, softcapped, biased or probs
 *       top_keys        integer             number of top keys per row, if statistics are requested
 *     backward          object or null    backward pass; null without MHA_ATTN_GRADS:
 *       kernel          string              bwd_tiled
 *       tasks, parts    integer             number of tasks; parts of the rows of a head group
 *       threads         integer             maximum number of threads
 *       flops           operations          as above, without dbias
 *     refused           array of objects  the paths that the plan does not use:
 *       path, reason    string              the name of the path, and why it is not used
 */
MHA_API size_t mha_attn_plan_describe(const mha_attn_plan *plan, int json, char *text, size_t capacity);

/* Runs the forward pass of the plan. `workspace` has `workspace_bytes` bytes, at least mha_attn_plan_workspace(). Does
 * not allocate, log or lock (except that it wakes the threads of the pool, see ctx.h). Errors: MHA_ERR_ARG for a NULL
 * pointer that the description requires, a workspace that is too small or misaligned, or a length out of range; nothing
 * has been written then. MHA_ERR_CANCELED if the context's between_tiles cancels the call. Cost: about 2 B H Lq Lk (D
 * + Dv) operations; masked tiles are skipped. */
MHA_API mha_status mha_attn_forward(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace,
                                    size_t workspace_bytes, mha_error *err);

/* ---- merging results over disjoint keys ---- */

/* The result of a call over some of the keys. */
typedef struct mha_attn_part {
    mha_cview out; /* [B, H, Lq, Dv] */
    mha_cview lse; /* [B, H, Lq] (stride[3] unused) */
} mha_attn_part;

typedef struct mha_attn_merge_args {
    size_t size;                             /* sizeof(mha_attn_merge_args) */
    int64_t batch, heads, q_len, v_head_dim; /* B, H > 0; Lq >= 0; Dv 1..MHA_HEAD_DIM_MAX */
    mha_dtype dtype;                         /* type of every out and lse: f32 (default) or f64 */
    int64_t count;                           /* number of parts; 0: the result of rows that attend to no key */
    const mha_attn_part *parts;              /* [count] */
    mha_view out; /* [B, H, Lq, Dv]  may be exactly the out of a part; any other overlap is an error */
    mha_view lse; /* [B, H, Lq]  may be exactly the lse of a part; data NULL: not computed */
} mha_attn_merge_args;

/* Merges results of the same rows over disjoint keys (shards, parts of a cache, a shared prefix) into the result over
 * all keys:
 *
 *     lse = log sum over parts of exp(lse_n)        out = sum over parts of exp(lse_n - lse) out_n
 *
 * Strides are arbitrary; all zero = contiguous. The same parts in the same order give bitwise identical results;
 * another order or division gives the same result within rounding. A part without attended keys (lse -infinity) has no
 * effect, and its out is not read; if no part has attended keys, out is 0 and lse is -infinity. A NaN in a part's lse,
 * or an lse of +infinity, makes the row NaN; NaN and Inf in a part's out propagate to the row. A sink must be included
 * in one part only; gates and head lists need no special treatment. Runs on the calling thread with the ISA of `ctx`
 * (NULL = the default context), allocates nothing, and uses 70 KiB of stack. Errors: MHA_ERR_ARG naming the field and
 * its value, or a result that overlaps a part. On error nothing is written. */
MHA_API mha_status mha_attn_merge(mha_ctx *ctx, const mha_attn_merge_args *args, mha_error *err);

/* ---- merging partial results of shards of keys ---- */

/* Keys per chunk. The operator merges the results of all chunks of a call in a binary tree. Chunk c contains keys 1024
 * c to 1024 c + 1023 of the whole call. A subtree contains 2^n chunks, and the index of its first chunk is a multiple
 * of 2^n. A partial result must cover exactly one subtree; only the last subtree of a call may have fewer keys. */
enum { MHA_ATTN_CHUNK = 1024 };

/* Returns the number of keys in the largest subtree that begins at `key` and ends at or before `end`: the keys of one
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
    mha_dtype dtype;                         /* type of out: f32 (default), bf16, f16, f64 */
    int64_t count;                           /* number of parts, at least 1 */
    const mha_attn_partial *parts;           /* [count] each begins at the key where the previous one ends */
    mha_cview sinks;                         /* [B, H] as in mha_attn_args; data NULL: none */
    mha_cview gates;                         /* [B, H] as in mha_attn_args; data NULL: none */
    mha_view out;                            /* [B, H, Lq, Dv]; data NULL with `partial`: not computed */
    mha_view lse;                            /* [B, H, Lq] (stride[3] unused); data NULL: not computed */
    mha_view partial; /* [B, H, Lq, 2 + Dv] the partial result of all parts; data NULL: not computed; may be exactly
                       * the rows of a part */
} mha_attn_merge_partials_args;

/* Merges partial results of the same rows over adjacent shards of keys. The merge follows the tree of a single call:
 * out and lse are bitwise identical to those of one call over all keys with the same context, regardless of how the
 * keys were divided. Partial results include neither sinks nor gates; the merge applies them to out and lse, but not to
 * `partial`, which can be merged again. If `partial` is requested, the parts together must form one subtree. Runs on
 * the calling thread with the ISA of `ctx` (NULL = the default context) and allocates its scratch memory. Errors:
 * MHA_ERR_ARG naming the field and its value, a part that is not one subtree, or an output that overlaps a part;
 * MHA_ERR_MEMORY. On error nothing is written. */
MHA_API mha_status mha_attn_merge_partials(mha_ctx *ctx, const mha_attn_merge_partials_args *args, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
