/* test_whisper.c - tests the encoder-decoder that reads audio: batches, cached tokens, maps of chosen heads, rules for
 * generated tokens, refusals, and saving. tests/golden/verify compares recorded results and gradients. */
#include "mha/generate.h"
#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "mha/token_times.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/seq2seq_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "seq2seq/whisper"
enum { B = 2, T = 7, S = 24, BINS = 80, V = 400, HEADS = 4, LAYERS = 2 };

/* The model and its recorded padded batch. */
typedef struct trial {
    mha_model *model;
    mha_file *recorded;
    float *features; /* [B, BINS, 2 S] */
    int32_t *ids;    /* [B, T] */
    mha_model_input source, input;
} trial;

static void begin(trial *t, mha_ctx *ctx)
{
    *t = (trial){.recorded = case_file(FOLDER ".safetensors")};
    t->model = case_open(ctx, FOLDER);
    t->features = case_floats(t->recorded, "pad/input_features");
    t->ids = case_ints(t->recorded, "pad/decoder_input_ids");
    t->source = (mha_model_input){.size = sizeof t->source, .batch = B, .length = S, .features = t->features};
    t->input = (mha_model_input){.size = sizeof t->input, .batch = B, .length = T, .ids = t->ids, .source = &t->source};
}

static void end(trial *t)
{
    free(t->features);
    free(t->ids);
    mha_file_free(t->recorded);
    mha_model_free(t->model);
}

static void test_description(void **state)
{
    (void)state;
    trial t;
    begin(&t, NULL);
    const mha_model_info *decoder = mha_model_describe(t.model),
                         *encoder = mha_model_describe(mha_model_encoder(t.model));
    assert_int_equal(encoder->feature_bins, BINS);
    assert_int_equal(encoder->max_positions, S);
    assert_int_equal(decoder->feature_bins, 0);
    assert_int_equal(decoder->decoder_start, 396);
    assert_int_equal(decoder->parameters, 94336); /* as in the golden data */
    end(&t);
}

/* Sequences of a batch, and cached tokens, must have the bits of a single pass. */
static void test_batch_and_cache(void **state)
{
    (void)state;
    trial t;
    begin(&t, NULL);
    float *all = seq2seq_logits(t.model, &t.input), *want = case_floats(t.recorded, "pad/logits");
    case_near("logits", all, want, B * T * V, 1e-4);
    for (int b = 0; b < B; b++) {
        const mha_model_cache_options o = {.size = sizeof o, .batch = 1, .tokens = T};
        mha_model_cache *cache = NULL;
        assert_int_equal(mha_model_cache_create(t.model, &o, &cache, NULL), MHA_OK);
        t.source.features = t.features + b * BINS * 2 * S;
        t.source.batch = 1;
        for (int at = 0; at < T; at++) {
            const mha_model_input input = {.size = sizeof input,
                                           .batch = 1,
                                           .length = 1,
                                           .ids = t.ids + b * T + at,
                                           .cache = cache,
                                           .source = at ? NULL : &t.source};
            float *logits = seq2seq_logits(t.model, &input);
            assert_memory_equal(logits, all + (b * T + at) * V, V * sizeof *logits);
            free(logits);
        }
        mha_model_cache_free(cache);
    }
    free(all);
    free(want);
    end(&t);
}

/* ---- maps of chosen heads ---- */

typedef struct maps {
    float probs[LAYERS][HEADS][B * T * S];
    int calls;
    const mha_model_head *list; /* NULL = all heads */
} maps;

static int on_all(void *user, int64_t layer, int64_t heads, const float *probs)
{
    maps *m = user;
    assert_int_equal(heads, HEADS);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < HEADS; h++)
            memcpy(m->probs[layer][h] + b * T * S, probs + (b * HEADS + h) * T * S, T * S * sizeof *probs);
    m->calls++;
    return 0;
}

