/* test_heads_of_maps.c - scores computed from maps that the caller passes must equal the scores of the model that
 * computed the maps, for several texts and with segments. Also tests cross-attention, kinds of tokens, errors and
 * failed allocations. */
#include "mha/heads.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 3, TOKENS_MAX = 16 };

/* ---- scores of a model and scores of its maps ---- */

typedef struct texts {
    int32_t ids[TEXTS * TOKENS_MAX], segments[TEXTS * TOKENS_MAX];
    int64_t starts[TEXTS + 1];
    uint8_t kinds[TEXTS * TOKENS_MAX];
    float *maps[TEXTS]; /* the maps of each text, [layers, H, n, n] */
    mha_head_map map[TEXTS];
} texts;

/* Makes texts of 5, 9 and 7 tokens; token 0 of each text is special. */
static void make_texts(texts *t, int64_t vocab)
{
    static const int64_t lengths[TEXTS] = {5, 9, 7};
    *t = (texts){.starts = {0}};
    for (int n = 0; n < TEXTS; n++) {
        t->starts[n + 1] = t->starts[n] + lengths[n];
        for (int64_t i = t->starts[n]; i < t->starts[n + 1]; i++) {
            t->ids[i] = i == t->starts[n] ? 1 : (int32_t)(2 + (i * 7 + n) % (vocab - 2));
            t->segments[i] = i - t->starts[n] > 3;
            t->kinds[i] = i == t->starts[n] ? MHA_TOKEN_SPECIAL : 0;
        }
    }
}

static mha_head_data *data_of(const mha_model *model, const texts *t, int64_t first, int64_t count)
{
    mha_head_data *data;
    mha_error err = {0};
    const int32_t special = 1;
    int64_t starts[TEXTS + 1];
    for (int64_t n = 0; n <= count; n++)
        starts[n] = t->starts[first + n] - t->starts[first];
    const mha_head_data_options o = {
        .size = sizeof o, .special = &special, .special_count = 1, .segments = t->segments + t->starts[first]};
    if (mha_head_data_of_ids(model, t->ids + t->starts[first], starts, count, &o, &data, &err) != MHA_OK)
        fail_msg("%s", err.message);
    return data;
}

static void keep_maps(const mha_model *model, texts *t, int64_t text)
{
    const int64_t H = mha_model_describe(model)->heads, n = t->starts[text + 1] - t->starts[text];
    const mha_heads_options o = {.size = sizeof o, .no_probe = 1, .keep_maps = 1};
    mha_heads *heads;
    mha_head_data *data = data_of(model, t, text, 1);
    assert_int_equal(mha_heads_measure_data(model, data, &o, &heads, NULL), MHA_OK);
    const size_t each = (size_t)(n * n);
    t->maps[text] = malloc((size_t)(mha_heads_layers(heads) * H) * each * sizeof(float));
    for (int64_t h = 0; h < mha_heads_layers(heads) * H; h++)
        memcpy(t->maps[text] + (size_t)h * each, mha_heads_map(heads, h / H, h % H), each * sizeof(float));
    t->map[text] = (mha_head_map){.tokens = n,
                                  .p = t->maps[text],
                                  .kinds = t->kinds + t->starts[text],
                                  .segments = t->segments + t->starts[text]};
    mha_heads_free(heads);
    mha_head_data_free(data);
}

/* Fails unless two scores are equal within 2e-6. Only the entropy differs, because the kernel computes it before the
 * maps are rounded to f32; all other scores use the same arithmetic. */
static void near(double got, double want)
{
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 2e-6)) fail_msg("got %.9g, expected %.9g", got, want);
}

static void compare(const mha_heads *got, const mha_heads *want)
{
    assert_int_equal(mha_heads_layers(got), mha_heads_layers(want));
    for (int64_t l = 0; l < mha_heads_layers(want); l++)
        for (int64_t h = 0; h < mha_heads_count(want, l); h++) {
            int64_t positions = 0, wanted = 0;
            for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++)
                near(mha_heads_value(got, l, h, m), mha_heads_value(want, l, h, m));
            assert_int_equal(mha_heads_label(got, l, h), mha_heads_label(want, l, h));
            const double *a = mha_heads_received(got, l, h, &positions), *b = mha_heads_received(want, l, h, &wanted);
            assert_int_equal(positions, wanted);
            for (int64_t j = 0; j < positions; j++)
                near(a[j], b[j]);
            assert_null(mha_heads_map(got, l, h));
        }
    near(mha_heads_sink_rate(got), mha_heads_sink_rate(want));
}

