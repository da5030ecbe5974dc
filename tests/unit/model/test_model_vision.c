/* test_model_vision.c - tests models of images: batches and packed images, bitwise independence, gradients of gates
 * against differences, and refusals. */
#include "mha/generate.h"
#include "mha/head_data.h"
#include "mha/importance.h"
#include "mha/train.h"
#include "mha/vision.h"
#include "support/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLIP MHA_TEST_DATA "/vision/clip-eos"
#define VIT MHA_TEST_DATA "/vision/vit-classes"

enum { IMAGES = 3 };

static mha_error err;

static mha_model *open_model(const char *folder)
{
    mha_model *model = NULL;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    assert_int_equal(mha_model_open(NULL, folder, &o, &model, &err), MHA_OK);
    return model;
}

/* Returns pixels of IMAGES images that repeat no value. */
static float *some_pixels(const mha_model_info *info)
{
    const int64_t count = IMAGES * info->image_channels * info->image_height * info->image_width;
    float *pixels = calloc((size_t)count, sizeof *pixels);
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (float)sin(0.37 * (double)i);
    return pixels;
}

static float *run(const mha_model *vision, const mha_model_input *input)
{
    const mha_model_info *info = mha_model_describe(vision);
    float *x = calloc((size_t)(IMAGES * info->max_positions * info->hidden), sizeof *x);
    const mha_model_output output = {.size = sizeof output, .last_hidden = x};
    assert_int_equal(mha_model_forward(vision, input, &output, &err), MHA_OK);
    return x;
}

/* Alone, in a batch and packed, an image has the same states; the pass may start at any layer. */
static void images_are_independent(void **state)
{
    (void)state;
    const char *const folders[] = {CLIP, VIT};
    for (int n = 0; n < 2; n++) {
        mha_model *model = open_model(folders[n]);
        const mha_model *vision = mha_model_vision(model);
        const mha_model_info *info = mha_model_describe(vision);
        float *pixels = some_pixels(info);
        const int64_t L = info->max_positions, count = L * info->hidden;
        const int64_t image = info->image_channels * info->image_height * info->image_width;
        const int64_t starts[] = {0, L, 2 * L, 3 * L};
        const mha_model_input all = {.size = sizeof all, .batch = IMAGES, .pixels = pixels};
        const mha_model_input packed = {.size = sizeof packed, .batch = IMAGES, .pixels = pixels, .starts = starts};
        const mha_model_input last = {.size = sizeof last, .batch = 1, .length = L, .pixels = pixels + 2 * image};
        float *a = run(vision, &all), *b = run(vision, &packed), *c = run(vision, &last);
        assert_memory_equal(a, b, (size_t)(IMAGES * count) * sizeof *a);
        assert_memory_equal(a + 2 * count, c, (size_t)count * sizeof *a);
        free(a);
        free(b);
        free(c);
        free(pixels);
        mha_model_free(model);
    }
}

/* Returns the sum of embedding times `up` for a text or an image. */
static double score(const mha_model *model, const mha_model_input *input, const float *up)
{
    float e[16];
    double sum = 0;
    const mha_model_output output = {.size = sizeof output, .embedding = e};
    assert_int_equal(mha_model_forward(model, input, &output, &err), MHA_OK);
    for (int i = 0; i < 16; i++)
        sum += (double)e[i] * (double)up[i];
    return sum;
}

