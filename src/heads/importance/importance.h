/* importance.h - internals of importance scores. Public side: mha/importance.h. */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_H

#include "heads/importance/importance_run.h"

struct mha_importance {
    mha_ctx *ctx;
    int64_t layers, heads;      /* H of the config */
    double *value, *low, *high; /* [layers, H] NAN for heads that a layer lacks */
    double halves, loss, identity;
    int64_t texts; /* number of texts used */
    bool saturated;
};

/* Checks the options against model and data, and sets defaults. */
mha_status mha__importance_options_read(const mha_model *model, const mha_head_data *data,
                                        const mha_importance_options *given, mha_importance_options *own,
                                        mha_error *err);

/* Checks the options for pairs of heads and sets defaults. `by` becomes the ablation of the loss or, without a loss, of
 * the text embeddings. */
mha_status mha__importance_pairs_read(const mha_model *model, const mha_head_data *data,
                                      const mha_importance_options *given, mha_importance_options *own, mha_error *err);

/* Runs the groups and stores the result. */
mha_status mha__importance_run(const mha_model *model, const mha_head_data *data, const mha_importance_options *options,
                               mha_importance *out, mha_error *err);

/* Computes values, intervals and the comparison of halves from the sums. */
mha_status mha__importance_finish(const mha__importance_job *s, mha_importance *out, mha_error *err);
/* Computes only the comparison of halves. */
mha_status mha__importance_halves(const mha__importance_job *s, double *halves, mha_error *err);

#endif