static void as_the_model_measures(const char *folder)
{
    static texts t;
    mha_error err = {0};
    mha_heads *want, *got;
    mha_model *model = case_open(NULL, folder);
    const mha_model_info *info = mha_model_describe(model);
    make_texts(&t, info->vocab);
    for (int64_t n = 0; n < TEXTS; n++)
        keep_maps(model, &t, n);
    mha_head_data *data = data_of(model, &t, 0, TEXTS);
    const mha_heads_options o = {.size = sizeof o, .no_probe = 1};
    const mha_head_maps maps = {.size = sizeof maps,
                                .layers = info->layers,
                                .heads = info->heads,
                                .causal = info->causal,
                                .count = TEXTS,
                                .text = t.map};
    assert_int_equal(mha_heads_measure_data(model, data, &o, &want, NULL), MHA_OK);
    if (mha_heads_of_maps(NULL, &maps, &got, &err) != MHA_OK) fail_msg("%s", err.message);
    compare(got, want);
    mha_heads_free(got);
    mha_heads_free(want);
    mha_head_data_free(data);
    for (int n = 0; n < TEXTS; n++)
        free(t.maps[n]);
    mha_model_free(model);
}

static void of_an_encoder(void **state)
{
    (void)state;
    as_the_model_measures("models/bert-tiny");
}

static void of_a_decoder(void **state)
{
    (void)state;
    as_the_model_measures("models/gpt2-tiny");
}

/* ---- thresholds and errors ---- */

static const float even[4] = {0.5F, 0.5F, 0.5F, 0.5F}, back[4] = {1, 0, 1, 0};

static mha_status of(mha_ctx *ctx, const float *p, int causal, double single, mha_heads **heads, mha_error *err)
{
    const mha_head_map text = {.tokens = 2, .p = p};
    const mha_head_maps maps = {.size = sizeof maps,
                                .layers = 1,
                                .heads = 1,
                                .causal = causal,
                                .count = 1,
                                .text = &text,
                                .thresholds = {.single = single}};
    return mha_heads_of_maps(ctx, &maps, heads, err);
}

static void thresholds(void **state)
{
    (void)state;
    mha_heads *heads;
    assert_int_equal(of(NULL, back, 1, 0, &heads, NULL), MHA_OK);
    assert_int_equal(mha_heads_label(heads, 0, 0), MHA_LABEL_PREV);
    near(mha_heads_value(heads, 0, 0, MHA_HEAD_PREV), 1);
    assert_true(isnan(mha_heads_value(heads, 0, 0, MHA_HEAD_DUP_PROBE)));
    mha_heads_free(heads);
    assert_int_equal(of(NULL, even, 0, 0.6, &heads, NULL), MHA_OK);
    assert_int_equal(mha_heads_label(heads, 0, 0), MHA_LABEL_LOCAL);
    mha_heads_free(heads);
}

static void refused(const float *p, int causal, const char *word)
{
    mha_heads *heads = (mha_heads *)&heads;
    mha_error err = {0};
    assert_int_equal(of(NULL, p, causal, 0, &heads, &err), MHA_ERR_ARG);
    assert_null(heads);
    if (!strstr(err.message, word)) fail_msg("message must contain \"%s\" (got %s)", word, err.message);
}

