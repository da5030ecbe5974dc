/* test_attn_calls.c - invalid calls must fail before anything is written. Edge cases (no keys, no rows, extreme
 * offsets) must succeed. Descriptions of plans must be correct. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The valid description that the tests below modify. */
static const mha_attn_desc good = {.size = sizeof good,
                                   .batch = 2,
                                   .heads = 6,
                                   .kv_heads = 2,
                                   .q_len = 5,
                                   .kv_len = 9,
                                   .head_dim = 16,
                                   .v_head_dim = 8};

/* A function that makes a valid call invalid, and the words that the error message must contain. */
typedef struct bad_call {
    const char *field, *value;
    void (*spoil)(problem *p);
} bad_call;

static void no_q(problem *p)
{
    p->args.q.data = NULL;
}
static void no_k(problem *p)
{
    p->args.k.data = NULL;
}
static void no_v(problem *p)
{
    p->args.v.data = NULL;
}
static void no_out(problem *p)
{
    p->args.out.data = NULL;
}
static void no_keep(problem *p)
{
    p->args.keep.data = NULL;
}
static void no_bias(problem *p)
{
    p->args.bias.data = NULL;
}
static void no_lse(problem *p)
{
    p->args.lse.data = NULL;
}
static void no_probs(problem *p)
{
    p->args.probs.data = NULL;
}
/* Moves q one byte past an element boundary. The call must be rejected, since it would load unaligned elements. */
static void odd_q(problem *p)
{
    p->args.q.data = (const char *)p->args.q.data + 1;
}
static void odd_k(problem *p)
{
    p->args.k.data = (const char *)p->args.k.data + 2;
}
static void odd_v(problem *p)
{
    p->args.v.data = (const char *)p->args.v.data + 3;
}
static void odd_out(problem *p)
{
    p->args.out.data = (char *)p->args.out.data + 1;
}
static void odd_bias(problem *p)
{
    p->args.bias.data = (const char *)p->args.bias.data + 1;
}
static void odd_lse(problem *p)
{
    p->args.lse.data = (char *)p->args.lse.data + 1;
}
static void odd_probs(problem *p)
{
    p->args.probs.data = (char *)p->args.probs.data + 2;
}
static void far_q(problem *p)
{
    p->args.q.stride[0] = INT64_MAX / 2;
}
static void far_k(problem *p)
{
    p->args.k.stride[2] = INT64_MIN / 4;
}
static void far_keep(problem *p)
{
    p->args.keep.stride[2] = INT64_MAX / 2;
}
static void far_probs(problem *p)
{
    p->args.probs.stride[1] = INT64_MAX / 4;
}
static void no_q_lens(problem *p)
{
    p->args.q_lens = NULL;
}
static void no_kv_lens(problem *p)
{
    p->args.kv_lens = NULL;
}
static void no_offsets(problem *p)
{
    p->args.offsets = NULL;
}
static void no_size(problem *p)
{
    p->args.size = 0;
}
static void long_q(problem *p)
{
    p->q_lens[1] = p->desc.q_len + 1;
}
static void negative_q(problem *p)
{
    p->q_lens[0] = -1;
}
static void long_kv(problem *p)
{
    p->kv_lens[1] = p->desc.kv_len + 1;
}
static void negative_kv(problem *p)
{
    p->kv_lens[0] = -3;
}

/* Makes out and k overlap. In this and similar functions, the shorter tensor is moved into the longer tensor, so that
 * neither overlaps a third tensor. */
static void out_is_k(problem *p)
{
    p->args.out.data = p->k.data;
}
static void out_is_v(problem *p)
{
    p->args.v.data = p->out.data;
}
static void out_is_part_of_q(problem *p)
{
    p->args.out.data = (float *)p->q.data + 1;
}
static void out_broadcasts(problem *p)
{
    p->args.out = (mha_view){p->out.data, {0, 1, 8, 1}};
}
static void lse_broadcasts(problem *p)
{
    p->args.lse = (mha_view){p->lse.data, {0, 5, 1, 0}};
}

