/* prune_search.h - how many heads a model can lose: it is pruned to ever fewer heads, and each result is evaluated on
 * held-out texts.
 *
 *     const mha_prune_search_options o = {
 *         .size = sizeof o, .learn = learn, .held_out = held_out, .max_increase = 0.05};
 *     mha_prune_curve *curve;
 *     mha_prune_search(model, &o, &curve, &err);
 *     const mha_prune_point *best = mha_prune_curve_best(curve);
 *     if (best) mha_prune(model, best->keep, NULL, &edit, &err);
 *
 * Thirteen counts from no head to all heads above the floor are tried first, then every count between the largest one
 * within the limit and the next one, which exceeds it. Points within the limit beyond that one are not looked for.
 */
#ifndef MHA_PRUNE_SEARCH_H
#define MHA_PRUNE_SEARCH_H

#include "mha/prune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_prune_point {
    int64_t count;       /* heads that were to be removed; with per_layer, from every layer */
    const uint8_t *keep; /* [layers, H] as mha_prune takes it */
    double increase;     /* of the loss per token; of models without a loss 1 - the mean cosine of embeddings */
    int within;          /* 1 if `increase` is at most max_increase */
    mha_edit_evaluation evaluation;
} mha_prune_point;

typedef struct mha_prune_search_options {
    size_t size;
    const mha_head_data *held_out; /* the texts to evaluate on */
    /* [layers, H] importance scores, as mha_prune_choose takes them; NULL = heads are chosen together on `learn`, as by
     * mha_prune_choose_joint */
    const double *scores;
    const mha_head_data *learn;
    int per_layer;                  /* as in mha_prune_rule */
    int64_t floor;                  /* likewise */
    const mha_prune_options *prune; /* fill, refit and ridge of every pruning; NULL = none */
    double max_increase;            /* the limit, 0 or more; INFINITY = none */
    /* Called after each point; anything but 0 ends the search with MHA_ERR_CANCELLED. NULL = none. */
    int (*on_point)(void *user, const mha_prune_point *point);
    void *user;
} mha_prune_search_options;

typedef struct mha_prune_curve mha_prune_curve;

/* Searches. Nothing of the options is retained. Errors: MHA_ERR_ARG for an invalid option, and if held_out gives a
 * decoder no token to predict; those of choosing, pruning and evaluating. Reports progress as "search", in points. */
MHA_API mha_status mha_prune_search(const mha_model *model, const mha_prune_search_options *options,
                                    mha_prune_curve **out, mha_error *err);
MHA_API void mha_prune_curve_free(mha_prune_curve *curve);

/* The points by their count, fewest heads removed first. They live as long as the curve. */
MHA_API const mha_prune_point *mha_prune_curve_points(const mha_prune_curve *curve, int64_t *count);
/* The point within the limit that removes most heads; NULL if there is none. */
MHA_API const mha_prune_point *mha_prune_curve_best(const mha_prune_curve *curve);

#ifdef __cplusplus
}
#endif
#endif
