/* evaluate_texts.h - runs texts through a model and stores the embedding and the loss of each text. */
#ifndef MHA_HEADS_DATA_EVALUATE_TEXTS_H
#define MHA_HEADS_DATA_EVALUATE_TEXTS_H

#include "heads/weights/head_kinds.h"
#include "mha/head_data.h"

/* Buffers and results of forward passes over the same texts, batch by batch. Each run reuses them. */
typedef struct mha__outcome {
    const mha_model *model;
    const mha_head_data *data;
    bool predicts;      /* true if the model is causal and has logits */
    double *embeddings; /* [texts, E] mean of the last hidden states of each text */
    double *losses;     /* [texts] sum of -log p of all tokens except the first; zeros unless the model is causal */
    float *hidden;      /* [tokens of a batch, E] */
    float *logits;      /* logits of a few tokens at a time */
    float *room;        /* input of the output matrix for these tokens */
    mha__head_sets sets;
    float *gates; /* [layers, texts of a batch, H], kind after kind */
    /* The first layer that each run computes, and its input `stream` [tokens of a batch, E]. NULL and 0 = runs start
     * from the tokens. */
    float *stream;
    int64_t layer;
    void *memory;
} mha__outcome;

mha_status mha__outcome_create(const mha_model *model, const mha_head_data *data, mha__outcome *outcome,
                               mha_error *err);
void mha__outcome_free(mha__outcome *outcome);

/* Runs the texts of a batch. `gates` [total] (head_kinds.h) apply to every text; NULL = all gates are 1. `fills`
 * [sets.cells] are those of mha_model_input, kind after kind. The results of a text do not depend on the other texts of
 * the batch. */
mha_status mha__outcome_batch(const mha__outcome *outcome, int64_t batch, const float *gates, const float *fills,
                              mha_error *err);

/* Advances the start of the runs by one layer: runs the batch through that layer and stores its output in `stream`.
 * `stream` must be allocated. Must not be called at the last layer. */
mha_status mha__outcome_advance(mha__outcome *outcome, int64_t batch, const float *gates, const float *fills,
                                mha_error *err);

/* Returns the cosine of two vectors; 1 if both are zero, 0 if only one is. */
double mha__cosine(int64_t width, const double *a, const double *b);

#endif