static void out_rows_share(problem *p)
{
    p->args.out = (mha_view){p->out.data, {64, 0, 16, 1}};
    p->args.out.stride[1] = 3; /* a head has 8 columns, but the next head begins after 3 */
}
static void lse_is_out(problem *p)
{
    p->args.lse.data = p->out.data;
}
static void lse_is_v(problem *p)
{
    p->args.lse.data = p->v.data;
}
static void probs_are_q(problem *p)
{
    p->args.probs.data = p->q.data; /* q is larger, so probs overlaps nothing else */
}
static void probs_are_lse(problem *p)
{
    p->args.lse.data = p->probs.data;
}

static void out_is_bias(problem *p)
{
    p->args.out.data = (void *)(uintptr_t)p->args.bias.data;
}
static void out_is_keep(problem *p)
{
    p->args.keep.data = p->out.data;
}
static void lse_is_kv_lens(problem *p)
{
    p->args.lse.data = p->kv_lens;
}

static const bad_call bad_calls[] = {
    {"out must not overlap bias", "bias", out_is_bias},
    {"out must not overlap keep", "keep", out_is_keep},
    {"lse must not overlap kv_lens", "kv_lens", lse_is_kv_lens},
    {"out.stride[1]", "3", out_rows_share},
    {"lse must not overlap out", "out", lse_is_out},
    {"lse must not overlap v", "v", lse_is_v},
    {"probs must not overlap q", "q", probs_are_q},
    {"probs must not overlap lse", "lse", probs_are_lse},
    {"out must not overlap k; the only permitted overlap is exactly q", "k", out_is_k},
    {"out must not overlap v", "v", out_is_v},
    {"out", "q", out_is_part_of_q},
    {"out.stride[0]", "0", out_broadcasts},
    {"lse.stride[0]", "0", lse_broadcasts},
    {"q", "NULL", no_q},
    {"k", "NULL", no_k},
    {"v", "NULL", no_v},
    {"out", "NULL", no_out},
    {"keep", "NULL", no_keep},
    {"bias", "NULL", no_bias},
    {"lse", "NULL", no_lse},
    {"probs", "NULL", no_probs},
    {"q.data", "aligned to 4 bytes", odd_q},
    {"k.data", "aligned", odd_k},
    {"v.data", "aligned", odd_v},
    {"out.data", "aligned", odd_out},
    {"bias.data", "aligned", odd_bias},
    {"lse.data", "aligned", odd_lse},
    {"probs.data", "aligned", odd_probs},
    {"q.stride", "4611686018427387903", far_q},
    {"k.stride", "-2305843009213693952", far_k},
    {"keep.stride", "4611686018427387903", far_keep},
    {"probs.stride", "2305843009213693951", far_probs},
    {"q_lens", "NULL", no_q_lens},
    {"kv_lens", "NULL", no_kv_lens},
    {"offsets", "NULL", no_offsets},
    {"size", "0", no_size},
    {"q_lens[1]", "6", long_q},
    {"q_lens[0]", "-1", negative_q},
    {"kv_lens[1]", "10", long_kv},
    {"kv_lens[0]", "-3", negative_kv},
};
enum { BAD_CALLS = sizeof bad_calls / sizeof *bad_calls };

static mha_attn_desc call_desc(void)
{
    mha_attn_desc d = good;
    d.causal = 1;
    d.align = MHA_ALIGN_OFFSETS;
    d.inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS;
    d.outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS;
    return d;
}

/* Returns true if all outputs still have their initial contents. */
static bool untouched(const problem *p)
{
    const tensor *outputs[] = {&p->out, &p->lse, &p->probs};
    for (int n = 0; n < 3; n++)
        for (int64_t row = 0; row < p->desc.batch * p->desc.heads * p->desc.q_len; row++) {
            int64_t b = row / (p->desc.heads * p->desc.q_len), h = row / p->desc.q_len % p->desc.heads;
            if (tensor_get(outputs[n], b, h, row % p->desc.q_len, 0) != TEST_CANARY) return false;
        }
    return true;
}

