/* test_heads_plan.c - tests head plans: defaults, operation counts and cache sizes calculated by hand, excluded rows,
 * advice, timing and errors. tests/golden/test_plan_tables.c compares the printed tables. */
#include "mha/head_layouts.h"
#include "support/alloc.h"
#include "support/check.h"
#include <math.h>
#include <string.h>

static void test_defaults(void **state)
{
    (void)state;
    static const int64_t usual[][3] = {/* d_model, expected heads, expected layers */
                                       {768, 12, 12},  {64, 1, 12},    {97, 1, 12},     {1024, 16, 12},
                                       {2048, 16, 16}, {4096, 32, 32}, {12288, 96, 96}, {100, 2, 12}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        mha_head_layout_options model = {.size = sizeof model, .d_model = usual[i][0]};
        assert_int_equal(mha_head_layout_resolve(&model, &model, NULL), MHA_OK);
        assert_int_equal(model.heads, usual[i][1]);
        assert_int_equal(model.layers, usual[i][2]);
        assert_int_equal(model.parameters, model.layers * 12 * model.d_model * model.d_model + 32000 * model.d_model);
        assert_int_equal(model.seq, 2048);
        assert_int_equal(model.batch, 1);
        assert_int_equal(model.dtype, MHA_F32);
        assert_int_equal(model.experts, model.heads);
        assert_int_equal(model.top_k, model.heads > 1 ? 2 : 1);
        assert_true(model.prune == 0.25);
    }
}

/* Compares operation counts and cache sizes with values calculated by hand, for E = 8, 4 heads of width 2, 3 layers and
 * 5 sequences of 7 tokens. */
static void test_costs(void **state)
{
    (void)state;
    const mha_head_layout_options model = {.size = sizeof model,
                                           .d_model = 8,
                                           .heads = 4,
                                           .layers = 3,
                                           .seq = 7,
                                           .batch = 5,
                                           .dtype = MHA_BF16,
                                           .prune = 0.5};
    mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS];
    assert_int_equal(mha_head_layout_variants(&model, rows, NULL), MHA_OK);
    const double tokens = 2.0 * 3 * 5 * 7, sequences = 2.0 * 3 * 5, pairs = 3.0 * 5 * 7 * 8 / 2;
    const struct {
        mha_head_layout_variant variant;
        double project;
        int heads, kv_heads;
    } want[] = {
        {MHA_HEAD_LAYOUT_MHA, tokens * 4 * 64, 4, 4},
        {MHA_HEAD_LAYOUT_PRUNED, tokens * 4 * 32, 2, 2},
        {MHA_HEAD_LAYOUT_DYNAMIC, tokens * 4 * 32 + sequences * 8 * 4, 2, 2},
        {MHA_HEAD_LAYOUT_GQA, tokens * (2 * 64 + 2 * 32), 4, 2},
        {MHA_HEAD_LAYOUT_MQA, tokens * (2 * 64 + 2 * 16), 4, 1},
        {MHA_HEAD_LAYOUT_MOE, tokens * (4 * 32 + 64) + sequences * 8 * 4, 2, 2},
        {MHA_HEAD_LAYOUT_ADAPTIVE, tokens * 4 * 64 + sequences * (8 * 128 + 128 * 3), 4, 4},
    };
    assert_int_equal(sizeof want / sizeof *want, MHA_HEAD_LAYOUT_VARIANTS);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const mha_head_layout *r = &rows[want[i].variant];
        assert_int_equal(r->variant, want[i].variant);
        assert_null(r->left_out);
        assert_int_equal(r->heads, want[i].heads);
        assert_int_equal(r->kv_heads, want[i].kv_heads);
        assert_true(r->project_flops == want[i].project);
        /* Q K^T and P V need 2 operations each per query, key and column */
        assert_true(r->attend_flops == 4 * pairs * want[i].heads * 2);
        assert_int_equal(r->kv_bytes, 2 * 3 * 5 * 7 * want[i].kv_heads * 2 * 2);
        assert_true(r->prefill == 0 && r->decode == 0);
    }
}

/* A layout that is impossible for the model must be listed as a row with the reason. */
static void test_excluded_layouts(void **state)
{
    (void)state;
    mha_head_layout_options model = {.size = sizeof model, .d_model = 7, .heads = 1};
    mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS];
    assert_int_equal(mha_head_layout_variants(&model, rows, NULL), MHA_OK);
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        assert_true((rows[v].left_out == NULL) == (v == MHA_HEAD_LAYOUT_MHA || v == MHA_HEAD_LAYOUT_MOE));
    model.heads = 7;
    assert_int_equal(mha_head_layout_variants(&model, rows, NULL), MHA_OK);
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        assert_true((rows[v].left_out == NULL) == (v != MHA_HEAD_LAYOUT_GQA && v != MHA_HEAD_LAYOUT_ADAPTIVE));
    assert_null(mha_head_layout_variant_key(MHA_HEAD_LAYOUT_VARIANTS));
    assert_null(mha_head_layout_variant_help((mha_head_layout_variant)-1));
}

