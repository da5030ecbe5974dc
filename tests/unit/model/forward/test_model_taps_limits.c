/* test_model_taps_limits.c - tests threads, memory, rejected requests and cancellation of passes with callbacks for
 * attention data. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/passes/taps_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = TAPS_B, L = TAPS_L, H = TAPS_H, TOP = TAPS_TOP };
static mha_error err;

/* ---- threads, error messages and failed allocations ---- */

static void threads_change_no_bit(void **state)
{
    (void)state;
    taps first = {0};
    const mha_model_input in = taps_input(TAPS_PADDED);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = case_model(ctx, taps_models[TAPS_SLIDING], NULL);
        taps s = taps_run(model, &in, TAPS_STATS, NULL, 0);
        if (threads == 1) first = s;
        for (int64_t n = 0; n < s.layers; n++) {
            taps_same(first.entropy[n], s.entropy[n], s.all * H, sizeof(float));
            taps_same(first.received[n], s.received[n], s.all * H, sizeof(float));
            taps_same(first.top_prob[n], s.top_prob[n], s.all * H * TOP, sizeof(float));
        }
        if (threads > 1) taps_release(&s);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    taps_release(&first);
}

static void *greatest(void *user, size_t bytes, size_t align)
{
    size_t *max = user;
    if (bytes > *max) *max = bytes;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static int finite_stats(void *user, const mha_model_stats *s)
{
    int64_t *rows = user;
    for (int64_t n = 0; n < s->heads * s->keys; n++)
        *rows += isfinite(s->row_entropy[n]) && s->received[n] >= 0;
    return 0;
}

/* The statistics of a long text must not require maps, which would need 4 MiB per head. */
static void statistics_of_a_long_text_need_no_maps(void **state)
{
    (void)state;
    enum { LONG = 1024, MIN = 900 };
    size_t plain = 0, max = 0;
    int64_t rows = 0;
    int32_t *text = calloc(LONG, sizeof *text);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = LONG, .ids = text};
    for (int stats = 0; stats < 2; stats++) {
        mha_ctx *ctx = NULL;
        max = 0;
        const mha_ctx_options o = {
            .size = sizeof o, .threads = 1, .allocator = {.alloc = greatest, .free = give_back, .user = &max}};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = case_model(ctx, taps_models[TAPS_SLIDING], NULL);
        for (int n = 0; n < LONG; n++)
            text[n] = 5 + n % 500;
        const mha_model_output out = {.size = sizeof out, .on_stats = stats ? finite_stats : NULL, .user = &rows};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_OK);
        if (!stats) plain = max;
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    assert_int_equal(rows, 4 * H * LONG);
    assert_true(max > plain && max - plain < H * LONG * 40 + LONG * 512); /* the scores of one tile of 128 rows */
    free(text);
}

static void invalid_requests(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, taps_models[TAPS_ENCODER], NULL);
    const mha_model_input in = taps_input(TAPS_PLAIN);
    taps s = taps_shape(model, &in);
    const struct {
        mha_model_head list[2];
        int64_t count, top;
        int maps, stats;
        const char *sentence;
    } wrong[] = {
        {{{3, 0}}, 1, 0, 1, 0, "map_heads[0] must be a head of the model (got head 0 of layer 3)"},
        {{{-1, 0}}, 1, 0, 1, 0, "map_heads[0] must be a head of the model (got head 0 of layer -1)"},
        {{{0, 0}, {1, 4}}, 2, 0, 1, 0, "map_heads[1] must be a head of the model (got head 4 of layer 1)"},
        {{{0, -1}}, 1, 0, 1, 0, "map_heads[0] must be a head of the model (got head -1 of layer 0)"},
        {{{1, 0}, {0, 0}}, 2, 0, 1, 0, "(got layer 0 after 1)"},
        {{{0, 0}}, 0, 0, 1, 0, "must be set together (got 0, given, given)"},
        {{{0, 0}}, 1, 0, 0, 1, "must be set together (got 1, given, NULL)"},
        {{{0, 0}}, 1, 33, 1, 1, "top_keys must be from 0 to 32, and 0 without on_stats (got 33)"},
        {{{0, 0}}, 1, 1, 1, 0, "top_keys must be from 0 to 32, and 0 without on_stats (got 1)"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        const mha_model_output out = {.size = sizeof out,
                                      .on_attention = wrong[n].maps ? taps_keep_maps : NULL,
                                      .on_stats = wrong[n].stats ? taps_keep_stats : NULL,
                                      .map_heads = wrong[n].list,
                                      .map_count = wrong[n].count,
                                      .top_keys = wrong[n].top,
                                      .user = &s};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_ARG);
        if (!strstr(err.message, wrong[n].sentence)) fail_msg("%s", err.message);
    }
    const struct {
        int64_t rows[B], count;
        int maps;
        const char *sentence;
    } other[] = {
        {{0, 0, L}, 1, 1, "map_rows for sequence 2 must be from -23 to 22 (got 23)"},
        {{0, -L - 1, 0}, 1, 1, "map_rows for sequence 1 must be from -23 to 22 (got -24)"},
        {{0}, 0, 1, "must be set together (got 0, given, given)"},
        {{0}, 1, 0, "must be set together (got 1, given, NULL)"},
    };
    for (size_t n = 0; n < sizeof other / sizeof *other; n++) {
        const mha_model_output out = {.size = sizeof out,
                                      .on_attention = other[n].maps ? taps_keep_maps : NULL,
                                      .map_rows = other[n].rows,
                                      .map_row_count = other[n].count,
                                      .user = &s};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_ARG);
        if (!strstr(err.message, other[n].sentence)) fail_msg("%s", err.message);
    }
    mha_model_free(model);
}

static int stop_second(void *user, const mha_model_stats *s)
{
    (void)user;
    return s->layer == 1;
}

static void a_callback_stops_the_pass(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, taps_models[TAPS_ENCODER], NULL);
    const mha_model_input in = taps_input(TAPS_PLAIN);
    const mha_model_output out = {.size = sizeof out, .on_stats = stop_second};
    assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_CANCELED);
    assert_string_equal(err.message, "stopped by on_stats at layer 1");
    mha_model_free(model);
}

static void no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    static const mha_model_head list[] = {{0, 3}, {2, 0}};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    mha_model *model = case_model(ctx, taps_models[TAPS_SLIDING], NULL);
    const long live = memory.live;
    const mha_model_input in = taps_input(TAPS_PACKED);
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        taps s = taps_shape(model, &in);
        const mha_model_output out = {.size = sizeof out,
                                      .on_attention = taps_keep_maps,
                                      .on_stats = taps_keep_stats,
                                      .map_heads = list,
                                      .map_count = 2,
                                      .top_keys = TOP,
                                      .user = &s};
        memory.budget = memory.calls + n;
        status = mha_model_forward(model, &in, &out, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
        taps_release(&s);
    }
    assert_true(n > 2);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(statistics_of_a_long_text_need_no_maps),
        cmocka_unit_test(invalid_requests),
        cmocka_unit_test(a_callback_stops_the_pass),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, taps_setup, NULL);
}