static void refusals(void **state)
{
    (void)state;
    mha_heads *heads;
    mha_error err = {0};
    const mha_head_map text = {.tokens = 2, .p = even}, empty = {.tokens = 0, .p = even};
    const mha_head_maps good = {.size = sizeof good, .layers = 1, .heads = 1, .count = 1, .text = &text};
    mha_head_maps bad[6] = {good, good, good, good, good, good};
    bad[0].layers = 0, bad[1].heads = -1, bad[2].count = 0, bad[3].text = NULL, bad[4].text = &empty;
    bad[5].thresholds.single = -1;
    for (int n = 0; n < 6; n++) {
        assert_int_equal(mha_heads_of_maps(NULL, &bad[n], &heads, &err), MHA_ERR_ARG);
        assert_null(heads);
    }
    assert_int_equal(mha_heads_of_maps(NULL, NULL, &heads, &err), MHA_ERR_ARG);
    assert_int_equal(mha_heads_of_maps(NULL, &good, NULL, &err), MHA_ERR_ARG);
    refused(even, 1, "text 0, layer 0, head 0, query 0, key 1 must be from 0 to 1, and 0 for later keys (got 0.5)");
    refused((float[]){0.5F, 0.5F, NAN, 1}, 0,
            "mha_head_maps: the weight of text 0, layer 0, head 0, query 1, key 0 must be from 0 to 1 (got nan)");
    refused((float[]){0.5F, 0.5F, 0, 1.5F}, 0,
            "mha_head_maps: the weight of text 0, layer 0, head 0, query 1, key 1 must be from 0 to 1 (got 1.5)");
    refused((float[]){-0.5F, 0.5F, 0, 1}, 0,
            "mha_head_maps: the weight of text 0, layer 0, head 0, query 0, key 0 must be from 0 to 1 (got -0.5)");
}

/* ---- cross-attention ---- */

/* Metrics that compare the position of a query with that of a key, and metrics of probe texts. */
static bool is_undefined(mha_head_metric m)
{
    static const mha_head_metric undefined[] = {
        MHA_HEAD_DISTANCE, MHA_HEAD_DISTANCE_CONTENT, MHA_HEAD_OFFSET,    MHA_HEAD_PREV,           MHA_HEAD_PREV_ARGMAX,
        MHA_HEAD_NEXT,     MHA_HEAD_NEXT_ARGMAX,      MHA_HEAD_SELF,      MHA_HEAD_SELF_ARGMAX,    MHA_HEAD_WINDOW2,
        MHA_HEAD_BLOCK,    MHA_HEAD_TOEPLITZ,         MHA_HEAD_DUP_PROBE, MHA_HEAD_INDUCTION_PROBE};
    for (size_t n = 0; n < sizeof undefined / sizeof *undefined; n++)
        if (undefined[n] == m) return true;
    return false;
}

/* A text that attends to itself: with a special first token, all metrics that do not compare positions are those of
 * self-attention. */
static void cross_attention_of_the_same_text(void **state)
{
    (void)state;
    static texts t;
    mha_heads *self, *cross;
    mha_head_queries queries[TEXTS];
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    const mha_model_info *info = mha_model_describe(model);
    make_texts(&t, info->vocab);
    for (int64_t n = 0; n < TEXTS; n++) {
        keep_maps(model, &t, n);
        t.map[n].segments = NULL;
        queries[n] = (mha_head_queries){t.map[n].tokens, t.map[n].kinds};
    }
    mha_head_maps maps = {
        .size = sizeof maps, .layers = info->layers, .heads = info->heads, .count = TEXTS, .text = t.map};
    assert_int_equal(mha_heads_of_maps(NULL, &maps, &self, NULL), MHA_OK);
    maps.queries = queries;
    assert_int_equal(mha_heads_of_maps(NULL, &maps, &cross, NULL), MHA_OK);
    for (int64_t h = 0; h < info->layers * info->heads; h++) {
        const int64_t layer = h / info->heads, head = h % info->heads;
        int64_t positions = 0;
        for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++)
            near(mha_heads_value(cross, layer, head, m),
                 is_undefined(m) ? (double)NAN : mha_heads_value(self, layer, head, m));
        const double *a = mha_heads_received(cross, layer, head, &positions),
                     *b = mha_heads_received(self, layer, head, &positions);
        for (int64_t j = 0; j < positions; j++)
            near(a[j], b[j]);
    }
    mha_heads_free(self);
    mha_heads_free(cross);
    for (int n = 0; n < TEXTS; n++)
        free(t.maps[n]);
    mha_model_free(model);
}

