/* test_attn_laws.c - tests identities between the results of related problems, within rounding, on every ISA. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <string.h>

static const mha_attn_desc base = {.size = sizeof base,
                                   .batch = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .q_len = 37,
                                   .kv_len = 150,
                                   .head_dim = 32,
                                   .v_head_dim = 20,
                                   .inputs = MHA_ATTN_BIAS | MHA_ATTN_KEEP,
                                   .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS};

/* Returns random multiples of 1/256 below 16 in absolute value. Sums of a few such terms are exact in f32. */
static double next_short(void *arg)
{
    return (double)rng_range(arg, -4095, 4095) / 256;
}

static void fill_short(tensor *t, uint64_t stream)
{
    rng r = rng_make(20, stream);
    tensor_fill(t, next_short, &r);
}

/* Loops over all rows (b, h, i) of `base`. */
#define FOR_EACH_ROW(b, h, i)                    \
    for (int64_t b = 0; b < base.batch; b++)     \
        for (int64_t h = 0; h < base.heads; h++) \
            for (int64_t i = 0; i < base.q_len; i++)

static size_t row_index(int64_t b, int64_t h, int64_t i)
{
    return (size_t)((b * base.heads + h) * base.q_len + i);
}

/* Fails unless the result of p equals `want` within the rounding error that ref.h allows for p. */
static void assert_law(mha_ctx *ctx, const problem *p, const ref_result *want, const char *law)
{
    ref_result own, plain;
    char why[600];
    ref_truth(&p->desc, &p->args, &own);
    ref_plain(&p->desc, &p->args, &plain);
    ref_result judged = *want;
    judged.out_floor = own.out_floor;
    judged.lse_floor = own.lse_floor;
    judged.probs_floor = own.probs_floor;
    if (!problem_near(p, &judged, &plain, NULL, why, sizeof why)) fail_msg("%s: %s: %s", mha_ctx_isa(ctx), law, why);
    ref_free(&own);
    ref_free(&plain);
}

static void check_rows_sum_to_one(mha_ctx *ctx)
{
    problem p;
    problem_make(&p, &base, NULL, 21);
    for (int64_t j = 0; j < base.kv_len; j++)
        tensor_set(&p.keep, 1, 2, 5, j, 0); /* row (1, 2, 5) has no visible keys */
    problem_run(ctx, &p);
    FOR_EACH_ROW(b, h, i)
    {
        bool empty = b == 1 && h == 2 && i == 5;
        double sum = 0;
        for (int64_t j = 0; j < base.kv_len; j++)
            sum += tensor_get(&p.probs, b, h, i, j);
        if (fabs(sum - (empty ? 0 : 1)) > (double)base.kv_len * 0x1p-24)
            fail_msg("%s: probabilities of row %lld must sum to 1 (got %.9g)", mha_ctx_isa(ctx), (long long)i, sum);
        if (empty) assert_true(tensor_get(&p.lse, b, h, i, 0) == (double)-INFINITY);
    }
    problem_free(&p);
}

/* Adding a constant to all scores of a row must not change out and probs, and must add the constant to lse. */
static void check_shift(mha_ctx *ctx)
{
    problem p;
    ref_result want;
    problem_make(&p, &base, NULL, 22);
    fill_short(&p.bias, 22);
    ref_truth(&p.desc, &p.args, &want);
    FOR_EACH_ROW(b, h, i)
    {
        double shift = (double)(i - 18);
        for (int64_t j = 0; j < base.kv_len; j++)
            tensor_set(&p.bias, b, h, i, j, tensor_get(&p.bias, b, h, i, j) + shift);
        want.lse[row_index(b, h, i)] += shift;
    }
    problem_run(ctx, &p);
    assert_law(ctx, &p, &want, "shifted scores");
    ref_free(&want);
    problem_free(&p);
}

/* Returns the new position of key j after a permutation of keys, with their values, biases and masks: 7 j + 3 modulo
 * the number of keys. */
static int64_t moved(int64_t j)
{
    return (7 * j + 3) % base.kv_len; /* 7 and 150 are coprime */
}

static void permute(problem *to, const problem *from)
{
    for (int64_t b = 0; b < base.batch; b++)
        for (int64_t g = 0; g < base.kv_heads; g++)
            for (int64_t j = 0; j < base.kv_len; j++) {
                for (int64_t d = 0; d < base.head_dim; d++)
                    tensor_set(&to->k, b, g, moved(j), d, tensor_get(&from->k, b, g, j, d));
                for (int64_t d = 0; d < base.v_head_dim; d++)
                    tensor_set(&to->v, b, g, moved(j), d, tensor_get(&from->v, b, g, j, d));
            }
    FOR_EACH_ROW(b, h, i)
    for (int64_t j = 0; j < base.kv_len; j++) {
        tensor_set(&to->keep, b, h, i, moved(j), tensor_get(&from->keep, b, h, i, j));
        tensor_set(&to->bias, b, h, i, moved(j), tensor_get(&from->bias, b, h, i, j));
    }
}

