/* test_attn_streams.c - a few queries: reading the keys of a whole chunk before its values must give the same bits as
 * reading block by block. Which order a plan uses depends on the CPU, so the test sets it. */
#include "attn/plan/plan.h"
#include "base/cpu.h"
#include "support/attn/paged.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 100, ROWS_MAX = 3, CALLS = 2 };

/* Returns a random description of at most three queries per head, over up to three chunks of keys. */
static mha_attn_desc describe(rng *r)
{
    static const int64_t widths[] = {8, 20, 33, 64, 96, 128};
    static const mha_dtype types[] = {MHA_F32, MHA_F32, MHA_BF16, MHA_BF16, MHA_F64};
    mha_attn_desc d = {.size = sizeof d, .batch = rng_range(r, 1, 2), .align = MHA_ALIGN_BOTTOM_RIGHT};
    d.kv_heads = rng_range(r, 1, 2);
    d.heads = d.kv_heads * rng_range(r, 1, 2);
    d.q_len = d.heads == d.kv_heads ? rng_range(r, 1, ROWS_MAX) : 1;
    d.kv_len = rng_chance(r, 0.5) ? rng_range(r, 130, 3 * MHA_ATTN_CHUNK) : MHA__KEY_BLOCK * rng_range(r, 2, 20);
    d.head_dim = widths[rng_range(r, 0, 5)];
    d.v_head_dim = rng_chance(r, 0.7) ? d.head_dim : widths[rng_range(r, 0, 5)];
    d.dtype = d.kv_dtype = types[rng_range(r, 0, 4)];
    d.causal = rng_chance(r, 0.5);
    if (rng_chance(r, 0.3)) d.window = (mha_window){1, rng_range(r, 0, d.kv_len), -1};
    if (rng_chance(r, 0.4)) d.inputs |= MHA_ATTN_KV_LENS;
    if (rng_chance(r, 0.2)) d.inputs |= MHA_ATTN_KEEP;
    if (rng_chance(r, 0.1)) d.inputs |= MHA_ATTN_BIAS;
    if (rng_chance(r, 0.3)) d.inputs |= MHA_ATTN_BLOCK_KEEP, d.block_q = 1, d.block_k = 16 * rng_range(r, 1, 20);
    if (rng_chance(r, 0.1)) d.softcap = 5;
    d.outputs = MHA_ATTN_LSE;
    return d;
}

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    return memory;
}

/* Makes the call read a copy of the keys that begins on a cache line, because other keys are read block by block.
 * Returns the memory of the copy. */
static void *align_keys(problem *p)
{
    const size_t before = (size_t)((const char *)p->k.data - (const char *)p->k.memory);
    const size_t bytes = before / p->k.start * p->k.count;
    char *memory = allocate(bytes);
    memcpy(memory, p->k.memory, bytes);
    p->args.k.data = memory + before;
    return memory;
}

/* Runs the problem with the given order of reading. */
static void run(mha_ctx *ctx, problem *p, int streams)
{
    mha_error err = {0};
    void *const keys = align_keys(p);
    mha_attn_plan *plan;
    if (mha_attn_plan_create(ctx, &p->desc, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    plan->streams = streams;
    const size_t bytes = mha_attn_plan_workspace(plan);
    void *memory = allocate(bytes);
    memset(memory, 0xff, bytes); /* NaN */
    if (mha_attn_forward(plan, &p->args, memory, bytes, &err) != MHA_OK) fail_msg("%s", err.message);
    free(memory), free(keys);
    mha_attn_plan_free(plan);
}

/* Compares the results of both orders. Keys and values are in pages of `page` keys unless it is 0; `drop` drops the
 * first page. */
static void compare(mha_ctx *ctx, const mha_attn_desc *d, const problem_layouts *layouts, int64_t page, bool drop,
                    uint64_t seed)
{
    problem p[CALLS];
    char text[400];
    for (int n = 0; n < CALLS; n++) {
        problem_make(&p[n], d, layouts, seed);
        if (page) paged_make(&p[n], page, seed);
        if (page && drop) paged_drop(&p[n], 0, 0);
        run(ctx, &p[n], n * ROWS_MAX);
    }
    if (!problem_same_bits(&p[0], &p[1])) fail_msg("%s: %s", mha_ctx_isa(ctx), problem_text(&p[0], text, sizeof text));
    for (int n = 0; n < CALLS; n++)
        problem_free(&p[n]);
}

static void test_same_bits(void **state)
{
    (void)state;
    mha_ctx *ctx[PROBLEM_ISAS];
    const int isas = isas_create(ctx, 1);
    rng r = rng_make(90, 0);
    for (int round = 0; round < ROUNDS; round++) {
        const mha_attn_desc d = describe(&r);
        const int64_t page = rng_chance(&r, 0.3) ? INT64_C(16) << rng_range(&r, 0, 4) : 0;
        const int pad = rng_chance(&r, 0.3) ? (int)rng_range(&r, 1, 16) : 0;
        const problem_layouts gaps = {.k = {.pad = {0, 0, 0, pad}}, .v = {.pad = {0, 0, 0, pad}}};
        compare(ctx[round % isas], &d, &gaps, page, round % 2, (uint64_t)round);
    }
    isas_free(ctx, isas);
}

/* bf16 keys of an odd width are packed for each block, also if all rows begin at multiples of 32 bytes. */
static void test_odd_width(void **state)
{
    (void)state;
    mha_ctx *ctx[PROBLEM_ISAS];
    const int isas = isas_create(ctx, 1);
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = 1,
                             .kv_heads = 1,
                             .q_len = 1,
                             .kv_len = 1024,
                             .head_dim = 33,
                             .dtype = MHA_BF16,
                             .kv_dtype = MHA_BF16,
                             .outputs = MHA_ATTN_LSE};
    const problem_layouts gaps = {.k = {.pad = {0, 0, 0, 15}}, .v = {.pad = {0, 0, 0, 15}}};
    for (int n = 0; n < isas; n++)
        compare(ctx[n], &d, &gaps, 0, false, 7);
    isas_free(ctx, isas);
}

/* On CPUs with long streams, and with kernels for few queries, one query of a type that is multiplied as it is stored
 * reads in this order; a type that is converted, and values that take two passes, never do. */
static void test_conditions(void **state)
{
    (void)state;
    mha_attn_desc d = {
        .size = sizeof d, .batch = 1, .heads = 1, .kv_heads = 1, .q_len = 1, .kv_len = 4096, .head_dim = 64};
    const struct {
        mha_dtype type;
        int64_t width;
        bool streams;
    } cases[] = {{MHA_F32, 8, mha__cpu_streams()}, {MHA_Q8_0, 64, false}, {MHA_F16, 64, false}, {MHA_F32, 1024, false}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_attn_plan *plan;
        mha_error err = {0};
        d.kv_dtype = cases[n].type, d.head_dim = cases[n].width;
        if (mha_attn_plan_create(NULL, &d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(plan->streams, cases[n].streams && plan->kernels->decode_lanes > 0 ? ROWS_MAX : 0);
        mha_attn_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_odd_width),
                                       cmocka_unit_test(test_conditions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
