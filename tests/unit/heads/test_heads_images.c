/* test_heads_images.c - tests measures and edits of heads on images: values against single passes, and images that the
 * model does not read. */
#include "mha/diversity.h"
#include "mha/heads.h"
#include "mha/importance.h"
#include "mha/model_grads.h"
#include "mha/prune.h"
#include "mha/vision.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 3, HEADS = 4, LAYER_HEADS = 2, WIDTH = 32, HEAD_DIM = 16, TOKENS = 13, LAYER = 1, HEAD = 0 };

static const char vit_folder[] = "vision/vit-classes";
static const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};

static mha_model *open_vit(void)
{
    mha_model *vit = case_model(NULL, vit_folder, &bare);
    const mha_model_info *info = mha_model_describe(vit);
    assert_true(info->layers * info->heads == HEADS && info->hidden == WIDTH && info->max_positions == TOKENS);
    return vit;
}

/* Returns the pixels of IMAGES images, which are all different. */
static float *some_pixels(const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t count = IMAGES * info->image_channels * info->image_height * info->image_width;
    float *pixels = calloc((size_t)count, sizeof *pixels);
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (float)sin(0.37 * (double)i);
    return pixels;
}

static mha_head_data *images_of(const mha_model *model)
{
    mha_error err = {0};
    mha_head_data *data = NULL;
    float *pixels = some_pixels(model);
    if (mha_head_data_of_images(model, pixels, IMAGES, NULL, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    free(pixels);
    return data;
}

static void refused(mha_status got, mha_status want, const mha_error *err, const char *part)
{
    assert_int_equal(got, want);
    if (!strstr(err->message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err->message);
}

/* ---- images of other models ---- */

/* Opens the ViT with images of 12 x 20 instead of 13 x 21 pixels, which have the same number of patches. */
static mha_model *open_smaller(void)
{
    const char *copy = case_copy(vit_folder), *path = files_path(copy, "config.json");
    json_t *config = json_load_file(path, 0, NULL);
    assert_int_equal(json_object_set_new(config, "image_size", json_pack("[i, i]", 12, 20)), 0);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    mha_model *model = case_model(NULL, copy, &bare);
    files_remove(copy);
    return model;
}

static void test_images_of_other_sizes(void **state)
{
    (void)state;
    static const char wrong[] = "data must be images of 273 elements for vit (got images of 240 elements)";
    mha_error err = {0};
    mha_model *vit = open_vit(), *smaller = open_smaller();
    mha_head_data *data = images_of(smaller);
    mha_model_edit *edit = NULL;
    mha_heads *heads = NULL;
    mha_importance *importance = NULL;
    uint8_t keep[HEADS] = {1, 1, 0, 1};
    float rollout[TOKENS * TOKENS];
    assert_int_equal(mha_model_describe(smaller)->max_positions, TOKENS);
    const mha_prune_options fill = {.size = sizeof fill, .fill = data};
    refused(mha_prune(vit, keep, &fill, &edit, &err), MHA_ERR_ARG, &err, wrong);
    refused(mha_heads_measure_data(vit, data, NULL, &heads, &err), MHA_ERR_ARG, &err, wrong);
    refused(mha_head_rollout(vit, data, 0, rollout, &err), MHA_ERR_ARG, &err, wrong);
    const mha_importance_options by = {.size = sizeof by, .by = MHA_IMPORTANCE_LOO_MEAN};
    refused(mha_importance_measure(vit, data, &by, &importance, &err), MHA_ERR_ARG, &err, wrong);
    assert_true(!edit && !heads && !importance);
    mha_head_data_free(data);
    mha_model_free(smaller);
    mha_model_free(vit);
}

static void test_texts_and_images(void **state)
{
    (void)state;
    static const int32_t ids[] = {9, 30, 12, 7};
    static const int64_t starts[] = {0, 4};
    mha_error err = {0};
    mha_model *vit = open_vit(), *clip = case_model(NULL, "vision/clip-eos", &bare);
    mha_head_data *images = images_of(vit), *texts = NULL;
    mha_heads *heads = NULL;
    mha_model_edit *edit = NULL;
    uint8_t keep[HEADS] = {1, 1, 0, 1};
    const mha_prune_rule rule = {.size = sizeof rule, .count = 1};
    const mha_prune_joint_options joint = {.size = sizeof joint, .fill = 1};
    const mha_prune_options refit = {.size = sizeof refit, .refit = images};
    assert_int_equal(mha_head_data_of_ids(clip, ids, starts, 1, NULL, &texts, &err), MHA_OK);
    refused(mha_heads_measure_data(vit, texts, NULL, &heads, &err), MHA_ERR_ARG, &err,
            "data must be images of 273 elements for vit (got texts)");
    refused(mha_heads_measure_data(clip, images, NULL, &heads, &err), MHA_ERR_ARG, &err,
            "data must be texts for clip (got images of 273 elements)");
    refused(mha_prune_choose_joint(vit, images, &rule, &joint, keep, &err), MHA_ERR_UNSUPPORTED, &err,
            "data must consist of texts for this measure (got images)");
    refused(mha_prune(vit, keep, &refit, &edit, &err), MHA_ERR_UNSUPPORTED, &err,
            "data must consist of texts for this measure (got images)");
    assert_true(!heads && !edit);
    mha_head_data_free(images);
    mha_head_data_free(texts);
    mha_model_free(clip);
    mha_model_free(vit);
}

/* ---- mean fill ---- */

/* Adds the outputs of the removed head to the sums [HEAD_DIM]. */
static int add_outputs(void *user, const mha_model_activations *a)
{
    double *sums = user;
    for (int64_t i = 0; a->layer == LAYER && i < IMAGES * TOKENS; i++)
        for (int d = 0; d < HEAD_DIM; d++)
            sums[d] += (double)a->context[i * a->heads * a->head_dim + HEAD * HEAD_DIM + d];
    return 0;
}

/* The bias of the pruned layer must have grown by Wo m, where m is the removed head's mean output on the images. */
static void test_mean_fill(void **state)
{
    (void)state;
    static const char weight_name[] = "vit.encoder.layer.1.attention.output.dense.weight",
                      bias_name[] = "vit.encoder.layer.1.attention.output.dense.bias";
    double sums[HEAD_DIM] = {0}, moved = 0;
    mha_error err = {0};
    mha_model *vit = open_vit();
    mha_head_data *data = images_of(vit);
    float *pixels = some_pixels(vit);
    uint8_t keep[HEADS] = {1, 1, 1, 1};
    const char *folder = files_folder(), *file = "model.safetensors";
    char source[512];
    snprintf(source, sizeof source, "%s/%s/%s", MHA_TEST_DATA, vit_folder, file);
    const mha_model_input input = {.size = sizeof input, .batch = IMAGES, .pixels = pixels};
    const mha_model_output output = {.size = sizeof output, .on_activations = add_outputs, .user = sums};
    assert_int_equal(mha_model_forward(vit, &input, &output, &err), MHA_OK);
    keep[LAYER * LAYER_HEADS + HEAD] = 0;
    save_pruned(vit, keep, &(mha_prune_options){.size = sizeof(mha_prune_options), .fill = data}, folder);
    mha_file *before = NULL, *after = NULL;
    assert_int_equal(mha_file_open(NULL, source, NULL, &before, &err), MHA_OK);
    assert_int_equal(mha_file_open(NULL, files_path(folder, file), NULL, &after, &err), MHA_OK);
    float *weight = case_floats(before, weight_name), *bias = case_floats(before, bias_name),
          *filled = case_floats(after, bias_name);
    for (int e = 0; e < WIDTH; e++) {
        double want = (double)bias[e];
        for (int d = 0; d < HEAD_DIM; d++)
            want += (double)weight[e * WIDTH + HEAD * HEAD_DIM + d] * sums[d] / (IMAGES * TOKENS);
        if (fabs((double)filled[e] - want) > fabs(want) / 256) /* the file stores bf16 */
            fail_msg("bias %d must be %g (got %g)", e, want, (double)filled[e]);
        moved = fmax(moved, fabs(want - (double)bias[e]));
    }
    assert_true(moved > 0.1);
    free(weight);
    free(bias);
    free(filled);
    mha_file_free(before);
    mha_file_free(after);
    files_remove(folder);
    free(pixels);
    mha_head_data_free(data);
    mha_model_free(vit);
}

/* ---- pairs of heads ---- */

/* Returns the mean loss of the images with the gates of heads a and b set to 0; -1 = none. */
static double loss_without(const mha_model *vit, const float *pixels, const int32_t *labels, int a, int b)
{
    float gates[HEADS * IMAGES]; /* [layers, IMAGES, heads of a layer] */
    double loss = 0;
    mha_error err = {0};
    mha_model_grads *grads = NULL;
    for (int n = 0; n < HEADS * IMAGES; n++) {
        const int head = n / (IMAGES * LAYER_HEADS) * LAYER_HEADS + n % LAYER_HEADS;
        gates[n] = head == a || head == b ? 0 : 1;
    }
    const mha_model_input input = {.size = sizeof input, .batch = IMAGES, .pixels = pixels, .gates = gates};
    const mha_model_loss_args args = {.size = sizeof args, .labels = labels};
    assert_int_equal(mha_model_grads_create(vit, NULL, &grads, &err), MHA_OK);
    if (mha_model_grads_loss(grads, &input, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model_grads_free(grads);
    return loss;
}

static void test_pairs(void **state)
{
    (void)state;
    static const int32_t labels[IMAGES] = {3, 0, 4};
    double found[HEADS * HEADS];
    mha_error err = {0};
    mha_model *vit = open_vit();
    mha_head_data *data = images_of(vit);
    float *pixels = some_pixels(vit);
    const mha_importance_options o = {.size = sizeof o, .labels = labels};
    if (mha_importance_pairs(vit, data, &o, found, &err) != MHA_OK) fail_msg("%s", err.message);
    const double whole = loss_without(vit, pixels, labels, -1, -1);
    for (int a = 0; a < HEADS; a++)
        for (int b = 0; b < HEADS; b++) {
            const double want = loss_without(vit, pixels, labels, a, b) - whole, got = found[a * HEADS + b];
            if (fabs(got - want) > 1e-5) fail_msg("heads %d and %d must have %g (got %g)", a, b, want, got);
        }
    free(pixels);
    mha_head_data_free(data);
    mha_model_free(vit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_images_of_other_sizes),
                                       cmocka_unit_test(test_texts_and_images), cmocka_unit_test(test_mean_fill),
                                       cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
