/* compare_models.h - two models on the same texts: how far their embeddings and losses are apart.
 *
 *     mha_comparison c;
 *     mha_models_compare(before, after, data, NULL, NULL, &c, &err);  c.mean_cosine, c.loss[1] - c.loss[0]
 *
 * For evaluating a change of a model: pruning, regrouping, training, another dtype. Use held-out texts, on which
 * nothing was chosen or fitted.
 */
#ifndef MHA_COMPARE_MODELS_H
#define MHA_COMPARE_MODELS_H

#include "mha/head_data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_comparison {
    int64_t texts, tokens;
    /* Of the two models' embeddings of a text (the mean of its last hidden states). NAN if hidden sizes differ. */
    double mean_cosine, min_cosine;
    int64_t worst; /* the text of the smallest cosine */
    /* Causal models: mean of -log p of each token after the first of its text, natural logarithm, over all `predicted`
     * tokens. NAN and 0 for encoders and for checkpoints without logits. */
    double loss[2];
    int64_t predicted;
} mha_comparison;

/* Runs both models over the texts of `data`, whose tokens must be in both vocabularies. `cosines` [count of data] gets
 * the cosine of each text, `losses` [2, count] each model's mean loss of each text (NAN for a single token); both may
 * be NULL. Reports progress as "compare". Results are bitwise independent of threads and batches. Errors: MHA_ERR_ARG
 * for NULL and for tokens outside a vocabulary, MHA_ERR_MEMORY, MHA_ERR_CANCELLED. Memory: a few MiB, and the logits of
 * 64 tokens. */
MHA_API mha_status mha_models_compare(const mha_model *a, const mha_model *b, const mha_head_data *data,
                                      double *cosines, double *losses, mha_comparison *out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