/* The gradient of the gates must be that of central differences, through projection, norm and normalization. */
static void gate_gradients_are_differences(void **state)
{
    (void)state;
    mha_model *model = open_model(CLIP);
    const int32_t ids[] = {9, 30, 12, 7, 7};
    float *pixels = some_pixels(mha_model_describe(mha_model_vision(model))), up[16];
    for (int i = 0; i < 16; i++)
        up[i] = (float)cos(1.3 * i);
    for (int tower = 0; tower < 2; tower++) {
        const mha_model *m = tower ? mha_model_vision(model) : model;
        const mha_model_info *info = mha_model_describe(m);
        float gates[8], dgates[8];
        mha_model_grads *grads = NULL;
        mha_model_input input = {.size = sizeof input, .batch = 1, .gates = gates};
        if (tower)
            input.pixels = pixels;
        else
            input.ids = ids, input.length = 5;
        for (int64_t i = 0; i < info->layers * info->heads; i++)
            gates[i] = 1;
        const mha_model_gradient wanted = {.size = sizeof wanted, .embedding = up, .gates = dgates};
        assert_int_equal(mha_model_grads_create(m, NULL, &grads, &err), MHA_OK);
        assert_int_equal(mha_model_grads_forward(grads, &input, NULL, &err), MHA_OK);
        assert_int_equal(mha_model_grads_backward(grads, &wanted, &err), MHA_OK);
        for (int64_t i = 0; i < info->layers * info->heads; i++) {
            gates[i] = 1.01F;
            const double more = score(m, &input, up);
            gates[i] = 0.99F;
            const double less = score(m, &input, up);
            gates[i] = 1;
            if (fabs((more - less) / 0.02 - (double)dgates[i]) > 2e-3)
                fail_msg("tower %d, gate %d: gradient must be %g (got %g)", tower, (int)i, (more - less) / 0.02,
                         (double)dgates[i]);
        }
        mha_model_grads_free(grads);
    }
    free(pixels);
    mha_model_free(model);
}

/* Two equal texts and two equal images give the logarithm of 2. */
static void loss_of_equal_pairs(void **state)
{
    (void)state;
    mha_model *model = open_model(CLIP);
    const int32_t ids[] = {9, 30, 7, 9, 30, 7};
    const mha_model_info *info = mha_model_describe(mha_model_vision(model));
    const int64_t image = info->image_channels * info->image_height * info->image_width;
    float *pixels = some_pixels(info);
    memcpy(pixels + image, pixels, (size_t)image * sizeof *pixels);
    const mha_model_input texts = {.size = sizeof texts, .batch = 2, .length = 3, .ids = ids};
    mha_model_input images = {.size = sizeof images, .batch = 2, .pixels = pixels};
    mha_clip_loss_args args = {.size = sizeof args, .texts = &texts, .images = &images, .loss_only = 1};
    mha_model_grads *grads = NULL;
    double loss = 0;
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, &err), MHA_OK);
    assert_int_equal(mha_clip_loss(grads, &args, &loss, &err), MHA_OK);
    assert_true(fabs(loss - log(2)) < 1e-12);
    images.batch = 1;
    assert_int_equal(mha_clip_loss(grads, &args, &loss, &err), MHA_ERR_ARG);
    const mha_model_input older = {.size = sizeof older.size, .batch = 1}; /* a struct without the field batch */
    args.texts = &older;
    assert_int_equal(mha_clip_loss(grads, &args, &loss, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "(got 0 and 1)"));
    args.texts = NULL;
    assert_int_equal(mha_clip_loss(grads, &args, &loss, &err), MHA_ERR_ARG);
    mha_model_grads_free(grads);
    free(pixels);
    mha_model_free(model);
}