static mha_head_layout_advice advice_of(int64_t heads, int64_t parameters)
{
    const mha_head_layout_options model = {
        .size = sizeof model, .d_model = 840, .heads = heads, .parameters = parameters, .seq = 1000};
    mha_head_layout_advice advice;
    assert_int_equal(mha_head_layout_advise(&model, &advice, NULL), MHA_OK);
    assert_int_equal(advice.parameters, parameters);
    assert_int_equal(advice.heads, heads);
    assert_true(strlen(advice.reason) > 40 && strlen(advice.reason) + 1 < sizeof advice.reason);
    return advice;
}

static void test_advice(void **state)
{
    (void)state;
    mha_head_layout_advice a = advice_of(12, 99999999);
    assert_int_equal(a.variant, MHA_HEAD_LAYOUT_MHA);
    assert_int_equal(a.kv_heads, 12);
    assert_non_null(strstr(a.reason, "small"));
    assert_non_null(strstr(a.reason, "to 9 of 12 heads"));
    a = advice_of(12, 100000000);
    assert_int_equal(a.variant, MHA_HEAD_LAYOUT_GQA);
    assert_int_equal(a.kv_heads, 3);
    assert_non_null(strstr(a.reason, "medium"));
    assert_null(strstr(a.reason, "experts"));
    assert_int_equal(a.experts, 0);
    a = advice_of(56, 10000000000);
    assert_int_equal(a.kv_heads, 14);
    assert_non_null(strstr(a.reason, "medium"));
    a = advice_of(56, 10000000001);
    assert_int_equal(a.variant, MHA_HEAD_LAYOUT_GQA);
    assert_int_equal(a.kv_heads, 7);
    assert_non_null(strstr(a.reason, "experts"));
    assert_int_equal(a.experts, 56);
    assert_int_equal(a.top_k, 2);
    a = advice_of(7, 100000000); /* 7 heads have no divisor other than 1 and 7 */
    assert_int_equal(a.variant, MHA_HEAD_LAYOUT_MQA);
    assert_int_equal(a.kv_heads, 1);
    assert_int_equal(advice_of(1, INT64_MAX).variant, MHA_HEAD_LAYOUT_MHA);
    assert_int_equal(advice_of(1, 1).variant, MHA_HEAD_LAYOUT_MHA);
}

/* The advice must state that fewer key/value heads save little only if the cache is small relative to the
 * parameters. */
static void test_advice_on_the_cache(void **state)
{
    (void)state;
    mha_head_layout_options model = {
        .size = sizeof model, .d_model = 768, .heads = 12, .parameters = 50000000, .seq = 128};
    mha_head_layout_advice a;
    assert_int_equal(mha_head_layout_advise(&model, &a, NULL), MHA_OK);
    assert_non_null(strstr(a.reason, "saves little"));
    model.seq = 131072;
    assert_int_equal(mha_head_layout_advise(&model, &a, NULL), MHA_OK);
    assert_non_null(strstr(a.reason, "more than the parameters"));
    assert_int_equal(a.variant, MHA_HEAD_LAYOUT_MHA);
}

/* The measured times must be positive for every kind of row and every cache dtype. */
static void test_measure(void **state)
{
    (void)state;
    for (int dtype = MHA_F32; dtype <= MHA_F16; dtype++) {
        const mha_head_layout_options model = {.size = sizeof model,
                                               .d_model = 48,
                                               .heads = 4,
                                               .layers = 2,
                                               .seq = 9,
                                               .batch = 3,
                                               .dtype = (mha_dtype)dtype};
        mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS];
        assert_int_equal(mha_head_layout_variants(&model, rows, NULL), MHA_OK);
        for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++) {
            assert_int_equal(mha_head_layout_measure(NULL, &model, &rows[v], 0, NULL), MHA_OK);
            assert_true(rows[v].prefill > 0 && rows[v].prefill < 60);
            assert_true(rows[v].decode > 0 && rows[v].decode < 60);
        }
    }
}

