/* test_attn_packed_gradients.c - gradients of packed sequences must be bitwise identical to those of padded sequences,
 * for every mask and every operand with a gradient, on every ISA. */
#include "support/attn/grads.h"
#include "support/attn/packed.h"
#include "support/check.h"
#include "support/isas.h"
#include <math.h>
#include <stdio.h>

#define SIZES                                                                                                          \
    .size = sizeof(mha_attn_desc), .batch = 4, .heads = 4, .kv_heads = 2, .q_len = 150, .kv_len = 170, .head_dim = 24, \
    .v_head_dim = 20, .outputs = MHA_ATTN_LSE
#define LENGTHS (MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS)
static const struct {
    const char *name;
    mha_attn_desc desc;
} ways[] = {
    {"plain", {SIZES, .inputs = LENGTHS}},
    {"sequences of full length", {SIZES}},
    {"causal, top-left", {SIZES, .causal = 1, .align = MHA_ALIGN_TOP_LEFT, .inputs = LENGTHS}},
    {"causal, bottom-right, bias",
     {SIZES, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = LENGTHS | MHA_ATTN_BIAS}},
    {"keep, bias and softcap", {SIZES, .softcap = 3, .inputs = LENGTHS | MHA_ATTN_KEEP | MHA_ATTN_BIAS}},
    {"dropout, bias and blocks",
     {SIZES, .dropout = 0.3, .block_q = 20, .block_k = 7, .inputs = LENGTHS | MHA_ATTN_BLOCK_KEEP | MHA_ATTN_BIAS}},
    {"dropout from a given mask", {SIZES, .dropout = 0.3, .inputs = LENGTHS | MHA_ATTN_DROPOUT_KEEP}},
    {"window, slopes, sinks and gates",
     {SIZES, .window = {1, 30, 5}, .align = MHA_ALIGN_BOTTOM_RIGHT,
      .inputs = LENGTHS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES}},
    {"bf16, causal and bias",
     {SIZES, .dtype = MHA_BF16, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = LENGTHS | MHA_ATTN_BIAS}},
    {"bf16, dropout and keep", {SIZES, .dtype = MHA_BF16, .dropout = 0.3, .inputs = LENGTHS | MHA_ATTN_KEEP}},
    {"f64, bias", {SIZES, .dtype = MHA_F64, .inputs = LENGTHS | MHA_ATTN_BIAS}},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* Copies the rows of each padded sequence in `from` to the packed tensor `to`. */
static void pack(tensor *to, const tensor *from, const int64_t *cu, int64_t batch)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < to->dim[1]; h++)
            for (int64_t l = 0; l < cu[b + 1] - cu[b]; l++)
                for (int64_t d = 0; d < to->dim[3]; d++)
                    tensor_set(to, 0, h, cu[b] + l, d, tensor_get(from, b, h, l, d));
}

/* Compares one gradient of sequence b. `cu` holds the first rows of the packed sequences; it is NULL if the gradient
 * has the same layout in both problems. */
static void compare(const char *what, int which, const tensor *packed, const tensor *padded, const int64_t *cu,
                    int64_t b)
{
    const int64_t length = cu ? cu[b + 1] - cu[b] : packed->dim[2], first = cu ? cu[b] : 0;
    for (int64_t at = 0; at < packed->dim[1] * length * packed->dim[3]; at++) {
        const int64_t d = at % packed->dim[3], l = at / packed->dim[3] % length, h = at / packed->dim[3] / length;
        const double got = tensor_get(packed, cu ? 0 : b, h, first + l, d), want = tensor_get(padded, b, h, l, d);
        if (got != want || isnan(got))
            fail_msg("%s: gradient %d of sequence %d at [%d, %d, %d]: got %.9g packed, expected %.9g as padded", what,
                     which, (int)b, (int)h, (int)l, (int)d, got, want);
    }
}

/* Compares all gradients of the padded and the packed problem. dbias is per sequence and head if sum_axis < 0,
 * otherwise summed over that axis. */
static void check(mha_ctx *ctx, size_t way, int sum_axis)
{
    gradients_layouts layouts = {.with_dlse = true};
    problem p, packed;
    gradients g, h;
    char what[200];
    if (sum_axis >= 0) layouts.result[DBIAS].repeat[sum_axis] = true;
    snprintf(what, sizeof what, "%s: %s, dbias summed over axis %d", mha_ctx_isa(ctx), ways[way].name, sum_axis);
    problem_make(&p, &ways[way].desc, NULL, 71);
    problem_make(&packed, &ways[way].desc, NULL, 71);
    packed_make(&packed, 72 + way);
    gradients_make(&g, &p, &layouts, 73);
    gradients_make(&h, &packed, &layouts, 73);
    pack(&h.dout, &g.dout, packed.cu_q, p.desc.batch);
    pack(&h.dlse, &g.dlse, packed.cu_q, p.desc.batch);
    gradients_run(ctx, &p, &g);
    gradients_run(ctx, &packed, &h);
    for (int n = 0; n < RESULTS; n++)
        for (int64_t b = 0; b < p.desc.batch && g.result[n].memory; b++)
            compare(what, n, &h.result[n], &g.result[n],
                    n == DQ || n == ROW_TAYLOR ? packed.cu_q
                    : n <= DV                  ? packed.cu_k
                                               : NULL,
                    b);
    gradients_free(&g), gradients_free(&h);
    problem_free(&p), problem_free(&packed);
}

static void test_packed(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count; n++)
        for (size_t way = 0; way < WAYS; way++) {
            if (n >= isa_count_of(ways[way].desc.dtype)) continue;
            check(isa_contexts[n], way, -1);
            for (int axis = 0; axis < 2 && ways[way].desc.inputs & MHA_ATTN_BIAS; axis++)
                check(isa_contexts[n], way, axis);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