static void refused(mha_status got, mha_status want, const char *part)
{
    assert_int_equal(got, want);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

static void wrong_inputs_are_rejected(void **state)
{
    (void)state;
    mha_model *vit = open_model(VIT), *clip = open_model(CLIP);
    const mha_model_info *info = mha_model_describe(vit);
    const int32_t ids[] = {1, 2};
    const uint8_t mask[] = {1, 1};
    const int64_t starts[] = {0, 5};
    float *pixels = some_pixels(info), room[1024];
    const mha_model_input good = {.size = sizeof good, .batch = 1, .pixels = pixels};
    mha_model_input bad = {.size = sizeof bad, .batch = 1, .length = 2, .ids = ids};
    refused(mha_model_forward(vit, &bad, NULL, &err), MHA_ERR_ARG, "ids must be NULL");
    bad = good, bad.mask = mask;
    refused(mha_model_forward(vit, &bad, NULL, &err), MHA_ERR_ARG, "mask must be NULL");
    bad = good, bad.length = 3;
    refused(mha_model_forward(vit, &bad, NULL, &err), MHA_ERR_ARG, "length must be 0");
    bad = good, bad.starts = starts;
    refused(mha_model_forward(vit, &bad, NULL, &err), MHA_ERR_ARG, "tokens of an image");
    bad = good, bad.pixels = NULL;
    refused(mha_model_forward(vit, &bad, NULL, &err), MHA_ERR_ARG, "pixels must not be NULL");
    refused(mha_model_forward(clip, &good, NULL, &err), MHA_ERR_ARG, "pixels must be NULL");
    mha_model_output output = {.size = sizeof output, .last_logits = room};
    refused(mha_model_forward(vit, &good, &output, &err), MHA_ERR_UNSUPPORTED, "last_logits");
    output = (mha_model_output){.size = sizeof output, .embedding = room};
    refused(mha_model_forward(vit, &good, &output, &err), MHA_ERR_UNSUPPORTED, "embedding");
    output = (mha_model_output){.size = sizeof output, .pooled = room};
    refused(mha_model_forward(vit, &good, &output, &err), MHA_ERR_UNSUPPORTED, "pooler");
    output = (mha_model_output){.size = sizeof output, .logits = room};
    bad = (mha_model_input){.size = sizeof bad, .batch = 1, .length = 2, .ids = ids};
    refused(mha_model_forward(clip, &bad, &output, &err), MHA_ERR_UNSUPPORTED, "output head");
    refused(mha_clip_logits(vit, room, 1, room, 1, room, &err), MHA_ERR_UNSUPPORTED, "both towers");
    free(pixels);
    mha_model_free(vit);
    mha_model_free(clip);
}

static void other_functions_are_rejected(void **state)
{
    (void)state;
    mha_model *vit = open_model(VIT), *clip = open_model(CLIP);
    mha_trainer *trainer = NULL;
    mha_head_data *data = NULL;
    mha_model_cache *cache = NULL;
    const int32_t ids[] = {1, 2};
    const int64_t starts[] = {0, 2};
    const char *const texts[] = {"text"};
    const mha_train_options train = {.size = sizeof train, .steps = 1, .rate = 1e-3};
    float room[64], pixels[18 * 18 * 3] = {0};
    refused(mha_model_embed(vit, texts, 1, NULL, room, &err), MHA_ERR_UNSUPPORTED, "model of texts");
    refused(mha_model_score(vit, ids, 2, room, &err), MHA_ERR_UNSUPPORTED, "model of texts");
    refused(mha_model_score(clip, ids, 2, room, &err), MHA_ERR_UNSUPPORTED, "output head");
    refused(mha_model_cache_create(vit, NULL, &cache, &err), MHA_ERR_UNSUPPORTED, "decoder");
    refused(mha_trainer_create(vit, &train, &trainer, &err), MHA_ERR_UNSUPPORTED, "model of texts");
    refused(mha_trainer_create(clip, &train, &trainer, &err), MHA_ERR_UNSUPPORTED, "two towers");
    refused(mha_head_data_of_ids(vit, ids, starts, 1, NULL, &data, &err), MHA_ERR_UNSUPPORTED, "must read texts");
    refused(mha_head_data_of_images(clip, pixels, 1, NULL, &data, &err), MHA_ERR_UNSUPPORTED, "must read images");
    mha_importance *importance = NULL;
    const mha_importance_options by = {.size = sizeof by, .by = MHA_IMPORTANCE_JACOBIAN_PROBE},
                                 loss = {.size = sizeof loss, .by = MHA_IMPORTANCE_GATE};
    assert_int_equal(mha_head_data_of_images(mha_model_vision(clip), pixels, 1, NULL, &data, &err), MHA_OK);
    refused(mha_importance_measure(clip, data, &by, &importance, &err), MHA_ERR_ARG, "data must be texts for clip");
    refused(mha_importance_measure(mha_model_vision(clip), data, &loss, &importance, &err), MHA_ERR_ARG,
            "gate requires a loss");
    mha_head_data_free(data);
    assert_null(mha_model_vision(NULL));
    mha_model_free(vit);
    mha_model_free(clip);
}

/* ---- importance of heads ---- */

/* Returns the mean loss of images, with the gate of head `off` (-1 = none) set to 0. Adds the |gradients| of the gates
 * to `gate`. */
static double class_loss(const mha_model *vit, const float *pixels, const int32_t *labels, int64_t off, double *gate)
{
    const mha_model_info *info = mha_model_describe(vit);
    const int64_t total = info->layers * info->heads;
    float gates[IMAGES * 8], dgates[IMAGES * 8];
    mha_model_grads *grads = NULL;
    double loss = 0;
    assert_true(total <= 8);
    for (int64_t n = 0; n < total * IMAGES; n++)
        gates[n] = n / (IMAGES * info->heads) * info->heads + n % info->heads == off ? 0 : 1;
    const mha_model_input input = {.size = sizeof input, .batch = IMAGES, .pixels = pixels, .gates = gates};
    const mha_model_loss_args args = {.size = sizeof args, .labels = labels, .dgates = dgates};
    assert_int_equal(mha_model_grads_create(vit, NULL, &grads, &err), MHA_OK);
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, NULL, &err), MHA_OK);
    mha_model_grads_free(grads);
    for (int64_t n = 0; gate && n < total * IMAGES; n++)
        gate[n / (IMAGES * info->heads) * info->heads + n % info->heads] += fabs((double)dgates[n]);
    return loss;
}

