/* cache.h - the KV cache of one layer: the keys and values of B sequences, in pages, for the operator of attn.h.
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
 * The cache computes nothing: it fills description and arguments, and the operator reads its memory. So decoding row by
 * row has the bits of a prefill of the whole, and any chunks in between.
 *
 * Memory is pages of page_size keys, [page][Hkv][page_size][D] and the same with Dv. Pages are counted: sequences that
 * share a prefix (mha_cache_fork) share its pages, and a shared page that is to be written is copied first. With a
 * window, pages that no row to come can see are given back, so a sequence needs memory for its window, not its length.
 *
 * Keys are stored as they come: rotated keys (RoPE) are rotated before, by their absolute position.
 *
 * A failing call leaves the cache as it was. One thread at a time may change a cache; any number may run the operator
 * on it meanwhile only if nobody changes it. Everything is in memory of the context, which must outlive the cache.
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
    int64_t batch;      /* B   > 0 sequences, all empty at first */
    int64_t kv_heads;   /* Hkv > 0 */
    int64_t head_dim;   /* D   1..MHA_HEAD_DIM_MAX */
    int64_t v_head_dim; /* Dv  0 = D; else 1..MHA_HEAD_DIM_MAX */
    mha_dtype dtype;    /* of what is stored: f32 (default), f64 for calls in f64, bf16, f16 or q8_0 (types.h) */
    int64_t page_size;  /* keys in a page: 0 = 128; else a power of two >= 16 */
    int64_t capacity;   /* keys of all sequences together that there is memory for from the start, rounded up to pages.
                           A sequence takes whole pages: B of them may need (page_size - 1) B keys more than they hold.
                           0 = memory grows as needed, by half at least, and an append may move it */
    int64_t window;     /* keys that a row sees, itself included; 0 = all */
    int64_t keep_first; /* with a window: the first tokens stay visible to every row (streaming); 0 = none; to 2^60 */
} mha_cache_desc;

/* MHA_ERR_ARG naming the field and its value, or MHA_ERR_MEMORY. */
MHA_API mha_status mha_cache_create(mha_ctx *ctx, const mha_cache_desc *desc, mha_cache **out, mha_error *err);
MHA_API void mha_cache_free(mha_cache *cache);

/* ---- tokens in and out ---- */

enum { MHA_CACHE_ALL = -1 }; /* in place of a sequence: all of them */

/* Keys and values of new tokens, for the sequences that the call names: n = B or 1 of them. */
typedef struct mha_cache_tokens {
    size_t size;           /* sizeof(mha_cache_tokens) */
    int64_t count;         /* >= 0 for each sequence */
    const int64_t *counts; /* [n] 0..count, where sequences get less; NULL = count for each */
    mha_dtype dtype;       /* of k and v: that of the cache, or f32 where it stores bf16, f16 or q8_0; 0 = that of the
                              cache, f32 for q8_0 */
    mha_cview k;           /* [n, Hkv, count, D ]  all-zero strides: contiguous; aligned to its numbers; none of it */
    mha_cview v;           /* [n, Hkv, count, Dv]  is memory of the cache */
} mha_cache_tokens;

/* Appends. f32 is rounded to what is stored, to nearest even: beyond 65504 a number becomes infinite in f16. Of q8_0, a
 * block of 32 with NaN or infinity in it is NaN, and finite numbers of 127 * 65520 (8.3 million) and more are refused.
 * Errors: MHA_ERR_ARG naming the field and its value; MHA_ERR_MEMORY, also when `capacity` is used up. Cost: one copy;
 * memory that grows is copied too. */
MHA_API mha_status mha_cache_append(mha_cache *cache, int64_t sequence, const mha_cache_tokens *tokens, mha_error *err);

/* Forgets the tokens from `length` on. With a window the keys that the next row would see must still be there. */
MHA_API mha_status mha_cache_truncate(mha_cache *cache, int64_t sequence, int64_t length, mha_error *err);
/* `to` forgets what it held and begins with the first `length` tokens of `from`, sharing their pages. Copies no key.
 * The same condition on a window holds as for mha_cache_truncate. */
