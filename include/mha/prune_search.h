/* prune_search.h - finds how many heads can be removed from a model: prunes it to several head counts, and evaluates
 * each pruned model on held-out texts.
 *
 *     const mha_prune_search_options o = {
 *         .size = sizeof o, .learn = learn, .held_out = held_out, .max_increase = 0.05};
 *     mha_prune_curve *curve;
 *     mha_prune_search(model, &o, &curve, &err);
 *     const mha_prune_point *best = mha_prune_curve_best(curve);
 *     if (best) mha_prune(model, best->keep, NULL, &edit, &err);
 *
 * The search first evaluates thirteen counts, from 0 to the maximum that the floor permits. It then evaluates every
 * count between the largest of these thirteen counts whose loss increase is within the limit and the next larger count.
 * Larger counts are not searched, even if some of them would be within the limit.
 */
#ifndef MHA_PRUNE_SEARCH_H
#define MHA_PRUNE_SEARCH_H

#include "mha/prune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_prune_point {
    int64_t count;       /* number of heads to remove; with per_layer, from every layer */
    const uint8_t *keep; /* [layers, H] argument for mha_prune */
    double increase;     /* increase of the loss per token; without a loss, 1 - the mean cosine of embeddings */
    int within;          /* 1 if `increase` is at most max_increase */
    mha_edit_evaluation evaluation;
    /* cross_keep and encoder_keep of mha_prune_options, in an encoder-decoder; NULL for other models */
    const uint8_t *cross_keep, *encoder_keep;
} mha_prune_point;

typedef struct mha_prune_search_options {
    size_t size;
    const mha_head_data *held_out; /* the texts to evaluate on */
    /* [layers, H] importance scores for mha_prune_choose; NULL = heads are chosen jointly on `learn`, by
     * mha_prune_choose_joint */
    const double *scores;
    const mha_head_data *learn;
    int per_layer;                  /* as in mha_prune_rule */
    int64_t floor;                  /* as in mha_prune_rule */
    const mha_prune_options *prune; /* `fill`, `refit` and `ridge` for every pruned model; NULL = neither fill nor
                                     * refit */
    double max_increase;            /* maximum loss increase, at least 0; INFINITY = no maximum */
    /* Called after each point; a non-zero return value ends the search with MHA_ERR_CANCELED. NULL = no callback. */
    int (*on_point)(void *user, const mha_prune_point *point);
    void *user;
    /* Encoder-decoders, whose search covers all kinds of heads: scores of the cross-attention and of the encoder, given
     * with `scores` */
    const double *cross_scores, *encoder_scores;
} mha_prune_search_options;

typedef struct mha_prune_curve mha_prune_curve;

/* Runs the search. The options are not retained. Errors: MHA_ERR_ARG for an invalid option, and for a decoder if every
 * held-out text is a single token; those of mha_prune_choose, mha_prune_choose_joint, mha_prune and
 * mha_model_edit_evaluate. Reports progress as "search", in points. */
MHA_API mha_status mha_prune_search(const mha_model *model, const mha_prune_search_options *options,
                                    mha_prune_curve **out, mha_error *err);
MHA_API void mha_prune_curve_free(mha_prune_curve *curve);

/* Returns the points in ascending order of removed heads. Valid until the curve is freed. */
MHA_API const mha_prune_point *mha_prune_curve_points(const mha_prune_curve *curve, int64_t *count);
/* Returns the point within the limit that removes the most heads; NULL if there is none. */
MHA_API const mha_prune_point *mha_prune_curve_best(const mha_prune_curve *curve);

#ifdef __cplusplus
}
#endif
#endif
