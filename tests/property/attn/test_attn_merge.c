/* test_attn_merge.c - merged partial results over disjoint sets of keys must equal the result over all keys, for any
 * split, on every ISA. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 7 };

/* A problem, and the same problem split into `count` parts. Each part masks the keys of all other parts; only the first
 * part has the sink. */
typedef struct split {
    problem whole, part[PARTS];
    int count;
} split;

static void split_make(split *s, const mha_attn_desc *desc, int count, uint64_t seed)
{
    rng r = rng_make(seed, 77);
    s->count = count;
    problem_make(&s->whole, desc, NULL, seed);
    for (int n = 0; n < count; n++) {
        problem_make(&s->part[n], desc, NULL, seed);
        if (n > 0) s->part[n].desc.inputs &= ~(uint32_t)MHA_ATTN_SINKS;
        problem_bind(&s->part[n]);
    }
    /* true: the keys of a part are adjacent; false: each key is in a random part */
    const bool runs = rng_chance(&r, 0.5);
    for (int64_t j = 0; j < desc->kv_len; j++) {
        const int64_t owner = runs ? j * count / desc->kv_len : rng_range(&r, 0, count - 1);
        for (int n = 0; n < count; n++)
            for (int64_t row = 0; n != owner && row < desc->batch * desc->heads * desc->q_len; row++)
                tensor_set(&s->part[n].keep, row / desc->q_len / desc->heads, row / desc->q_len % desc->heads,
                           row % desc->q_len, j, 0);
    }
}

static void split_free(split *s)
{
    for (int n = 0; n < s->count; n++)
        problem_free(&s->part[n]);
    problem_free(&s->whole);
}

static mha_attn_merge_args merge_args(const problem *whole, const mha_attn_part *parts, int count)
{
    const mha_attn_desc *d = &whole->desc;
    return (mha_attn_merge_args){.size = sizeof(mha_attn_merge_args),
                                 .batch = d->batch,
                                 .heads = d->heads,
                                 .q_len = d->q_len,
                                 .v_head_dim = d->v_head_dim ? d->v_head_dim : d->head_dim,
                                 .dtype = d->dtype,
                                 .count = count,
                                 .parts = parts,
                                 .out = whole->args.out,
                                 .lse = whole->args.lse};
}

static void split_merge(mha_ctx *ctx, split *s)
{
    mha_attn_part parts[PARTS];
    mha_error err = {0};
    for (int n = 0; n < s->count; n++) {
        problem_run(ctx, &s->part[n]);
        parts[n] = (mha_attn_part){tensor_cview(&s->part[n].out), tensor_cview(&s->part[n].lse)};
    }
    const mha_attn_merge_args args = merge_args(&s->whole, parts, s->count);
    if (mha_attn_merge(ctx, &args, &err) != MHA_OK) fail_msg("%s", err.message);
}

static mha_attn_desc some_desc(rng *r)
{
    mha_attn_desc d = {.size = sizeof d, .batch = rng_range(r, 1, 2), .heads = 2 * rng_range(r, 1, 2)};
    d.kv_heads = 2;
    d.q_len = rng_range(r, 1, 40);
    d.kv_len = rng_range(r, 1, 160);
    d.head_dim = rng_range(r, 1, 40);
    d.v_head_dim = rng_range(r, 1, 70);
    d.causal = rng_chance(r, 0.5);
    d.align = MHA_ALIGN_BOTTOM_RIGHT;
    d.inputs = MHA_ATTN_KEEP | (rng_chance(r, 0.5) ? MHA_ATTN_BIAS : 0) | (rng_chance(r, 0.5) ? MHA_ATTN_SINKS : 0) |
               (rng_chance(r, 0.3) ? MHA_ATTN_GATES : 0) | (rng_chance(r, 0.3) ? MHA_ATTN_SLOPES : 0);
    d.outputs = MHA_ATTN_LSE;
    d.dtype = rng_chance(r, 0.3) ? MHA_F64 : MHA_F32;
    return d;
}

static void test_any_split(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 60; n++) {
        split s;
        ref_result truth, plain;
        char why[600], text[400];
        rng r = rng_make(31, n);
        const mha_attn_desc d = some_desc(&r);
        split_make(&s, &d, (int)rng_range(&r, 1, PARTS), n);
        ref_truth(&s.whole.desc, &s.whole.args, &truth);
        ref_plain(&s.whole.desc, &s.whole.args, &plain);
        /* adds the rounding errors of each part, of lse as an exponent, and of each merge to the tolerance */
        const double unit = d.dtype == MHA_F64 ? 0x1p-53 : 0x1p-24;
        for (size_t i = 0; i < truth.rows; i++)
            for (size_t c = 0; c < truth.width && isfinite(truth.lse[i]); c++)
                truth.out_floor[i * truth.width + c] +=
                    unit * (PARTS + fabs(truth.lse[i])) * (1 + fabs(truth.out[i * truth.width + c]));
        for (int c = 0; c < isa_count_of(s.whole.desc.dtype); c++) {
            split_merge(isa_contexts[c], &s);
            if (!problem_near(&s.whole, &truth, &plain, NULL, why, sizeof why))
                fail_msg("case %d: %s: %s: %s", (int)n, mha_ctx_isa(isa_contexts[c]),
                         problem_text(&s.whole, text, sizeof text), why);
        }
        ref_free(&truth);
        ref_free(&plain);
        split_free(&s);
    }
}