MHA_API mha_status mha_cache_fork(mha_cache *cache, int64_t from, int64_t to, int64_t length, mha_error *err);
/* Forgets all of a sequence, or of all; its pages are free for others. */
MHA_API mha_status mha_cache_clear(mha_cache *cache, int64_t sequence, mha_error *err);

/* Tokens that a sequence has been given, those behind its window included; -1 for no sequence of the cache. */
MHA_API int64_t mha_cache_length(const mha_cache *cache, int64_t sequence);
/* Bytes of memory that the cache holds, and the pages of it that hold tokens. */
MHA_API size_t mha_cache_bytes(const mha_cache *cache);
MHA_API int64_t mha_cache_pages(const mha_cache *cache);

/* ---- for the operator ---- */

/* Fills in what the cache knows, for the rows of the tokens that were appended last: row i of sequence b stands at
 * position length - q_lens[b] + i.
 *
 *   desc   the caller sets heads, q_len, dtype, causal and what else is wanted. Set here: batch, kv_heads, head_dim,
 *          v_head_dim, kv_dtype, align, page_size, pages, the window of the cache, and the flags of what is set
 *          in args.
 *          kv_len becomes the longest length, unless it is that or more already: a plan for a larger one serves many
 *          steps, as long as `pages` stays the same (it does with a capacity)
 *   args   k, v, block_table, kv_lens, offsets, q_lens and, with keep_first, prefix_lens. They point into the cache and
 *          are valid until it is changed or bound again; a bind that fails leaves them, `desc` and `args` as they were
 *   q_lens [n] rows of each sequence, or NULL for q_len rows each; or, if the caller has set MHA_ATTN_CU_SEQLENS and
 *          args->cu_seqlens_q, for those of the packed queries. NULL also takes MHA_ATTN_Q_LENS and args->q_lens of an
 *          earlier bind away
 *
 * Rows of a sequence without tokens stand at position 0 and see no key.
 *
 * Errors: MHA_ERR_ARG where a row would see keys that are no longer there, where `desc` has a wider window than the
 * cache, or where keep_first and the window part ways inside of one call: while a sequence is shorter than
 * keep_first, append no more than fit the window at once. */
MHA_API mha_status mha_cache_bind(mha_cache *cache, int64_t sequence, const int64_t *q_lens, mha_attn_desc *desc,
                                  mha_attn_args *args, mha_error *err);

/* Fills in the description alone, as mha_cache_bind does after `count` more tokens of each sequence, so that a plan can
 * be made before they are there. In a cache without capacity they may change `pages`, and with it the plan. */
MHA_API mha_status mha_cache_describe(const mha_cache *cache, int64_t sequence, int64_t count, mha_attn_desc *desc,
                                      mha_error *err);

/* ---- to keep and to bring back ---- */

/* The cache touches no files: it lists its tensors, and the caller writes and reads them. Row-major, contiguous. */
typedef struct mha_cache_tensor {
    const char *name;
    mha_dtype dtype;
    int rank;
    int64_t shape[4];
    const void *data;
} mha_cache_tensor;
enum { MHA_CACHE_TENSORS = 4 };

/* "lengths" i64 [B]; "pages" i32 [B, n]: the page of each page_size keys, -1 where there are none; "k" and "v"
 * [m, Hkv, page_size, D or Dv], of which pages never used are zeros (q8_0: u8, blocks of 34 bytes in place of numbers).
 * They point into the cache, valid until it changes. Without a cache, NULL, all tensors are zeros. */
MHA_API void mha_cache_save(const mha_cache *cache, mha_cache_tensor tensors[MHA_CACHE_TENSORS]);
/* Replaces all that the cache holds by copies of tensors saved from one with the same description (capacity may
 * differ). `data` may be misaligned. Errors: MHA_ERR_FORMAT naming the tensor and what is wrong with it;
 * MHA_ERR_MEMORY. */
MHA_API mha_status mha_cache_load(mha_cache *cache, const mha_cache_tensor *tensors, int count, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
