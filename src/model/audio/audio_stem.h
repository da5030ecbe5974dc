/* audio_stem.h - the input of an encoder that reads audio features (Whisper): two convolutions, each with GELU, instead
 * of word embeddings. The second one halves the number of frames. Both are always computed in f32. */
#ifndef MHA_MODEL_AUDIO_AUDIO_STEM_H
#define MHA_MODEL_AUDIO_AUDIO_STEM_H

#include "base/arena.h"
#include "layer/convolution.h"
#include "model/model_struct.h"

/* Fails unless the features of the input are given to such an encoder, with its length, and to no other model. */
mha_status mha__stem_check(const mha_model *m, const mha_model_input *in, mha_error *err);
/* Computes x [B L, E] from the features [B, bins, 2 L] of the input. */
mha_status mha__stem_forward(const mha_model *m, const mha_model_input *in, float *x, mha_error *err);

/* The arrays of one sequence. */
typedef struct mha__stem {
    mha__signal features, middle; /* inputs of the two convolutions: [bins, 2 L] and [2 L, E] */
    float *first, *second;        /* gathered rows [2 L, 3 bins] and [L, 3 E] */
    float *wide;                  /* [2 L, E] output of the first convolution */
    /* for gradients: the convolutions before their activations [2 L, E] and [L, E], and the gradients of `second` and
     * `wide` */
    float *before, *after, *dsecond, *dwide;
    void *memory;
} mha__stem;

/* Allocates the arrays, with `gradients` those of the backward pass too. */
mha_status mha__stem_create(const mha_model *m, bool gradients, mha__stem *stem, mha_error *err);

#endif
