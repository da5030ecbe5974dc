/* image_memory.c - memory and errors that the decoders have in common. */
#include "base/ctx.h"
#include "io/image/image_decode.h"
#include "io/input_limits.h"
#include <string.h>

mha_status mha__image_allocate(mha_ctx *ctx, const char *path, int64_t height, int64_t width, mha_image *image,
                               mha_error *err)
{
    if (height < 1 || width < 1 || height > MHA__IMAGE_PIXELS / width)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: an image must have from 1 to %lld pixels (got %lld x %lld)",
                         mha__quote(&(mha__quoted){0}, path, strlen(path)), (long long)MHA__IMAGE_PIXELS,
                         (long long)width, (long long)height);
    const size_t bytes = (size_t)(height * width) * 3;
    *image = (mha_image){.height = height, .width = width, .ctx = ctx, .rgb = mha__alloc(ctx, bytes)};
    return image->rgb ? MHA_OK : mha__no_memory(err, bytes, "an image");
}

mha_status mha__image_broken(const char *path, const char *what, const char *message, mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, "%s: invalid %s file: %s", mha__quote(&(mha__quoted){0}, path, strlen(path)),
                     what, mha__quote(&(mha__quoted){0}, message, strlen(message)));
}

mha_status mha__image_short(const char *path, size_t bytes, int64_t height, int64_t width, mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, "%s: the file must be large enough for %lld x %lld pixels (got %zu bytes)",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)), (long long)width, (long long)height, bytes);
}

void mha_image_free(mha_image *image)
{
    if (!image) return;
    if (image->rgb) mha__free(image->ctx, image->rgb);
    *image = (mha_image){0};
}