/* Layer 1 has the heads of the list, in this order. */
static int on_chosen(void *user, int64_t layer, int64_t heads, const float *probs)
{
    maps *m = user;
    assert_int_equal(layer, 1);
    assert_int_equal(heads, 2);
    for (int b = 0; b < B; b++)
        for (int n = 0; n < 2; n++)
            assert_memory_equal(probs + (b * 2 + n) * T * S, m->probs[1][m->list[n].head] + b * T * S,
                                T * S * sizeof *probs);
    m->calls++;
    return 0;
}

/* Maps of chosen heads must have the bits of the maps of all heads, and must not change the logits. */
static void test_maps_of_chosen_heads(void **state)
{
    (void)state;
    static const mha_model_head list[] = {{1, 3}, {1, 0}};
    trial t;
    begin(&t, NULL);
    maps *m = calloc(1, sizeof *m);
    float *logits = calloc(B * T * V, sizeof *logits), *plain = seq2seq_logits(t.model, &t.input);
    const mha_model_output all = {.size = sizeof all, .on_cross_attention = on_all, .user = m};
    assert_int_equal(mha_model_forward(t.model, &t.input, &all, NULL), MHA_OK);
    m->list = list;
    const mha_model_output chosen = {.size = sizeof chosen,
                                     .logits = logits,
                                     .on_cross_attention = on_chosen,
                                     .cross_map_heads = list,
                                     .cross_map_count = 2,
                                     .user = m};
    assert_int_equal(mha_model_forward(t.model, &t.input, &chosen, NULL), MHA_OK);
    assert_int_equal(m->calls, LAYERS + 1);
    assert_memory_equal(logits, plain, B * T * V * sizeof *logits);
    free(logits);
    free(plain);
    free(m);
    end(&t);
}

/* ---- generation ---- */

static mha_status generate_with(const char *config, const mha_generate_options *given, int32_t *out, int64_t *length,
                                mha_error *err)
{
    const char *copy = case_copy(FOLDER);
    const mha_model_options options = {.size = sizeof options, .no_tokenizer = 1};
    mha_model *model = NULL;
    mha_generate_options o = *given;
    mha_file *recorded = case_file(FOLDER ".safetensors");
    float *features = case_floats(recorded, "seq2seq/input_features");
    const float *const list[] = {features};
    const mha_prompt prompt = {0};
    o.size = sizeof o;
    o.features = list;
    o.eos_count = -1;
    files_write(files_path(copy, "generation_config.json"), config, strlen(config));
    mha_status status = mha_model_open(NULL, copy, &options, &model, err);
    if (status == MHA_OK) status = mha_model_generate(model, &prompt, 1, &o, out, length, err);
    mha_model_free(model);
    free(features);
    mha_file_free(recorded);
    files_remove(copy);
    return status;
}

static void generate(const char *config, const mha_generate_options *o, int64_t count, int32_t *out)
{
    int64_t length = 0;
    mha_error err = {0};
    if (generate_with(config, o, out, &length, &err) != MHA_OK) fail_msg("%s: %s", config, err.message);
    assert_int_equal(length, count);
}

