/* preprocessor.c - reads preprocessor_config.json, whose missing keys have the defaults of transformers' classes. */
#include "model/vision/preprocessor.h"

#include "io/json/json.h"
#include <float.h>
#include <string.h>

enum { SIDE = 1 << 15 }; /* most pixels of a side */

static const mha__preprocessor vit = {
    "ViTImageProcessor", .resize = true,          .rescale = true,     .normalize = true,       .height = 224,
    .width = 224,        .filter = MHA__BILINEAR, .factor = 1.0 / 255, .mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}};
static const mha__preprocessor clip = {"CLIPImageProcessor",
                                       .resize = true,
                                       .crop = true,
                                       .rescale = true,
                                       .normalize = true,
                                       .shortest = 224,
                                       .filter = MHA__BICUBIC,
                                       .crop_height = 224,
                                       .crop_width = 224,
                                       .factor = 1.0 / 255,
                                       .mean = {0.48145466, 0.4578275, 0.40821073},
                                       .std = {0.26862954, 0.26130258, 0.27577711}};

/* Sets the defaults of the class that the file names. */
static mha_status read_class(const mha__json_obj *o, bool of_clip, mha__preprocessor *p, mha_error *err)
{
    static const char *const suffixes[] = {"ImageProcessor", "ImageProcessorFast", "ImageProcessorPil",
                                           "FeatureExtractor"};
    const char *const key =
        mha__json_has(o, "image_processor_type") ? "image_processor_type" : "feature_extractor_type";
    const char *name = of_clip ? clip.kind : vit.kind;
    MHA__TRY(mha__json_string(o, key, MHA__OPTIONAL, &name, NULL, err));
    const bool is_clip = strncmp(name, "CLIP", 4) == 0;
    const char *rest = name + (is_clip ? 4 : strncmp(name, "ViT", 3) == 0 ? 3 : 0);
    for (size_t n = 0; n < sizeof suffixes / sizeof *suffixes; n++)
        if (rest != name && strcmp(rest, suffixes[n]) == 0) {
            *p = is_clip ? clip : vit;
            return MHA_OK;
        }
    return mha__json_refuse(o, key, "ViTImageProcessor or CLIPImageProcessor", err);
}

/* Reads a size: a number, or height and width, or, if `shortest` is not NULL, shortest_edge. */
static mha_status read_size(const mha__json_obj *o, const char *key, int64_t *height, int64_t *width, int64_t *shortest,
                            mha_error *err)
{
    static const char *const sides[] = {"height", "width", NULL}, *const edge[] = {"shortest_edge", NULL};
    mha__json_obj size = {0};
    if (!mha__json_has(o, key)) return MHA_OK;
    if (mha__json_is_number(mha__json_get(o->json, key))) {
        int64_t side = 0;
        MHA__TRY(mha__json_dim(o, key, MHA__REQUIRED, SIDE, &side, err));
        if (shortest && *shortest)
            *shortest = side;
        else
            *height = *width = side;
        return MHA_OK;
    }
    MHA__TRY(mha__json_object(o, key, MHA__REQUIRED, &size, err));
    if (shortest) *shortest = 0;
    if (shortest && mha__json_has(&size, edge[0])) {
        MHA__TRY(mha__json_only(&size, edge, "shortest_edge, or height and width", err));
        return mha__json_dim(&size, edge[0], MHA__REQUIRED, SIDE, shortest, err);
    }
    MHA__TRY(mha__json_only(&size, sides, shortest ? "height and width, or shortest_edge" : "height and width", err));
    MHA__TRY(mha__json_dim(&size, sides[0], MHA__REQUIRED, SIDE, height, err));
    return mha__json_dim(&size, sides[1], MHA__REQUIRED, SIDE, width, err);
}