static void test_calls(void **state)
{
    (void)state;
    mha_attn_desc d = call_desc();
    for (int n = 0; n < BAD_CALLS; n++) {
        problem p;
        mha_error err = {0};
        problem_make(&p, &d, NULL, 61);
        bad_calls[n].spoil(&p);
        mha_status status = mha_attention(NULL, &d, &p.args, &err);
        if (status != MHA_ERR_ARG || !strstr(err.message, bad_calls[n].field) ||
            !check_has_word(err.message, bad_calls[n].value))
            fail_msg("%s = %s: %s: %s", bad_calls[n].field, bad_calls[n].value, mha_status_text(status), err.message);
        assert_true(untouched(&p));
        problem_free(&p);
    }
}

/* Tests q, k and v in the columns of one matrix, with adjacent heads. out may overwrite q or unused columns, but no
 * part of k or v. */
static void test_packed_columns(void **state)
{
    (void)state;
    enum { HEADS = 4, WIDTH = 8, ROWS = 33, COLUMNS = (HEADS + 2 + 2 + HEADS) * WIDTH };
    static float packed[ROWS * COLUMNS], bits[ROWS * HEADS * WIDTH];
    static const int q = 0, k = HEADS * WIDTH, v = k + 2 * WIDTH, free_columns = v + 2 * WIDTH;
    const struct {
        int column;
        const char *overlaps;
    } outs[] = {{free_columns, NULL},
                {q, NULL},
                {k, "overlap k"},
                {v, "must not overlap v"},
                {WIDTH, "must not overlap q"},
                {k - 1, "must not overlap q"},
                {free_columns - 1, "must not overlap v"},
                {v - 3, "must not overlap k"}};
    const mha_attn_desc d = {
        .size = sizeof d, .batch = 1, .heads = HEADS, .kv_heads = 2, .q_len = ROWS, .kv_len = ROWS, .head_dim = WIDTH};
    for (size_t n = 0; n < sizeof outs / sizeof *outs; n++) {
        const int64_t stride[4] = {0, WIDTH, COLUMNS, 1};
        mha_attn_args a = {.size = sizeof a, .q.data = packed + q, .k.data = packed + k, .v.data = packed + v};
        mha_error err = {0};
        for (int i = 0; i < ROWS * COLUMNS; i++)
            packed[i] = (float)(i * 7 % 31) / 16 - 1;
        a.out.data = packed + outs[n].column;
        memcpy(a.q.stride, stride, sizeof stride);
        memcpy(a.k.stride, stride, sizeof stride);
        memcpy(a.v.stride, stride, sizeof stride);
        memcpy(a.out.stride, stride, sizeof stride);
        const mha_status status = mha_attention(NULL, &d, &a, &err);
        if (outs[n].overlaps) {
            assert_int_equal(status, MHA_ERR_ARG);
            if (!strstr(err.message, outs[n].overlaps))
                fail_msg("message must contain \"%s\" (got %s)", outs[n].overlaps, err.message);
            continue;
        }
        if (status != MHA_OK) fail_msg("column %d: %s", outs[n].column, err.message);
        for (int i = 0; i < ROWS * HEADS * WIDTH; i++) {
            const float x = packed[i / (HEADS * WIDTH) * COLUMNS + outs[n].column + i % (HEADS * WIDTH)];
            if (n == 0) bits[i] = x;
            assert_true(bits[i] == x);
        }
    }
}

static void test_workspace(void **state)
{
    (void)state;
    mha_attn_desc d = call_desc();
    mha_attn_plan *plan;
    mha_error err = {0};
    problem p;
    problem_make(&p, &d, NULL, 62);
    assert_int_equal(mha_attn_plan_create(NULL, &d, &plan, &err), MHA_OK);
    size_t bytes = mha_attn_plan_workspace(plan);
    char *memory = mha_alloc(NULL, bytes + 64);
    assert_non_null(memory);
    assert_true(bytes > 0);
    assert_int_equal(mha_attn_forward(plan, &p.args, NULL, bytes, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "workspace"));
    assert_int_equal(mha_attn_forward(plan, &p.args, memory, bytes - 1, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "workspace"));
    assert_int_equal(mha_attn_forward(plan, &p.args, memory + 32, bytes, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "aligned"));
    assert_int_equal(mha_attn_forward(plan, NULL, memory, bytes, &err), MHA_ERR_ARG);
    assert_int_equal(mha_attn_forward(NULL, &p.args, memory, bytes, &err), MHA_ERR_ARG);
    assert_true(untouched(&p));
    assert_int_equal(mha_attn_forward(plan, &p.args, memory, bytes, NULL), MHA_OK);
    mha_free(NULL, memory);
    mha_attn_plan_free(plan);
    problem_free(&p);
}

