/* image_decode.h - decoders of image files in memory. Each checks the dimensions before it allocates memory, and fails
 * on any error that its library reports, including truncated data. */
#ifndef MHA_IO_IMAGE_IMAGE_DECODE_H
#define MHA_IO_IMAGE_IMAGE_DECODE_H

#include "base/error.h"
#include "mha/image.h"

/* Allocates image->rgb. Rejects more than MHA__IMAGE_PIXELS pixels. Messages begin with `path`. */
mha_status mha__image_allocate(mha_ctx *ctx, const char *path, int64_t height, int64_t width, mha_image *image,
                               mha_error *err);
/* Fails with "PATH: WHAT: MESSAGE", where the message is that of a library. */
mha_status mha__image_broken(const char *path, const char *what, const char *message, mha_error *err);
/* Fails because the file has fewer bytes than an image of this size can have. */
mha_status mha__image_short(const char *path, size_t bytes, int64_t height, int64_t width, mha_error *err);

/* Decodes PNG or JPEG, whichever the first bytes say. The caller must free *image even after an error. */
mha_status mha__image_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                             mha_error *err);

mha_status mha__png_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                           mha_error *err);
mha_status mha__jpeg_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                            mha_error *err);

#endif