/* Recorded: 264 264 163 163 287 345 ... */
static void test_rules_for_tokens(void **state)
{
    (void)state;
    enum { N = 6 };
    const mha_generate_options o = {.max_new = N}, no_rules = {.max_new = N, .no_rules = 1};
    int32_t plain[N], out[N];
    generate("{}", &o, N, plain);
    assert_int_equal(plain[0], 264);
    generate("{\"suppress_tokens\": [264, 163, -1, 100000]}", &o, N, out);
    for (int n = 0; n < N; n++)
        assert_true(out[n] != 264 && out[n] != 163);
    generate("{\"suppress_tokens\": [264, 163], \"forced_decoder_ids\": [[1, 3]]}", &no_rules, N, out);
    assert_memory_equal(out, plain, sizeof out);
    generate("{\"begin_suppress_tokens\": [264]}", &o, N, out);
    assert_int_not_equal(out[0], 264);
    generate("{\"forced_decoder_ids\": [[1, 397], [2, null], [3, 399]]}", &o, N, out);
    assert_true(out[0] == 397 && out[2] == 399);
    /* the first token that is not forced is the one that begin_suppress_tokens applies to */
    generate("{\"forced_decoder_ids\": [[1, 397], [2, 398], [3, 399]]}", &o, N, plain);
    char config[120];
    snprintf(config, sizeof config,
             "{\"forced_decoder_ids\": [[1, 397], [2, 398], [3, 399]], \"begin_suppress_tokens\": [%d, 397]}",
             plain[3]);
    generate(config, &o, N, out);
    assert_true(out[0] == 397 && out[1] == 398 && out[2] == 399);
    assert_int_not_equal(out[3], plain[3]);
}

static void test_refused_rules(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"suppress_tokens\": 3}", "suppress_tokens must be"},
        {"{\"suppress_tokens\": [1.5]}", "suppress_tokens[0] must be a token id"},
        {"{\"begin_suppress_tokens\": [null]}", "begin_suppress_tokens[0] must be a token id"},
        {"{\"forced_decoder_ids\": [[16, 3]]}", "forced_decoder_ids[0] must be a position below 16"},
        {"{\"forced_decoder_ids\": [[1, 400]]}", "forced_decoder_ids[0] must be"},
        {"{\"forced_decoder_ids\": [[-1, 4]]}", "forced_decoder_ids[0] must be"},
        {"{\"forced_decoder_ids\": [3]}", "forced_decoder_ids[0] must be"},
        {"{\"alignment_heads\": [[2, 0]]}", "alignment_heads[0] must be a layer and a head of the decoder"},
        {"{\"alignment_heads\": [[0, null]]}", "alignment_heads[0] must be"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        int32_t out[1];
        int64_t length;
        mha_error err = {0};
        assert_int_equal(generate_with(cases[n][0], &(mha_generate_options){.max_new = 1}, out, &length, &err),
                         MHA_ERR_FORMAT);
        if (!strstr(err.message, cases[n][1])) fail_msg("%s: %s", cases[n][0], err.message);
    }
}

/* A checkpoint that was trained on other features must be refused, not run on the wrong ones. */
static void test_refused_features(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"hop_length\": 320}", "hop_length must be 160 (got 320)"},
        {"{\"n_fft\": 512}", "n_fft must be 400 (got 512)"},
        {"{\"feature_size\": 128}", "feature_size must be 80 (got 128)"},
        {"{\"sampling_rate\": 8000}", "preprocessor_config.json: sampling_rate must be 16000 (got 8000)"},
        {"{\"n_fft\": \"x\"}", "n_fft must be"},
        {"{\"dither\": 0.5}", "dither must be 0 (got 0.5)"},
        {"{\"padding_value\": -1.5}", "padding_value must be 0 (got -1.5)"},
        {"[]", "preprocessor_config.json"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const char *copy = case_copy(FOLDER);
        mha_model *model = NULL;
        mha_error err = {0};
        files_write(files_path(copy, "preprocessor_config.json"), cases[n][0], strlen(cases[n][0]));
        assert_int_not_equal(mha_model_open(NULL, copy, NULL, &model, &err), MHA_OK);
        if (!strstr(err.message, cases[n][1])) fail_msg("%s: %s", cases[n][0], err.message);
        files_remove(copy);
    }
}

/* ---- refused calls ---- */

static void refused(const trial *t, const mha_model_input *input, const mha_model_output *output, const char *part)
{
    mha_error err = {0};
    const mha_status status = mha_model_forward(t->model, input, output, &err);
    assert_true(status == MHA_ERR_ARG || status == MHA_ERR_UNSUPPORTED);
    if (!strstr(err.message, part)) fail_msg("want \"%s\", got \"%s\"", part, err.message);
}

