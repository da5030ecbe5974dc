/* test_attn_functions.c - user functions of scores and masks: which calls they receive, invalid combinations, and
 * equality with built-in masks in both passes. Random descriptions with functions are tested in test_attn_random and
 * test_attn_backward. */
#include "support/attn/functions.h"
#include "support/attn/grads.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdlib.h>
#include <string.h>

enum { LQ = 200, LK = 333, HEADS = 4, LEFT = 50 };

/* What the functions of a call have received: counts per pair of score and score_back. */
typedef struct calls {
    uint8_t score[HEADS][LQ][LK], back[HEADS][LQ][LK];
    int64_t offset;
    bool outside; /* a pair outside the sizes of the call was passed */
    bool finite;  /* all gradients were finite */
} calls;

static void count(calls *c, uint8_t seen[HEADS][LQ][LK], int64_t h, int64_t i, int64_t j0, int64_t keys)
{
    const int64_t row = i - c->offset;
    if (h < 0 || h >= HEADS || row < 0 || row >= LQ || j0 < 0 || keys < 1 || j0 + keys > LK)
        c->outside = true;
    else
        for (int64_t n = 0; n < keys; n++)
            seen[h][row][j0 + n]++;
}

static void count_score(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t keys, void *scores)
{
    calls *c = user;
    (void)b, (void)scores;
    count(c, c->score, h, i, j0, keys);
}

static void count_back(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t keys, const void *scores,
                       void *dscores)
{
    calls *c = user;
    (void)b, (void)scores;
    count(c, c->back, h, i, j0, keys);
    for (int64_t n = 0; n < keys; n++)
        c->finite = c->finite && isfinite(((const float *)dscores)[n]);
}

static int keep_calls;
static void band(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t keys, uint8_t *keep)
{
    (void)user, (void)b, (void)h;
    keep_calls++;
    for (int64_t n = 0; n < keys; n++)
        keep[n] = j0 + n <= i && j0 + n >= i - LEFT;
}

static mha_attn_block band_block(void *user, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j0, int64_t keys)
{
    (void)user, (void)b, (void)h;
    if (j0 > i0 + rows - 1 || j0 + keys - 1 < i0 - LEFT) return MHA_ATTN_BLOCK_NONE;
    return j0 + keys - 1 <= i0 && j0 >= i0 + rows - 1 - LEFT ? MHA_ATTN_BLOCK_ALL : MHA_ATTN_BLOCK_SOME;
}

#define SIZES                                                                                            \
    .size = sizeof(mha_attn_desc), .batch = 1, .heads = HEADS, .kv_heads = 2, .q_len = LQ, .kv_len = LK, \
    .head_dim = 20, .align = MHA_ALIGN_BOTTOM_RIGHT, .outputs = MHA_ATTN_LSE

/* Runs a problem forward and backward with the given functions. */
static void run(mha_ctx *ctx, problem *p, gradients *g, const mha_attn_desc *d, const mha_attn_functions *functions)
{
    problem_make(p, d, NULL, 5);
    if (functions) p->args.functions = functions;
    gradients_make(g, p, NULL, 6);
    gradients_run(ctx, p, g);
}

static void drop(problem *p, gradients *g)
{
    problem_free(p);
    gradients_free(g);
}

/* score receives every visible pair, and score_back every visible pair exactly once, even if dbias is computed. */
static void test_received(void **state)
{
    (void)state;
    calls *c = malloc(sizeof *c);
    for (int n = 0; n < isa_count; n++) {
        problem p;
        gradients g;
        const mha_attn_desc d = {SIZES, .causal = 1, .inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_BIAS};
        *c = (calls){.offset = LK - LQ, .finite = true};
        const mha_attn_functions functions = {
            .size = sizeof functions, .user = c, .score = count_score, .score_back = count_back};
        run(isa_contexts[n], &p, &g, &d, &functions);
        assert_true(!c->outside && c->finite);
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < LQ; i++)
                for (int j = 0; j < LK; j++) {
                    const bool visible = j <= i + LK - LQ;
                    if (!c->score[h][i][j] != !visible || c->back[h][i][j] != visible)
                        fail_msg("%s: head %d, row %d, key %d: %d calls of score, %d of score_back",
                                 mha_ctx_isa(isa_contexts[n]), h, i, j, c->score[h][i][j], c->back[h][i][j]);
                }
        drop(&p, &g);
    }
    free(c);
}

/* Returns true if gradients are equal; for skipped blocks, dk and dv only within rounding, because the rows of a tile
 * are then summed in several groups. */
static bool same_gradients(const gradients *g, const gradients *want, bool skipped)
{
    for (int n = 0; n < RESULTS; n++) {
        const tensor *x = &g->result[n], *y = &want->result[n];
        const double unit = x->dtype == MHA_BF16 ? 0x1p-7 : x->dtype == MHA_F16 ? 0x1p-10 : 0x1p-18;
        if (!x->memory || tensor_same_bits(x, y)) continue;
        if (!skipped || (n != DK && n != DV)) return false;
        for (int64_t at = 0; at < x->dim[1] * x->dim[2] * x->dim[3]; at++) {
            const int64_t h = at / x->dim[3] / x->dim[2], j = at / x->dim[3] % x->dim[2], e = at % x->dim[3];
            const double a = tensor_get(x, 0, h, j, e), b = tensor_get(y, 0, h, j, e);
            if (!(fabs(a - b) <= unit * (1 + fabs(b)))) return false;
        }
    }
    return true;
}

