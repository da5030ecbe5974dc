/* test_attn_grad_calls.c - calls of the backward pass: error messages of invalid calls, failing allocations, and memory
 * use. (test_attn_memory.c tests that mha_attn_backward allocates nothing.) */
#include "support/alloc.h"
#include "support/attn/grads.h"
#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const mha_attn_desc desc = {.size = sizeof desc,
                                   .batch = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .q_len = 20,
                                   .kv_len = 30,
                                   .head_dim = 16,
                                   .v_head_dim = 8,
                                   .inputs = MHA_ATTN_BIAS | MHA_ATTN_SINKS | MHA_ATTN_KV_LENS,
                                   .outputs = MHA_ATTN_LSE};

/* A function that makes a valid call invalid, and the words that the error message must contain. */
typedef struct wrong {
    const char *field, *value; /* the error message must contain both */
    void (*spoil)(problem *p, gradients *g);
} wrong;

static void no_dout(problem *p, gradients *g)
{
    (void)p;
    g->args.dout.data = NULL;
}
static void no_out(problem *p, gradients *g)
{
    (void)p;
    g->args.out.data = NULL;
}
static void no_lse(problem *p, gradients *g)
{
    (void)p;
    g->args.lse.data = NULL;
}
static void no_q(problem *p, gradients *g)
{
    (void)g;
    p->args.q.data = NULL;
}
static void wrong_size(problem *p, gradients *g)
{
    (void)p;
    g->args.size = 12;
}
static void misaligned(problem *p, gradients *g)
{
    (void)p;
    g->args.dlse.data = (const char *)g->args.lse.data + 1;
}
static void overlapping_rows(problem *p, gradients *g)
{
    (void)p;
    g->args.dk = (mha_view){g->args.dk.data, {960, 480, 0, 1}};
}
static void far_strides(problem *p, gradients *g)
{
    (void)p;
    g->args.dbias.stride[0] = INT64_MAX / 2;
}
static void not_given(problem *p, gradients *g)
{
    (void)p;
    g->args.dslopes = g->args.dsinks;
}
static void dq_on_q(problem *p, gradients *g)
{
    g->args.dq.data = (void *)(uintptr_t)p->args.q.data;
}
static void dv_on_dout(problem *p, gradients *g)
{
    (void)p;
    g->args.dv.data = (void *)(uintptr_t)g->args.dout.data;
}
static void dk_on_dq(problem *p, gradients *g)
{
    (void)p;
    g->args.dk.data = g->args.dq.data;
}
static void out_on_q(problem *p, gradients *g)
{
    g->args.out.data = p->args.q.data;
}
static void dbias_on_bias(problem *p, gradients *g)
{
    g->args.dbias.data = (void *)(uintptr_t)p->args.bias.data;
}
static void taylor_on_lse(problem *p, gradients *g)
{
    (void)p;
    g->args.row_taylor.data = (void *)(uintptr_t)g->args.lse.data;
}
static void one_place(problem *p, gradients *g)
{
    (void)p;
    g->args.row_taylor.stride[0] = 0;
}
static void long_key(problem *p, gradients *g)
{
    (void)g;
    p->kv_lens[1] = 31;
}

static const wrong calls[] = {{"grads.dout", "NULL", no_dout},
                              {"grads.out", "NULL", no_out},
                              {"grads.lse", "NULL", no_lse},
                              {"q", "NULL", no_q},
                              {"mha_attn_grads.size", "12", wrong_size},
                              {"grads.dlse", "4", misaligned},
                              {"grads.dk.stride[2]", "0", overlapping_rows},
                              {"grads.dbias.stride", "4611686018427387903", far_strides},
                              {"grads.dslopes", "MHA_ATTN_SLOPES", not_given},
                              {"grads.dq", "q", dq_on_q},
                              {"grads.dv", "grads.dout", dv_on_dout},
                              {"grads.dk", "grads.dq", dk_on_dq},
                              {"grads.out", "q", out_on_q},
                              {"grads.dbias must not overlap", "bias", dbias_on_bias},
                              {"grads.row_taylor", "grads.lse", taylor_on_lse},
                              {"grads.row_taylor.stride[0]", "0", one_place},
                              {"kv_lens[1]", "31", long_key}};

static bool untouched(const gradients *g)
{
    for (int n = 0; n < RESULTS; n++) {
        const int64_t *dim = g->result[n].dim;
        for (int64_t at = 0; g->result[n].memory && at < dim[0] * dim[1] * dim[2] * dim[3]; at++)
            if (tensor_get(&g->result[n], at / dim[3] / dim[2] / dim[1], at / dim[3] / dim[2] % dim[1],
                           at / dim[3] % dim[2], at % dim[3]) != TEST_CANARY)
                return false;
    }
    return true;
}

static void check_refused(mha_attn_plan *plan, void *workspace, size_t bytes, const wrong *w)
{
    problem p;
    gradients g;
    mha_error err = {0};
    problem_make(&p, &desc, NULL, 61);
    gradients_make(&g, &p, NULL, 62);
    w->spoil(&p, &g);
    const mha_status status = mha_attn_backward(plan, &p.args, &g.args, workspace, bytes, &err);
    if (status != MHA_ERR_ARG || err.status != status || !strstr(err.message, w->field) ||
        !check_has_word(err.message, w->value))
        fail_msg("%s, %s: %s: %s", w->field, w->value, mha_status_text(status), err.message);
    assert_true(untouched(&g));
    gradients_free(&g);
    problem_free(&p);
}

