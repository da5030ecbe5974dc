/* image_prepare.c - resizes, crops, scales and normalizes an image, as the preprocessor of its model says. */
#include "base/error.h"
#include "io/input_limits.h"
#include "mha/vision.h"
#include "model/model_struct.h"

/* Computes the size after resizing. */
static void resized(const mha__preprocessor *p, const mha_image *image, int64_t *height, int64_t *width)
{
    const bool tall = image->height >= image->width;
    const int64_t small = tall ? image->width : image->height, large = tall ? image->height : image->width;
    *height = p->resize ? p->height : image->height;
    *width = p->resize ? p->width : image->width;
    if (!p->resize || !p->shortest) return;
    const int64_t other = (int64_t)((double)(p->shortest * large) / (double)small);
    *height = tall ? other : p->shortest;
    *width = tall ? p->shortest : other;
}

/* Returns where a side of the crop begins in the image; negative if the image is padded. */
static int64_t crop_begin(int64_t side, int64_t crop)
{
    return side >= crop ? (side - crop) / 2 : -((crop - side) / 2);
}

/* Writes the pixels of the part of the image that begins at row `top` and column `left`; pixels outside are zeros. */
static void write_pixels(const mha__preprocessor *p, const mha__config *c, const mha_image *image, int64_t top,
                         int64_t left, float *pixels)
{
    for (int channel = 0; channel < 3; channel++)
        for (int64_t y = top; y < top + c->image_height; y++)
            for (int64_t x = left; x < left + c->image_width; x++) {
                const bool inside = y >= 0 && x >= 0 && y < image->height && x < image->width;
                double value = inside ? image->rgb[(y * image->width + x) * 3 + channel] : 0;
                if (p->rescale) value *= p->factor;
                if (p->normalize) value = (value - p->mean[channel]) / p->std[channel];
                *pixels++ = (float)value;
            }
}

static mha_status check_size(const mha_model *m, int64_t height, int64_t width, mha_error *err)
{
    const mha__config *c = &m->config;
    const mha__preprocessor *p = &m->preprocessor;
    const int64_t got_height = p->crop ? p->crop_height : height, got_width = p->crop ? p->crop_width : width;
    if (got_height == c->image_height && got_width == c->image_width) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_UNSUPPORTED, "preprocessor_config.json must give the model's %lld x %lld pixels (got %lld x %lld)",
        (long long)c->image_width, (long long)c->image_height, (long long)got_width, (long long)got_height);
}

static mha_status check(const mha_model *m, const mha_image *image, const float *pixels, mha_error *err)
{
    if (!m || !image || !image->rgb || !pixels)
        return mha__fail(err, MHA_ERR_ARG, "mha_image_prepare: model, image, its rgb and pixels must not be NULL");
    if (image->height < 1 || image->width < 1 || image->height > MHA__IMAGE_PIXELS / image->width)
        return mha__fail(err, MHA_ERR_ARG, "mha_image_prepare: image must have from 1 to %lld pixels (got %lld x %lld)",
                         (long long)MHA__IMAGE_PIXELS, (long long)image->width, (long long)image->height);
    if (!m->config.channels)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_image_prepare: model must read images (got %s)",
                         m->info.family);
    if (m->config.channels != 3)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_image_prepare: num_channels must be 3 (got %lld)",
                         (long long)m->config.channels);
    if (m->preprocessor.kind) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "mha_image_prepare: the model's folder must have preprocessor_config.json (it is absent)");
}

mha_status mha_image_prepare(const mha_model *m, const mha_image *image, float *pixels, mha_error *err)
{
    int64_t height, width;
    mha_image small = {0};
    MHA__TRY(check(m, image, pixels, err));
    const mha__preprocessor *p = &m->preprocessor;
    resized(p, image, &height, &width);
    MHA__TRY(check_size(m, height, width, err));
    if (p->resize) MHA__TRY(mha__resample(m->ctx, image, p->filter, height, width, &small, err));
    const mha_image *from = p->resize ? &small : image;
    write_pixels(p, &m->config, from, p->crop ? crop_begin(height, p->crop_height) : 0,
                 p->crop ? crop_begin(width, p->crop_width) : 0, pixels);
    mha_image_free(&small);
    return MHA_OK;
}