/* The out and lse of one part: two rows with three columns. */
typedef struct two_rows {
    float out[6], lse[2];
} two_rows;

static mha_status merge_rows(mha_ctx *ctx, const two_rows *part, int64_t count, two_rows *to, mha_error *err)
{
    mha_attn_part parts[PARTS];
    for (int64_t n = 0; n < count; n++)
        parts[n] = (mha_attn_part){{part[n].out, {0}}, {part[n].lse, {0}}};
    const mha_attn_merge_args args = {.size = sizeof args,
                                      .batch = 1,
                                      .heads = 1,
                                      .q_len = 2,
                                      .v_head_dim = 3,
                                      .count = count,
                                      .parts = parts,
                                      .out.data = to->out,
                                      .lse.data = to->lse};
    return mha_attn_merge(ctx, &args, err);
}

/* Merging parts without visible keys must leave the result bitwise unchanged, in any order of the parts. Their out must
 * not be read. */
static void test_nothing_is_the_identity(void **state)
{
    (void)state;
    const two_rows some = {{1.25f, -3e-8f, 7e20f, 0.1f, -0.3f, 1e-40f}, {-3.7f, 88.5f}};
    const two_rows nothing = {{NAN, NAN, NAN, INFINITY, NAN, 1}, {-INFINITY, -INFINITY}};
    for (int c = 0; c < isa_count_of(MHA_F32); c++)
        for (int at = 0; at < 3; at++) {
            two_rows part[3] = {nothing, nothing, nothing}, to;
            part[at] = some;
            assert_int_equal(merge_rows(isa_contexts[c], part, 3, &to, NULL), MHA_OK);
            assert_memory_equal(&to, &some, sizeof to);
        }
    const two_rows empty = {{0}, {-INFINITY, -INFINITY}};
    for (int64_t count = 0; count < 2; count++) {
        two_rows to;
        assert_int_equal(merge_rows(isa_contexts[0], &nothing, count, &to, NULL), MHA_OK);
        assert_memory_equal(&to, &empty, sizeof to);
    }
}

/* A NaN or infinite out or lse in one row of a part must not affect the other row. */
static void test_not_finite(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY};
    for (int c = 0; c < isa_count_of(MHA_F32); c++)
        for (int n = 0; n < 4; n++) {
            two_rows part[2] = {{{1, 2, 3, 4, 5, 6}, {0, 0}}, {{1, 2, 3, 4, 5, 6}, {1, 1}}}, to;
            part[n / 2].lse[0] = bad[n % 2];
            assert_int_equal(merge_rows(isa_contexts[c], part, 2, &to, NULL), MHA_OK);
            assert_true(isnan(to.lse[0]) && isnan(to.out[0]) && isnan(to.out[2]));
            assert_true(fabsf(to.lse[1] - 1.3132617f) < 1e-6f && fabsf(to.out[5] - 6) < 2e-6f);
            part[n / 2].lse[0] = 0;
            part[n / 2].out[1] = bad[n % 2];
            assert_int_equal(merge_rows(isa_contexts[c], part, 2, &to, NULL), MHA_OK);
            assert_true(isfinite(to.lse[0]) && isfinite(to.out[0]) && !isfinite(to.out[1]));
        }
}

/* Parts with padded or negative strides must give bitwise identical results; out may be the out of a part. */
static void test_strides_and_in_place(void **state)
{
    (void)state;
    const two_rows part[2] = {{{1, 2, 3, 4, 5, 6}, {0.5f, 2}}, {{-6, 5, 4, 3, 2, 1}, {1.5f, -4}}};
    two_rows want, in_place[2];
    assert_int_equal(merge_rows(isa_contexts[0], part, 2, &want, NULL), MHA_OK);
    float wide[2][12], logs[4] = {1.5f, -9, -4, -9}, out[6];
    for (int i = 0; i < 6; i++)
        wide[i / 3][11 - 2 * (i % 3)] = part[1].out[i];
    const mha_attn_part parts[2] = {{{part[0].out, {0}}, {part[0].lse, {0}}},
                                    {{&wide[0][11], {0, 0, 12, -2}}, {logs, {0, 0, 2, 0}}}};
    mha_attn_merge_args args = {
        .size = sizeof args, .batch = 1, .heads = 1, .q_len = 2, .v_head_dim = 3, .count = 2, .parts = parts};
    args.out = (mha_view){out + 5, {0, 0, -3, -1}};
    assert_int_equal(mha_attn_merge(isa_contexts[0], &args, NULL), MHA_OK);
    for (int i = 0; i < 6; i++)
        assert_true(out[5 - i] == want.out[i]);
    memcpy(in_place, part, sizeof part);
    assert_int_equal(merge_rows(isa_contexts[0], in_place, 2, &in_place[1], NULL), MHA_OK);
    assert_memory_equal(&in_place[1], &want, sizeof want);
}

