/* test_attn_edges.c - compares problems with the reference on every ISA, varying one size or offset at a time around
 * the ends of vectors, key blocks and chunks. Buffers have the exact size, so a sanitizer reports out-of-bounds
 * reads. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"

static const problem_layouts tight = {.q.tight = true,
                                      .k.tight = true,
                                      .v.tight = true,
                                      .out.tight = true,
                                      .keep.tight = true,
                                      .bias.tight = true,
                                      .lse.tight = true,
                                      .probs.tight = true};

static void check(const mha_attn_desc *desc, int64_t offset)
{
    problem p;
    ref_result truth, plain;
    char why[1200], text[400];
    problem_make(&p, desc, &tight, 71);
    for (int64_t b = 0; b < desc->batch; b++)
        p.offsets[b] = offset;
    ref_truth(&p.desc, &p.args, &truth);
    ref_plain(&p.desc, &p.args, &plain);
    for (int n = 0; n < isa_count; n++)
        if (!problem_try(isa_contexts[n], &p, why, sizeof why) ||
            !problem_near(&p, &truth, &plain, NULL, why, sizeof why))
            fail_msg("%s: offset %lld: %s: %s", mha_ctx_isa(isa_contexts[n]), (long long)offset,
                     problem_text(&p, text, sizeof text), why);
    ref_free(&truth);
    ref_free(&plain);
    problem_free(&p);
}

static const mha_attn_desc small = {.size = sizeof small,
                                    .batch = 1,
                                    .heads = 1,
                                    .q_len = 2,
                                    .kv_len = 9,
                                    .head_dim = 3,
                                    .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS};

static void test_keys(void **state)
{
    (void)state;
    mha_attn_desc d = small;
    d.inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS;
    for (d.kv_len = 0; d.kv_len < 2200; d.kv_len += d.kv_len < 140 || (d.kv_len + 8) % 1024 < 16 ? 1 : 8)
        check(&d, 0);
}

static void test_rows(void **state)
{
    (void)state;
    mha_attn_desc d = small;
    d.inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS;
    for (d.q_len = 0; d.q_len < 140; d.q_len++)
        check(&d, 0);
}

static void test_widths(void **state)
{
    (void)state;
    mha_attn_desc d = small;
    for (d.head_dim = 1; d.head_dim <= 140; d.head_dim++)
        check(&d, 0);
    for (d.head_dim = 3, d.v_head_dim = 1; d.v_head_dim <= 140; d.v_head_dim++)
        check(&d, 0);
    d.head_dim = d.v_head_dim = 512;
    check(&d, 0);
}

/* Tests windows that begin or end at every position of a key block, and windows of a single key. */
static void test_windows(void **state)
{
    (void)state;
    static const mha_window windows[] = {{1, 0, 0}, {1, 1, 0}, {1, 63, 0}, {1, 64, 1}, {1, -1, 0}, {1, 0, -1}};
    mha_attn_desc d = small;
    d.kv_len = 200;
    d.align = MHA_ALIGN_OFFSETS;
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int64_t offset = -3; offset < 204; offset++) {
            d.window = windows[w];
            check(&d, offset);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_rows),
                                              cmocka_unit_test(test_widths), cmocka_unit_test(test_windows)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
