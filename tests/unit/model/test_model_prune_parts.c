/* test_model_prune_parts.c - tests removal of heads from models that consist of parts and do not read only texts: both
 * towers of a CLIP model, and Whisper. A pruned part must equal the original part with gates of 0, bit by bit. */
#include "mha/prune.h"
#include "mha/seq2seq.h"
#include "mha/token_times.h"
#include "mha/vision.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64, WIDTH = 64 };

static const char *folder; /* temporary */

static mha_model *open_bare(const char *name)
{
    return case_open(NULL, name);
}

/* Removes head h of layer l if (h + l) is divisible by 3. */
static void choose(const mha_model_info *info, uint8_t *keep, float *gates)
{
    assert_true(info->layers * info->heads <= MAX);
    for (int64_t n = 0; n < info->layers * info->heads; n++) {
        keep[n] = (n / info->heads + n % info->heads) % 3 != 0;
        gates[n] = (float)keep[n];
    }
}

/* ---- CLIP ---- */

/* Computes the embedding of an image or of a text with one tower. */
static void embed(const mha_model *tower, const float *gates, float *embedding)
{
    static const int32_t ids[] = {9, 30, 12, 7, 7};
    const mha_model_info *info = mha_model_describe(tower);
    const int64_t pixels = info->image_channels * info->image_height * info->image_width;
    float *image = calloc((size_t)pixels + 1, sizeof *image);
    mha_error err = {0};
    for (int64_t i = 0; i < pixels; i++)
        image[i] = (float)sin(0.37 * (double)i);
    const mha_model_input input = {.size = sizeof input,
                                   .batch = 1,
                                   .length = pixels ? 0 : 5,
                                   .ids = pixels ? NULL : ids,
                                   .pixels = pixels ? image : NULL,
                                   .gates = gates};
    const mha_model_output output = {.size = sizeof output, .embedding = embedding};
    assert_true(info->embedding_width <= WIDTH);
    if (mha_model_forward(tower, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    free(image);
}

static const mha_model *tower_of(const mha_model *clip, int image)
{
    return image ? mha_model_vision(clip) : clip;
}

/* Pruning a tower must not change the other one, and towers may be pruned one after another. */
static void test_towers(void **state)
{
    (void)state;
    static const char *const folders[] = {"vision/clip-eos", "vision/clip-largest"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (int image = 0; image < 2; image++) {
            uint8_t keep[MAX];
            float gates[MAX], want[WIDTH] = {0}, other[WIDTH] = {0}, got[WIDTH] = {0};
            mha_model *clip = open_bare(folders[f]);
            const mha_model_info *info = mha_model_describe(tower_of(clip, image));
            choose(info, keep, gates);
            embed(tower_of(clip, image), gates, want);
            embed(tower_of(clip, !image), NULL, other);
            save_pruned(tower_of(clip, image), keep, NULL, files_path(folder, "pruned"));
            mha_model *pruned = open_bare(files_path(folder, "pruned"));
            embed(tower_of(pruned, image), NULL, got);
            assert_memory_equal(got, want, sizeof got);
            memset(got, 0, sizeof got);
            embed(tower_of(pruned, !image), NULL, got);
            assert_memory_equal(got, other, sizeof got);
            assert_non_null(
                strstr(mha_model_config_json(pruned), image ? "\"part\": \"image\"" : "\"part\": \"text\""));
            assert_int_equal(mha_head_number(tower_of(pruned, image), 0, 0), 1);
            assert_int_equal(mha_head_number(tower_of(pruned, !image), 0, 0), 0);
            uint8_t all[MAX];
            memset(all, 1, sizeof all);
            save_pruned(tower_of(pruned, image), all,
                        &(mha_prune_options){.size = sizeof(mha_prune_options), .compatible = 1},
                        files_path(folder, "zeros"));
            mha_model *zeros = open_bare(files_path(folder, "zeros"));
            assert_int_equal(mha_model_describe(zeros)->parameters, mha_model_describe(clip)->parameters);
            embed(tower_of(zeros, image), NULL, got);
            case_near("embedding of the compatible model", got, want, info->embedding_width, 1e-5);
            mha_model_free(zeros);
            mha_model_free(pruned);
            mha_model_free(clip);
        }
}

/* Errors in the lists of a tower must name its object in config.json. */
static void test_lists_of_a_tower(void **state)
{
    (void)state;
    static const struct {
        const char *lists, *part;
    } cases[] = {
        {"[[0]]", "config.json: vision_config.mha.heads must have 2 elements, one list per layer (got 1)"},
        {"[[0], 1]", "config.json: vision_config.mha.heads[1] must be a list of heads (got 1)"},
        {"[[0], []]", "config.json: vision_config.mha.heads[1] must have whole groups of 1 heads (got 0 heads)"},
        {"[[0], [1, 1]]", "config.json: vision_config.mha.heads[1][1] must be a head number from 0 to 3, greater than"},
        {"[[0], [0, 1, 2, 3, 3]]",
         "config.json: vision_config.mha.heads[1] must have at most num_attention_heads = 4 heads (got 5)"},
    };
    const char *copy = case_copy("vision/clip-eos"), *path = files_path(copy, "config.json");
    json_t *config = json_load_file(path, 0, NULL);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model = NULL;
        mha_error err = {0};
        json_object_set_new(json_object_get(config, "vision_config"), "mha.heads", json_loads(cases[n].lists, 0, NULL));
        assert_int_equal(json_dump_file(config, path, 0), 0);
        const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
        if (mha_model_open(NULL, copy, &bare, &model, &err) != MHA_ERR_FORMAT || !strstr(err.message, cases[n].part))
            fail_msg("message must contain \"%s\" (got \"%s\")", cases[n].part, err.message);
    }
    json_decref(config);
    files_remove(copy);
}

/* ---- Whisper ---- */

static void test_whisper(void **state)
{
    (void)state;
    enum { T = 7, S = 24, V = 400 };
    uint8_t keep[2][MAX];
    float gates[2][MAX], *logits[2];
    double seconds[T];
    mha_error err = {0};
    mha_model *model = open_bare("seq2seq/whisper");
    mha_file *file = case_file("seq2seq/whisper.safetensors");
    float *features = case_floats(file, "pad/input_features");
    int32_t *ids = case_ints(file, "pad/decoder_input_ids");
    choose(mha_model_describe(model), keep[0], gates[0]);
    choose(mha_model_describe(mha_model_encoder(model)), keep[1], gates[1]);
    save_pruned(model, keep[0],
                &(mha_prune_options){.size = sizeof(mha_prune_options), .cross_keep = keep[0], .encoder_keep = keep[1]},
                files_path(folder, "pruned"));
    mha_model *pruned = open_bare(files_path(folder, "pruned"));
    for (int p = 0; p < 2; p++) {
        const mha_model_input source = {
            .size = sizeof source, .batch = 1, .length = S, .features = features, .gates = p ? NULL : gates[1]};
        const mha_model_input input = {.size = sizeof input,
                                       .batch = 1,
                                       .length = T,
                                       .ids = ids,
                                       .source = &source,
                                       .gates = p ? NULL : gates[0],
                                       .cross_gates = p ? NULL : gates[0]};
        logits[p] = calloc((size_t)(T * V), sizeof *logits[p]);
        const mha_model_output output = {.size = sizeof output, .logits = logits[p]};
        if (mha_model_forward(p ? pruned : model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    }
    assert_memory_equal(logits[0], logits[1], (size_t)(T * V) * sizeof *logits[0]);
    if (mha_model_token_times(pruned, features, ids, T, NULL, seconds, &err) != MHA_OK) fail_msg("%s", err.message);
    free(logits[0]);
    free(logits[1]);
    free(features);
    free(ids);
    mha_file_free(file);
    mha_model_free(pruned);
    mha_model_free(model);
}

static int make_folder(void **state)
{
    (void)state;
    folder = files_folder();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    files_remove(files_path(folder, "pruned"));
    files_remove(files_path(folder, "zeros"));
    files_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_towers), cmocka_unit_test(test_lists_of_a_tower),
                                       cmocka_unit_test(test_whisper)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
