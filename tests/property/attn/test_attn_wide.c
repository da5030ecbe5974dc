/* test_attn_wide.c - compares the forward and backward pass of heads wider than 512 with the reference. Tests every
 * type, few and many rows, statistics, paged keys and few keys, on every ISA. Buffers have the exact size, so a
 * sanitizer reports out-of-bounds accesses. */
#include "mha/cache.h"
#include "support/attn/grads.h"
#include "support/attn/paged.h"
#include "support/check.h"
#include "support/isas.h"

static const problem_layouts tight = {
    .q.tight = true, .k.tight = true, .v.tight = true, .out.tight = true, .lse.tight = true};

static void check_forward(const mha_attn_desc *desc, int64_t page_size)
{
    problem p;
    ref_result truth, plain;
    char why[1200], text[400];
    problem_make(&p, desc, page_size ? NULL : &tight, 91);
    if (page_size) paged_make(&p, page_size, 92);
    ref_truth(&p.desc, &p.args, &truth);
    ref_plain(&p.desc, &p.args, &plain);
    for (int n = 0; n < isa_count_of(desc->dtype); n++)
        if (!problem_try(isa_contexts[n], &p, why, sizeof why) ||
            !problem_near(&p, &truth, &plain, NULL, why, sizeof why))
            fail_msg("%s: pages of %d: %s: %s", mha_ctx_isa(isa_contexts[n]), (int)page_size,
                     problem_text(&p, text, sizeof text), why);
    ref_free(&truth);
    ref_free(&plain);
    problem_free(&p);
}

static const mha_dtype types[][2] = {{MHA_F32, MHA_F32}, {MHA_F32, MHA_BF16}, {MHA_F32, MHA_F16},  {MHA_F32, MHA_Q8_0},
                                     {MHA_F64, MHA_F64}, {MHA_F16, MHA_F16},  {MHA_BF16, MHA_BF16}};
enum { TYPES = sizeof types / sizeof *types };
/* D and Dv. Heads wider than 1024 are processed in groups of columns. */
static const int64_t widths[][2] = {{4096, 4096}, {1536, 1025}, {1024, 1024}, {768, 513},
                                    {64, 4096},   {4096, 64},   {1025, 1536}, {1023, 768}};
enum { WIDTHS = sizeof widths / sizeof *widths };
/* Numbers of queries and keys: decoding, few rows, and many rows, with one or two blocks of keys. */
static const int64_t lengths[][2] = {{1, 131}, {5, 66}, {10, 131}, {40, 134}};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void check_width(int t, int n, const int64_t width[2], int64_t page_size)
{
    const int64_t heads = width[0] + width[1] > 4096 ? 1 : 2; /* the reference is slow */
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = heads,
                             .kv_heads = n % 2 ? heads : 1,
                             .q_len = lengths[n][0],
                             .kv_len = lengths[n][1],
                             .head_dim = width[0],
                             .v_head_dim = width[1],
                             .dtype = types[t][0],
                             .kv_dtype = types[t][1],
                             .causal = n < 2,
                             .align = MHA_ALIGN_BOTTOM_RIGHT,
                             .outputs = MHA_ATTN_LSE | (n > 0 ? MHA_ATTN_PROBS | MHA_ATTN_STATS : 0)};
    check_forward(&d, page_size);
}

static void test_forward(void **state)
{
    (void)state;
    for (int t = 0; t < TYPES; t++)
        for (int n = 0; n < (t % 3 == 0 ? LENGTHS : LENGTHS - 1); n++)
            check_width(t, n, widths[n < 3 ? (3 * t + n) % WIDTHS : 1], n == 0 ? 16 : n == 1 ? 128 : 0);
}

/* All types at the largest width, decoding and with many rows. */
static void test_widest(void **state)
{
    (void)state;
    for (int t = 0; t < TYPES; t++) {
        check_width(t, 1, widths[0], 16);
        check_width(t, 2, widths[0], 0);
    }
}

static void check_backward(const mha_attn_desc *desc)
{
    problem p;
    gradients g;
    gradients_truth wide, plain;
    char why[1200], text[400];
    problem_make(&p, desc, &tight, 93);
    gradients_make(&g, &p, NULL, 94);
    for (int n = 0; n < isa_count_of(desc->dtype); n++) {
        bool ok = gradients_try(isa_contexts[n], &p, &g, why, sizeof why);
        if (ok) {
            gradients_ref(&p, &g, true, &wide);
            gradients_ref(&p, &g, false, &plain);
            ok = gradients_near(&g, &wide, &plain, NULL, why, sizeof why);
            gradients_ref_free(&wide);
            gradients_ref_free(&plain);
        }
        if (!ok) fail_msg("%s: %s: %s", mha_ctx_isa(isa_contexts[n]), problem_text(&p, text, sizeof text), why);
    }
    gradients_free(&g);
    problem_free(&p);
}

static void test_backward(void **state)
{
    (void)state;
    static const mha_dtype of[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_F64};
    static const int64_t some[][2] = {{4096, 1025}, {1536, 4096}, {1024, 514}};
    for (int t = 0; t < 4; t++)
        for (int w = 0; w < 3; w++) {
            const mha_attn_desc d = {.size = sizeof d,
                                     .batch = 1,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .q_len = 13,
                                     .kv_len = 24,
                                     .head_dim = some[w][0],
                                     .v_head_dim = some[w][1],
                                     .dtype = of[t],
                                     .causal = 1,
                                     .align = MHA_ALIGN_BOTTOM_RIGHT,
                                     .outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS};
            check_backward(&d);
        }
}

/* The operator and the cache must reject a head dimension above the limit with a message that contains the limit. */
static void test_too_wide(void **state)
{
    (void)state;
    mha_attn_desc d = {
        .size = sizeof d, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 1, .head_dim = MHA_HEAD_DIM_MAX + 1};
    mha_cache_desc c = {.size = sizeof c, .batch = 1, .kv_heads = 1, .head_dim = 1};
    mha_attn_plan *plan;
    mha_cache *cache;
    mha_error err = {0};
    assert_int_equal(mha_attn_plan_create(NULL, &d, &plan, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "head_dim must be from 1 to 4096 (got 4097)");
    d.head_dim = 1, d.v_head_dim = MHA_HEAD_DIM_MAX + 1;
    assert_int_equal(mha_attn_plan_create(NULL, &d, &plan, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "v_head_dim must be 0 (use head_dim) or from 1 to 4096 (got 4097)");
    c.v_head_dim = MHA_HEAD_DIM_MAX + 1;
    assert_int_equal(mha_cache_create(NULL, &c, &cache, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "v_head_dim must be 0 (use head_dim) or from 1 to 4096 (got 4097)");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_widest),
                                              cmocka_unit_test(test_backward), cmocka_unit_test(test_too_wide)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