static mha_attn_plan *plan_of(uint32_t outputs)
{
    mha_attn_desc d = desc;
    mha_attn_plan *plan;
    mha_error err = {0};
    d.outputs |= outputs;
    if (mha_attn_plan_create(NULL, &d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    return plan;
}

static void test_calls(void **state)
{
    (void)state;
    mha_attn_plan *plan = plan_of(MHA_ATTN_GRADS);
    const size_t bytes = mha_attn_plan_workspace(plan);
    void *workspace = mha_alloc(NULL, bytes);
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++)
        check_refused(plan, workspace, bytes, &calls[n]);
    mha_free(NULL, workspace);
    mha_attn_plan_free(plan);
}

static void expect(mha_status status, const mha_error *err, const char *words)
{
    assert_int_equal(status, MHA_ERR_ARG);
    if (!strstr(err->message, words)) fail_msg("message must contain \"%s\" (got \"%s\")", words, err->message);
}

static void test_plan_and_workspace(void **state)
{
    (void)state;
    problem p;
    gradients g;
    mha_error err = {0};
    problem_make(&p, &desc, NULL, 61);
    gradients_make(&g, &p, NULL, 62);
    mha_attn_plan *forward = plan_of(0), *plan = plan_of(MHA_ATTN_GRADS);
    const size_t bytes = mha_attn_plan_workspace(plan);
    char *workspace = mha_alloc(NULL, bytes + 64);
    expect(mha_attn_backward(NULL, &p.args, &g.args, workspace, bytes, &err), &err, "plan must not be NULL");
    expect(mha_attn_backward(forward, &p.args, &g.args, workspace, bytes, &err), &err, "MHA_ATTN_GRADS");
    expect(mha_attn_backward(plan, NULL, &g.args, workspace, bytes, &err), &err, "mha_attn_args must not be NULL");
    expect(mha_attn_backward(plan, &p.args, NULL, workspace, bytes, &err), &err, "mha_attn_grads must not be NULL");
    expect(mha_attn_backward(plan, &p.args, &g.args, NULL, bytes, &err), &err, "workspace must not be NULL");
    expect(mha_attn_backward(plan, &p.args, &g.args, workspace, bytes - 1, &err), &err, "workspace_bytes");
    expect(mha_attn_backward(plan, &p.args, &g.args, workspace + 1, bytes, &err), &err, "aligned");
    expect(mha_attention_backward(NULL, NULL, &p.args, &g.args, &err), &err, "mha_attn_desc must not be NULL");
    assert_true(untouched(&g));
    mha_free(NULL, workspace);
    mha_attn_plan_free(plan);
    mha_attn_plan_free(forward);
    gradients_free(&g);
    problem_free(&p);
}

/* Creating a plan with gradients must fail with MHA_ERR_UNSUPPORTED for features without a backward pass. */
static void test_not_built(void **state)
{
    (void)state;
    mha_attn_desc d = desc;
    mha_attn_plan *plan;
    mha_error err = {0};
    d.outputs |= MHA_ATTN_GRADS;
    d.kv_dtype = MHA_Q8_0;
    assert_int_equal(mha_attn_plan_create(NULL, &d, &plan, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "q8_0"));
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and leave the gradients
 * unchanged. */
static void test_failing_allocations(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 2, .allocator = counting_allocator(&c)};
    problem p;
    gradients g;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    problem_make(&p, &desc, NULL, 61);
    gradients_make(&g, &p, NULL, 62);
    const long live = atomic_load(&c.live);
    long failures = 0;
    for (long budget = 0;; budget++) {
        mha_error err = {0};
        atomic_store(&c.calls, 0);
        atomic_store(&c.budget, budget);
        const mha_status status = mha_attention_backward(ctx, &p.desc, &p.args, &g.args, &err);
        atomic_store(&c.budget, -1);
        assert_int_equal(atomic_load(&c.live), live);
        if (status == MHA_OK) break;
        failures++;
        assert_int_equal(status, MHA_ERR_MEMORY);
        assert_true(untouched(&g) && budget < 1000);
    }
    assert_true(failures >= 2 && !untouched(&g));
    gradients_free(&g);
    problem_free(&p);
    mha_ctx_free(ctx);
}

/* At L = 16,384, the forward and backward pass must need less than three times the memory of q, k, v, out and their
 * gradients. */
static void test_long_memory(void **state)
{
    (void)state;
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = 8,
                             .q_len = 16384,
                             .kv_len = 16384,
                             .head_dim = 64,
                             .outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS};
    const size_t all = 8 * sizeof(float) * 8 * 16384 * 64, lse = sizeof(float) * 8 * 16384;
    for (int threads = 1; threads <= 64; threads *= 4) {
        mha_ctx *ctx;
        mha_attn_plan *plan;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        assert_int_equal(mha_attn_plan_create(ctx, &d, &plan, NULL), MHA_OK);
        const size_t bytes = all + lse + mha_attn_plan_workspace(plan);
        print_message("%d threads: the passes need %.2f times the size of the tensors\n", threads,
                      (double)bytes / (double)all);
        assert_true(bytes < 3 * all);
        mha_attn_plan_free(plan);
        mha_ctx_free(ctx);
    }
}

/* The description of a plan with gradients must contain the backward pass. */
static void test_describe(void **state)
{
    (void)state;
    char text[4096];
    mha_attn_plan *plan = plan_of(MHA_ATTN_GRADS);
    mha_attn_plan_describe(plan, 0, text, sizeof text);
    assert_non_null(strstr(text, "backward: bwd_tiled, 4 tasks"));
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    assert_non_null(strstr(text, "\"backward\": {\"kernel\": \"bwd_tiled\", \"tasks\": 4, \"parts\": 1, "));
    mha_attn_plan_free(plan);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),       cmocka_unit_test(test_plan_and_workspace),
        cmocka_unit_test(test_not_built),   cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_long_memory), cmocka_unit_test(test_describe)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
