/* image_input.h - the input of a model of images: pixels, their patches, and the sequence of the class token and the
 * projected patches. */
#ifndef MHA_MODEL_VISION_IMAGE_INPUT_H
#define MHA_MODEL_VISION_IMAGE_INPUT_H

#include "model/model_struct.h"

/* Checks that models of images get pixels and other models get none, and sets in->length to the tokens of an image. */
mha_status mha__image_read(const mha_model *m, mha_model_input *in, mha_error *err);

/* Writes the patches [patches, channels patch_height patch_width] of one image [channels, height, width]. */
void mha__image_patches(const mha__config *c, const float *image, float *patches);

/* Writes x [count L, E]: for each of `count` images, the class token and the projections of all patches, without
 * positions. `patches` is scratch for the patches of one image. */
mha_status mha__image_embed(const mha_model *m, const float *pixels, int64_t count, float *patches, float *x,
                            mha_error *err);

#endif
