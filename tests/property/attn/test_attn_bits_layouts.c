/* test_attn_bits_layouts.c - results must be bitwise identical for any memory layout and any number of threads, and
 * if out overwrites q, on every ISA. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include "support/masked.h"

/* ---- memory layouts ---- */

static const struct {
    const char *name;
    tensor_layout layout; /* layout of q, k, v, out and probs */
} layouts[] = {
    {"default strides", {.unspecified = true}},
    {"[B, L, H, D]", {.order = {0, 2, 1, 3}}},
    {"packed [B, L, q k v, H, D]", {.order = {0, 2, 1, 3}, .pad = {0, 12, 0, 0}}},
    {"[L, B, H, D]", {.order = {2, 0, 1, 3}}},
    {"[B, H, D, L]", {.order = {0, 1, 3, 2}}},
    {"padded rows", {.pad = {0, 0, 0, 3}}},
    {"padded everywhere", {.pad = {1, 2, 3, 5}}},
    {"rows backwards", {.flip = {false, false, true, false}}},
    {"all axes reversed", {.flip = {true, true, true, true}}},
    {"offset by one element", {.shift = 1}},
    {"offset by five elements, unaligned rows", {.shift = 5, .pad = {0, 0, 0, 1}}},
};

static void check_layout(mha_ctx *ctx, const problem *reference, const tensor_layout *layout, const char *name)
{
    problem p;
    problem_layouts at = {.q = *layout,
                          .k = *layout,
                          .v = *layout,
                          .out = *layout,
                          .keep = *layout,
                          .bias = *layout,
                          .lse = *layout,
                          .probs = *layout};
    at.keep.unspecified = at.bias.unspecified = false; /* with default strides, keep and bias would be broadcast */
    problem_make(&p, &reference->desc, &at, 14);
    problem_run(ctx, &p);
    if (!problem_same_bits(reference, &p))
        fail_msg("%s: layout \"%s\" must not change the result", mha_ctx_isa(ctx), name);
    problem_free(&p);
}

static void test_layouts(void **state)
{
    (void)state;
    mha_attn_desc whole_steps = masked_bf16(masked_desc);
    whole_steps.head_dim = whole_steps.v_head_dim = 64;
    const mha_attn_desc types[] = {masked_desc, masked_halves(), masked_bf16(masked_desc), whole_steps};
    enum { TYPES = sizeof types / sizeof *types };
    for (int n = 0; n < TYPES * isa_count; n++) {
        problem reference;
        if (n / TYPES >= isa_count_of(types[n % TYPES].dtype)) continue;
        if (n % TYPES >= 2 && !masked_multiplies_bf16(isa_contexts[n / TYPES])) continue;
        problem_make(&reference, &types[n % TYPES], NULL, 14);
        problem_run(isa_contexts[n / TYPES], &reference);
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
            check_layout(isa_contexts[n / TYPES], &reference, &layouts[k].layout, layouts[k].name);
        problem_free(&reference);
    }
}

/* Inputs broadcast with a stride of 0 must give the same result as explicit copies; tests the batch, head and row
 * axis. */
static void test_broadcast(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count_of(masked_desc.dtype); n++)
        for (int axis = 0; axis < 3; axis++) {
            problem thin, thick;
            problem_layouts at = {0};
            at.q.repeat[axis] = at.k.repeat[axis] = at.v.repeat[axis] = true;
            at.keep.repeat[axis] = at.bias.repeat[axis] = true;
            problem_make(&thin, &masked_desc, &at, 15);
            problem_make(&thick, &masked_desc, NULL, 15);
            tensor_copy(&thick.q, &thin.q);
            tensor_copy(&thick.k, &thin.k);
            tensor_copy(&thick.v, &thin.v);
            tensor_copy(&thick.keep, &thin.keep);
            tensor_copy(&thick.bias, &thin.bias);
            problem_run(isa_contexts[n], &thin);
            problem_run(isa_contexts[n], &thick);
            if (!problem_same_bits(&thin, &thick))
                fail_msg("%s: broadcast over axis %d must equal explicit copies", mha_ctx_isa(isa_contexts[n]), axis);
            problem_free(&thin);
            problem_free(&thick);
        }
}

/* ---- number of threads ---- */

static void check_threads(const mha_attn_desc *d)
{
    static const int threads[] = {2, 3, 7};
    problem one, many;
    problem_make(&one, d, NULL, 16);
    problem_make(&many, d, NULL, 16);
    for (int n = 0; n < isa_count_of(d->dtype); n++) {
        problem_run(isa_contexts[n], &one);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            mha_ctx *ctx;
            mha_error err = {0};
            mha_ctx_options options = {
                .size = sizeof options, .threads = threads[t], .isa = mha_ctx_isa(isa_contexts[n])};
            if (mha_ctx_create(&options, &ctx, &err) != MHA_OK) fail_msg("%s", err.message);
            assert_int_equal(mha_ctx_threads(ctx), threads[t]);
            problem_run(ctx, &many);
            if (!problem_same_bits(&one, &many))
                fail_msg("%s: %d threads must not change the result", mha_ctx_isa(isa_contexts[n]), threads[t]);
            mha_ctx_free(ctx);
        }
    }
    problem_free(&one);
    problem_free(&many);
}

static void test_threads(void **state)
{
    (void)state;
    mha_attn_desc d = masked_desc;
    d.dropout = 0.25;
    check_threads(&d);
    d.inputs |= MHA_ATTN_FUNCTIONS;
    check_threads(&d);
    d = masked_bf16(d);
    check_threads(&d);
}

/* If out overwrites q, the result must be the same. */
static void test_out_is_q(void **state)
{
    (void)state;
    const mha_attn_desc types[] = {masked_desc, masked_halves(), masked_bf16(masked_desc)};
    for (int n = 0; n < 3 * isa_count; n++) {
        mha_ctx *ctx = isa_contexts[n / 3];
        mha_attn_desc d = types[n % 3];
        problem apart, in_place;
        d.v_head_dim = 0;
        if (n / 3 >= isa_count_of(d.dtype)) continue;
        problem_make(&apart, &d, NULL, 17);
        problem_make(&in_place, &d, NULL, 17);
        problem_run(ctx, &apart);
        in_place.args.out = tensor_view(&in_place.q);
        problem_run(ctx, &in_place);
        if (!tensor_same_bits(&apart.out, &in_place.q) || !tensor_same_bits(&apart.lse, &in_place.lse) ||
            !tensor_same_bits(&apart.probs, &in_place.probs))
            fail_msg("%s: overwriting q must not change the result", mha_ctx_isa(ctx));
        if (!tensor_guards_intact(&in_place.q, TEST_POISON))
            fail_msg("%s: elements around q must not be written", mha_ctx_isa(ctx));
        problem_free(&apart);
        problem_free(&in_place);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_is_q),
    };
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