static void test_refusals(void **state)
{
    (void)state;
    two_rows memory = {{0}, {0}};
    const mha_attn_part good = {{memory.out, {0}}, {memory.lse, {0}}}, bad = {{memory.out, {0}}, {NULL, {0}}};
    const mha_attn_merge_args base = {.size = sizeof base,
                                      .batch = 1,
                                      .heads = 1,
                                      .q_len = 2,
                                      .v_head_dim = 3,
                                      .count = 1,
                                      .parts = &good,
                                      .out.data = memory.out};
    mha_attn_merge_args a[10];
    const char *want[10] = {"mha_attn_merge_args.size must be",
                            "batch must be at least 1 (got 0)",
                            "heads must be at least 1 (got -1)",
                            "q_len must be at least 0 (got -5)",
                            "v_head_dim must be from 1 to 4096 (got 4097)",
                            "count must be at least 0 (got -1)",
                            "parts must not be NULL",
                            "(got bf16)",
                            "out must not be NULL",
                            "parts[0].lse must not be NULL"};
    for (int n = 0; n < 10; n++)
        a[n] = base;
    a[0].size = 7;
    a[1].batch = 0;
    a[2].heads = -1;
    a[3].q_len = -5;
    a[4].v_head_dim = MHA_HEAD_DIM_MAX + 1;
    a[5].count = -1;
    a[6].parts = NULL;
    a[7].dtype = MHA_BF16;
    a[8].out.data = NULL;
    a[9].parts = &bad;
    for (int n = 0; n < 10; n++) {
        mha_error err = {0};
        assert_int_equal(mha_attn_merge(isa_contexts[0], &a[n], &err), MHA_ERR_ARG);
        if (!strstr(err.message, want[n])) fail_msg("message must contain \"%s\" (got \"%s\")", want[n], err.message);
    }
    mha_attn_merge_args huge = base;
    huge.batch = huge.heads = INT64_C(1) << 40;
    assert_int_equal(mha_attn_merge(isa_contexts[0], &huge, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_attn_merge(isa_contexts[0], NULL, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_attn_merge(isa_contexts[0], &base, NULL), MHA_OK);
}

/* Results that overlap a tensor of any part must be rejected, unless they are exactly the out or lse of a part. */
static void test_overlaps(void **state)
{
    (void)state;
    float memory[40] = {0};
    const float before[40] = {0};
    const mha_attn_part parts[2] = {{{memory, {0}}, {memory + 6, {0}}}, {{memory + 8, {0}}, {memory + 14, {0}}}};
    const mha_attn_merge_args base = {.size = sizeof base,
                                      .batch = 1,
                                      .heads = 1,
                                      .q_len = 2,
                                      .v_head_dim = 3,
                                      .count = 2,
                                      .parts = parts,
                                      .out.data = memory + 20,
                                      .lse.data = memory + 30};
    const struct {
        mha_view out, lse;
        const char *want;
    } bad[] = {
        {{memory + 1, {0}}, base.lse, "out must not overlap parts[0].out, unless it is exactly the out of a part"},
        {{memory + 8, {0, 0, 4, 1}}, base.lse, "out must not overlap parts[1].out"},
        {{memory + 9, {0}}, base.lse, "out must not overlap parts[1].out"},
        {{memory + 14, {0}}, base.lse, "out must not overlap parts[1].lse"},
        {base.out, {memory + 7, {0}}, "lse must not overlap parts[0].lse, unless it is exactly the lse of a part"},
        {base.out, {memory + 10, {0}}, "lse must not overlap parts[1].out"},
        {base.out, {memory + 25, {0}}, "lse must not overlap out"},
        {base.out, {memory + 30, {0, 0, 0, 0}}, NULL},
        {{memory, {0}}, {memory + 14, {0}}, NULL},
        {{memory + 2, {0, 0, 9, 1}},
         base.lse,
         "out must not overlap parts[0].out"}, /* the rows of out are elements 2 to 4 and 11 to 13 */
        {{memory + 11, {0, 0, 7, 1}}, base.lse, "out must not overlap parts[1].out"},
        {{memory + 16, {0, 0, 4, 1}}, base.lse, NULL}, /* strided rows without overlap are permitted */
        {{memory + 8, {0, 0, 3, 1}}, {memory + 6, {0, 0, 1, 0}}, NULL},
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        mha_attn_merge_args args = base;
        mha_error err = {0};
        args.out = bad[n].out, args.lse = bad[n].lse;
        memset(memory, 0, sizeof memory);
        const mha_status status = mha_attn_merge(isa_contexts[0], &args, &err);
        if (!bad[n].want) {
            if (status != MHA_OK) fail_msg("case %d: %s", (int)n, err.message);
            continue;
        }
        assert_int_equal(status, MHA_ERR_ARG);
        if (!strstr(err.message, bad[n].want))
            fail_msg("message must contain \"%s\" (got \"%s\")", bad[n].want, err.message);
        assert_memory_equal(memory, before, sizeof memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_split),  cmocka_unit_test(test_nothing_is_the_identity),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_strides_and_in_place),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_overlaps),
    };
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
