/* held_out.h - divides texts into texts to learn from (to choose heads, to fit weights) and held-out texts, on which
 * the result is evaluated.
 *
 *     int64_t order[COUNT], learned;
 *     MHA_CHECK(mha_held_out_split(COUNT, 0, order, &learned, &err));
 *     for (int64_t n = 0; n < COUNT; n++)
 *         sorted[n] = texts[order[n]];                    the first `learned` texts, then the held-out texts
 *     MHA_CHECK(mha_held_out_distinct(NULL, sorted, learned, sorted + learned, COUNT - learned, kept, &left, &err)); */
#ifndef MHA_HELD_OUT_H
#define MHA_HELD_OUT_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MHA_HELD_OUT_PART = 4 }; /* one of four texts or pairs is held out */

/* Holds out every fourth text, so that both parts have the same mix of texts. order [count] receives the indices of the
 * *learned texts to learn from, then the indices of the held-out texts. With `pairs`, texts i and count / 2 + i are a
 * pair (MHA_LOSS_PAIRS) and stay together; each part lists all first texts, then all second texts. Errors: MHA_ERR_ARG
 * for fewer than 4 texts or pairs, and for pairs with an odd count. */
MHA_API mha_status mha_held_out_split(int64_t count, int pairs, int64_t *order, int64_t *learned, mha_error *err);

/* Finds the held-out texts that are not also texts to learn from: kept [held_count] receives their *left indices,
 * ascending. Texts are compared byte by byte. `ctx` may be NULL. Errors: MHA_ERR_ARG for a text that is NULL;
 * MHA_ERR_MEMORY. */
MHA_API mha_status mha_held_out_distinct(mha_ctx *ctx, const char *const *learn, int64_t learn_count,
                                         const char *const *held, int64_t held_count, int64_t *kept, int64_t *left,
                                         mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
