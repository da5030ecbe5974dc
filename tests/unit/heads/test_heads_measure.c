/* test_heads_measure.c - tests the head measurement of a tiny model: means over texts, batches, threads, scores and
 * maps, segments, thresholds, the seed of the probe, cancellation and failed allocations. */
#include "mha/heads.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char folder[] = MHA_TEST_DATA "/models/bert-tiny";
static const char *const texts[] = {"you keep the count", "and then again, they said", "wait for the tank"};
enum { TEXTS = 3 };

static mha_model *open_model(mha_ctx *ctx)
{
    mha_model *model;
    mha_error err = {0};
    if (mha_model_open(ctx, folder, NULL, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    return model;
}

static mha_heads *measure(const mha_model *model, const char *const *some, int64_t count, mha_heads_options options)
{
    mha_heads *heads;
    mha_error err = {0};
    options.size = sizeof options;
    if (mha_heads_measure(model, some, count, &options, &heads, &err) != MHA_OK) fail_msg("%s", err.message);
    return heads;
}

/* Returns true if every score of every head is bitwise identical in a and b. */
static bool equal(const mha_heads *a, const mha_heads *b)
{
    for (int64_t l = 0; l < mha_heads_layers(a); l++)
        for (int64_t h = 0; h < mha_heads_count(a, l); h++)
            for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++) {
                double x = mha_heads_value(a, l, h, m), y = mha_heads_value(b, l, h, m);
                if (memcmp(&x, &y, sizeof x) != 0) return false;
            }
    return true;
}

static void threads_change_nothing(void **state)
{
    (void)state;
    mha_model *plain = open_model(NULL);
    mha_heads *want = measure(plain, texts, TEXTS, (mha_heads_options){0});
    for (int threads = 1; threads <= 7; threads += 2) {
        mha_ctx *ctx;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        mha_model *model = open_model(ctx);
        mha_heads *heads = measure(model, texts, TEXTS, (mha_heads_options){0});
        assert_true(equal(heads, want));
        mha_heads_free(heads);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    mha_heads_free(want);
    mha_model_free(plain);
}

/* The scores of several texts must be means over the rows of all texts, so that texts of n and m tokens have weights n
 * and m. */
static void texts_pool_by_rows(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    const mha_heads_options plain = {.no_probe = 1}, map = {.no_probe = 1, .keep_maps = 1};
    mha_heads *both = measure(model, texts, 2, plain), *a = measure(model, texts, 1, map),
              *b = measure(model, texts + 1, 1, map);
    double n = (double)mha_heads_tokens(a)->count, m = (double)mha_heads_tokens(b)->count;
    assert_true(n != m);
    for (int64_t l = 0; l < mha_heads_layers(both); l++)
        for (int64_t h = 0; h < mha_heads_count(both, l); h++) {
            double want =
                (n * mha_heads_value(a, l, h, MHA_HEAD_ENTROPY) + m * mha_heads_value(b, l, h, MHA_HEAD_ENTROPY)) /
                (n + m);
            assert_true(fabs(mha_heads_value(both, l, h, MHA_HEAD_ENTROPY) - want) < 1e-12);
            assert_true(isnan(mha_heads_value(both, l, h, MHA_HEAD_DUP_PROBE)));
        }
    mha_heads_free(both);
    mha_heads_free(a);
    mha_heads_free(b);
    mha_model_free(model);
}

static void seeds(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_heads *a = measure(model, texts, 1, (mha_heads_options){.seed = 1}),
              *again = measure(model, texts, 1, (mha_heads_options){.seed = 1}),
              *other = measure(model, texts, 1, (mha_heads_options){.seed = 2});
    assert_true(equal(a, again));
    assert_false(equal(a, other));
    mha_heads_free(a);
    mha_heads_free(again);
    mha_heads_free(other);
    mha_model_free(model);
}

static void truncated_and_out_of_range(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_heads *heads = measure(model, texts, 1, (mha_heads_options){.max_tokens = 3, .keep_maps = 1});
    assert_int_equal(mha_heads_tokens(heads)->count, 3);
    assert_non_null(mha_heads_map(heads, 2, 3));
    assert_null(mha_heads_map(heads, 3, 0));
    assert_null(mha_heads_map(heads, 0, 4));
    assert_int_equal(mha_heads_count(heads, -1), 0);
    assert_true(isnan(mha_heads_value(heads, 0, 0, MHA_HEAD_METRICS)));
    assert_true(isnan(mha_heads_value(heads, 0, -1, MHA_HEAD_SELF)));
    mha_heads_free(heads);
    mha_heads_free(NULL);
    mha_model_free(model);
}

static void on_log(void *user, int level, const char *message)
{
    if (level == 0) snprintf(user, 1024, "%s", message);
}

/* Truncation to the maximum length of the model must log a warning that names the text; truncation to max_tokens must
 * not. Errors must also name the text. */
static void truncation_and_errors_name_the_text(void **state)
{
    (void)state;
    char text[120 * 4 + 1] = "", heard[1024] = "";
    for (int i = 0; i < 120; i++)
        memcpy(text + 4 * i, "the ", 5);
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .log = on_log, .log_user = heard};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx);
    const char *both[] = {"the", text};
    mha_heads_free(measure(model, both, 2, (mha_heads_options){.max_tokens = 5, .no_probe = 1}));
    assert_string_equal(heard, "");
    mha_heads_free(measure(model, both, 2, (mha_heads_options){.no_probe = 1}));
    assert_string_equal(heard, "text 2 of 2: 122 tokens, 26 were truncated; the model accepts 96");
    mha_heads *none;
    mha_error err = {0};
    both[1] = "a\xC3";
    assert_int_equal(mha_heads_measure(model, both, 2, NULL, &none, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 2 of 2: text must be UTF-8 (got 0xC3 at byte 1)");
    both[1] = NULL;
    assert_int_equal(mha_heads_measure(model, both, 2, NULL, &none, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 2 of 2 must not be NULL");
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* ---- measurement of prepared data ---- */

/* Returns random texts as token ids, with enough tokens for several threads. */
static mha_head_data *random_data(const mha_model *model, int64_t batch_tokens, const int32_t *segments)
{
    enum { COUNT = 60, MAX = 96, VOCAB = 500 };
    static int32_t ids[COUNT * MAX];
    int64_t starts[COUNT + 1] = {0};
    mha_head_data *data;
    mha_error err = {0};
    rng r = rng_make(5, 1);
    for (int64_t i = 0; i < COUNT; i++)
        starts[i + 1] = starts[i] + rng_range(&r, 1, MAX);
    for (int64_t i = 0; i < starts[COUNT]; i++)
        ids[i] = (int32_t)rng_range(&r, 0, VOCAB - 1);
    const mha_head_data_options how = {.size = sizeof how, .batch_tokens = batch_tokens, .segments = segments};
    if (mha_head_data_of_ids(model, ids, starts, COUNT, &how, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    return data;
}

static mha_heads *measure_data(const mha_model *model, const mha_head_data *data, mha_heads_options options)
{
    mha_heads *heads;
    mha_error err = {0};
    options.size = sizeof options;
    if (mha_heads_measure_data(model, data, &options, &heads, &err) != MHA_OK) fail_msg("%s", err.message);
    return heads;
}

/* The scores and the received probabilities must be bitwise identical for any batch size and number of threads. */
static void batches_and_threads_change_nothing(void **state)
{
    (void)state;
    mha_model *plain = open_model(NULL);
    mha_head_data *data = random_data(plain, 0, NULL);
    mha_heads *want = measure_data(plain, data, (mha_heads_options){0});
    int64_t positions;
    const double *received = mha_heads_received(want, 2, 3, &positions);
    for (int threads = 1; threads <= 3; threads++)
        for (int64_t batch = 1; batch < 4096; batch *= 16) {
            mha_ctx *ctx;
            const mha_ctx_options options = {.size = sizeof options, .threads = threads};
            assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
            mha_model *model = open_model(ctx);
            mha_head_data *cut = random_data(model, batch, NULL);
            mha_heads *heads = measure_data(model, cut, (mha_heads_options){0});
            assert_true(equal(heads, want));
            assert_memory_equal(mha_heads_received(heads, 2, 3, NULL), received, (size_t)positions * sizeof *received);
            mha_heads_free(heads);
            mha_head_data_free(cut);
            mha_model_free(model);
            mha_ctx_free(ctx);
        }
    mha_heads_free(want);
    mha_head_data_free(data);
    mha_model_free(plain);
}

/* Measuring data must give maps bitwise identical to those of the text. mha_heads_tokens must then return the ids
 * without offsets. */
static void maps_of_data(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_head_data *data;
    mha_error err;
    assert_int_equal(mha_head_data_of_texts(model, texts, 1, NULL, &data, &err), MHA_OK);
    mha_heads *want = measure(model, texts, 1, (mha_heads_options){.keep_maps = 1}),
              *heads = measure_data(model, data, (mha_heads_options){.keep_maps = 1});
    const mha_encoding *read = mha_heads_tokens(want), *listed = mha_heads_tokens(heads);
    assert_int_equal(listed->count, read->count);
    assert_memory_equal(listed->ids, read->ids, (size_t)read->count * sizeof *read->ids);
    for (int64_t i = 0; i < listed->count; i++)
        assert_true(listed->begin[i] == 0 && listed->end[i] == 0 && listed->type_ids[i] == 0 && !listed->sequence[i]);
    assert_int_equal(listed->truncated, 0);
    const size_t bytes = (size_t)(read->count * read->count) * sizeof(float);
    assert_memory_equal(mha_heads_map(heads, 2, 3), mha_heads_map(want, 2, 3), bytes);
    mha_heads_free(want);
    mha_heads_free(heads);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* Metrics that depend only on the maps must equal the values computed from the stored maps of one text. */
static void scores_are_those_of_the_maps(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_heads *heads = measure(model, texts + 1, 1, (mha_heads_options){.no_probe = 1, .keep_maps = 1});
    const int64_t n = mha_heads_tokens(heads)->count;
    int sinks = 0, all = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++) {
            const float *map = mha_heads_map(heads, l, h);
            double sink = 0, offset = 0, prev = 0, content = 0, nospecial = 0;
            int64_t positions, content_rows = 0;
            const double *received = mha_heads_received(heads, l, h, &positions);
            assert_int_equal(positions, n);
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++)
                    sum += (double)map[i * n + j];
                assert_true(fabs(sum / (double)n - received[j]) < 1e-7);
            }
            for (int64_t i = 0; i < n; i++) {
                const float *row = map + i * n;
                int64_t most = 0, inner = 1; /* token 0 and the last token are special */
                for (int64_t j = 0; j < n; j++) {
                    offset += (double)row[j] * (double)(j - i);
                    if (row[j] > row[most]) most = j;
                    if (j > 0 && j < n - 1 && row[j] > row[inner]) inner = j;
                }
                sink += (double)row[0];
                if (i == 0 || i == n - 1) continue;
                content_rows++;
                prev += most == i - 1;
                content += (double)row[most];
                nospecial += (double)row[inner];
            }
            const struct {
                mha_head_metric metric;
                double want;
            } scores[] = {{MHA_HEAD_SINK, sink / (double)n},
                          {MHA_HEAD_OFFSET, offset / (double)n},
                          {MHA_HEAD_PREV_ARGMAX, prev / (double)content_rows},
                          {MHA_HEAD_CONFIDENCE_CONTENT, content / (double)content_rows},
                          {MHA_HEAD_CONFIDENCE_NOSPECIAL, nospecial / (double)content_rows}};
            for (size_t s = 0; s < sizeof scores / sizeof *scores; s++)
                if (!(fabs(mha_heads_value(heads, l, h, scores[s].metric) - scores[s].want) < 1e-6))
                    fail_msg("%s: got %.9g, expected %.9g", mha_head_metric_key(scores[s].metric),
                             mha_heads_value(heads, l, h, scores[s].metric), scores[s].want);
            assert_true(isnan(mha_heads_value(heads, l, h, MHA_HEAD_BLOCK)));
            sinks += sink / (double)n > 0.3;
            all++;
        }
    assert_true(fabs(mha_heads_sink_rate(heads) - (double)sinks / all) < 1e-12);
    mha_heads_free(heads);
    mha_model_free(model);
}

/* MHA_HEAD_BLOCK is the probability within a query's segment minus the fraction expected by chance. With one segment,
 * it must be 0; with two segments, it must be between -1/2 and 1/2, but not 0. */
static void segments(void **state)
{
    (void)state;
    static int32_t one[60 * 96], halves[60 * 96];
    for (int i = 0; i < 60 * 96; i++)
        halves[i] = i % 2;
    mha_model *model = open_model(NULL);
    mha_head_data *a = random_data(model, 0, one), *b = random_data(model, 0, halves);
    mha_heads *same = measure_data(model, a, (mha_heads_options){.no_probe = 1}),
              *two = measure_data(model, b, (mha_heads_options){.no_probe = 1});
    for (int64_t l = 0; l < mha_heads_layers(same); l++)
        for (int64_t h = 0; h < mha_heads_count(same, l); h++) {
            assert_true(fabs(mha_heads_value(same, l, h, MHA_HEAD_BLOCK)) < 1e-6);
            const double inside = mha_heads_value(two, l, h, MHA_HEAD_BLOCK);
            assert_true(inside > -0.5 && inside < 0.5 && fabs(inside) > 1e-6);
        }
    mha_heads_free(same), mha_heads_free(two);
    mha_head_data_free(a), mha_head_data_free(b);
    mha_model_free(model);
}

static void thresholds(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    const mha_heads_options loose = {.no_probe = 1, .thresholds = {.single = 1e-9, .sink = 1e-9}},
                            strict = {.no_probe = 1,
                                      .thresholds = {.single = 2, .local = 2, .broad = 2, .vertical = 2, .sink = 2}};
    mha_heads *all = measure(model, texts, TEXTS, loose), *none = measure(model, texts, TEXTS, strict);
    for (int64_t l = 0; l < mha_heads_layers(all); l++)
        for (int64_t h = 0; h < mha_heads_count(all, l); h++) {
            const mha_head_label label = mha_heads_label(all, l, h);
            assert_true(label >= MHA_LABEL_PREV && label <= MHA_LABEL_PUNCT);
            assert_int_equal(mha_heads_label(none, l, h), MHA_LABEL_MIXED);
        }
    assert_true(mha_heads_sink_rate(all) == 1 && mha_heads_sink_rate(none) == 0);
    mha_heads_free(all);
    mha_heads_free(none);
    mha_model_free(model);
}

static int count_calls(void *user, const char *what, int64_t done, int64_t total)
{
    (void)done, (void)total;
    *(int *)user += strcmp(what, "measure heads") == 0;
    return 0;
}

/* Wrong options must be rejected before a text is measured. */
static void wrong_use(void **state)
{
    (void)state;
    int calls = 0;
    mha_ctx *ctx;
    const mha_ctx_options counting = {.size = sizeof counting, .progress = count_calls, .progress_user = &calls};
    assert_int_equal(mha_ctx_create(&counting, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx);
    mha_head_data *data = random_data(model, 0, NULL);
    const int32_t ids[9] = {0, 0, 0, 0, 0, 0, 0, 0, 100000};
    const struct {
        mha_heads_options options;
        const char *sentence;
    } wrong[] = {
        {{.max_tokens = 5}, "mha_heads_options: max_tokens must be 0 for data (got 5)"},
        {{.keep_maps = 1}, "mha_heads_options: keep_maps must be 0 unless there is one text (got 60 texts)"},
        {{.thresholds = {.local = -1}}, "mha_head_thresholds: local must be at least 0 (got -1)"},
        {{.thresholds = {.sink = (double)NAN}}, "mha_head_thresholds: sink must be at least 0 (got nan)"},
        {{.probe = {.first = ids, .first_count = 9}}, "probe.first_count must be from 0 to 8 (got 9)"},
        {{.probe = {.texts = 5000}}, "probe.texts must be 0 if probe.ids is NULL (got 5000)"},
        {{.probe = {.period = (int64_t)1 << 40}}, "probe.period must be 0 if probe.ids is NULL (got 1099511627776)"},
        {{.probe = {.first_count = 9}}, "probe.first_count must be 0 if probe.first is NULL (got 9)"},
        {{.probe = {.last_count = -1}}, "probe.last_count must be 0 if probe.last is NULL (got -1)"},
        {{.probe = {.last = ids + 8, .last_count = 1}}, "probe.last[0] must be from 0 to 599 (got 100000)"},
        {{.probe = {.ids = ids, .texts = 1, .period = 48}}, "probe.period must be from 1 to 47 (got 48)"},
    };
    mha_heads *heads;
    mha_error err = {0};
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        mha_heads_options options = wrong[n].options;
        options.size = sizeof options;
        assert_int_equal(mha_heads_measure_data(model, data, &options, &heads, &err), MHA_ERR_ARG);
        assert_string_equal(err.message, wrong[n].sentence);
        assert_null(heads);
    }
    assert_int_equal(calls, 0);
    const mha_heads_options both = {.size = sizeof both, .keep_maps = 1, .state = "state"};
    assert_int_equal(mha_heads_measure(model, texts, 1, &both, &heads, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_heads_options: state must be NULL if keep_maps is set");
    assert_int_equal(mha_heads_measure_data(model, NULL, NULL, &heads, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "data must not be NULL");
    assert_int_equal(mha_heads_measure_data(NULL, data, NULL, &heads, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "model must not be NULL");
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static int stop_at_second(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)total;
    return strcmp(what, "measure heads") == 0 && done >= 1;
}

static void canceled(void **state)
{
    (void)state;
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .progress = stop_at_second};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx);
    mha_heads *heads;
    assert_int_equal(mha_heads_measure(model, texts, TEXTS, NULL, &heads, NULL), MHA_ERR_CANCELED);
    assert_null(heads);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory, and the
 * model must remain usable. */
static void no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx);
    const long live = memory.live;
    const mha_heads_options kept = {.size = sizeof kept, .keep_maps = 1};
    long failures = 0;
    for (;; failures++) {
        mha_heads *heads;
        memory.budget = memory.calls + failures;
        mha_status status = mha_heads_measure(model, texts, 1, &kept, &heads, NULL);
        memory.budget = -1;
        if (status == MHA_OK) {
            mha_heads_free(heads);
            assert_int_equal(memory.live, live);
            break;
        }
        assert_int_equal(status, MHA_ERR_MEMORY);
        assert_null(heads);
        assert_int_equal(memory.live, live);
    }
    assert_true(failures >= 8);
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(texts_pool_by_rows),
        cmocka_unit_test(seeds),
        cmocka_unit_test(maps_of_data),
        cmocka_unit_test(truncated_and_out_of_range),
        cmocka_unit_test(truncation_and_errors_name_the_text),
        cmocka_unit_test(batches_and_threads_change_nothing),
        cmocka_unit_test(scores_are_those_of_the_maps),
        cmocka_unit_test(segments),
        cmocka_unit_test(thresholds),
        cmocka_unit_test(wrong_use),
        cmocka_unit_test(canceled),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
