/* test_attn_calls.c - invalid calls must fail before anything is written. */
#include "support/attn/problem.h"
#include "support/check.h"
#include <string.h>

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
    mha_attn_desc d = problem_valid;
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
