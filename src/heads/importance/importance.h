/* importance.h - internals of importance scores. Public header: mha/importance.h. */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_H

#include "heads/importance/importance_run.h"

struct mha_importance {
    mha_ctx *ctx;
    mha__head_sets sets;
    double *value, *low, *high; /* [sets.total] NAN for heads that a layer lacks */
    double halves, loss, identity;
    int64_t texts; /* number of texts used */
    bool saturated;
};

/* Checks the options for this model and data, and sets defaults. */
mha_status mha__importance_options_read(const mha_model *model, const mha_head_data *data,
                                        const mha_importance_options *given, mha_importance_options *own,
                                        mha_error *err);

/* Returns the number of labels of the data: one per token, or one per image. */
int64_t mha__importance_labels(const mha_head_data *data);

/* Checks the options for pairs of heads and sets defaults. `by` becomes the ablation of the loss or, without a loss, of
 * the text embeddings. */
mha_status mha__importance_pairs_read(const mha_model *model, const mha_head_data *data,
                                      const mha_importance_options *given, mha_importance_options *own, mha_error *err);

/* The statistics of heads that a measurement of importance takes from its own forward passes. */
typedef struct mha__shared_statistics {
    const mha_heads_options *options; /* checked by mha__heads_check */
    mha_heads **out;
} mha__shared_statistics;

/* Runs the measurement and stores its result in `out`. `with` may be NULL. */
mha_status mha__importance_run(const mha_model *model, const mha_head_data *data, const mha_importance_options *options,
                               const mha__shared_statistics *with, mha_importance *out, mha_error *err);

/* Computes the values, their confidence intervals and the agreement of the two halves of the data from the sums. */
mha_status mha__importance_finish(const mha__importance_job *s, mha_importance *out, mha_error *err);
/* Computes only the agreement of the two halves of the data. */
mha_status mha__importance_halves(const mha__importance_job *s, double *halves, mha_error *err);

#endif