static void value(const mha_heads *heads, int64_t head, mha_head_metric m, double want)
{
    near(mha_heads_value(heads, 0, head, m), want);
}

/* Three queries, the first of them special, and four keys. */
static void cross_attention_of_two_texts(void **state)
{
    (void)state;
    static const float p[2][3][4] = {{{0, 0, 1, 0}, {0.5F, 0.25F, 0.25F, 0}, {1, 0, 0, 0}},
                                     {{1, 0, 0, 0}, {0.25F, 0.25F, 0.25F, 0.25F}, {0.25F, 0.25F, 0.25F, 0.25F}}};
    static const uint8_t kinds[] = {MHA_TOKEN_SPECIAL, MHA_TOKEN_PUNCT, MHA_TOKEN_SPECIAL | MHA_TOKEN_SEP, 0};
    static const uint8_t start[] = {MHA_TOKEN_SPECIAL, 0, 0};
    const mha_head_map text = {.tokens = 4, .p = p[0][0], .kinds = kinds};
    const mha_head_queries queries = {3, start};
    const mha_head_maps maps = {
        .size = sizeof maps, .layers = 1, .heads = 2, .count = 1, .text = &text, .queries = &queries};
    mha_heads *heads;
    int64_t positions;
    assert_int_equal(mha_heads_of_maps(NULL, &maps, &heads, NULL), MHA_OK);
    value(heads, 0, MHA_HEAD_ENTROPY, 0.5);
    value(heads, 0, MHA_HEAD_ENTROPY_NORM, 0.25);
    value(heads, 0, MHA_HEAD_BROAD, 0.375);
    value(heads, 0, MHA_HEAD_FIRST, 0.75);
    value(heads, 0, MHA_HEAD_FIRST_ARGMAX, 1);
    value(heads, 0, MHA_HEAD_SINK, 0.5);
    value(heads, 0, MHA_HEAD_SEP, 0.125);
    value(heads, 0, MHA_HEAD_PUNCT, 0.125);
    value(heads, 0, MHA_HEAD_CONFIDENCE_NOSPECIAL, 0.125);
    value(heads, 0, MHA_HEAD_VERTICAL, (1.125 + 2 * 0.03125) / 1.375);
    value(heads, 0, MHA_HEAD_PREV, (double)NAN);
    value(heads, 1, MHA_HEAD_BROAD, 1);
    value(heads, 1, MHA_HEAD_VERTICAL, 1);
    assert_int_equal(mha_heads_label(heads, 0, 0), MHA_LABEL_FIRST);
    assert_int_equal(mha_heads_label(heads, 0, 1), MHA_LABEL_BROAD);
    near(mha_heads_received(heads, 0, 0, &positions)[2], 1.25 / 3);
    assert_int_equal(positions, 4);
    mha_heads_free(heads);
}

/* With one key, the normalized entropy is undefined. */
static void cross_attention_to_one_key(void **state)
{
    (void)state;
    const mha_head_map text = {.tokens = 1, .p = (const float[]){1, 1}};
    const mha_head_queries queries = {.tokens = 2};
    const mha_head_maps maps = {
        .size = sizeof maps, .layers = 1, .heads = 1, .count = 1, .text = &text, .queries = &queries};
    mha_heads *heads;
    assert_int_equal(mha_heads_of_maps(NULL, &maps, &heads, NULL), MHA_OK);
    value(heads, 0, MHA_HEAD_FIRST, 1);
    value(heads, 0, MHA_HEAD_BROAD, (double)NAN);
    value(heads, 0, MHA_HEAD_ENTROPY_NORM, (double)NAN);
    mha_heads_free(heads);
}

static void refused_queries(const mha_head_map *text, const mha_head_queries *queries, int causal, const char *word)
{
    mha_heads *heads = (mha_heads *)&heads;
    mha_error err = {0};
    const mha_head_maps maps = {
        .size = sizeof maps, .layers = 1, .heads = 1, .causal = causal, .count = 1, .text = text, .queries = queries};
    assert_int_equal(mha_heads_of_maps(NULL, &maps, &heads, &err), MHA_ERR_ARG);
    assert_null(heads);
    if (!strstr(err.message, word)) fail_msg("message must contain \"%s\" (got %s)", word, err.message);
}

