/* test_attn_between_tiles.c - the between_tiles callback of a context must run on the calling thread, and can cancel
 * a call. */
#include "support/attn/grads.h"
#include "support/check.h"
#include <string.h>

enum { TILES = 8, THREADS = 3, UNTOUCHED = -7 };

typedef struct callback {
    int64_t calls, stop_at; /* number of the call that returns 1, counted from 1; 0 = none */
    int64_t begun, total;   /* progress passed to the latest call */
    bool wrong;             /* true after a call on another thread or with invalid counts */
    const char *caller;
} callback;

static _Thread_local char this_thread;

static int on_tile(void *user, int64_t begun, int64_t total)
{
    callback *c = user;
    c->wrong |= c->caller != &this_thread || begun < 1 || begun > total || (c->calls > 0 && begun < c->begun);
    c->begun = begun;
    c->total = total;
    return ++c->calls == c->stop_at;
}

static mha_ctx *context(callback *c, int threads)
{
    const mha_ctx_options options = {
        .size = sizeof options, .threads = threads, .between_tiles = on_tile, .between_tiles_user = c};
    mha_ctx *ctx;
    c->caller = &this_thread;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

/* Returns a description with one head and TILES tiles of 128 queries. */
static mha_attn_desc tiles_desc(void)
{
    return (mha_attn_desc){.size = sizeof(mha_attn_desc),
                           .batch = 1,
                           .heads = 1,
                           .q_len = 128 * TILES,
                           .kv_len = 200,
                           .head_dim = 16,
                           .outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS};
}

static mha_attn_plan *plan_of(mha_ctx *ctx, void **workspace, size_t *bytes)
{
    const mha_attn_desc d = tiles_desc();
    mha_attn_plan *plan;
    assert_int_equal(mha_attn_plan_create(ctx, &d, &plan, NULL), MHA_OK);
    *bytes = mha_attn_plan_workspace(plan);
    *workspace = mha_alloc(ctx, *bytes);
    assert_non_null(*workspace);
    return plan;
}

static void forward_is_counted(void **state)
{
    callback c = {0};
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        mha_ctx *with = context(&c, threads), *without;
        const mha_attn_desc d = tiles_desc();
        problem a, b;
        c = (callback){.caller = &this_thread};
        assert_int_equal(mha_ctx_create(NULL, &without, NULL), MHA_OK);
        problem_make(&a, &d, NULL, 5);
        problem_make(&b, &d, NULL, 5);
        problem_run(with, &a);
        problem_run(without, &b);
        assert_true(problem_same_bits(&a, &b));
        assert_false(c.wrong);
        if (threads == 1) assert_int_equal(c.calls, TILES);
        if (threads == 1) assert_int_equal(c.begun, TILES);
        if (c.calls > 0) assert_int_equal(c.total, TILES);
        problem_free(&a);
        problem_free(&b);
        mha_ctx_free(with);
        mha_ctx_free(without);
    }
}

static void forward_is_stopped(void **state)
{
    callback c = {0};
    mha_ctx *ctx = context(&c, 1);
    const mha_attn_desc d = tiles_desc();
    problem p, whole;
    void *workspace;
    size_t bytes;
    mha_error err;
    (void)state;
    problem_make(&p, &d, NULL, 6);
    problem_make(&whole, &d, NULL, 6);
    mha_attn_plan *plan = plan_of(ctx, &workspace, &bytes);
    for (int64_t i = 0; i < d.q_len; i++)
        tensor_set(&p.lse, 0, 0, i, 0, UNTOUCHED);
    c.stop_at = 3;
    assert_int_equal(mha_attn_forward(plan, &p.args, workspace, bytes, &err), MHA_ERR_CANCELED);
    assert_string_equal(err.message, "canceled by between_tiles: 3 of 8 tiles started");
    int64_t written = 0;
    for (int64_t i = 0; i < d.q_len; i++)
        written += tensor_get(&p.lse, 0, 0, i, 0) != UNTOUCHED;
    assert_int_equal(written, 3 * 128);
    c.stop_at = 0;
    /* the plan must remain usable after a canceled call */
    assert_int_equal(mha_attn_forward(plan, &p.args, workspace, bytes, &err), MHA_OK);
    assert_int_equal(mha_attn_forward(plan, &whole.args, workspace, bytes, &err), MHA_OK);
    assert_true(problem_same_bits(&p, &whole));
    mha_free(ctx, workspace);
    mha_attn_plan_free(plan);
    problem_free(&p);
    problem_free(&whole);
    mha_ctx_free(ctx);
}

static void backward_is_stopped(void **state)
{
    callback c = {0};
    mha_ctx *ctx = context(&c, 1);
    const mha_attn_desc d = tiles_desc();
    problem p;
    gradients g;
    void *workspace;
    size_t bytes;
    mha_error err;
    (void)state;
    problem_make(&p, &d, NULL, 7);
    problem_run(ctx, &p);
    gradients_make(&g, &p, NULL, 7);
    mha_attn_plan *plan = plan_of(ctx, &workspace, &bytes);
    c = (callback){.caller = &this_thread};
    assert_int_equal(mha_attn_backward(plan, &p.args, &g.args, workspace, bytes, &err), MHA_OK);
    assert_true(c.calls > 0 && !c.wrong);
    c = (callback){.caller = &this_thread, .stop_at = 1};
    assert_int_equal(mha_attn_backward(plan, &p.args, &g.args, workspace, bytes, &err), MHA_ERR_CANCELED);
    assert_int_equal(c.calls, 1);
    mha_free(ctx, workspace);
    mha_attn_plan_free(plan);
    gradients_free(&g);
    problem_free(&p);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_counted),
        cmocka_unit_test(forward_is_stopped),
        cmocka_unit_test(backward_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
