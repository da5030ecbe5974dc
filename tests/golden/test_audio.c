/* test_audio.c - compares log-mel features and the times of tokens with transformers (make_audio_golden.py). */
#include "mha/audio.h"
#include "mha/token_times.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIGNALS = 4, TEXTS = 4 };

static const char *named(const char *group, int n, const char *what)
{
    static char name[4][64];
    static int at;
    at = (at + 1) % 4;
    snprintf(name[at], sizeof name[at], "%s/%d/%s", group, n, what);
    return name[at];
}

static void test_features(void **state)
{
    (void)state;
    mha_file *file = case_file("audio.safetensors");
    for (int n = 0; n < SIGNALS; n++) {
        const char *name = named("features", n, "features");
        const int64_t bins = case_dimension(file, name, 0), frames = case_dimension(file, name, 1);
        const int64_t count = case_dimension(file, named("features", n, "samples"), 0);
        float *samples = case_floats(file, named("features", n, "samples")), *want = case_floats(file, name);
        float *got = calloc((size_t)(bins * frames), sizeof *got);
        mha_error err = {0};
        if (mha_audio_features(NULL, samples, count, bins, frames, got, &err) != MHA_OK) fail_msg("%s", err.message);
        case_near(name, got, want, bins * frames, 1e-4);
        free(samples);
        free(want);
        free(got);
    }
    mha_file_free(file);
}

/* Reads the heads of a case; the list must be freed. */
static mha_model_head *read_heads(const mha_file *file, int n, int64_t *count)
{
    const char *name = named("times", n, "heads");
    int32_t *pairs = case_ints(file, name);
    *count = case_dimension(file, name, 0);
    mha_model_head *heads = calloc((size_t)*count, sizeof *heads);
    for (int64_t i = 0; i < *count; i++)
        heads[i] = (mha_model_head){pairs[2 * i], pairs[2 * i + 1]};
    free(pairs);
    return heads;
}

static void check_times(const mha_model *model, const mha_file *file, const float *features, int n)
{
    int32_t *ids = case_ints(file, named("times", n, "ids")), *how = case_ints(file, named("times", n, "options"));
    const int64_t count = case_dimension(file, named("times", n, "ids"), 0), rows = count - how[0];
    float *want = case_floats(file, named("times", n, "seconds"));
    double *seconds = calloc((size_t)rows, sizeof *seconds);
    mha_error err = {0};
    mha_token_times_options o = {.size = sizeof o, .prompt = how[0], .frames = how[1], .median_width = how[2]};
    mha_model_head *heads = read_heads(file, n, &o.head_count);
    o.heads = heads;
    if (mha_model_token_times(model, features, ids, count, &o, seconds, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t i = 0; i < rows; i++)
        if (fabs(seconds[i] - (double)want[i]) > 1e-6)
            fail_msg("text %d, token %lld: got %g, want %g", n, (long long)i, seconds[i], (double)want[i]);
    free(heads);
    free(ids);
    free(how);
    free(want);
    free(seconds);
}

static void test_token_times(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, "seq2seq/whisper", NULL);
    mha_file *file = case_file("audio.safetensors"), *recorded = case_file("seq2seq/whisper.safetensors");
    float *features = case_floats(recorded, "seq2seq/input_features");
    for (int n = 0; n < TEXTS; n++)
        check_times(model, file, features, n);
    free(features);
    mha_file_free(file);
    mha_file_free(recorded);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_features), cmocka_unit_test(test_token_times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