static void fill_band(tensor *keep)
{
    for (int64_t at = 0; at < HEADS * LQ * LK; at++) {
        const int64_t i = at / LK % LQ + LK - LQ, j = at % LK;
        if (j > i || j < i - LEFT) tensor_set(keep, 0, at / LK / LQ, at / LK % LQ, j, 0);
    }
}

/* A band given by functions must be bitwise identical to a band in `keep` in both passes, with other inputs and with
 * NaN in keys that the band masks for all rows. */
static void check_band(mha_ctx *ctx, mha_attn_desc d, bool classified)
{
    problem p, want;
    gradients g, want_g;
    mha_attn_desc built_in = d;
    const mha_attn_functions functions = {
        .size = sizeof functions, .keep = band, .block = classified ? band_block : NULL};
    d.inputs |= MHA_ATTN_KEEP | MHA_ATTN_FUNCTIONS;
    built_in.inputs |= MHA_ATTN_KEEP;
    problem_make(&p, &d, NULL, 8);
    problem_make(&want, &built_in, NULL, 8);
    fill_band(&want.keep);
    p.args.functions = &functions;
    for (int64_t e = 0; e < 20; e++) {
        tensor_set(&p.k, 0, 1, 0, e, NAN);
        tensor_set(&p.v, 0, 1, LK - LQ - LEFT - 1, e, NAN);
    }
    gradients_make(&g, &p, NULL, 9);
    gradients_make(&want_g, &want, NULL, 9);
    gradients_run(ctx, &p, &g);
    gradients_run(ctx, &want, &want_g);
    if (!problem_same_bits(&p, &want) || !same_gradients(&g, &want_g, classified))
        fail_msg("%s: inputs 0x%x: functions must be bitwise identical to keep", mha_ctx_isa(ctx), (unsigned)d.inputs);
    drop(&p, &g);
    drop(&want, &want_g);
}

static void test_band(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_F64};
    for (int n = 0; n < isa_count; n++)
        for (int t = 0; t < 4; t++)
            for (int classified = 0; classified < 2; classified++) {
                /* without slopes, kernels for pairs of bf16 scale scores later, which rounds differently */
                const uint32_t inputs = types[t] == MHA_BF16 ? MHA_ATTN_SLOPES : 0;
                check_band(isa_contexts[n], (mha_attn_desc){SIZES, .dtype = types[t], .inputs = inputs}, classified);
                check_band(isa_contexts[n],
                           (mha_attn_desc){SIZES, .dtype = types[t], .softcap = 4, .dropout = 0.3,
                                           .inputs = MHA_ATTN_BIAS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS},
                           classified);
            }
}

/* Blocks that `block` excludes or includes completely must not be passed to keep. */
static void test_skipped(void **state)
{
    (void)state;
    int received[2];
    for (int classified = 0; classified < 2; classified++) {
        problem p;
        const mha_attn_desc d = {SIZES, .inputs = MHA_ATTN_FUNCTIONS};
        const mha_attn_functions functions = {
            .size = sizeof functions, .keep = band, .block = classified ? band_block : NULL};
        problem_make(&p, &d, NULL, 8);
        p.args.functions = &functions;
        keep_calls = 0;
        problem_run(isa_contexts[0], &p);
        received[classified] = keep_calls;
        problem_free(&p);
    }
    assert_int_equal(received[0], HEADS * LQ * 3); /* three blocks of keys */
    assert_true(received[1] > 0 && received[1] < received[0] * 3 / 4);
}

static void expect(const mha_attn_functions *functions, bool backward, const char *word)
{
    mha_error err = {0};
    problem p;
    gradients g;
    mha_attn_desc d = {SIZES, .inputs = MHA_ATTN_FUNCTIONS};
    problem_make(&p, &d, NULL, 1);
    gradients_make(&g, &p, NULL, 1);
    p.args.functions = functions;
    const mha_status status = backward ? mha_attention_backward(isa_contexts[0], &d, &p.args, &g.args, &err)
                                       : mha_attention(isa_contexts[0], &d, &p.args, &err);
    if (status != MHA_ERR_ARG || !strstr(err.message, word))
        fail_msg("message must contain \"%s\" (got %s: %s)", word, mha_status_text(status), err.message);
    drop(&p, &g);
}

static void test_refusals(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_attn_plan *plan;
    mha_attn_functions f = {.size = sizeof f};
    expect(&f, false, "functions.score, keep or block must be set (got NULL for all)");
    f.keep = band, f.score_added = 1;
    expect(&f, false, "functions.score must be set with score_back or score_added (got NULL)");
    f.score = count_score, f.score_added = 2;
    expect(&f, false, "functions.score_added must be 0 or 1 (got 2)");
    f.score_added = 1, f.score_back = count_back;
    expect(&f, false, "functions.score_back must be NULL with score_added (got a function)");
    f.score_added = 0, f.score_back = NULL;
    expect(&f, true, "functions.score_back must be set in the backward pass unless score_added is 1 (got NULL)");
    f.size = 3;
    expect(&f, false, "mha_attn_functions");
    mha_attn_desc d = {SIZES, .inputs = MHA_ATTN_FUNCTIONS};
    d.align = MHA_ALIGN_UNSET;
    assert_int_equal(mha_attn_plan_create(isa_contexts[0], &d, &plan, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "align must be set"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_received), cmocka_unit_test(test_band),
                                              cmocka_unit_test(test_skipped), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