/* With a budget of 0, 1, 2, ... allocations, a failed measurement must return MHA_ERR_MEMORY and free its memory. */
static void test_starvation(void **state)
{
    (void)state;
    const mha_head_layout_options model = {.size = sizeof model, .d_model = 16, .heads = 4, .layers = 1, .seq = 5};
    mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS];
    assert_int_equal(mha_head_layout_variants(&model, rows, NULL), MHA_OK);
    counting counted = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&counted)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long before = counted.live;
    mha_status status = MHA_ERR_MEMORY;
    for (long budget = 0; status != MHA_OK; budget++) {
        mha_error error = {0};
        assert_in_range(budget, 0, 200);
        counted.budget = counted.calls + budget;
        status = mha_head_layout_measure(ctx, &model, &rows[MHA_HEAD_LAYOUT_MOE], 0, &error);
        if (status != MHA_OK) assert_int_equal(error.status, MHA_ERR_MEMORY);
        assert_int_equal(counted.live, before);
    }
    counted.budget = -1;
    mha_ctx_free(ctx);
}

static void said(const mha_head_layout_options *model, const char *word, const char *value)
{
    mha_error e = {0};
    mha_head_layout rows[MHA_HEAD_LAYOUTS];
    int count;
    assert_int_equal(mha_head_layouts(model, rows, &count, &e), MHA_ERR_ARG);
    if (!strstr(e.message, word) || !check_has_word(e.message, value))
        fail_msg("\"%s\" must contain %s and %s", e.message, word, value);
    assert_int_equal(mha_head_layout_variants(model, rows, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_head_layout_advise(model, &(mha_head_layout_advice){0}, NULL), MHA_ERR_ARG);
}

#define MODEL(...) (&(mha_head_layout_options){.size = sizeof(mha_head_layout_options), __VA_ARGS__})

static void test_refusals(void **state)
{
    (void)state;
    const int64_t wide = INT64_C(1) << 20;
    said(MODEL(.d_model = 0), "d_model", "0");
    said(MODEL(.d_model = -4), "d_model", "-4");
    said(MODEL(.d_model = INT64_MAX), "d_model", "9223372036854775807");
    said(MODEL(.d_model = 768, .heads = 7), "(got 7)", "768");
    said(MODEL(.d_model = 768, .heads = -1), "heads", "-1");
    said(MODEL(.d_model = 768, .layers = 65537), "layers", "65537");
    said(MODEL(.d_model = 768, .vocab = INT64_MAX), "vocab", "9223372036854775807");
    said(MODEL(.d_model = 768, .seq = -1), "seq", "-1");
    said(MODEL(.d_model = 768, .batch = INT64_MIN), "batch", "-9223372036854775808");
    said(MODEL(.d_model = 768, .dtype = MHA_F64), "dtype", "f64");
    said(MODEL(.d_model = 768, .parameters = -5), "parameters", "-5");
    said(MODEL(.d_model = 768, .prune = 1), "prune", "1");
    said(MODEL(.d_model = 768, .prune = NAN), "prune", "nan");
    said(MODEL(.d_model = 768, .experts = -2), "experts", "-2");
    said(MODEL(.d_model = 768, .experts = 4, .top_k = 5), "top_k", "5");
    said(MODEL(.d_model = wide, .layers = 65536, .seq = INT64_C(1) << 32, .batch = wide), "seq", "4294967296");
}

static void test_measure_refusals(void **state)
{
    (void)state;
    mha_error e = {0};
    const mha_head_layout_options *model = MODEL(.d_model = 6144, .seq = 4);
    mha_head_layout rows[MHA_HEAD_LAYOUTS], none = {.left_out = "it is"};
    int count;
    assert_int_equal(mha_head_layouts(model, rows, &count, NULL), MHA_OK);
    assert_int_equal(mha_head_layout_measure(NULL, model, NULL, 0, &e), MHA_ERR_ARG);
    assert_int_equal(mha_head_layout_measure(NULL, model, &none, 0, &e), MHA_ERR_ARG);
    assert_int_equal(mha_head_layout_measure(NULL, MODEL(.d_model = 0), &rows[0], 0, &e), MHA_ERR_ARG);
    assert_non_null(strstr(e.message, "d_model"));
    assert_int_equal(mha_head_layout_measure(NULL, model, &rows[0], NAN, &e), MHA_ERR_ARG);
    for (int i = 0; i < count; i++) { /* the row with one head has a head width of 6144, above the limit */
        assert_true((rows[i].refused != NULL) == (rows[i].heads == 1));
        if (rows[i].heads > 1) continue;
        assert_int_equal(mha_head_layout_measure(NULL, model, &rows[i], 0, &e), MHA_ERR_UNSUPPORTED);
        assert_int_equal(e.status, MHA_ERR_UNSUPPORTED);
        assert_true(check_has_word(e.message, "6144"));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_excluded_layouts),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_advice_on_the_cache),
        cmocka_unit_test(test_measure),
        cmocka_unit_test(test_starvation),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_measure_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