/* ---- edge cases that must succeed ---- */

static void test_no_keys(void **state)
{
    (void)state;
    mha_attn_desc d = good;
    d.kv_len = 0;
    d.outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS;
    problem p;
    problem_make(&p, &d, NULL, 63);
    p.args.k.data = p.args.v.data = NULL; /* NULL is allowed for an empty tensor */
    problem_run(NULL, &p);
    for (int64_t i = 0; i < d.q_len; i++) {
        assert_true(tensor_get(&p.out, 1, 3, i, 4) == 0);
        assert_true(tensor_get(&p.lse, 1, 3, i, 0) == (double)-INFINITY);
    }
    problem_free(&p);
}

static void test_no_rows(void **state)
{
    (void)state;
    mha_attn_desc d = good;
    d.q_len = 0;
    problem p;
    problem_make(&p, &d, NULL, 64);
    p.args.q.data = NULL;
    p.args.out.data = NULL;
    problem_run(NULL, &p);
    problem_free(&p);
}

/* Offsets of INT64_MIN and INT64_MAX must not overflow in i + offset. */
static void test_far_offsets(void **state)
{
    (void)state;
    mha_attn_desc d = good, causal = good;
    d.outputs = causal.outputs = MHA_ATTN_LSE;
    causal.causal = 1;
    causal.align = MHA_ALIGN_OFFSETS;
    problem all, far;
    problem_make(&all, &d, NULL, 65);
    problem_make(&far, &causal, NULL, 65);
    problem_run(NULL, &all);
    far.offsets[0] = far.offsets[1] = INT64_MAX;
    problem_run(NULL, &far);
    assert_true(problem_same_bits(&all, &far)); /* every key must be before the query, so all must be visible */
    far.offsets[0] = far.offsets[1] = INT64_MIN;
    problem_run(NULL, &far);
    for (int64_t i = 0; i < d.q_len; i++) /* every key must be after the query, so none may be visible */
        assert_true(tensor_get(&far.out, 1, 2, i, 3) == 0 && tensor_get(&far.lse, 1, 2, i, 0) == (double)-INFINITY);
    problem_free(&far);
    causal.causal = 0;
    causal.window = (mha_window){1, INT64_MAX, INT64_MAX};
    problem_make(&far, &causal, NULL, 65);
    far.offsets[0] = -3;
    far.offsets[1] = 3;
    problem_run(NULL, &far);
    assert_true(problem_same_bits(&all, &far)); /* a window of INT64_MAX on both sides must include all keys */
    problem_free(&far);
    problem_free(&all);
}

/* If lengths are set, a missing align must be rejected if and only if the query and key lengths of a sequence
 * differ. */
static void test_unset_align_of_lengths(void **state)
{
    (void)state;
    mha_attn_desc d = good;
    d.q_len = d.kv_len = 9;
    d.causal = 1;
    d.inputs = MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS;
    problem p;
    mha_error err = {0};
    problem_make(&p, &d, NULL, 66);
    p.q_lens[0] = p.kv_lens[0] = 4;
    p.q_lens[1] = p.kv_lens[1] = 9;
    problem_run(NULL, &p);
    p.kv_lens[1] = 7;
    assert_int_equal(mha_attention(NULL, &d, &p.args, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "align"));
    assert_true(check_has_word(err.message, "7"));
    problem_free(&p);
}

/* ---- descriptions of plans ---- */

