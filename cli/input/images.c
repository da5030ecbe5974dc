/* images.c - see images.h. */
#include "input/images.h"

#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool cli_names_image(const char *text)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg"};
    const size_t length = strlen(text);
    for (size_t n = 0; n < sizeof ends / sizeof *ends; n++)
        if (length > strlen(ends[n]) && strcasecmp(text + length - strlen(ends[n]), ends[n]) == 0) return true;
    return false;
}

bool cli_is_image(const mha_model *model, const char *text)
{
    return mha_model_vision(model) && cli_names_image(text);
}

const mha_model *cli_tower_of(const cli_session *s, const mha_model *model, const cli_texts *texts)
{
    int64_t images = 0;
    const mha_model *vision = mha_model_vision(model);
    for (int64_t i = 0; i < texts->count; i++)
        images += cli_is_image(model, texts->text[i]);
    if (images == 0 && vision != model) return model;
    if (images == texts->count) return vision;
    if (vision == model)
        cli_usage(s, "%s reads images: all arguments must be PNG or JPEG files", cli_shown(s->model_name));
    else
        cli_usage(s, "images and texts must not be mixed (got %lld images of %lld)", (long long)images,
                  (long long)texts->count);
    return NULL;
}

static int read_one(const cli_session *s, const mha_model *vision, const char *path, float *pixels)
{
    mha_image image;
    mha_error error = {0};
    mha_status status = mha_image_read(s->ctx, path, &image, &error);
    if (status == MHA_OK) status = mha_image_prepare(vision, &image, pixels, &error);
    mha_image_free(&image);
    return status == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

int cli_images_read(const cli_session *s, const mha_model *vision, const char *const *path, int64_t count,
                    float **pixels)
{
    const mha_model_info *info = mha_model_describe(vision);
    const int64_t each = info->image_channels * info->image_height * info->image_width;
    *pixels = calloc((size_t)count, (size_t)each * sizeof **pixels);
    if (!*pixels) return cli_error(s, CLI_FAILED, "out of memory for %lld images", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const int code = read_one(s, vision, path[i], *pixels + i * each);
        if (code != CLI_DONE) return code;
    }
    return CLI_DONE;
}

/* ---- vectors ---- */

/* Pools the last hidden states [tokens, width] of an image: their mean, or the class token. */
static void pool(const mha_embed_options *how, const float *x, int64_t tokens, int64_t width, float *out)
{
    double square = 0;
    for (int64_t e = 0; e < width; e++) {
        double sum = 0;
        for (int64_t t = 0; t < (how->pool == MHA_POOL_CLS ? 1 : tokens); t++)
            sum += (double)x[t * width + e];
        out[e] = (float)(how->pool == MHA_POOL_CLS ? sum : sum / (double)tokens);
        square += (double)out[e] * (double)out[e];
    }
    for (int64_t e = 0; e < width && !how->no_normalize && square > 0; e++)
        out[e] = (float)((double)out[e] / sqrt(square));
}

static int embed_image(const cli_session *s, const mha_model *model, const char *path, const mha_embed_options *how,
                       float *out)
{
    const mha_model *vision = mha_model_vision(model);
    const mha_model_info *info = mha_model_describe(vision);
    float *pixels = NULL, *last = calloc((size_t)info->max_positions, (size_t)info->hidden * sizeof *last);
    mha_error error = {0};
    int code = last ? cli_images_read(s, vision, &path, 1, &pixels) : cli_error(s, CLI_FAILED, "out of memory");
    const mha_model_input input = {.size = sizeof input, .batch = 1, .pixels = pixels};
    const mha_model_output output = {
        .size = sizeof output, .last_hidden = last, .embedding = vision == model ? NULL : out};
    if (code == CLI_DONE && mha_model_forward(vision, &input, &output, &error) != MHA_OK) code = cli_refuse(s, &error);
    if (code == CLI_DONE && vision == model) pool(how, last, info->max_positions, info->hidden, out);
    free(pixels);
    free(last);
    return code;
}

static int embed_texts(cli_session *s, const mha_model *model, const cli_texts *texts, const mha_embed_options *how,
                       float *out)
{
    mha_error error = {0};
    const cli_shared_texts *shared = s->shared;
    cli_texts_number(texts);
    const mha_status status = shared ? shared->embed(shared->user, model, texts->text, texts->count, how, out, &error)
                                     : mha_model_embed(model, texts->text, texts->count, how, out, &error);
    const int code = status == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
    cli_texts_number(NULL);
    return code;
}

int cli_vectors_of(cli_session *s, const mha_model *model, const cli_texts *texts, const mha_embed_options *how,
                   float *out)
{
    const int64_t width = mha_model_describe(model)->embedding_width;
    int64_t images = 0;
    for (int64_t i = 0; i < texts->count; i++)
        images += cli_is_image(model, texts->text[i]);
    if (images == 0 && mha_model_vision(model) != model) return embed_texts(s, model, texts, how, out);
    if (images > 0 && mha_model_vision(model) != model && how->no_normalize)
        return cli_usage(s, "--no-normalize must not be given for images of a CLIP model");
    for (int64_t i = 0; i < texts->count; i++) {
        const cli_texts one = {.count = 1, .text = texts->text + i, .bytes = texts->bytes + i};
        const bool image = cli_is_image(model, texts->text[i]) || mha_model_vision(model) == model;
        const int code = image ? embed_image(s, model, texts->text[i], how, out + i * width)
                               : embed_texts(s, model, &one, how, out + i * width);
        if (code != CLI_DONE) return code;
    }
    return CLI_DONE;
}

/* ---- classes ---- */

const char *cli_class_name(const json_t *config, int64_t number, char digits[CLI_CLASS_DIGITS])
{
    snprintf(digits, CLI_CLASS_DIGITS, "%lld", (long long)number);
    const char *name = json_string_value(json_object_get(json_object_get(config, "id2label"), digits));
    return name ? name : digits;
}
