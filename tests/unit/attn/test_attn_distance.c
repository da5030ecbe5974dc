/* test_attn_distance.c - a bias by distance: the forward pass must be bitwise identical to that with all elements of
 * the bias, and the gradient of the table must be the sum of dbias along each diagonal. */
#include "support/attn/grads.h"
#include "support/check.h"
#include "support/isas.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES .size = sizeof(mha_attn_desc), .batch = 2, .heads = 4, .kv_heads = 2, .head_dim = 24
enum { ROWS = 150, KEYS = 290 };
static const mha_attn_desc descriptions[] = {
    {SIZES, .q_len = ROWS, .kv_len = KEYS, .inputs = MHA_ATTN_BIAS},
    {SIZES, .q_len = KEYS, .kv_len = ROWS, .dtype = MHA_F64, .inputs = MHA_ATTN_BIAS},
    {SIZES, .q_len = ROWS, .kv_len = KEYS, .dtype = MHA_BF16, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT,
     .inputs = MHA_ATTN_BIAS | MHA_ATTN_KV_LENS},
    {SIZES, .q_len = 1, .kv_len = KEYS, .softcap = 4, .inputs = MHA_ATTN_BIAS},
    {SIZES, .q_len = KEYS, .kv_len = 1, .inputs = MHA_ATTN_BIAS},
    {SIZES, .q_len = ROWS, .kv_len = ROWS, .dropout = 0.3, .inputs = MHA_ATTN_BIAS | MHA_ATTN_Q_LENS},
    {SIZES, .q_len = ROWS, .kv_len = KEYS, .listed_heads = 3, .inputs = MHA_ATTN_BIAS | MHA_ATTN_HEAD_LIST},
};
enum { DESCRIPTIONS = sizeof descriptions / sizeof *descriptions };

/* A table [batch][heads][distances], or [heads][distances] summed over the batch, of the type of dbias. */
typedef struct table {
    void *memory;
    int64_t stride[4], first;
    size_t count;
} table;

static table table_of(const mha_attn_desc *d, bool summed)
{
    const int64_t W = d->q_len + d->kv_len - 1;
    table t = {.stride = {summed ? 0 : d->heads * W, W, -1, 1}, .first = d->q_len - 1};
    t.count = (size_t)(d->heads * W * (summed ? 1 : d->batch));
    t.memory = calloc(t.count, sizeof(double));
    if (!t.memory) abort();
    return t;
}

static void *data_of(const table *t, const mha_attn_desc *d)
{
    return (char *)t->memory + (size_t)t->first * (d->dtype == MHA_F64 ? sizeof(double) : sizeof(float));
}

static double number(const table *t, const mha_attn_desc *d, size_t at)
{
    return d->dtype == MHA_F64 ? ((const double *)t->memory)[at] : (double)((const float *)t->memory)[at];
}

/* Gives the bias one value per head and distance, and passes it as a table. */
static table share_bias(problem *p)
{
    const mha_attn_desc *d = &p->desc;
    const table t = table_of(d, false);
    for (int64_t at = 0; at < d->batch * d->heads * d->q_len * d->kv_len; at++) {
        const int64_t j = at % d->kv_len, i = at / d->kv_len % d->q_len, h = at / d->kv_len / d->q_len % d->heads;
        const int64_t b = at / d->kv_len / d->q_len / d->heads,
                      to = b * t.stride[0] + h * t.stride[1] + t.first + j - i;
        const double value = (double)(float)sin((double)(to % 97));
        tensor_set(&p->bias, b, h, i, j, value);
        if (d->dtype == MHA_F64)
            ((double *)t.memory)[to] = value;
        else
            ((float *)t.memory)[to] = (float)value;
    }
    return t;
}

static void pass_table(problem *p, const table *bias)
{
    p->args.bias.data = data_of(bias, &p->desc);
    memcpy(p->args.bias.stride, bias->stride, sizeof bias->stride);
}

/* Compares each element of the table with the sum of dbias over its diagonal; dbias is rounded to its type. */
static void check_table(const char *what, const problem *p, const gradients *g, const table *t, bool summed)
{
    const mha_attn_desc *d = &p->desc;
    const int64_t W = t->stride[1];
    const double unit = d->dtype == MHA_F64 ? DBL_EPSILON : FLT_EPSILON;
    for (int64_t at = 0; at < (int64_t)t->count; at++) {
        const int64_t distance = at % W - t->first, h = at / W % d->heads, b = at / W / d->heads;
        double sum = 0, size = 0;
        for (int64_t n = summed ? 0 : b; n <= (summed ? d->batch - 1 : b); n++)
            for (int64_t i = 0; i < d->q_len; i++) {
                if (i + distance < 0 || i + distance >= d->kv_len) continue;
                const double one = tensor_get(&g->result[DBIAS], n, h, i, i + distance);
                sum += one;
                size += fabs(one);
            }
        const double got = number(t, d, (size_t)at);
        if (!(fabs(got - sum) <= unit * (size + fabs(sum))))
            fail_msg("%s: head %d at distance %d: got %.17g, expected %.17g", what, (int)h, (int)distance, got, sum);
    }
}

/* Computes the gradient of the table alone. */
static table gradient(mha_ctx *ctx, problem *p, const gradients *g, bool summed)
{
    const table t = table_of(&p->desc, summed);
    mha_attn_grads grads = {
        .size = sizeof grads, .dout = g->args.dout, .out = g->args.out, .lse = g->args.lse, .dlse = g->args.dlse};
    mha_error err = {0};
    grads.dbias.data = data_of(&t, &p->desc);
    memcpy(grads.dbias.stride, t.stride, sizeof t.stride);
    if (mha_attention_backward(ctx, &p->desc, &p->args, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    return t;
}

static void check(mha_ctx *ctx, mha_ctx *three, int which, bool summed)
{
    mha_attn_desc d = descriptions[which];
    char what[80];
    problem p, same;
    gradients g;
    d.outputs = MHA_ATTN_LSE;
    snprintf(what, sizeof what, "%s: description %d, %s", mha_ctx_isa(ctx), which, summed ? "summed" : "per batch");
    problem_make(&p, &d, NULL, 5);
    problem_make(&same, &d, NULL, 5);
    const table bias = share_bias(&p);
    gradients_make(&g, &p, NULL, 6);
    gradients_run(ctx, &p, &g);
    pass_table(&same, &bias);
    problem_run(ctx, &same);
    assert_true(problem_same_bits(&p, &same));
    pass_table(&p, &bias);
    const table one = gradient(ctx, &p, &g, summed), two = gradient(three, &p, &g, summed);
    check_table(what, &p, &g, &one, summed);
    assert_memory_equal(one.memory, two.memory, one.count * sizeof(double));
    free(bias.memory), free(one.memory), free(two.memory);
    gradients_free(&g);
    problem_free(&p), problem_free(&same);
}

static void test_gradient_of_the_table(void **state)
{
    (void)state;
    mha_ctx *three[PROBLEM_ISAS];
    const int isas = isas_create(three, 3);
    for (int n = 0; n < isas; n++)
        for (int which = 0; which < DESCRIPTIONS; which++)
            check(isa_contexts[n], three[n], which, which % 2);
    isas_free(three, isas);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradient_of_the_table)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