static void test_describe(void **state)
{
    (void)state;
    mha_attn_plan *plan;
    mha_error err = {0};
    assert_int_equal(mha_attn_plan_create(NULL, &good, &plan, &err), MHA_OK);
    for (int json = 0; json < 2; json++) {
        char whole[4096], part[16];
        size_t length = mha_attn_plan_describe(plan, json, whole, sizeof whole);
        assert_int_equal(length, strlen(whole));
        assert_true(length > sizeof part);
        assert_int_equal(mha_attn_plan_describe(plan, json, part, sizeof part), length);
        assert_memory_equal(part, whole, sizeof part - 1);
        assert_int_equal(part[sizeof part - 1], 0);
        assert_int_equal(mha_attn_plan_describe(plan, json, NULL, 0), length);
        static const char *const keys[] = {"\"kernel\"",         "\"isa\"",       "\"tile_q\"", "\"tile_k\"",
                                           "\"threads\"",        "\"workspace\"", "\"flops\"",  "\"bytes\"",
                                           "\"backward\": null", "\"refused\""};
        for (size_t n = 0; json && n < sizeof keys / sizeof *keys; n++)
            assert_non_null(strstr(whole, keys[n]));
    }
    mha_attn_plan_free(plan);
}

/* The description of a plan must list the copies of operands and the rotation of blocks. */
static void test_describe_copies(void **state)
{
    (void)state;
    static const char *const said[2][2] = {
        {"copies in the workspace: 9216 bytes of k; backward also 0 bytes of v and 0 bytes of q\n", "rotation: "},
        {"\"copies\": {\"k\": 9216, \"v\": 0, \"q\": 0}, ", "\"rotated\": true, "}};
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = 2,
                             .q_len = 1,
                             .kv_len = 256,
                             .head_dim = 32,
                             .kv_dtype = MHA_Q4_0,
                             .inputs = MHA_ATTN_ROPE_K};
    mha_attn_plan *plan;
    mha_error err = {0};
    char text[4096];
    if (mha_attn_plan_create(NULL, &d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int json = 0; json < 2; json++) {
        mha_attn_plan_describe(plan, json, text, sizeof text);
        for (int n = 0; n < 2; n++)
            assert_non_null(strstr(text, said[json][n]));
    }
    mha_attn_plan_free(plan);
}

/* The description of a plan must list the outputs, with the shapes of maps. */
static void test_describe_outputs(void **state)
{
    (void)state;
    static const char *const said[2][3] = {
        {"written: out, lse, probs [2, 3, 4, 9], stats (5 top keys), scores (biased) [2, 3, 4, 9]; ", "a second time",
         "cost"},
        {"\"outputs\": {\"out\": true, \"lse\": true, \"probs\": [2, 3, 4, 9], \"stats\": true, \"scores\": [2, 3, 4, "
         "9]",
         "\"stage\": \"biased\"", "\"top_keys\": 5"}};
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 2,
                             .heads = 6,
                             .q_len = 7,
                             .kv_len = 9,
                             .head_dim = 8,
                             .map_heads = 3,
                             .map_rows = 4,
                             .top_keys = 5,
                             .scores = MHA_SCORES_BIASED,
                             .inputs = MHA_ATTN_MAP_HEADS | MHA_ATTN_MAP_ROWS,
                             .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS | MHA_ATTN_STATS | MHA_ATTN_SCORES};
    mha_attn_plan *plan;
    mha_error err = {0};
    if (mha_attn_plan_create(NULL, &d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int json = 0; json < 2; json++) {
        char text[4096];
        mha_attn_plan_describe(plan, json, text, sizeof text);
        for (int n = 0; n < 3; n++)
            if (!strstr(text, said[json][n])) fail_msg("text must contain %s (got %s)", said[json][n], text);
    }
    mha_attn_plan_free(plan);
}

