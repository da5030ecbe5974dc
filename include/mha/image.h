/* image.h - reads PNG and JPEG files, as input of models of images (vision.h). */
#ifndef MHA_IMAGE_H
#define MHA_IMAGE_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An image in 8-bit RGB. */
typedef struct mha_image {
    int64_t height, width; /* [pixels] */
    uint8_t *rgb;          /* [height, width, 3] */
    mha_ctx *ctx;          /* context that allocated rgb; NULL if the caller owns rgb */
} mha_image;

/* Reads a PNG or JPEG file; free the image with mha_image_free. The first bytes determine the format. All color types
 * become 8-bit RGB: palettes and grayscale are expanded; of 16-bit samples the high byte is kept; transparency is
 * discarded, without a background; CMYK is read as Adobe stores it (inverted) and converted without a color profile.
 * Orientation (EXIF), gamma and color profiles are ignored, as Pillow does by default.
 * Errors: MHA_ERR_IO; MHA_ERR_FORMAT for a file that is damaged or ends early; MHA_ERR_UNSUPPORTED for other formats,
 * more than 2^25 pixels, files of more than 64 MiB, and for a build without libpng or libjpeg; MHA_ERR_MEMORY. */
MHA_API mha_status mha_image_read(mha_ctx *ctx, const char *path, mha_image *image, mha_error *err);
/* Frees rgb and clears the struct. Does nothing for NULL. */
MHA_API void mha_image_free(mha_image *image);

#ifdef __cplusplus
}
#endif
#endif