static void test_refused_inputs(void **state)
{
    (void)state;
    trial t;
    begin(&t, NULL);
    const uint8_t mask[B * S] = {1, 1};
    mha_model_input source = t.source;
    t.input.source = &source;
    source.length = S - 1;
    refused(&t, &t.input, NULL, "length must be max_source_positions = 24 with features (got 23)");
    source = t.source;
    source.mask = mask;
    refused(&t, &t.input, NULL, "must");
    source = t.source;
    source.ids = t.ids;
    refused(&t, &t.input, NULL, "ids must be NULL, since whisper reads audio features");
    source = t.source;
    source.features = NULL;
    refused(&t, &t.input, NULL, "features must not be NULL");
    source = t.source;
    t.input.features = t.features;
    refused(&t, &t.input, NULL, "features must be NULL, since whisper reads tokens");
    t.input.features = NULL;
    const mha_model_head wrong[] = {{1, 4}};
    const mha_model_output unknown = {
        .size = sizeof unknown, .on_cross_attention = on_all, .cross_map_heads = wrong, .cross_map_count = 1};
    refused(&t, &t.input, &unknown, "cross_map_heads[0] must be a head of the model");
    const mha_model_output unused = {.size = sizeof unused, .cross_map_heads = wrong, .cross_map_count = 1};
    refused(&t, &t.input, &unused, "cross_map_count, cross_map_heads and on_cross_attention must be set together");
    end(&t);
}

static void test_refused_generation(void **state)
{
    (void)state;
    trial t;
    begin(&t, NULL);
    const mha_prompt source = {t.ids, T}, prompt = {0};
    const float *const none[] = {NULL};
    int32_t out[4];
    int64_t length;
    mha_error err = {0};
    mha_generate_options o = {.size = sizeof o, .max_new = 4, .sources = &source};
    assert_int_equal(mha_model_generate(t.model, &prompt, 1, &o, out, &length, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "sources must be NULL, since the encoder of whisper reads audio features"));
    o.sources = NULL;
    assert_int_equal(mha_model_generate(t.model, &prompt, 1, &o, out, &length, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "features must not be NULL"));
    o.features = none;
    assert_int_equal(mha_model_generate(t.model, &prompt, 1, &o, out, &length, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "features[0] must not be NULL"));
    end(&t);
}

