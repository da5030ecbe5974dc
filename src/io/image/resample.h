/* resample.h - resizes 8-bit images as the Pillow library does, bit by bit (Pillow 13 chooses which dimension is
 * first). */
#ifndef MHA_IO_IMAGE_RESAMPLE_H
#define MHA_IO_IMAGE_RESAMPLE_H

#include "base/error.h"
#include "mha/image.h"

/* The filters that preprocessor_config.json may name, by their numbers there. */
typedef enum mha__filter { MHA__LANCZOS = 1, MHA__BILINEAR = 2, MHA__BICUBIC = 3 } mha__filter;

/* Resizes `from` to height x width; `to` must be freed. The width is changed first, then the height; in between,
 * samples are rounded to 8 bits. The filter is stretched by the scale when the image is reduced. An image of the
 * same size is copied. */
mha_status mha__resample(mha_ctx *ctx, const mha_image *from, mha__filter filter, int64_t height, int64_t width,
                         mha_image *to, mha_error *err);

#endif
