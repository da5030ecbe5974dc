/* pooler_logits.h - the outputs after the last layer: pooler output and logits. */
#ifndef MHA_MODEL_FORWARD_POOLER_LOGITS_H
#define MHA_MODEL_FORWARD_POOLER_LOGITS_H

#include "model/forward/batch.h"

/* Returns MHA_ERR_UNSUPPORTED if the checkpoint lacks a requested part. */
mha_status mha__head_check(const mha_model *m, bool pooled, bool logits, mha_error *err);
/* The same for the outputs that only models of images and CLIP have or lack. */
mha_status mha__head_check_vision(const mha_model *m, const mha__batch *batch, bool pooled, bool last_logits,
                                  bool embedding, mha_error *err);

/* Returns MHA_ERR_UNSUPPORTED unless the model has logits of tokens. */
mha_status mha__head_check_tokens(const mha_model *m, mha_error *err);

/* Returns the number of different labels: 2 in a discriminator, whose only logit is the log-odds of label 1. */
static inline int64_t mha__head_classes(const mha_model *m)
{
    return m->config.discriminator ? 2 : m->config.logit_width;
}

/* Returns the row of a sequence that is pooled: the first or, in a text of CLIP, that of the token that ends it. */
int64_t mha__head_pooled_row(const mha_model *m, const mha__batch *batch, int64_t b);

/* Computes pooled [B, E] from x [B, L, E]; `first` is scratch [B, E], which receives the rows that are pooled. */
mha_status mha__head_pool(const mha_model *m, const mha__batch *batch, const float *x, float *first, float *pooled,
                          mha_error *err);

/* Computes embedding [B, P] from x [B, L, E]: the L2-normalized projection of the pooled vectors; `first` is scratch
 * [B, E]. */
mha_status mha__head_embed(const mha_model *m, const mha__batch *batch, const float *x, float *first, float *embedding,
                           mha_error *err);
/* Divides each row [count, width] by its L2 norm; a zero row stays zero, as in torch.nn.functional.normalize. */
void mha__head_normalize(float *x, int64_t count, int64_t width);

/* Returns the number of rows of x that have logits, and copies them to `first` if they are not all rows: in an image
 * classifier, one row per image. Sets *from to these rows. */
int64_t mha__head_rows(const mha_model *m, const mha__batch *batch, const float *x, float *first, const float **from);

/* Sets *input to the input of the output matrix: x [rows, E] or, with a dense layer, its output, normalized if the head
 * has a norm, in `room` [rows, E]. */
mha_status mha__head_input(const mha_model *m, int64_t rows, const float *x, float *room, const float **input,
                           mha_error *err);
mha_status mha__head_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err);

#endif