/* Reads one number per channel. */
static mha_status read_channels(const mha__json_obj *o, const char *key, bool positive, double x[3], mha_error *err)
{
    const mha__json *list = NULL;
    MHA__TRY(mha__json_array(o, key, MHA__OPTIONAL, &list, err));
    if (!list) return MHA_OK;
    if (mha__json_size(list) != 3) return mha__json_refuse(o, key, "a list of 3 numbers", err);
    for (size_t n = 0; n < 3; n++) {
        const mha__json *item = mha__json_item(list, n);
        x[n] = mha__json_as_number(item);
        if (!mha__json_is_number(item) || !(x[n] <= FLT_MAX && x[n] >= (positive ? (double)FLT_MIN : -(double)FLT_MAX)))
            return mha__json_refuse_item(o, key, n, positive ? "a number above 0" : "a number", err);
    }
    return MHA_OK;
}

static mha_status read_keys(const mha__json_obj *o, bool of_clip, mha__preprocessor *p, mha_error *err)
{
    int64_t filter = 0;
    MHA__TRY(read_class(o, of_clip, p, err));
    MHA__TRY(mha__json_bool(o, "do_resize", MHA__OPTIONAL, &p->resize, err));
    MHA__TRY(mha__json_bool(o, "do_center_crop", MHA__OPTIONAL, &p->crop, err));
    MHA__TRY(mha__json_bool(o, "do_rescale", MHA__OPTIONAL, &p->rescale, err));
    MHA__TRY(mha__json_bool(o, "do_normalize", MHA__OPTIONAL, &p->normalize, err));
    MHA__TRY(read_size(o, "size", &p->height, &p->width, &p->shortest, err));
    MHA__TRY(read_size(o, "crop_size", &p->crop_height, &p->crop_width, NULL, err));
    MHA__TRY(mha__json_number(o, "rescale_factor", MHA__OPTIONAL, -(double)FLT_MAX, FLT_MAX, &p->factor, err));
    MHA__TRY(read_channels(o, "image_mean", false, p->mean, err));
    MHA__TRY(read_channels(o, "image_std", true, p->std, err));
    filter = p->filter;
    MHA__TRY(mha__json_int(o, "resample", MHA__OPTIONAL, INT64_MIN, INT64_MAX, &filter, err));
    p->filter = (mha__filter)filter;
    if (filter == MHA__LANCZOS || filter == MHA__BILINEAR || filter == MHA__BICUBIC) {
        if (!p->crop || p->crop_height) return MHA_OK;
        return mha__json_refuse(o, "crop_size", "present with do_center_crop", err);
    }
    return mha__json_refuse(o, "resample", "1, 2 or 3 (Lanczos, bilinear or bicubic)", err);
}

static mha_status read_file(mha_ctx *ctx, const char *folder, const char *name, const char *key, bool of_clip,
                            mha__preprocessor *p, mha_error *err)
{
    const mha__json *json = NULL;
    mha_status status = mha__json_read(ctx, folder, name, MHA__CONFIG_BYTES, &json, err);
    if (status != MHA_OK) return mha__in_folder(status, folder, name, err);
    mha__json_obj root = {.json = json, .file = name}, o = root;
    if (key) status = mha__json_object(&root, key, MHA__OPTIONAL, &o, err);
    if (status == MHA_OK && o.json) status = read_keys(&o, of_clip, p, err);
    mha__json_free(json);
    return mha__in_folder(status, folder, name, err);
}

mha_status mha__preprocessor_read(mha_ctx *ctx, const char *folder, bool of_clip, mha__preprocessor *p, mha_error *err)
{
    static const char *const files[][2] = {{"preprocessor_config.json", NULL},
                                           {"processor_config.json", "image_processor"}};
    *p = (mha__preprocessor){0};
    for (size_t n = 0; n < 2 && !p->kind; n++)
        if (mha__source_exists(folder, files[n][0]))
            MHA__TRY(read_file(ctx, folder, files[n][0], files[n][1], of_clip, p, err));
    return MHA_OK;
}