static void test_refused_token_times(void **state)
{
    (void)state;
    trial t;
    begin(&t, NULL);
    static const struct {
        mha_token_times_options o;
        const char *part;
    } cases[] = {
        {{.prompt = T}, "prompt must be at least 0 and below count = 7 (got 7)"},
        {{.prompt = -1}, "(got -1)"},
        {{.frames = 49}, "frames must be from 2 to 48 (got 49)"},
        {{.frames = 1}, "(got 1)"},
        {{.median_width = 4}, "median_width must be odd and from 1 to 1023 (got 4)"},
        {{.head_count = 1}, "head_count must be the number of entries in heads (got 1)"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        double seconds[T];
        mha_error err = {0};
        mha_token_times_options o = cases[n].o;
        o.size = sizeof o;
        assert_int_equal(mha_model_token_times(t.model, t.features, t.ids, T, &o, seconds, &err), MHA_ERR_ARG);
        if (!strstr(err.message, cases[n].part)) fail_msg("%s", err.message);
    }
    mha_model *bart = seq2seq_open(NULL, SEQ2SEQ_BART);
    double seconds[T];
    assert_int_equal(mha_model_token_times(bart, t.features, t.ids, T, NULL, seconds, NULL), MHA_ERR_UNSUPPORTED);
    mha_model_free(bart);
    end(&t);
}

/* Without a list, the heads are those of the upper half of the layers, and times ascend. */
static void test_default_heads(void **state)
{
    (void)state;
    static const mha_model_head upper[] = {{1, 0}, {1, 1}, {1, 2}, {1, 3}};
    trial t;
    begin(&t, NULL);
    double seconds[2][T];
    mha_token_times_options o = {.size = sizeof o, .prompt = 1};
    assert_int_equal(mha_model_token_times(t.model, t.features, t.ids, T, &o, seconds[0], NULL), MHA_OK);
    o.heads = upper;
    o.head_count = 4;
    assert_int_equal(mha_model_token_times(t.model, t.features, t.ids, T, &o, seconds[1], NULL), MHA_OK);
    assert_memory_equal(seconds[0], seconds[1], (T - 1) * sizeof **seconds);
    for (int n = 0; n < T - 1; n++)
        assert_true(seconds[0][n] >= (n ? seconds[0][n - 1] : 0) && seconds[0][n] < 0.48);
    end(&t);
}

/* ---- saving, and memory ---- */

static void test_saved_model_is_the_same(void **state)
{
    (void)state;
    trial t;
    begin(&t, NULL);
    const char *folder = files_folder();
    const mha_model_save_options o = {.size = sizeof o, .overwrite = 1};
    char before[17], after[17];
    mha_error err = {0};
    if (mha_model_save(t.model, folder, &o, &err) != MHA_OK) fail_msg("%s", err.message);
    size_t bytes = 0;
    char *kept = files_read(files_path(folder, "preprocessor_config.json"), &bytes);
    assert_non_null(kept);
    free(kept);
    mha_model *again = case_model(NULL, folder, NULL);
    assert_int_equal(mha_model_fingerprint(t.model, before, NULL), MHA_OK);
    assert_int_equal(mha_model_fingerprint(again, after, NULL), MHA_OK);
    assert_string_equal(before, after);
    mha_model_free(again);
    files_remove(folder);
    end(&t);
}

/* Runs everything that allocates memory. */
static mha_status run_all(const trial *t, const float *const *features)
{
    int32_t out[3];
    int64_t length;
    double seconds[T], loss = 0;
    int32_t labels[B * T] = {1, 2, 3};
    const mha_prompt prompt = {0};
    mha_model_grads *grads = NULL;
    const mha_generate_options o = {.size = sizeof o, .max_new = 3, .features = features};
    const mha_model_loss_args args = {.size = sizeof args, .labels = labels};
    mha_status status = mha_model_generate(t->model, &prompt, 1, &o, out, &length, NULL);
    if (status == MHA_OK) status = mha_model_token_times(t->model, t->features, t->ids, T, NULL, seconds, NULL);
    if (status == MHA_OK) status = mha_model_grads_create(t->model, NULL, &grads, NULL);
    if (status == MHA_OK) status = mha_model_grads_loss(grads, &t->input, &args, &loss, NULL, NULL);
    mha_model_grads_free(grads);
    return status;
}

static void test_failed_allocations(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    const mha_allocator allocator = counting_allocator(&c);
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = allocator};
    mha_ctx *ctx = NULL;
    trial t;
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    begin(&t, ctx);
    const float *const features[] = {t.features};
    const long live = c.live;
    mha_status status = MHA_ERR_MEMORY;
    for (long n = 0; status != MHA_OK; n++) {
        c.budget = c.calls + n;
        status = run_all(&t, features);
        c.budget = -1;
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(c.live, live);
    }
    end(&t);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_batch_and_cache),
        cmocka_unit_test(test_maps_of_chosen_heads),
        cmocka_unit_test(test_rules_for_tokens),
        cmocka_unit_test(test_refused_rules),
        cmocka_unit_test(test_refused_features),
        cmocka_unit_test(test_refused_inputs),
        cmocka_unit_test(test_refused_generation),
        cmocka_unit_test(test_refused_token_times),
        cmocka_unit_test(test_default_heads),
        cmocka_unit_test(test_saved_model_is_the_same),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
