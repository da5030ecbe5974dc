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
    for (int n = 0; n < isa_count_of(desc->dtype); n++)
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

/* Sets every row of `t` to its first row. */
static void repeat_first(tensor *t)
{
    for (int64_t i = 0; i < t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]; i++) {
        const int64_t d = i % t->dim[3], row = i / t->dim[3], j = row % t->dim[2], head = row / t->dim[2];
        tensor_set(t, head / t->dim[1], head % t->dim[1], j, d,
                   tensor_get(t, head / t->dim[1], head % t->dim[1], 0, d));
    }
}

/* Rows of K and V may be 0 elements apart, as in an expanded array: all keys of a head are the same. */
static void test_repeated_rows(void **state)
{
    (void)state;
    static const mha_dtype types[][2] = {{MHA_F32, MHA_F32}, {MHA_F64, MHA_F64},  {MHA_BF16, MHA_BF16},
                                         {MHA_F16, MHA_F16}, {MHA_F32, MHA_BF16}, {MHA_F32, MHA_Q8_0}};
    static const int64_t lengths[] = {1, 3, 40};
    for (int n = 0; n < 6 * 3 * isa_count; n++) {
        mha_attn_desc d = small;
        d.q_len = lengths[n % 3], d.kv_len = 301, d.head_dim = 64;
        d.dtype = types[n / 3 % 6][0], d.kv_dtype = types[n / 3 % 6][1];
        problem p, dense;
        if (n / 18 >= isa_count_of(d.dtype)) continue;
        problem_make(&p, &d, NULL, 36);
        problem_make(&dense, &d, NULL, 36);
        repeat_first(&dense.k), repeat_first(&dense.v);
        p.args.k.stride[2] = p.args.v.stride[2] = 0;
        problem_run(isa_contexts[n / 18], &p);
        problem_run(isa_contexts[n / 18], &dense);
        if (!problem_same_bits(&p, &dense))
            fail_msg("%s, %d queries: out must be bitwise identical for repeated and dense rows of type %s",
                     mha_ctx_isa(isa_contexts[n / 18]), (int)d.q_len, mha_dtype_name(d.kv_dtype));
        problem_free(&p);
        problem_free(&dense);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_rows),
                                              cmocka_unit_test(test_widths), cmocka_unit_test(test_windows),
                                              cmocka_unit_test(test_repeated_rows)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
