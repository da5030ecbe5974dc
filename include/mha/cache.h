/* cache.h - the KV cache of one layer: keys and values of B sequences, in pages, for the operator in attn.h.
 *
 *     mha_cache_desc desc = { .size = sizeof desc, .batch = 1, .kv_heads = 8, .head_dim = 128 };
 *     mha_cache *cache;
 *     mha_cache_create(ctx, &desc, &cache, &err);
 *     for (each step) {
 *         mha_cache_tokens fresh = { .size = sizeof fresh, .count = n, .k.data = k, .v.data = v };
 *         mha_cache_append(cache, MHA_CACHE_ALL, &fresh, &err);
 *         mha_attn_desc d = { .size = sizeof d, .heads = 32, .q_len = n, .causal = 1 };
 *         mha_attn_args a = { .size = sizeof a, .q.data = q, .out.data = out };
 *         mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &d, &a, &err);
 *         mha_attention(ctx, &d, &a, &err);
 *     }
 *
 * The cache does not compute attention: mha_cache_bind sets the description and the arguments of a call, and the
 * operator reads keys and values from the memory of the cache. Decoding token by token is therefore bitwise identical
 * to a prefill of the whole sequence, in one pass or in chunks.
 *
 * Memory consists of pages of page_size keys and values: [page][Hkv][page_size][D] for keys, [page][Hkv][page_size][Dv]
 * for values. With v_from_k, values are views of the keys. Pages are reference counted: sequences with a common prefix
 * (mha_cache_fork) share its pages, and a shared page is copied before it is written. With a window, pages that no
 * later query attends to are released, so a sequence needs memory only for its window, not for its full length.
 *
 * Keys are stored as given, or rotated by `rope` of mha_cache_tokens, so that a later query need not rotate them again.
 * mha_cache_attend appends tokens and runs the operator in one call:
 *
 *     mha_attn_rope rope = { .size = sizeof rope, .positions = 4096, .cos = cos, .sin = sin };    see mha_rope_angles
 *     for (each step) {
 *         mha_cache_tokens fresh = { .size = sizeof fresh, .count = n, .k.data = k, .v.data = v, .rope = &rope };
 *         mha_attn_desc d = { .size = sizeof d, .heads = 32, .q_len = n, .causal = 1, .inputs = MHA_ATTN_ROPE_Q };
 *         mha_attn_args a = { .size = sizeof a, .q.data = q, .out.data = out, .rope = &rope };
 *         mha_cache_attend(ctx, cache, MHA_CACHE_ALL, &fresh, &d, &a, &err);
 *     }
 *
 * Small types. q8_0 takes 34 bytes for 32 elements, f8_e4m3 32 and q4_0 18. In q4_0, each block of 32 elements of a key
 * or value is rotated before it is rounded: it is multiplied by the Hadamard matrix of order 32 / sqrt(32), so that one
 * large element does not determine the scale of the others (Ashkboos et al. 2024, QuaRot, arXiv 2404.00456). The
 * operator rotates queries and results accordingly. The element of the largest magnitude m of a rotated block is stored
 * as -8, and all elements are rounded to multiples of m / 8 from -8 to 7. The root mean square error of normally
 * distributed elements is 8.6 % of their root mean square (q8_0: 0.5 %, f8_e4m3: 2.6 %); docs/numerics.md lists the
 * errors of a trained model.
 *
 * After an error the cache is unchanged. Changes require exclusive access; any number of threads may run the operator
 * on a cache that does not change. All memory is allocated from the context, which must outlive the cache.
 */
#ifndef MHA_CACHE_H
#define MHA_CACHE_H

#include "mha/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_cache mha_cache;

typedef struct mha_cache_desc {
    size_t size;        /* sizeof(mha_cache_desc) */
    int64_t batch;      /* B   > 0; number of sequences, initially empty */
    int64_t kv_heads;   /* Hkv > 0 */
    int64_t head_dim;   /* D   1..MHA_HEAD_DIM_MAX */
    int64_t v_head_dim; /* Dv  0 = D; else 1..MHA_HEAD_DIM_MAX */
    mha_dtype dtype;    /* storage type: f32 (default), f64 (for f64 calls), bf16, f16, q8_0, q4_0 or f8_e4m3
                           (types.h) */
    int64_t page_size;  /* keys per page: 0 = 128; else a power of two >= 16 */
    int64_t capacity;   /* total number of keys, allocated at creation, rounded up to pages. Sequences take whole pages,
                           so they may need up to (page_size - 1) B more keys than they contain.
                           0 = memory grows on demand, by at least half, and an append may move it */
    int64_t window;     /* keys that a query attends to, including its own; 0 = all */
    int64_t keep_first; /* with a window: number of first tokens that stay visible (streaming), 0..2^60; 0 = none */
    int v_from_k;       /* 1 = values are the first Dv elements of the keys, Dv <= D (latent_attention.h): only keys are
                           stored, `v` of mha_cache_tokens is not read, the tensor "v" has no elements, and rope->first
                           of mha_cache_tokens must be at least Dv, because values are not rotated */
} mha_cache_desc;

