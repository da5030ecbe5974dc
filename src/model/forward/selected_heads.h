/* selected_heads.h - which heads each sequence has computed: what layers that choose heads report, as the rows of
 * mha_model_output.kept. */
#ifndef MHA_MODEL_FORWARD_SELECTED_HEADS_H
#define MHA_MODEL_FORWARD_SELECTED_HEADS_H

#include "model/forward/batch.h"

/* Lets a layer that chooses heads write to its rows of kept [layers, B, H]; NULL: not wanted. */
void mha__selected_heads_begin(const mha_model *m, mha__batch *batch, int64_t layer, uint8_t *kept);
/* Fills the rows of `kept` after the layer has run. */
void mha__selected_heads_report(const mha_model *m, const mha__batch *batch, int64_t layer, uint8_t *kept);

#endif
