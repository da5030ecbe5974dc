/* evaluate_texts.h - what a model makes of texts: an embedding of each, and how well it predicts its tokens. */
#ifndef MHA_HEADS_DATA_EVALUATE_TEXTS_H
#define MHA_HEADS_DATA_EVALUATE_TEXTS_H

#include "mha/head_data.h"
#include "model/model_struct.h"

/* Room for runs over the same texts, and where their results go: kept from run to run. */
typedef struct mha__outcome {
    const mha_model *model;
    const mha_head_data *data;
    bool predicts;      /* the model is causal and has logits */
    double *embeddings; /* [texts, E] mean of a text's last hidden states */
    double *losses;     /* [texts] sum of -log p of its tokens but the first; zeros for others than causal models */
    float *hidden;      /* [tokens of a batch, E] */
    float *logits;      /* of a few tokens */
    float *gates;       /* [layers, texts of a batch, H] */
    /* Where runs begin: at `layer`, from stream [tokens, E], the input of that layer, batch after batch. NULL and 0:
     * from the tokens. */
    float *stream;
    int64_t layer;
    void *memory;
} mha__outcome;

mha_status mha__outcome_create(const mha_model *model, const mha_head_data *data, mha__outcome *outcome,
                               mha_error *err);
void mha__outcome_free(mha__outcome *outcome);

/* Runs all texts. gates [layers, H] are those of every text, NULL = ones; fills as in mha_model_input. Sums of a text
 * depend on it alone. Reports progress as `what`; NULL: none. */
mha_status mha__outcome_run(mha__outcome *outcome, const float *gates, const float *fills, const char *what,
                            mha_error *err);

/* Runs all texts through the layer that runs begin at; the next ones begin after it. `stream` has room. Not for the
 * last layer. */
mha_status mha__outcome_advance(mha__outcome *outcome, const float *gates, const float *fills, mha_error *err);

/* Cosine of two vectors; 1 for two of zeros, 0 for one. */
double mha__cosine(int64_t width, const double *a, const double *b);

#endif
