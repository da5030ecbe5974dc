/* test_attn_describe.c - tests the descriptions of plans: kernels, copies, outputs, byte counts and wording. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- descriptions of plans ---- */

static void test_describe(void **state)
{
    (void)state;
    mha_attn_plan *plan;
    mha_error err = {0};
    assert_int_equal(mha_attn_plan_create(NULL, &problem_valid, &plan, &err), MHA_OK);
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
    check_said(ctx, &d, 0, "4 tiles in 1 part of the keys on up to 1 thread\n", "\ndecode:");
    check_said(ctx, &d, 0, "not used: products of bf16 pairs", "here none");
    d.q_len = 128;
    d.outputs = MHA_ATTN_GRADS;
    check_said(ctx, &d, 0, "1 tile in 1 part", "tiles in");
    check_said(ctx, &d, 0, "1 task, rows of a head group in 1 part, on up to 1 thread,", "tasks");
    mha_ctx_free(ctx);
}

/* Returns the number of rows per tile of the decode kernels from the description of the plan; 0 = no decode kernels. */
static int decode_of(mha_ctx *ctx, const mha_attn_desc *d)
{
    mha_attn_plan *plan;
    char text[4096];
    int rows = 0;
    assert_int_equal(mha_attn_plan_create(ctx, d, &plan, NULL), MHA_OK);
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    const char *said = strstr(text, "\"decode\": ");
    assert_non_null(said);
    assert_true(strncmp(said, "\"decode\": null", 14) == 0 || sscanf(said, "\"decode\": {\"rows\": %d", &rows) == 1);
    mha_attn_plan_free(plan);
    return rows;
}

/* The description must name the kernel for each number of rows and, if the decode kernel is not used, the reason. */
static void test_describe_decode(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++) {
        mha_ctx *ctx = isa_contexts[c];
        mha_attn_desc d = problem_valid;
        d.kv_len = 300;       /* two or more key blocks, so that fwd_single_block is not used */
        d.kv_heads = d.heads; /* one query head per key/value head, so that no heads are folded into a tile */
        const int rows = decode_of(ctx, &d);
        assert_int_equal(rows == 0, strcmp(mha_ctx_isa(ctx), "scalar") == 0);
        if (rows == 0) {
            check_said(ctx, &d, 0, "not used: fwd_decode: this ISA has no decode kernels\n", "\ndecode: ");
            check_said(ctx, &d, 1, "{\"kernel\": \"fwd_tiled\", \"decode\": null, ", "fwd_decode\", \"decode");
            continue;
        }
        d.q_len = rows;
        check_said(ctx, &d, 0, "stride[3] = 1 of k and v", "not used: fwd_decode");
        check_said(ctx, &d, 1, "{\"kernel\": \"fwd_decode\", \"decode\": {\"rows\": ", "\"path\": \"fwd_decode\"");
        d.q_len = rows + 1;
        check_said(ctx, &d, 0, "not used: fwd_decode: too many rows in a tile\n", "kernel: fwd_decode");
        check_said(ctx, &d, 1, "\"tiles\": \"none\", \"needs\": \"stride[3] = 1 of k and v\"",
                   "fwd_decode\", \"decode");
        d.q_len = 129;
        check_said(ctx, &d, 0, "(here the last tile of each head)", "kernel: fwd_decode");
        d.q_len = rows, d.kv_heads = 2;
        check_said(ctx, &d, 0, "4 tiles, each with all heads of a group,", "not used: heads of a group as one tile");
        d.kv_heads = d.heads;
        d.dtype = MHA_F64, d.q_len = 1;
        check_said(ctx, &d, 0, "not used: fwd_decode: this ISA has no decode kernels\n", "\ndecode: ");
        d.dtype = MHA_F32, d.inputs = MHA_ATTN_CU_SEQLENS;
        d.q_len = d.kv_len = 200;
        check_said(ctx, &d, 0, "(here the tiles of short sequences)", "kernel: fwd_decode");
        d.max_q_len = rows;
        check_said(ctx, &d, 0, "(here all)", "kernel: fwd_tiled");
    }
}

/* The plan must use fwd_single_block if there are at most 128 keys and the mask consists of intervals only. */
static void test_describe_single_block(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++) {
        mha_attn_desc d = problem_valid;
        d.q_len = 130, d.kv_len = 128;
        d.outputs = MHA_ATTN_LSE;
        check_said(isa_contexts[c], &d, 0, "kernel: fwd_single_block", "not used: fwd_single_block");
        check_said(isa_contexts[c], &d, 1, "{\"kernel\": \"fwd_single_block\", \"decode\": null, ", "fwd_tiled");
        d.inputs = MHA_ATTN_KEEP;
        check_said(isa_contexts[c], &d, 0, "not used: fwd_single_block: only lengths, lists",
                   "kernel: fwd_single_block");
        d.inputs = 0, d.dtype = MHA_F16;
        check_said(isa_contexts[c], &d, 0, "not used: fwd_single_block: types other than f32",
                   "kernel: fwd_single_block");
        d.dtype = MHA_F32, d.kv_len = 129;
        check_said(isa_contexts[c], &d, 0, "not used: fwd_single_block: more keys than fit",
                   "kernel: fwd_single_block");
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_describe_copies),
        cmocka_unit_test(test_describe_outputs),
        cmocka_unit_test(test_describe_bytes),
        cmocka_unit_test(test_describe_wording),
        cmocka_unit_test(test_describe_decode),
        cmocka_unit_test(test_describe_single_block),
    };
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
