/* test_attn_bits_heads.c - results must be bitwise identical whether the heads of a group are folded into one tile or
 * not, and for shared and copied key/value heads, on every ISA. */
#include "support/attn/paged.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include "support/masked.h"
#include <math.h>
#include <string.h>

/* Returns true if the plan for `p` folds the heads of a group into one tile. */
static bool is_folded(mha_ctx *ctx, const problem *p)
{
    char text[4096];
    mha_attn_plan *plan;
    mha_error err = {0};
    if (mha_attn_plan_create(ctx, &p->desc, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    mha_attn_plan_free(plan);
    return strstr(text, "\"folded\": true") != NULL;
}

static const mha_dtype folded_types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_F64, MHA_F32};

/* Two to sixteen queries of a group, folded into one tile, must give the same result as a call with a list of all
 * heads, which is not folded. Problems vary in layout, type, lengths, causal mask, window and paging. */
static void check_folded(mha_ctx *ctx, uint64_t number)
{
    problem p;
    char text[400];
    rng r = rng_make(91, number);
    mha_attn_desc d = {.size = sizeof d, .batch = rng_range(&r, 1, 2), .kv_heads = rng_range(&r, 1, 3)};
    d.heads = d.kv_heads * rng_range(&r, 2, 5);
    d.q_len = rng_range(&r, 2, 16);
    d.kv_len = rng_range(&r, 1025, 2600);
    if (rng_chance(&r, 0.3)) d.kv_len = rng_range(&r, 129, 400), d.batch = 2, d.kv_heads = 4, d.heads = 8;
    d.head_dim = rng_range(&r, 1, 40);
    d.v_head_dim = rng_range(&r, 1, 40);
    d.dtype = folded_types[number % 5];
    d.kv_dtype = number % 5 == 4 ? MHA_Q8_0 : MHA_DTYPE_DEFAULT;
    d.causal = rng_chance(&r, 0.7);
    d.align = MHA_ALIGN_BOTTOM_RIGHT;
    if (rng_chance(&r, 0.3)) d.window = (mha_window){1, rng_range(&r, 0, 1500), -1};
    if (rng_chance(&r, 0.5)) d.inputs |= MHA_ATTN_Q_LENS;
    if (rng_chance(&r, 0.5)) d.inputs |= MHA_ATTN_KV_LENS;
    if (rng_chance(&r, 0.6)) d.outputs |= MHA_ATTN_LSE;
    const problem_layouts at = {.q = tensor_layout_random(&r, true),
                                .k = tensor_layout_random(&r, true),
                                .v = tensor_layout_random(&r, true),
                                .out = tensor_layout_random(&r, false),
                                .lse = tensor_layout_random(&r, false)};
    problem_make(&p, &d, &at, number);
    if (rng_chance(&r, 0.3) && d.kv_dtype != MHA_Q8_0) tensor_set(&p.v, 0, 0, d.kv_len / 2, 0, NAN);
    if (rng_chance(&r, 0.4)) paged_make(&p, INT64_C(16) << rng_range(&r, 0, 4), number);
    if (!is_folded(ctx, &p)) fail_msg("%s: the heads of a group must be folded", problem_text(&p, text, sizeof text));
    problem_run(ctx, &p);
    problem one = p;
    one.desc.inputs |= MHA_ATTN_HEAD_LIST;
    one.desc.listed_heads = d.heads;
    for (int64_t h = 0; h < d.heads; h++)
        one.head_list[h] = (int32_t)h;
    tensor_make(&one.out, p.out.dtype, p.out.dim, &at.out, TEST_CANARY);
    if (d.outputs & MHA_ATTN_LSE) tensor_make(&one.lse, p.lse.dtype, p.lse.dim, &at.lse, TEST_CANARY);
    problem_bind(&one);
    assert_false(is_folded(ctx, &one));
    problem_run(ctx, &one);
    if (!problem_same_bits(&p, &one))
        fail_msg("%s: case %d: results must not depend on folding: %s", mha_ctx_isa(ctx), (int)number,
                 problem_text(&p, text, sizeof text));
    tensor_free(&one.out);
    tensor_free(&one.lse);
    problem_free(&p);
}

static void test_folded(void **state)
{
    (void)state;
    mha_ctx *many[PROBLEM_ISAS];
    const int count = isas_create(many, 3);
    for (int n = 0; n < count; n++)
        for (uint64_t number = 0; number < 40; number++)
            if (n < isa_count_of(folded_types[number % 5])) check_folded(many[n], number);
    isas_free(many, count);
}

static void test_grouped_heads(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count_of(masked_desc.dtype); n++) {
        problem grouped, repeated;
        mha_attn_desc d = masked_desc;
        problem_make(&grouped, &masked_desc, NULL, 13);
        d.kv_heads = 0;
        problem_make(&repeated, &d, NULL, 13);
        tensor_copy_part(&repeated.k, &grouped.k, 0, 0);
        tensor_copy_part(&repeated.v, &grouped.v, 0, 0);
        problem_run(isa_contexts[n], &grouped);
        problem_run(isa_contexts[n], &repeated);
        if (!problem_same_bits(&grouped, &repeated))
            fail_msg("%s: shared key/value heads must give the same result as copied heads",
                     mha_ctx_isa(isa_contexts[n]));
        problem_free(&grouped);
        problem_free(&repeated);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folded),
        cmocka_unit_test(test_grouped_heads),
    };
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
