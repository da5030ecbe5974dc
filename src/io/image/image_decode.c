/* image_decode.c - reads an image file, and selects the decoder by its first bytes. */
#include "io/image/image_decode.h"

#include "base/ctx.h"
#include "io/files/input_file.h"
#include "io/input_limits.h"
#include <string.h>

mha_status mha__image_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                             mha_error *err)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}, jpeg[] = {0xFF, 0xD8, 0xFF};
    if (n >= sizeof png && memcmp(bytes, png, sizeof png) == 0) return mha__png_decode(ctx, path, bytes, n, image, err);
    if (n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0)
        return mha__jpeg_decode(ctx, path, bytes, n, image, err);
    const char *kind = mha__foreign(bytes, n);
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: must be a PNG or JPEG file (got %s)",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)), kind ? kind : "other data");
}

mha_status mha_image_read(mha_ctx *ctx, const char *path, mha_image *image, mha_error *err)
{
    char *bytes = NULL;
    size_t n = 0;
    if (!path || !image)
        return mha__fail(err, MHA_ERR_ARG, "mha_image_read: %s must not be NULL", path ? "image" : "path");
    *image = (mha_image){0};
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__read_whole(ctx, NULL, path, MHA__IMAGE_BYTES, &bytes, &n, err));
    const mha_status status = mha__image_decode(ctx, path, (const uint8_t *)bytes, n, image, err);
    if (status != MHA_OK) mha_image_free(image);
    mha__free(ctx, bytes);
    return status;
}
