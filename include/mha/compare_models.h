/* compare_models.h - compares the embeddings and losses of two models on the same texts.
 *
 *     mha_comparison c;
 *     mha_models_compare(before, after, data, NULL, NULL, &c, &err);  c.mean_cosine, c.loss[1] - c.loss[0]
 *
 * Use it to evaluate a change to a model: pruning, regrouping, training, another dtype. The texts should be held out:
 * not used to select heads or to fit weights.
 */
#ifndef MHA_COMPARE_MODELS_H
#define MHA_COMPARE_MODELS_H

#include "mha/head_data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_comparison {
    int64_t texts, tokens;
    /* Cosine of the two models' embeddings of a text (the mean of its last hidden states). NAN if hidden sizes
     * differ. */
    double mean_cosine, min_cosine;
    int64_t worst; /* index of the text with the smallest cosine */
    /* Causal models: mean of -log p of each token after the first of its text, natural logarithm, over all `predicted`
     * tokens. For encoders and for checkpoints without logits, `loss` is NAN and `predicted` is 0. */
    double loss[2];
    int64_t predicted;
} mha_comparison;

/* Runs both models over the texts of `data`. The tokens of these texts must be in both vocabularies. `cosines` [texts]
 * receives the cosine of each text, `losses` [2, texts] each model's mean loss on each text (NAN for a single token);
 * both may be NULL. Reports progress as "compare". Results are bitwise identical for any number of threads and any
 * batch size. Errors: MHA_ERR_ARG for NULL and for tokens outside a vocabulary, MHA_ERR_MEMORY, MHA_ERR_CANCELED.
 * Memory: a few MiB, and the logits of 64 tokens. */
MHA_API mha_status mha_models_compare(const mha_model *a, const mha_model *b, const mha_head_data *data,
                                      double *cosines, double *losses, mha_comparison *out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