/* With the classes of images, gradients of gates and leave-one-out losses must be those of single passes. */
static void importance_of_images(void **state)
{
    (void)state;
    static const int32_t labels[IMAGES] = {3, 0, 4}, wrong[IMAGES] = {3, 5, 4};
    mha_model *vit = open_model(VIT);
    const mha_model_info *info = mha_model_describe(vit);
    float *pixels = some_pixels(info);
    mha_head_data *data = NULL;
    mha_importance *found = NULL;
    double gate[8] = {0};
    const double loss = class_loss(vit, pixels, labels, -1, gate);
    assert_int_equal(mha_head_data_of_images(vit, pixels, IMAGES, NULL, &data, &err), MHA_OK);
    for (int by = 0; by < 2; by++) {
        const mha_importance_options o = {
            .size = sizeof o, .by = by ? MHA_IMPORTANCE_LOO_LOSS : MHA_IMPORTANCE_GATE, .labels = labels};
        assert_int_equal(mha_importance_measure(vit, data, &o, &found, &err), MHA_OK);
        assert_true(fabs(mha_importance_loss(found) - loss) < 1e-6);
        for (int64_t n = 0; n < info->layers * info->heads; n++) {
            const double want = by ? class_loss(vit, pixels, labels, n, NULL) - loss : gate[n];
            const double got = mha_importance_value(found, n / info->heads, n % info->heads);
            if (fabs(got - want) > 1e-5) fail_msg("score %d of head %d must be %g (got %g)", by, (int)n, want, got);
        }
        mha_importance_free(found);
    }
    const mha_importance_options bad = {.size = sizeof bad, .by = MHA_IMPORTANCE_GATE, .labels = wrong},
                                 lm = {.size = sizeof lm, .loss = MHA_LOSS_LM, .labels = labels},
                                 loo = {.size = sizeof loo, .by = MHA_IMPORTANCE_LOO_MEAN};
    refused(mha_importance_measure(vit, data, &bad, &found, &err), MHA_ERR_ARG, "labels[1] must be from 0 to 4");
    refused(mha_importance_measure(vit, data, &lm, &found, &err), MHA_ERR_ARG, "the loss of vit must be \"classes\"");
    assert_int_equal(mha_importance_measure(vit, data, &loo, &found, &err), MHA_OK);
    mha_importance_free(found);
    mha_head_data_free(data);
    free(pixels);
    mha_model_free(vit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_independent),       cmocka_unit_test(gate_gradients_are_differences),
        cmocka_unit_test(loss_of_equal_pairs),          cmocka_unit_test(wrong_inputs_are_rejected),
        cmocka_unit_test(other_functions_are_rejected), cmocka_unit_test(importance_of_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
