/* observers.h - what a pass shows of its attention: maps of chosen heads, statistics of rows and keys, activations
 * (model.h). */
#ifndef MHA_MODEL_FORWARD_OBSERVERS_H
#define MHA_MODEL_FORWARD_OBSERVERS_H

#include "model/forward/batch.h"

typedef struct mha__taps {
    const mha_model_output *out;
    int64_t rows, keys;                /* of one map */
    int64_t most;                      /* heads that any layer shows */
    int64_t first, count;              /* of the list: the heads of the layer at hand; without a list all of them */
    float *probs;                      /* [sequences, heads, rows, keys] */
    int32_t *heads;                    /* [map_count] those of the list, as the operator reads them */
    mha_attn_stats stats;              /* contiguous, so of any number of heads that a layer has */
    mha_layer_activations activations; /* likewise */
    mha_attn_visitor visitor;          /* hands rows on to out->on_rows, with the layer */
    int64_t layer;
    float some_probs; /* these stand for arrays that do not exist yet, and are not touched */
    int32_t some_heads;
} mha__taps;

/* Checks the list of heads. `out` stays where it is as long as the taps are used. */
mha_status mha__taps_read(const mha_model *m, const mha__batch *batch, const mha_model_output *out, mha__taps *taps,
                          mha_error *err);
void mha__taps_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, mha__taps *taps);
/* Turns batch->layer to what is wanted of this layer; before there is memory, only which things these are. */
void mha__taps_turn(mha__taps *taps, const mha_model *m, mha__batch *batch, int64_t layer);
/* Calls back with what the layer has filled. */
mha_status mha__taps_show(const mha__taps *taps, const mha_model *m, const mha__batch *batch, int64_t layer,
                          mha_error *err);

/* MHA_ERR_CANCELLED: that callback stopped the pass. */
mha_status mha__taps_stopped(mha_error *err, const char *callback, int64_t entry);

#endif
