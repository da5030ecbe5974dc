/* test_attn_isas.c - tests which kernels a plan selects. The plan must use kernels of the requested ISA, and products
 * of bf16 pairs if the ISA has such instructions. Its description must give a reason for each ISA that is not used. */
#include "base/cpu.h"
#include "mha/attn.h"
#include "mha/ctx.h"
#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mha_ctx *context(const char *isa)
{
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .isa = isa};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

/* Writes the description of a plan whose dtype and kv_dtype are `dtype` to `text`. */
static void describe(mha_ctx *ctx, mha_dtype dtype, int json, char text[4096])
{
    const mha_attn_desc d = {.size = sizeof d,
                             .dtype = dtype,
                             .kv_dtype = dtype,
                             .batch = 1,
                             .heads = 2,
                             .q_len = 40,
                             .kv_len = 40,
                             .head_dim = 32};
    mha_attn_plan *plan;
    assert_int_equal(mha_attn_plan_create(ctx, &d, &plan, NULL), MHA_OK);
    assert_true(mha_attn_plan_describe(plan, json, text, 4096) < 4096);
    mha_attn_plan_free(plan);
}

static void assert_says(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("text must contain %s (got %s)", words, text);
}

static const char *reason(mha__isa isa)
{
    if (!mha__cpu_has(isa)) return "this CPU or operating system does not support it";
    return mha__cpu_favors(isa) ? "newer than the context allows"
                                : "not faster than avx512 on this CPU; used only on request";
}

static void check(mha_ctx *ctx, mha__isa taken)
{
    char text[4096], words[256];
    const bool pairs = taken == MHA__AVX512BF16 || taken == MHA__AMX;
    describe(ctx, MHA_BF16, 1, text);
    snprintf(words, sizeof words, "\"isa\": \"%s\", \"products\": \"%s\", \"weights\": \"%s\"", mha__isa_name(taken),
             pairs ? "pairs of bf16" : "f32", pairs ? "bf16" : "f32");
    assert_says(text, words);
    assert_true(!strstr(text, "{\"path\": \"products of bf16 pairs\"") == pairs);
    describe(ctx, MHA_F32, 0, text);
    assert_says(text, "products: f32, weights rounded to f32");
    for (int isa = taken + 1; isa < MHA__ISAS; isa++) {
        snprintf(words, sizeof words, "not used: %s: %s\n", mha__isa_name((mha__isa)isa), reason((mha__isa)isa));
        assert_says(text, words);
    }
}

static void test_named(void **state)
{
    (void)state;
    for (int isa = 0; isa < MHA__ISAS; isa++) {
        if (!mha__cpu_has((mha__isa)isa)) continue;
        mha_ctx *ctx = context(mha__isa_name((mha__isa)isa));
        check(ctx, (mha__isa)isa);
        mha_ctx_free(ctx);
    }
}

static void test_unnamed(void **state)
{
    (void)state;
    unsetenv("MHA_ISA");
    mha_ctx *ctx = context(NULL);
    check(ctx, mha__cpu_best());
    mha_ctx_free(ctx);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_named), cmocka_unit_test(test_unnamed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
