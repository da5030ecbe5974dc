/* test_attn_calls_valid.c - calls at the limits of what is allowed: operands that overlap in the columns of one matrix,
 * no keys, no rows, extreme offsets, lengths without align. */
#include "support/attn/problem.h"
#include "support/check.h"
#include <math.h>
#include <string.h>

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

/* ---- edge cases that must succeed ---- */

static void test_no_keys(void **state)
{
    (void)state;
    mha_attn_desc d = problem_valid;
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
    mha_attn_desc d = problem_valid;
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
    mha_attn_desc d = problem_valid, causal = problem_valid;
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
    mha_attn_desc d = problem_valid;
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_columns),
        cmocka_unit_test(test_no_keys),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_far_offsets),
        cmocka_unit_test(test_unset_align_of_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
