/* test_heads_of_maps.c - scores computed from maps that the caller passes must equal the scores of the model that
 * computed the maps, for several texts and with segments. Also tests errors and failed allocations. */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/heads.h"
#include "support/alloc.h"
#include "support/model/model_case.h"

enum { TEXTS = 3, MOST_TOKENS = 16 };

/* ---- scores of a model and scores of its maps ---- */

typedef struct texts {
    int32_t ids[TEXTS * MOST_TOKENS], segments[TEXTS * MOST_TOKENS];
    int64_t starts[TEXTS + 1];
    uint8_t kinds[TEXTS * MOST_TOKENS];
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
    mha_model *model =
        case_model(NULL, folder, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1});
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
        cmocka_unit_test(of_an_encoder), cmocka_unit_test(of_a_decoder), cmocka_unit_test(thresholds),
        cmocka_unit_test(refusals),      cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