static void check_permuted_keys(mha_ctx *ctx)
{
    problem p, q;
    ref_result want, permuted;
    problem_make(&p, &base, NULL, 23);
    problem_make(&q, &base, NULL, 23);
    permute(&q, &p);
    ref_truth(&p.desc, &p.args, &want);
    ref_truth(&p.desc, &p.args, &permuted);
    size_t keys = (size_t)base.kv_len;
    for (size_t row = 0; row < want.rows; row++)
        for (int64_t j = 0; j < base.kv_len; j++)
            permuted.probs[row * keys + (size_t)moved(j)] = want.probs[row * keys + (size_t)j];
    problem_run(ctx, &q);
    assert_law(ctx, &q, &permuted, "permuted keys");
    ref_free(&want);
    ref_free(&permuted);
    problem_free(&p);
    problem_free(&q);
}

/* Checks that out is linear in v: out(v + 2 w) = out(v) + 2 out(w). */
static void check_linear_in_v(mha_ctx *ctx)
{
    problem p[3];
    ref_result want[3];
    for (int n = 0; n < 3; n++) {
        problem_make(&p[n], &base, NULL, 25);
        fill_short(&p[n].v, (uint64_t)n + 1);
    }
    for (int64_t b = 0; b < base.batch; b++)
        for (int64_t g = 0; g < base.kv_heads; g++)
            for (int64_t j = 0; j < base.kv_len; j++)
                for (int64_t d = 0; d < base.v_head_dim; d++)
                    tensor_set(&p[2].v, b, g, j, d,
                               tensor_get(&p[0].v, b, g, j, d) + 2 * tensor_get(&p[1].v, b, g, j, d));
    for (int n = 0; n < 3; n++) {
        problem_run(ctx, &p[n]);
        ref_truth(&p[n].desc, &p[n].args, &want[n]);
    }
    for (size_t n = 0; n < want[2].rows * want[2].width; n++)
        want[2].out[n] = want[0].out[n] + 2 * want[1].out[n];
    assert_law(ctx, &p[2], &want[2], "sum of values");
    for (int n = 0; n < 3; n++) {
        ref_free(&want[n]);
        problem_free(&p[n]);
    }
}

/* ---- features at their neutral settings ---- */

static void keep_all(problem *p)
{
    p->desc.inputs |= MHA_ATTN_KEEP;
    for (int64_t j = 0; j < p->keep.dim[3]; j++)
        tensor_set(&p->keep, 0, 0, 0, j, 1);
}

static void window_open(problem *p)
{
    p->desc.window = (mha_window){1, -1, -1};
}

static void window_wide(problem *p)
{
    p->desc.window = (mha_window){1, 1000, 1000};
    p->desc.align = MHA_ALIGN_TOP_LEFT;
}

static void full_lengths(problem *p)
{
    p->desc.inputs |= MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS;
    for (int64_t b = 0; b < p->desc.batch; b++) {
        p->q_lens[b] = p->desc.q_len;
        p->kv_lens[b] = p->desc.kv_len;
    }
}

static void scale_written_out(problem *p)
{
    p->desc.scale = 1 / sqrt((double)p->desc.head_dim);
}

static void causal_past_the_end(problem *p)
{
    p->desc.causal = 1;
    p->desc.align = MHA_ALIGN_OFFSETS;
    for (int64_t b = 0; b < p->desc.batch; b++)
        p->offsets[b] = p->desc.kv_len;
}

static void bias_of_zero(problem *p)
{
    p->desc.inputs |= MHA_ATTN_BIAS;
    tensor_set(&p->bias, 0, 0, 0, 0, 0);
}

static void fill_one(tensor *t, double value)
{
    for (int64_t b = 0; b < t->dim[0]; b++)
        for (int64_t h = 0; h < t->dim[1]; h++)
            tensor_set(t, b, h, 0, 0, value);
}

static void slopes_of_zero(problem *p)
{
    p->desc.inputs |= MHA_ATTN_SLOPES;
    p->desc.align = MHA_ALIGN_BOTTOM_RIGHT;
    fill_one(&p->slopes, 0);
}

static void sinks_of_nothing(problem *p)
{
    p->desc.inputs |= MHA_ATTN_SINKS;
    fill_one(&p->sinks, -INFINITY);
}

static void gates_of_one(problem *p)
{
    p->desc.inputs |= MHA_ATTN_GATES;
    fill_one(&p->gates, 1);
}

static void prefix_of_nothing(problem *p)
{
    p->desc.inputs |= MHA_ATTN_PREFIX_LENS;
    memset(p->prefix_lens, 0, sizeof p->prefix_lens);
}

