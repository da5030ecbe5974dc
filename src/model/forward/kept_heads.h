/* kept_heads.h - which heads each sequence has computed: what layers that choose heads report, as the rows of
 * mha_model_output.kept. */
#ifndef MHA_MODEL_FORWARD_KEPT_HEADS_H
#define MHA_MODEL_FORWARD_KEPT_HEADS_H

#include "model/forward/batch.h"

/* Lets a layer that chooses heads write to its rows of kept [layers, B, H]; NULL: not wanted. */
void mha__kept_heads_turn(const mha_model *m, mha__batch *batch, int64_t layer, uint8_t *kept);
/* Fills the rows of `kept` after the layer has run. */
void mha__kept_heads_show(const mha_model *m, const mha__batch *batch, int64_t layer, uint8_t *kept);

#endif
