/* batch.h - a batch of token ids on its way into the first layer: checked, with positions, lengths and angles. Shared
 * by the forward pass and by the one that is gone back through. */
#ifndef MHA_MODEL_FORWARD_BATCH_H
#define MHA_MODEL_FORWARD_BATCH_H

#include "layer/arena.h"
#include "model/model_struct.h"

typedef struct mha__batch {
    mha_model_input in;    /* of packed sequences: batch 1, length that of all */
    int64_t sequences;     /* B, as the caller counts them */
    mha_layer_input layer; /* what every block is given */
    bool right_padded;     /* each row of the mask is ones, then zeros */
    int32_t *positions;    /* [B L] */
    int64_t *turns;        /* [L] those of one sequence, for rotation */
    int32_t *zeros;        /* [B L] token types when there are none */
    int64_t *lengths;      /* [B] */
    float *cos, *sin;      /* [B L, rotary_dim / 2] */
} mha__batch;

/* Takes the caller's struct and checks everything but the ids. */
mha_status mha__batch_read(const mha_model *m, mha__batch *batch, const mha_model_input *input, mha_error *err);
/* Places the arrays. */
void mha__batch_lay_out(mha__arena *arena, const mha_model *m, mha__batch *batch);
/* Fills batch->layer. Before there is memory, `lengths` only says that there will be some. */
void mha__batch_describe(mha__batch *batch, const int64_t *lengths);
/* Turns batch->layer to one of the layers: its cache, gates, fills and context. */
void mha__batch_turn(mha__batch *batch, const mha_model *m, int64_t layer);
/* Fills the arrays. */
mha_status mha__batch_fill(const mha_model *m, mha__batch *batch, mha_error *err);

/* x [B L, E]: words, types and positions, scaled where the family scales. What the norm behind them reads, or the
 * first layer. Checks the ids. */
mha_status mha__batch_embed(const mha_model *m, const mha__batch *batch, float *x, mha_error *err);

/* Rows of one map of probabilities, and its keys (model.h). */
int64_t mha__batch_map_rows(const mha__batch *batch);
int64_t mha__batch_map_keys(const mha__batch *batch);

/* The row of a sequence's first token, and of its last real one; the first if there is none. */
int64_t mha__batch_first(const mha__batch *batch, int64_t b);
int64_t mha__batch_last(const mha__batch *batch, int64_t b);

#endif
