/* test_attn_memory.c - mha_attn_forward and mha_attn_backward must not allocate, and mha_attn_plan_create must handle
 * every failed allocation.
 *
 * The test counts the calls of two allocators: the allocator of the context, and malloc itself. This program replaces
 * malloc where the C library permits it (glibc without a sanitizer, because sanitizers replace malloc themselves). */
#include "support/alloc.h"
#include "support/attn/grads.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(MHA_SANITIZED)
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define MALLOC_IS_TAKEN
#endif
#endif
#else
#define MALLOC_IS_TAKEN
#endif

static atomic_long malloc_calls;

#ifndef MALLOC_IS_TAKEN
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&malloc_calls, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&malloc_calls, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&malloc_calls, 1);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    atomic_fetch_add(&malloc_calls, 1);
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **memory, size_t align, size_t bytes)
{
    atomic_fetch_add(&malloc_calls, 1);
    *memory = __libc_memalign(align, bytes);
    return *memory ? 0 : ENOMEM;
}
#endif

static const mha_attn_desc desc = {.size = sizeof desc,
                                   .batch = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .q_len = 70,
                                   .kv_len = 300,
                                   .head_dim = 48,
                                   .softcap = 5,
                                   .causal = 1,
                                   .align = MHA_ALIGN_BOTTOM_RIGHT,
                                   .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_KV_LENS,
                                   .top_keys = 4,
                                   .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS | MHA_ATTN_STATS | MHA_ATTN_GRADS};

static mha_ctx *counting_context(counting *c, const char *isa, int threads)
{
    mha_ctx *ctx;
    mha_error err = {0};
    mha_ctx_options options = {
        .size = sizeof options, .threads = threads, .isa = isa, .allocator = counting_allocator(c)};
    if (mha_ctx_create(&options, &ctx, &err) != MHA_OK) fail_msg("context: %s", err.message);
    return ctx;
}

static void check_passes_allocate_nothing(const char *isa, int threads)
{
    counting c = {.budget = -1};
    mha_ctx *ctx = counting_context(&c, isa, threads);
    mha_attn_plan *plan;
    mha_error err = {0};
    problem p;
    gradients g;
    problem_make(&p, &desc, NULL, 41);
    gradients_make(&g, &p, NULL, 42);
    if (mha_attn_plan_create(ctx, &desc, &plan, &err) != MHA_OK) fail_msg("plan: %s", err.message);
    size_t bytes = mha_attn_plan_workspace(plan);
    void *workspace = mha_alloc(ctx, bytes);
    /* the first call may start the workers of the context, so its allocations are not counted */
    assert_int_equal(mha_attn_forward(plan, &p.args, workspace, bytes, &err), MHA_OK);
    assert_int_equal(mha_attn_backward(plan, &p.args, &g.args, workspace, bytes, &err), MHA_OK);
    long before = atomic_load(&c.calls), malloc_before = atomic_load(&malloc_calls);
    for (int n = 0; n < 10; n++) {
        assert_int_equal(mha_attn_forward(plan, &p.args, workspace, bytes, &err), MHA_OK);
        assert_int_equal(mha_attn_backward(plan, &p.args, &g.args, workspace, bytes, &err), MHA_OK);
    }
    long calls = atomic_load(&c.calls) - before, malloc_used = atomic_load(&malloc_calls) - malloc_before;
    if (calls || malloc_used)
        fail_msg("%s, %d threads: the passes must not allocate (got %ld allocator calls, %ld malloc calls)", isa,
                 threads, calls, malloc_used);
    mha_free(ctx, workspace);
    mha_attn_plan_free(plan);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
    gradients_free(&g);
    problem_free(&p);
}

static void test_passes_allocate_nothing(void **state)
{
    (void)state;
    const char *names[PROBLEM_ISAS];
    int count = mha_isa_list(names, PROBLEM_ISAS);
#ifdef MALLOC_IS_TAKEN
    print_message("malloc calls are not counted in this build, only those of the context's allocator\n");
#endif
    const char *only = getenv("MHA_ISA"); /* if set, the only ISA to test, as in isas_create */
    for (int n = 0; n < count; n++)
        for (int threads = 1; threads <= 3; threads++)
            if (!only || strcmp(only, names[n]) == 0) check_passes_allocate_nothing(names[n], threads);
}

/* Runs mha_attention once with a budget of `budget` allocations. A failure must be MHA_ERR_MEMORY with a message, free
 * all memory, and leave the outputs unchanged. */
static void check_one_call(long budget, counting *c, mha_ctx *ctx, problem *p, bool *done)
{
    mha_error err = {0};
    long live = atomic_load(&c->live);
    atomic_store(&c->calls, 0);
    atomic_store(&c->budget, budget);
    mha_status status = mha_attention(ctx, &p->desc, &p->args, &err);
    atomic_store(&c->budget, -1);
    assert_int_equal(atomic_load(&c->live), live);
    *done = status == MHA_OK;
    if (*done) return;
    assert_int_equal(status, MHA_ERR_MEMORY);
    assert_int_equal(err.status, MHA_ERR_MEMORY);
    assert_non_null(strstr(err.message, "out of memory"));
    assert_true(tensor_get(&p->out, 0, 0, 0, 0) == TEST_CANARY);
}

