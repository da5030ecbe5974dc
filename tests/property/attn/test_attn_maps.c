/* test_attn_maps.c - probs and scores of selected heads and rows must be bitwise identical to those of the full maps,
 * on every ISA. No other element may be written. */
#include "support/attn/packed.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t seed = 20261121;
/* ---- random selections of heads and rows ---- */

enum { HEADS_MAX = 12, ROWS_MAX = 6 };

typedef struct choice {
    int32_t heads[HEADS_MAX];
    int64_t rows[PROBLEM_BATCH][ROWS_MAX]; /* one list per sequence, or only rows[0] for all sequences */
    bool one_list;
} choice;

static int64_t heads_of(const problem *p)
{
    return p->desc.inputs & MHA_ATTN_HEAD_LIST ? p->desc.listed_heads : p->desc.heads;
}

static int64_t longest_row(const problem *p)
{
    return p->desc.max_q_len ? p->desc.max_q_len : p->desc.q_len;
}

static void choose(problem *p, choice *c, rng *r)
{
    mha_attn_desc *d = &p->desc;
    const int64_t longest = longest_row(p);
    const int which = (int)rng_range(r, 1, 3);
    *c = (choice){.one_list = rng_chance(r, 0.3)};
    if (which & 1) {
        d->inputs |= MHA_ATTN_MAP_HEADS;
        d->map_heads = rng_range(r, 1, HEADS_MAX);
    }
    if (which & 2) {
        d->inputs |= MHA_ATTN_MAP_ROWS;
        d->map_rows = rng_range(r, 1, ROWS_MAX);
    }
    for (int n = 0; n < HEADS_MAX; n++)
        c->heads[n] = (int32_t)rng_range(r, 0, heads_of(p) - 1);
    for (int64_t b = 0; b < PROBLEM_BATCH; b++)
        for (int n = 0; n < ROWS_MAX; n++)
            c->rows[b][n] =
                rng_chance(r, 0.4) ? rng_range(r, longest > 3 ? -3 : -longest, -1) : rng_range(r, 0, longest - 1);
}

/* Replaces a map with a tensor whose dimensions are those of the selection. */
static void shrink(problem *p, tensor *map)
{
    static const tensor_layout plain;
    const mha_attn_desc *d = &p->desc;
    const int64_t dim[4] = {map->dim[0], d->inputs & MHA_ATTN_MAP_HEADS ? d->map_heads : map->dim[1],
                            d->inputs & MHA_ATTN_MAP_ROWS ? d->map_rows : map->dim[2], map->dim[3]};
    const mha_dtype dtype = map->dtype;
    if (!map->memory) return;
    tensor_free(map);
    tensor_make(map, dtype, dim, &plain, TEST_CANARY);
}

static void bind(problem *p, const choice *c)
{
    shrink(p, &p->probs);
    shrink(p, &p->scores);
    problem_bind(p);
    if (p->desc.inputs & MHA_ATTN_MAP_HEADS) p->args.map_heads = c->heads;
    if (p->desc.inputs & MHA_ATTN_MAP_ROWS)
        p->args.map_rows = (mha_cview){c->rows, {c->one_list ? 0 : ROWS_MAX, 1, 0, 0}};
}

/* Returns the row of the full map that entry n of the selection names, or -1 if the sequence has no such row. */
static int64_t row_of(const problem *p, const choice *c, int64_t b, int64_t n)
{
    if (!(p->desc.inputs & MHA_ATTN_MAP_ROWS)) return n;
    const int64_t there = p->desc.inputs & MHA_ATTN_CU_SEQLENS ? p->cu_q[b + 1] - p->cu_q[b] : p->desc.q_len;
    const int64_t rows = p->desc.inputs & MHA_ATTN_Q_LENS ? p->q_lens[b] : there, row = c->rows[c->one_list ? 0 : b][n];
    const int64_t at = row < 0 ? row + rows : row;
    return at >= 0 && at < there ? at : -1;
}

