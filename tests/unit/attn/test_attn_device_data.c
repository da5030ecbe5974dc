/* test_attn_device_data.c - argument checks must not access tensor data, because it may be in device memory. All data
 * pointers point to inaccessible pages, and an invalid call must still fail with its error message. */
#include "mha/attn_grads.h"
#include "support/check.h"
#include <string.h>
#include <sys/mman.h>

enum { B = 2, H = 4, L = 8, D = 16, BYTES = 1 << 22, STEP = 1 << 16 };

static char *untouchable;

static void *data(int n)
{
    return untouchable + (size_t)n * STEP;
}

static mha_cview in(int n)
{
    return (mha_cview){.data = data(n)};
}

static mha_view out(int n)
{
    return (mha_view){.data = data(n)};
}

static mha_attn_desc desc_of(void)
{
    return (mha_attn_desc){.size = sizeof(mha_attn_desc),
                           .batch = B,
                           .heads = H,
                           .q_len = L,
                           .kv_len = L,
                           .head_dim = D,
                           .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES |
                                     MHA_ATTN_DROPOUT_KEEP | MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS,
                           .outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS};
}

static mha_attn_args args_of(void)
{
    static const int64_t lens[B] = {L, L - 1};
    mha_attn_args a = {.size = sizeof a, .q = in(0), .k = in(1), .v = in(2), .out = out(3), .lse = out(4)};
    a.keep = in(5), a.bias = in(6), a.slopes = in(7), a.sinks = in(8), a.gates = in(9), a.dropout_keep = in(10);
    a.kv_lens = a.q_lens = lens;
    return a;
}

static mha_attn_plan *plan_of(void **workspace, size_t *bytes)
{
    const mha_attn_desc d = desc_of();
    mha_attn_plan *plan;
    mha_error err;
    if (mha_attn_plan_create(NULL, &d, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    *bytes = mha_attn_plan_workspace(plan);
    *workspace = mha_alloc(NULL, *bytes);
    return plan;
}

static void forward_errors_do_not_access_data(void **state)
{
    void *workspace;
    size_t bytes;
    mha_error err;
    mha_attn_plan *plan = plan_of(&workspace, &bytes);
    mha_attn_args a = args_of();
    (void)state;
    a.lse = a.out; /* an overlap that is checked last */
    assert_int_equal(mha_attn_forward(plan, &a, workspace, bytes, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "lse must not overlap out");
    mha_free(NULL, workspace);
    mha_attn_plan_free(plan);
}

static void backward_errors_do_not_access_data(void **state)
{
    void *workspace;
    size_t bytes;
    mha_error err;
    mha_attn_plan *plan = plan_of(&workspace, &bytes);
    const mha_attn_args a = args_of();
    const mha_attn_grads g = {
        .size = sizeof g, .dout = in(11), .out = in(0), .lse = in(4), .dq = out(12), .dk = out(13)};
    (void)state;
    assert_int_equal(mha_attn_backward(plan, &a, &g, workspace, bytes, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "grads.out must not overlap q, because the forward pass overwrites it");
    mha_free(NULL, workspace);
    mha_attn_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_errors_do_not_access_data),
        cmocka_unit_test(backward_errors_do_not_access_data),
    };
    untouchable = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (untouchable == MAP_FAILED) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
