/* score_functions.h - user functions of attention scores and masks (mha_attn_args.functions in attn.h).
 *
 *     static void soft_sign(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, void *scores)
 *     {
 *         float *s = scores, cap = *(const float *)user;
 *         for (int64_t n = 0; n < count; n++)
 *             s[n] /= 1 + fabsf(s[n]) / cap;
 *     }
 *     mha_attn_functions functions = { .size = sizeof functions, .user = &cap, .score = soft_sign };
 *     desc.inputs |= MHA_ATTN_FUNCTIONS;    args.functions = &functions;
 *
 * Functions add variants of attention that the description has no field for to the fused kernels: in the forward and
 * the backward pass and in decode, in O(L) memory, and together with all other inputs. examples/score_functions.c
 * contains ALiBi, softcap, sliding window, documents, prefix-LM and a two-dimensional neighborhood.
 *
 * Indices: b is the sequence and h the query head (with a head list, the index among all H heads). i is the position of
 * the row among the keys: its index plus the offset that desc.align defines, so that a function is the same in prefill
 * and in decode. If Lq != Lk, align must be set; with MHA_ALIGN_TOP_LEFT, i is the index of the row. j is the index of
 * the key. i is negative for rows before the first key (MHA_ALIGN_BOTTOM_RIGHT with Lq > Lk, negative offsets). Indices
 * of a shard are those of the whole call, and indices of packed sequences count from the start of the sequence.
 *
 * Rules:
 *   - A result may depend only on `user`, b, h, i, j and (for score) the score of the pair (i, j), not on j0, count, or
 *     the other elements of the same call. Results are then bitwise identical for any tiling, number of threads and
 *     batch, like all results of the operator. The number and the size of the calls are unspecified, except for
 *     score_back.
 *   - Functions are called concurrently from the threads of the context. They must not call functions that use the same
 *     context.
 *   - Functions may be called for pairs that other inputs mask; their results for these pairs have no effect. The score
 *     of such a pair may be NaN. Keys outside the lengths, and outside the causal mask and window of the row, are not
 *     passed to score, score_back and keep, except keys between a prefix and the window. Rows outside q_lens are passed
 *     only to block.
 *
 * Cost: scores of a row are copied to contiguous memory and back, about 1 ns per pair together with a simple function.
 * Plans with functions use neither the single-block kernel nor one tile for all heads of a group. Without
 * MHA_ATTN_FUNCTIONS, calls cost the same as if functions did not exist.
 *
 * After: He et al. 2024 (FlexAttention), whose score_mod, mask_mod and block mask correspond to score, keep and
 * block. */
#ifndef MHA_SCORE_FUNCTIONS_H
#define MHA_SCORE_FUNCTIONS_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which pairs of a block of rows and keys are visible. */
typedef enum mha_attn_block {
    MHA_ATTN_BLOCK_SOME = 0, /* `keep` decides for each pair; without `keep`, all pairs are visible */
    MHA_ATTN_BLOCK_NONE,     /* no pair: the block is skipped, and its keys are not read */
    MHA_ATTN_BLOCK_ALL       /* all pairs: `keep` is not called */
} mha_attn_block;

/* At least one of score, keep and block must be set. */
typedef struct mha_attn_functions {
    size_t size; /* sizeof(mha_attn_functions) */
    void *user;  /* passed to all functions */

    /* Replaces the scores of row i and keys j0 to j0 + count - 1; NULL: scores do not change. It is applied after scale
     * and softcap, before slopes, bias and masks. `scores` has `count` elements, f32 (f64 if dtype is f64). A score of
     * -infinity masks the key, which then has no effect on the row, even if k and v contain NaN. */
    void (*score)(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, void *scores);

    /* The derivative of score, for the backward pass: on entry, `scores` contains the elements that were passed to
     * score, and `dscores` the gradient of the loss with respect to its results; on return, `dscores` must contain the
     * gradient with respect to `scores`. Elements of dscores that are 0 on entry (masked pairs among them) stay 0.
     * Each visible pair is passed exactly once per backward pass (once per occurrence in a head list), with ascending
     * rows for a part of the rows of a head and ascending keys for a row, so that the function can also accumulate
     * gradients of its own parameters; for calls of different heads, and of different parts of the rows of a head
     * (attn_grads.h), this requires a lock or separate sums. The backward pass requires score_back if score is set,
     * unless score_added is 1. */
    void (*score_back)(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, const void *scores,
                       void *dscores);
    int score_added; /* 1 = score only adds terms that do not depend on the score, or masks; score_back must be NULL */

    /* Masks keys: keep[n] is 1 on entry; the function sets it to 0 if row i may not attend to key j0 + n. NULL: no key
     * is masked. */
    void (*keep)(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, uint8_t *keep);

    /* Classifies the block of rows i0 to i0 + rows - 1 and keys j0 to j0 + keys - 1, so that blocks without visible
     * pairs are skipped; NULL: every block is MHA_ATTN_BLOCK_SOME. The function is called for blocks of several sizes,
     * several times, and must agree with `keep`: MHA_ATTN_BLOCK_NONE and MHA_ATTN_BLOCK_ALL must be correct for every
     * pair of the block. MHA_ATTN_BLOCK_SOME is always correct if `keep` is set. Skipped blocks do not
     * change a bit of the results, except dk and dv, which are equal within rounding. */
    mha_attn_block (*block)(void *user, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j0, int64_t keys);
} mha_attn_functions;

#ifdef __cplusplus
}
#endif
#endif