/* Creates an empty cache. Errors: MHA_ERR_ARG naming the field and its value, also for pages of more than 2^40 bytes;
 * MHA_ERR_UNSUPPORTED for q4_0 with a D or Dv that is not a multiple of 32; MHA_ERR_MEMORY. */
MHA_API mha_status mha_cache_create(mha_ctx *ctx, const mha_cache_desc *desc, mha_cache **out, mha_error *err);
MHA_API void mha_cache_free(mha_cache *cache);

/* ---- appending and removing tokens ---- */

enum { MHA_CACHE_ALL = -1 }; /* selects all sequences */

/* Keys and values of new tokens for n sequences: B with MHA_CACHE_ALL, else 1. All-zero strides of k and v mean
 * contiguous. The data must be aligned to the element size and must not overlap memory of the cache. */
typedef struct mha_cache_tokens {
    size_t size;           /* sizeof(mha_cache_tokens) */
    int64_t count;         /* tokens per sequence, >= 0 */
    const int64_t *counts; /* [n] tokens of each sequence, 0..count; NULL = `count` for each */
    mha_dtype dtype;       /* type of k and v: the type of the cache, or f32 if the cache stores bf16, f16, q8_0, q4_0
                              or f8_e4m3. 0 = the type of the cache; f32 for q8_0, q4_0 and f8_e4m3 */
    mha_cview k;           /* [n, Hkv, count, D] */
    mha_cview v;           /* [n, Hkv, count, Dv] */
    const mha_attn_rope *rope; /* rotary embedding of the keys; NULL = they are stored as given. cos and sin: f32 (f64
                                * if dtype is f64). k_positions: [n, count]; data NULL = token t of a sequence has
                                * position length + t. q_positions is not read */
} mha_cache_tokens;

/* Appends tokens. f32 is rounded to the storage type, to nearest even; elements beyond 65504 become infinite in f16. In
 * q8_0 and q4_0 a block of 32 with NaN or infinity is stored as NaN, and finite elements of at least 127 * 65520 (8.3
 * million) in q8_0 and 92655 in q4_0 are an error. In f8_e4m3, finite elements beyond 448 become 448, and infinity
 * becomes NaN. With `rope`, elements are converted to f32 and rotated before they are rounded; f64 is rotated in f64.
 * These limits apply to the rotated keys: the elements of a pair can become sqrt(2) times as large as before.
 * The stored keys are bitwise identical to those of mha_rope_turn() on f32 keys, followed by an append. Errors:
 * MHA_ERR_ARG naming the field and its value; MHA_ERR_MEMORY, including an exhausted `capacity`. Cost: one copy, plus a
 * copy of the whole cache when it grows. */
MHA_API mha_status mha_cache_append(mha_cache *cache, int64_t sequence, const mha_cache_tokens *tokens, mha_error *err);

/* Removes the tokens from position `length` on, in one sequence, which must have at least `length` tokens, or, with
 * MHA_CACHE_ALL, in all sequences that are longer. With a window, the keys that the next query attends to must still be
 * stored. After an error, the cache is unchanged. */
MHA_API mha_status mha_cache_truncate(mha_cache *cache, int64_t sequence, int64_t length, mha_error *err);
/* Replaces sequence `to` with the first `length` tokens of `from`, another sequence, sharing their pages without
 * copying. With a window, the condition of mha_cache_truncate applies. */
MHA_API mha_status mha_cache_fork(mha_cache *cache, int64_t from, int64_t to, int64_t length, mha_error *err);
/* Removes all tokens of one or all sequences and releases their pages. */
MHA_API mha_status mha_cache_clear(mha_cache *cache, int64_t sequence, mha_error *err);

/* Returns the number of tokens appended to a sequence, including tokens before its window; -1 for an unknown
 * sequence. */
MHA_API int64_t mha_cache_length(const mha_cache *cache, int64_t sequence);
/* Return the number of bytes allocated by the cache, and the number of pages in use. */
MHA_API size_t mha_cache_bytes(const mha_cache *cache);
MHA_API int64_t mha_cache_pages(const mha_cache *cache);