static void prefix_of_everything(problem *p)
{
    p->desc.causal = 1;
    p->desc.align = MHA_ALIGN_TOP_LEFT;
    p->desc.inputs |= MHA_ATTN_PREFIX_LENS;
    for (int64_t b = 0; b < p->desc.batch; b++)
        p->prefix_lens[b] = p->desc.kv_len;
}

static void blocks_of_ones(problem *p)
{
    p->desc.inputs |= MHA_ATTN_BLOCK_KEEP;
    p->desc.block_q = p->desc.block_k = 16;
    for (int64_t b = 0; b < p->block_keep.dim[0]; b++)
        for (int64_t h = 0; h < p->block_keep.dim[1]; h++)
            for (int64_t i = 0; i < p->block_keep.dim[2]; i++)
                for (int64_t j = 0; j < p->block_keep.dim[3]; j++)
                    tensor_set(&p->block_keep, b, h, i, j, 1);
}

static void check_neutral(mha_ctx *ctx)
{
    static const struct {
        const char *name;
        void (*apply)(problem *p);
    } settings[] = {{"keep, all ones", keep_all},
                    {"window unbounded on both sides", window_open},
                    {"window of 1000", window_wide},
                    {"full lengths", full_lengths},
                    {"default scale", scale_written_out},
                    {"causal, all rows after all keys", causal_past_the_end},
                    {"zero bias", bias_of_zero},
                    {"zero slopes", slopes_of_zero},
                    {"sinks -inf", sinks_of_nothing},
                    {"gates 1", gates_of_one},
                    {"empty prefix", prefix_of_nothing},
                    {"full prefix", prefix_of_everything},
                    {"block mask, all ones", blocks_of_ones}};
    mha_attn_desc d = base;
    problem reference;
    d.inputs = 0;
    problem_make(&reference, &d, NULL, 26);
    problem_run(ctx, &reference);
    for (size_t n = 0; n < sizeof settings / sizeof *settings; n++) {
        problem p;
        problem_layouts at = {.keep.repeat = {true, true, true, false}, .bias.repeat = {true, true, true, true}};
        /* all operands have memory; an operand must be read only if its flag is set */
        d.inputs =
            MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES | MHA_ATTN_BLOCK_KEEP;
        d.block_q = d.block_k = 16;
        d.align = MHA_ALIGN_TOP_LEFT;
        problem_make(&p, &d, &at, 26);
        p.desc.inputs = 0;
        p.desc.block_q = p.desc.block_k = 0;
        settings[n].apply(&p);
        problem_bind(&p);
        problem_run(ctx, &p);
        if (!problem_same_bits(&reference, &p))
            fail_msg("%s: %s must not change the result", mha_ctx_isa(ctx), settings[n].name);
        problem_free(&p);
    }
    problem_free(&reference);
}

/* A block mask must give a result bitwise identical to that of the equivalent keep mask. */
static void check_blocks(mha_ctx *ctx)
{
    static const int64_t sizes[][2] = {{1, 1}, {5, 7}, {16, 16}, {13, 128}, {40, 33}, {100, 200}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        problem thin, thick;
        mha_attn_desc d = base;
        problem_make(&thick, &d, NULL, 27);
        d.inputs = MHA_ATTN_BIAS | MHA_ATTN_BLOCK_KEEP;
        d.block_q = sizes[n][0];
        d.block_k = sizes[n][1];
        problem_make(&thin, &d, NULL, 27);
        FOR_EACH_ROW(b, h, i)
        for (int64_t j = 0; j < base.kv_len; j++)
            tensor_set(&thick.keep, b, h, i, j, tensor_get(&thin.block_keep, b, h, i / d.block_q, j / d.block_k));
        problem_run(ctx, &thin);
        problem_run(ctx, &thick);
        if (!problem_same_bits(&thin, &thick))
            fail_msg("%s: a mask of %lld x %lld blocks must give the result of its keep mask", mha_ctx_isa(ctx),
                     (long long)d.block_q, (long long)d.block_k);
        problem_free(&thin);
        problem_free(&thick);
    }
}

/* ---- test functions, one per identity ---- */

#define LAW(name)                                       \
    static void test_##name(void **state)               \
    {                                                   \
        (void)state;                                    \
        for (int n = 0; n < isa_count_of(MHA_F32); n++) \
            check_##name(isa_contexts[n]);              \
    }
LAW(rows_sum_to_one)
LAW(shift)
LAW(permuted_keys)
LAW(linear_in_v)
LAW(neutral)
LAW(blocks)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_sum_to_one), cmocka_unit_test(test_shift),   cmocka_unit_test(test_permuted_keys),
        cmocka_unit_test(test_linear_in_v),     cmocka_unit_test(test_neutral), cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
