/* image_input.c - divides images into patches and projects them. Each image is a product of its own, so its rows do not
 * depend on other images of the batch. */
#include "model/vision/image_input.h"

#include "base/error.h"
#include <string.h>

/* Returns the name of a field that models of images do not support, if it is set. */
static const char *unsupported(const mha_model_input *in)
{
    return in->ids         ? "ids"
           : in->type_ids  ? "type_ids"
           : in->mask      ? "mask"
           : in->positions ? "positions"
           : in->cache     ? "cache"
           : in->shard     ? "shard"
           : in->source    ? "source"
           : in->features  ? "features"
                           : NULL;
}

/* Checks that each packed sequence is an image. */
static mha_status check_starts(const mha_model *m, const mha_model_input *in, mha_error *err)
{
    const int64_t tokens = m->config.max_positions;
    for (int64_t b = 0; b < in->batch; b++)
        if (in->starts[b + 1] - in->starts[b] != tokens)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_input: sequence %lld must have the tokens of an image, %lld (got %lld)",
                             (long long)b, (long long)tokens, (long long)(in->starts[b + 1] - in->starts[b]));
    return MHA_OK;
}

mha_status mha__image_read(const mha_model *m, mha_model_input *in, mha_error *err)
{
    const mha__config *c = &m->config;
    const char *other = unsupported(in);
    if (!c->channels)
        return !in->pixels
                   ? MHA_OK
                   : mha__fail(err, MHA_ERR_ARG, "mha_model_input: pixels must be NULL, since %s reads token ids",
                               m->info.family);
    if (other)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: %s must be NULL, since %s reads pixels", other,
                         m->info.family);
    if (!in->pixels && !in->hidden)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: pixels must not be NULL, since %s reads images",
                         m->info.family);
    if (in->starts) return check_starts(m, in, err);
    if (in->length != 0 && in->length != c->max_positions)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: length must be 0 or the number of tokens of an image, %lld (got %lld)",
                         (long long)c->max_positions, (long long)in->length);
    in->length = c->max_positions;
    return MHA_OK;
}

void mha__image_patches(const mha__config *c, const float *image, float *patches)
{
    const int64_t H = c->image_height, W = c->image_width, ph = c->patch_height, pw = c->patch_width;
    for (int64_t y = 0; y + ph <= H; y += ph)
        for (int64_t x = 0; x + pw <= W; x += pw)
            for (int64_t row = 0; row < c->channels * ph; row++, patches += pw) {
                const int64_t channel = row / ph, line = row % ph;
                memcpy(patches, image + (channel * H + y + line) * W + x, (size_t)pw * sizeof *patches);
            }
}

mha_status mha__image_embed(const mha_model *m, const float *pixels, int64_t count, float *patches, float *x,
                            mha_error *err)
{
    const mha__config *c = &m->config;
    const int64_t width = c->hidden, length = c->max_positions;
    const int64_t image = c->channels * c->image_height * c->image_width;
    for (int64_t n = 0; n < count; n++, x += length * width) {
        memcpy(x, m->class_token.weight, (size_t)width * sizeof *x);
        mha__image_patches(c, pixels + n * image, patches);
        MHA__TRY(mha_linear_forward(m->patches, patches, length - 1, x + width, err));
    }
    return MHA_OK;
}