/* ---- arguments for the operator ---- */

/* Sets the description and the arguments for the queries of the most recently appended tokens: row i of sequence b
 * has position length - q_lens[b] + i.
 *
 *   desc   the caller sets heads, q_len, dtype, causal and other options. Set by this function: batch, kv_heads,
 *          head_dim, v_head_dim, kv_dtype, align, page_size, pages, the window of the cache, and the flags of the
 *          arguments. kv_len becomes the longest length, unless it is larger already: a plan for a larger kv_len can be
 *          used for many steps, as long as `pages` does not change (it never changes with a fixed capacity)
 *   args   k, v, block_table, kv_lens, offsets, q_lens and, with keep_first, prefix_lens. The pointers refer to memory
 *          of the cache and are valid until the cache changes or is bound again. After an error `desc` and `args` are
 *          unchanged
 *   q_lens [n] rows of each sequence; NULL = q_len rows each, or, if the caller has set MHA_ATTN_CU_SEQLENS and
 *          args->cu_seqlens_q, the rows of the packed queries. NULL also clears the flag MHA_ATTN_Q_LENS and
 *          args->q_lens, which an earlier call may have set
 *
 * Rows of a sequence without tokens have position 0 and no unmasked key.
 *
 * Errors: MHA_ERR_ARG if a row needs keys that are no longer stored, or if the window of `desc` is wider than the
 * window of the cache. MHA_ERR_ARG also if the first keep_first tokens and the window become disjoint within one
 * call; to avoid this, append at most `window` tokens per call while a sequence is shorter than keep_first. */
MHA_API mha_status mha_cache_bind(mha_cache *cache, int64_t sequence, const int64_t *q_lens, mha_attn_desc *desc,
                                  mha_attn_args *args, mha_error *err);

/* Sets only the description, to the values that mha_cache_bind will set after `count` more tokens per sequence, so that
 * a plan can be created in advance. Without a fixed capacity, these tokens may change `pages` and invalidate the
 * plan. */
MHA_API mha_status mha_cache_describe(const mha_cache *cache, int64_t sequence, int64_t count, mha_attn_desc *desc,
                                      mha_error *err);

/* Appends tokens, and runs the operator for the last rows of their sequences, on all keys of the cache: equivalent to
 * mha_cache_append, mha_cache_bind and mha_attention, with bitwise identical results. `desc` and `args` are those that
 * the caller passes to mha_cache_bind, and are not modified. The rows of each sequence are args->q_lens with
 * MHA_ATTN_Q_LENS, else those of args->cu_seqlens_q with MHA_ATTN_CU_SEQLENS, else tokens->counts or q_len. `ctx` runs
 * the operator (NULL = the default context).
 *
 * If the call fails, no token is stored. With a window, pages that the next query does not attend to may have been
 * released, as by an append. A program that keeps a plan for many steps calls mha_cache_append, mha_cache_bind and
 * mha_attn_forward instead: this function creates a plan for each call. */
MHA_API mha_status mha_cache_attend(mha_ctx *ctx, mha_cache *cache, int64_t sequence, const mha_cache_tokens *tokens,
                                    const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err);

/* ---- saving and loading ---- */

/* Alternative name of mha_named_tensor. */
typedef mha_named_tensor mha_cache_tensor;

/* The cache does no file I/O: it lists its tensors, and the caller writes and reads them (mha/io.h). */
enum { MHA_CACHE_TENSORS = 4 };

/* Lists the tensors: "lengths" i64 [B]; "pages" i32 [B, n], the page of each run of page_size keys, -1 if the run has
 * no page; "k" and "v" [m, Hkv, page_size, D or Dv], where unused pages are zeros. Types that files do not have are
 * saved as integers: f8_e4m3 as i8; q8_0 as u8, 34 per block of 32 elements; q4_0 as u16, 9 per block. The tensors
 * point into the cache and are valid until it changes. If `cache` is NULL, all tensors are zeroed. */
MHA_API void mha_cache_save(const mha_cache *cache, mha_named_tensor tensors[MHA_CACHE_TENSORS]);
/* Replaces the content of the cache with copies of tensors saved from a cache with the same description (the capacity
 * may differ). `data` may be misaligned. Errors: MHA_ERR_FORMAT naming the tensor and the reason; MHA_ERR_MEMORY. */
MHA_API mha_status mha_cache_load(mha_cache *cache, const mha_named_tensor *tensors, int count, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