/* Fails unless the description of the plan for `d` contains `want` and does not contain `never`. */
static void check_said(mha_ctx *ctx, const mha_attn_desc *d, int json, const char *want, const char *never)
{
    mha_attn_plan *plan;
    mha_error err = {0};
    char text[4096];
    if (mha_attn_plan_create(ctx, d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_attn_plan_describe(plan, json, text, sizeof text);
    if (!strstr(text, want)) fail_msg("%s: text must contain %s (got %s)", mha_ctx_isa(ctx), want, text);
    if (strstr(text, never)) fail_msg("%s: text must not contain %s (got %s)", mha_ctx_isa(ctx), never, text);
    mha_attn_plan_free(plan);
}

/* Returns the value of "bytes" in the JSON description of the plan for `d`. */
static double bytes_of(const mha_attn_desc *d)
{
    mha_attn_plan *plan;
    char text[4096];
    assert_int_equal(mha_attn_plan_create(NULL, d, &plan, NULL), MHA_OK);
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    const char *said = strstr(text, "\"bytes\": ");
    assert_non_null(said);
    mha_attn_plan_free(plan);
    return strtod(said + strlen("\"bytes\": "), NULL);
}

/* The reported byte count must include every tensor that is read or written. */
static void test_describe_bytes(void **state)
{
    (void)state;
    enum { B = 2, H = 6, GROUPS = 2, Lq = 7, Lk = 9, D = 8, TOP = 5 };
    const mha_attn_desc d = {
        .size = sizeof d, .batch = B, .heads = H, .kv_heads = GROUPS, .q_len = Lq, .kv_len = Lk, .head_dim = D};
    const double plain = 4.0 * B * (H * Lq * 2 * D + GROUPS * Lk * 2 * D), pairs = B * H * Lq * Lk;
    mha_attn_desc more = d;
    assert_true(bytes_of(&d) == plain);
    more.inputs = MHA_ATTN_BIAS | MHA_ATTN_KEEP | MHA_ATTN_DROPOUT_KEEP;
    more.keep_keys = 4;
    assert_true(bytes_of(&more) == plain + pairs * (4 + 1) + B * H * Lq * 4);
    more = d;
    more.inputs = MHA_ATTN_BLOCK_KEEP;
    more.block_q = 2, more.block_k = 4;
    assert_true(bytes_of(&more) == plain + B * H * 4 * 3);
    more.inputs |= MHA_ATTN_HEAD_LIST;
    more.listed_heads = 1;
    assert_true(bytes_of(&more) == 4.0 * B * (Lq * 2 * D + GROUPS * Lk * 2 * D) + B * 4 * 3);
    more = d;
    more.inputs = MHA_ATTN_BLOCK_TABLE;
    more.page_size = 16, more.pages = 5;
    assert_true(bytes_of(&more) == plain);
    more = d;
    more.outputs = MHA_ATTN_PARTIAL;
    assert_true(bytes_of(&more) == plain + B * H * Lq * (2 + D) * 4);
    more = d;
    more.outputs = MHA_ATTN_PROBS | MHA_ATTN_SCORES | MHA_ATTN_LSE;
    assert_true(bytes_of(&more) == plain + pairs * 8 + B * H * Lq * 4);
    more = d;
    more.outputs = MHA_ATTN_STATS;
    more.top_keys = TOP;
    assert_true(bytes_of(&more) == plain + B * H * (Lq * (3 * 4 + 8 + TOP * (4 + 8)) + Lk * 4));
}

/* Descriptions must use the singular for 1 and the plural for other numbers, and must not mention paths that `d`
 * excludes. */
static void test_describe_wording(void **state)
{
    (void)state;
    mha_ctx *ctx;
    mha_error err = {0};
    assert_int_equal(mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = 1}, &ctx, &err),
                     MHA_OK);
    mha_attn_desc d = {.size = sizeof d, .batch = 1, .heads = 1, .q_len = 250, .kv_len = 300, .head_dim = 16};
    check_said(ctx, &d, 0, "4 tiles in 1 part of the keys on up to 1 thread\n", "decode:");
    check_said(ctx, &d, 0, "not used: products of bf16 pairs", "here none");
    d.q_len = 128;
    d.outputs = MHA_ATTN_GRADS;
    check_said(ctx, &d, 0, "1 tile in 1 part", "tiles in");
    check_said(ctx, &d, 0, "1 task, rows of a head group in 1 part, on up to 1 thread,", "tasks");
    mha_ctx_free(ctx);
}

/* Returns the number of rows per tile of the decode kernels from the description of the plan; 0 = no decode kernels. */
static int few_of(mha_ctx *ctx, const mha_attn_desc *d)
{
    mha_attn_plan *plan;
    char text[4096];
    int rows = 0;
    assert_int_equal(mha_attn_plan_create(ctx, d, &plan, NULL), MHA_OK);
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    const char *said = strstr(text, "\"few\": ");
    assert_non_null(said);
    assert_true(strncmp(said, "\"few\": null", 11) == 0 || sscanf(said, "\"few\": {\"rows\": %d", &rows) == 1);
    mha_attn_plan_free(plan);
    return rows;
}