static bool agrees(const problem *p, const choice *c, const tensor *some, const tensor *all)
{
    for (int64_t b = 0; b < some->dim[0] && some->memory; b++)
        for (int64_t n = 0; n < some->dim[1]; n++)
            for (int64_t i = 0; i < some->dim[2]; i++)
                for (int64_t j = 0; j < some->dim[3]; j++) {
                    const int64_t h = p->desc.inputs & MHA_ATTN_MAP_HEADS ? c->heads[n] : n, row = row_of(p, c, b, i);
                    const double got = tensor_get(some, b, n, i, j);
                    const double want = row >= 0 ? tensor_get(all, b, h, row, j) : TEST_CANARY;
                    if (got == want || (isnan(got) && isnan(want))) continue;
                    print_error("[%lld,%lld,%lld,%lld] = %.9g, expected %.9g (head %lld, row %lld)\n", (long long)b,
                                (long long)n, (long long)i, (long long)j, got, want, (long long)h, (long long)row);
                    return false;
                }
    return true;
}

/* ---- comparison with full maps ---- */

/* Runs a random problem with context n, unless its type does not need this ISA. */
static void check_case(int n, uint64_t number, bool packed)
{
    problem all, some;
    choice c;
    char text[400];
    rng r = rng_make(seed, number ^ UINT64_C(1) << 61);
    problem_random(&all, seed, number);
    problem_random(&some, seed, number);
    if (packed) packed_make(&all, number), packed_make(&some, number);
    if (n < isa_count_of(all.desc.dtype) && (all.desc.outputs & (MHA_ATTN_PROBS | MHA_ATTN_SCORES)) &&
        longest_row(&all) > 0) {
        mha_ctx *ctx = isa_contexts[n];
        choose(&some, &c, &r);
        bind(&some, &c);
        problem_run(ctx, &all);
        problem_run(ctx, &some);
        if (!agrees(&some, &c, &some.probs, &all.probs) || !agrees(&some, &c, &some.scores, &all.scores))
            fail_msg("%s: case %llu: selected maps must equal the full maps: %s", mha_ctx_isa(ctx),
                     (unsigned long long)number, problem_text(&some, text, sizeof text));
        tensor_free(&some.probs), tensor_free(&some.scores);
        assert_true(problem_same_bits(&some, &all)); /* compares all other outputs; the maps are freed */
    }
    problem_free(&all);
    problem_free(&some);
}

static void test_chosen(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++)
        for (uint64_t n = 0; n < 120; n++)
            check_case(c, n, false);
}

static void test_packed(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++)
        for (uint64_t n = 0; n < 120; n++)
            check_case(c, n, true);
}

/* Lists with invalid heads or rows, and a missing list, must be rejected. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int32_t head;
        int64_t row;
    } faults[] = {{"map_heads[1] must be from 0 to 2, a head of out (got 3)", 3, 0},
                  {"map_heads[1] must be from 0 to 2, a head of out (got -1)", -1, 0},
                  {"map_rows[1][2] must be from -9 to 8 (got 9)", 0, 9},
                  {"map_rows[1][2] must be from -9 to 8 (got -10)", 0, -10},
                  {"map_rows[1][2] must be from -9 to 8 (got 9223372036854775807)", 0, INT64_MAX}};
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 2,
                             .heads = 3,
                             .q_len = 9,
                             .kv_len = 9,
                             .head_dim = 8,
                             .map_heads = 2,
                             .map_rows = 3,
                             .inputs = MHA_ATTN_MAP_HEADS | MHA_ATTN_MAP_ROWS,
                             .outputs = MHA_ATTN_PROBS};
    for (size_t n = 0; n < sizeof faults / sizeof *faults + 2; n++) {
        problem p;
        choice c = {.one_list = false};
        char why[1200];
        const bool fault = n < sizeof faults / sizeof *faults;
        problem_make(&p, &d, NULL, 3);
        if (fault) c.heads[1] = faults[n].head, c.rows[1][2] = faults[n].row;
        bind(&p, &c);
        if (n == sizeof faults / sizeof *faults) p.args.map_heads = NULL;
        if (n == sizeof faults / sizeof *faults + 1) p.args.map_rows.data = NULL;
        assert_false(problem_try(NULL, &p, why, sizeof why));
        if (!strstr(why, fault ? faults[n].says : "must not be NULL")) fail_msg("%s", why);
        problem_free(&p);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_chosen), cmocka_unit_test(test_packed),
                                              cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, isa_setup_three, isa_teardown);
}
