/* weight_layer.h - the projections of the heads of one layer in double, with the norms around them folded in
 * (mha/weight_circuits.h). */
#ifndef MHA_CIRCUITS_WEIGHT_LAYER_H
#define MHA_CIRCUITS_WEIGHT_LAYER_H

#include "heads/weights/head_weights.h"

typedef struct mha__circuit_layer {
    const mha_model *model;
    int64_t layer;
    mha__weights weights;   /* a copy with its own list of converted tensors */
    const float *data[4];   /* per mha__projection */
    mha_norm norm, written; /* norms before and after attention; weight NULL = not folded */
    bool centred;           /* the mean over the width is subtracted */
} mha__circuit_layer;

/* Finds the tensors of a layer. The caller must call mha__circuit_layer_close even after a failure. */
mha_status mha__circuit_layer_open(const mha_model *model, int64_t layer, bool folded, mha__circuit_layer *out,
                                   mha_error *err);
void mha__circuit_layer_close(mha__circuit_layer *layer);

/* Writes the rows [D, E] of a head in a projection; for o, of its transpose. */
void mha__circuit_head(const mha__circuit_layer *layer, mha__projection which, int64_t head, double *out);

/* Multiplies `rows` rows [width] by the weight of a norm, which may be NULL. If `centred`, then subtracts the mean of
 * each row. */
void mha__circuit_fold(int64_t rows, int64_t width, const float *weight, bool centred, double *x);

#endif