/* The description must name the kernel for each number of rows and, if the decode kernel is not used, the reason. */
static void test_describe_few(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++) {
        mha_ctx *ctx = isa_contexts[c];
        mha_attn_desc d = good;
        d.kv_len = 300;       /* two or more key blocks, so that fwd_one_block is not used */
        d.kv_heads = d.heads; /* one query head per key/value head, so that no heads are folded into a tile */
        const int few = few_of(ctx, &d);
        assert_int_equal(few == 0, strcmp(mha_ctx_isa(ctx), "scalar") == 0);
        if (few == 0) {
            check_said(ctx, &d, 0, "not used: fwd_few: this ISA has no decode kernels\n", "decode: ");
            check_said(ctx, &d, 1, "{\"kernel\": \"fwd_tiled\", \"few\": null, ", "fwd_few\", \"few");
            continue;
        }
        d.q_len = few;
        check_said(ctx, &d, 0, "stride[3] = 1 of k and v", "not used: fwd_few");
        check_said(ctx, &d, 1, "{\"kernel\": \"fwd_few\", \"few\": {\"rows\": ", "\"path\": \"fwd_few\"");
        d.q_len = few + 1;
        check_said(ctx, &d, 0, "not used: fwd_few: too many rows in a tile\n", "kernel: fwd_few");
        check_said(ctx, &d, 1, "\"tiles\": \"none\", \"needs\": \"stride[3] = 1 of k and v\"", "fwd_few\", \"few");
        d.q_len = 129;
        check_said(ctx, &d, 0, "(here the last tile of each head)", "kernel: fwd_few");
        d.q_len = few, d.kv_heads = 2;
        check_said(ctx, &d, 0, "4 tiles, each with all heads of a group,", "not used: heads of a group as one tile");
        d.kv_heads = d.heads;
        d.dtype = MHA_F64, d.q_len = 1;
        check_said(ctx, &d, 0, "not used: fwd_few: this ISA has no decode kernels\n", "decode: ");
        d.dtype = MHA_F32, d.inputs = MHA_ATTN_CU_SEQLENS;
        d.q_len = d.kv_len = 200;
        check_said(ctx, &d, 0, "(here the tiles of short sequences)", "kernel: fwd_few");
        d.max_q_len = few;
        check_said(ctx, &d, 0, "(here all)", "kernel: fwd_tiled");
    }
}

/* The plan must use fwd_one_block if there are at most 128 keys and the mask consists of intervals only. */
static void test_describe_one_block(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++) {
        mha_attn_desc d = good;
        d.q_len = 130, d.kv_len = 128;
        d.outputs = MHA_ATTN_LSE;
        check_said(isa_contexts[c], &d, 0, "kernel: fwd_one_block", "not used: fwd_one_block");
        check_said(isa_contexts[c], &d, 1, "{\"kernel\": \"fwd_one_block\", \"few\": null, ", "fwd_tiled");
        d.inputs = MHA_ATTN_KEEP;
        check_said(isa_contexts[c], &d, 0, "not used: fwd_one_block: only lengths, lists", "kernel: fwd_one_block");
        d.inputs = 0, d.dtype = MHA_F16;
        check_said(isa_contexts[c], &d, 0, "not used: fwd_one_block: types other than f32", "kernel: fwd_one_block");
        d.dtype = MHA_F32, d.kv_len = 129;
        check_said(isa_contexts[c], &d, 0, "not used: fwd_one_block: more keys than fit", "kernel: fwd_one_block");
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls),
                                              cmocka_unit_test(test_packed_columns),
                                              cmocka_unit_test(test_workspace),
                                              cmocka_unit_test(test_no_keys),
                                              cmocka_unit_test(test_no_rows),
                                              cmocka_unit_test(test_far_offsets),
                                              cmocka_unit_test(test_unset_align_of_lengths),
                                              cmocka_unit_test(test_describe),
                                              cmocka_unit_test(test_describe_copies),
                                              cmocka_unit_test(test_describe_outputs),
                                              cmocka_unit_test(test_describe_bytes),
                                              cmocka_unit_test(test_describe_wording),
                                              cmocka_unit_test(test_describe_few),
                                              cmocka_unit_test(test_describe_one_block)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