static void refusals_of_queries(void **state)
{
    (void)state;
    const int32_t segments[2] = {0, 1};
    const mha_head_map text = {.tokens = 2, .p = even}, parts = {.tokens = 2, .p = even, .segments = segments};
    const mha_head_queries two = {.tokens = 2}, none = {.tokens = 0}, max = {.tokens = INT64_MAX};
    refused_queries(&text, &two, 1, "mha_head_maps: causal must be 0 with queries (got 1)");
    refused_queries(&text, &none, 0, "mha_head_maps: text 0 must have from 1 to 2147483647 queries (got 0)");
    refused_queries(&text, &max, 0, "must have from 1 to 2147483647 queries (got 9223372036854775807)");
    refused_queries(&parts, &two, 0, "mha_head_maps: segments of text 0 must be NULL with queries");
}

/* ---- kinds of tokens ---- */

static void kinds_of_tokens(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, "seq2seq/mbart", NULL);
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    mha_encoding *e;
    mha_error err = {0};
    uint8_t kinds[8];
    assert_int_equal(mha_tokenizer_encode(tokenizer, "a .", 3, NULL, 0, NULL, &e, NULL), MHA_OK);
    assert_in_range(e->count, 4, 8);
    assert_int_equal(mha_head_token_kinds(tokenizer, e->ids, e->count, kinds, &err), MHA_OK);
    for (int64_t i = 0; i < e->count; i++) {
        const char *token = mha_tokenizer_token(tokenizer, e->ids[i]);
        const int want = strcmp(token, "</s>") == 0    ? MHA_TOKEN_SEP | MHA_TOKEN_SPECIAL
                         : strcmp(token, "en_XX") == 0 ? MHA_TOKEN_SPECIAL
                         : strcmp(token, ".") == 0     ? MHA_TOKEN_PUNCT
                                                       : 0;
        if (kinds[i] != want) fail_msg("kind of %s must be %d (got %d)", token, want, kinds[i]);
    }
    assert_int_equal(mha_head_token_kinds(tokenizer, (const int32_t[]){-1, INT32_MAX}, 2, kinds, NULL), MHA_OK);
    assert_int_equal(kinds[0] | kinds[1], 0);
    assert_int_equal(mha_head_token_kinds(tokenizer, NULL, 0, NULL, NULL), MHA_OK);
    assert_int_equal(mha_head_token_kinds(tokenizer, e->ids, -1, kinds, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_head_token_kinds: count must be at least 0 (got -1)");
    assert_int_equal(mha_head_token_kinds(tokenizer, NULL, 1, kinds, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_head_token_kinds(tokenizer, e->ids, 1, NULL, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_head_token_kinds(NULL, e->ids, 1, kinds, NULL), MHA_ERR_ARG);
    mha_encoding_free(e);
    mha_model_free(model);
}

/* ---- memory ---- */

static void no_memory(void **state)
{
    (void)state;
    mha_status status = MHA_ERR_MEMORY;
    for (long budget = 0; status == MHA_ERR_MEMORY; budget++) {
        counting count = {.budget = -1};
        const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&count)};
        mha_ctx *ctx;
        mha_heads *heads;
        assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
        count.budget = budget;
        status = of(ctx, even, 0, 0, &heads, NULL);
        if (status == MHA_OK) assert_true(budget > 3);
        assert_true((heads != NULL) == (status == MHA_OK));
        count.budget = -1;
        mha_heads_free(heads);
        mha_ctx_free(ctx);
        assert_int_equal(count.live, 0);
    }
    assert_int_equal(status, MHA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_an_encoder),
        cmocka_unit_test(of_a_decoder),
        cmocka_unit_test(thresholds),
        cmocka_unit_test(refusals),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(cross_attention_of_the_same_text),
        cmocka_unit_test(cross_attention_of_two_texts),
        cmocka_unit_test(cross_attention_to_one_key),
        cmocka_unit_test(refusals_of_queries),
        cmocka_unit_test(kinds_of_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
