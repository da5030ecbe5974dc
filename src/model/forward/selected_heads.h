/* selected_heads.h - the heads that were computed for each sequence: the selections of the layers, as rows of
 * mha_model_output.kept. */
#ifndef MHA_MODEL_FORWARD_SELECTED_HEADS_H
#define MHA_MODEL_FORWARD_SELECTED_HEADS_H

#include "model/forward/batch.h"

/* If the layer selects heads, sets batch->layer.kept so that the layer writes to its rows of kept [layers, B, H]. Does
 * nothing if `kept` is NULL. */
void mha__selected_heads_begin(const mha_model *m, mha__batch *batch, int64_t layer, uint8_t *kept);
/* Completes the rows of `kept` after the layer has run: moves the rows that it wrote, or marks all heads as kept. */
void mha__selected_heads_report(const mha_model *m, const mha__batch *batch, int64_t layer, uint8_t *kept);

#endif