static void test_failing_attention(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    mha_ctx *ctx = counting_context(&c, NULL, 2);
    problem p;
    problem_make(&p, &desc, NULL, 42);
    bool done = false;
    long budget = 0;
    for (; !done; budget++) {
        assert_true(budget < 1000);
        check_one_call(budget, &c, ctx, &p, &done);
    }
    assert_true(budget >= 2); /* at least the allocation of the workspace must have failed */
    problem_free(&p);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
}

static void test_failing_plan(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    mha_ctx *ctx = counting_context(&c, NULL, 1);
    long live = atomic_load(&c.live), failures = 0;
    mha_attn_plan *plan = NULL;
    for (long budget = 0; !plan; budget++) {
        mha_error err = {0};
        assert_true(budget < 1000);
        atomic_store(&c.calls, 0);
        atomic_store(&c.budget, budget);
        plan = (mha_attn_plan *)&err; /* plan must be set to NULL on failure */
        mha_status status = mha_attn_plan_create(ctx, &desc, &plan, &err);
        atomic_store(&c.budget, -1);
        if (status == MHA_OK) break;
        failures++;
        assert_int_equal(status, MHA_ERR_MEMORY);
        assert_null(plan);
        assert_int_equal(atomic_load(&c.live), live);
    }
    assert_true(failures > 0);
    mha_attn_plan_free(plan);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
}

/* The workspace must grow with L, not with L x L: for L = 8192, it must be less than 9 times the workspace for L =
 * 1024. */
static void test_workspace_is_linear(void **state)
{
    (void)state;
    size_t bytes[2];
    for (int n = 0; n < 2; n++) {
        mha_attn_plan *plan;
        mha_error err = {0};
        int64_t length = n ? 8192 : 1024;
        mha_attn_desc d = {.size = sizeof d, .batch = 1, .heads = 2, .q_len = length, .kv_len = length, .head_dim = 64};
        if (mha_attn_plan_create(NULL, &d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
        bytes[n] = mha_attn_plan_workspace(plan);
        mha_attn_plan_free(plan);
    }
    if (bytes[1] > 9 * bytes[0] + 4096)
        fail_msg("workspace must be linear in L (got %zu bytes for L = 1024, %zu bytes for L = 8192)", bytes[0],
                 bytes[1]);
}

/* Returns the memory of the forward and backward pass over 16,384 tokens, relative to the size of q, k, v, out and
 * their gradients. */
static double share_of_long(mha_ctx *ctx, mha_dtype dtype, int causal, int64_t kv_heads)
{
    const int64_t length = 16384, heads = 8, width = 64, row = 2 * (2 * heads + 2 * kv_heads) * width;
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .q_len = length,
                             .kv_len = length,
                             .head_dim = width,
                             .dtype = dtype,
                             .causal = causal,
                             .outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS};
    const double tensors = (double)(length * row) * (double)mha_dtype_size(dtype);
    const double lse = (double)(length * heads) * (dtype == MHA_F64 ? 8 : 4);
    mha_attn_plan *plan;
    mha_error err = {0};
    if (mha_attn_plan_create(ctx, &d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    const double workspace = (double)mha_attn_plan_workspace(plan);
    mha_attn_plan_free(plan);
    return (tensors + lse + workspace) / tensors;
}

/* Both passes must need less than 3 times the size of their tensors, including the tensors. Since the passes do not
 * allocate, the other memory is only lse and the workspace. The f32 scores of a single head would need 4 times the
 * limit. */
static void test_long_training_fits(void **state)
{
    (void)state;
    static const struct {
        mha_dtype dtype;
        int causal;
        int64_t kv_heads;
    } kinds[] = {{MHA_F32, 0, 8}, {MHA_F32, 1, 8}, {MHA_BF16, 1, 8}, {MHA_F16, 0, 2}, {MHA_F64, 1, 8}};
    double max = 0;
    for (int threads = 1; threads <= 1024; threads *= 2) {
        counting c = {.budget = -1};
        /* one context for all types, because creating many threads is slow under an emulator */
        mha_ctx *ctx = counting_context(&c, NULL, threads);
        for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
            const double share = share_of_long(ctx, kinds[n].dtype, kinds[n].causal, kinds[n].kv_heads);
            if (!(share < 3))
                fail_msg("%s, causal %d, %d threads: the passes must need less than 3 times the size of the tensors "
                         "(got %.2f times)",
                         mha_dtype_name(kinds[n].dtype), kinds[n].causal, threads, share);
            max = share > max ? share : max;
        }
        mha_ctx_free(ctx);
    }
    print_message("memory of the passes: at most %.2f times the size of q, k, v, out and their gradients\n", max);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes_allocate_nothing), cmocka_unit_test(test_failing_attention),
        cmocka_unit_test(test_failing_plan), cmocka_unit_test(test_workspace_is_linear),
        cmocka_unit_test(test_long_training_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
