/* preprocessor.h - how images become pixels: the validated content of preprocessor_config.json. */
#ifndef MHA_MODEL_VISION_PREPROCESSOR_H
#define MHA_MODEL_VISION_PREPROCESSOR_H

#include "io/image/resample.h"
#include <stdbool.h>

typedef struct mha__preprocessor {
    const char *kind; /* name of the class; NULL = unknown */
    bool resize, crop, rescale, normalize;
    int64_t height, width; /* size after resizing; 0 = unknown */
    int64_t shortest;      /* the shorter side after resizing, instead of height and width; 0 = none */
    mha__filter filter;
    int64_t crop_height, crop_width;
    double factor, mean[3], std[3];
} mha__preprocessor;

/* Reads the file of the folder, if there is one. */
mha_status mha__preprocessor_read(mha_ctx *ctx, const char *folder, bool clip, mha__preprocessor *p, mha_error *err);

#endif
