/* test_attn_rows.c - the on_rows callback must receive every row exactly once and in order, bitwise identical to the
 * full maps and statistics. Other results must not change. Tested for all masks, layouts, types and lists, on every
 * ISA. */
#include "support/attn/packed.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdlib.h>
#include <string.h>

static const uint64_t seed = 20261122;

/* ---- a callback that stores the rows it receives ---- */

typedef struct shown_row {
    int64_t keys, order; /* order: 1 for the first row received of its head and sequence, and so on; 0 = not received */
    double entropy, largest, distance;
    int64_t largest_key;
} shown_row;

typedef struct seen {
    int64_t heads, rows, keys;
    bool wide;
    shown_row *row;  /* [B, heads, rows] */
    double *p;       /* [B, heads, rows, keys] */
    int64_t *number; /* [B, heads]: number of rows received */
} seen;

static int64_t heads_of(const problem *p)
{
    return p->desc.inputs & MHA_ATTN_HEAD_LIST ? p->desc.listed_heads : p->desc.heads;
}

static seen seen_make(const problem *p)
{
    const mha_attn_desc *d = &p->desc;
    seen s = {.heads = heads_of(p),
              .rows = d->max_q_len ? d->max_q_len : d->q_len,
              .keys = d->max_kv_len ? d->max_kv_len : d->kv_len,
              .wide = d->dtype == MHA_F64};
    const size_t all = (size_t)(d->batch * s.heads * s.rows);
    s.row = calloc(all + 1, sizeof *s.row);
    s.p = calloc(all * (size_t)s.keys + 1, sizeof *s.p);
    s.number = calloc((size_t)(d->batch * s.heads) + 1, sizeof *s.number);
    assert_true(s.row && s.p && s.number);
    return s;
}

static void seen_free(seen *s)
{
    free(s->row);
    free(s->p);
    free(s->number);
}

/* Callback: stores the rows that it receives. Each call writes only elements of one head and sequence. */
static void keep(void *user, const mha_attn_rows *r)
{
    const seen *s = user;
    const int64_t head = r->sequence * s->heads + r->head;
    for (int64_t n = 0; n < r->count; n++) {
        const int64_t at = head * s->rows + r->first + n;
        s->row[at] =
            (shown_row){r->keys, ++s->number[head], r->entropy[n], r->largest[n], r->distance[n], r->largest_key[n]};
        for (int64_t j = 0; j < r->keys; j++)
            s->p[at * s->keys + j] =
                s->wide ? ((const double *)r->p)[n * r->stride + j] : (double)((const float *)r->p)[n * r->stride + j];
    }
}

static void show_to(problem *p, seen *s)
{
    p->desc.outputs |= MHA_ATTN_ROWS;
    p->args.on_rows = (mha_attn_visitor){keep, s};
}

/* ---- expected rows and statistics ---- */

static int64_t rows_of(const problem *p, int64_t b)
{
    if (p->desc.inputs & MHA_ATTN_Q_LENS) return p->q_lens[b];
    return p->desc.inputs & MHA_ATTN_CU_SEQLENS ? p->cu_q[b + 1] - p->cu_q[b] : p->desc.q_len;
}

static int64_t keys_of(const problem *p, int64_t b)
{
    if (p->desc.inputs & MHA_ATTN_KV_LENS) return p->kv_lens[b];
    const bool packed = (p->desc.inputs & MHA_ATTN_CU_SEQLENS) && !(p->desc.inputs & MHA_ATTN_BLOCK_TABLE);
    return packed ? p->cu_k[b + 1] - p->cu_k[b] : p->desc.kv_len;
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Returns statistic `which` of row (b, h, i). Packed problems store their sequences one after another. */
static double statistic(const problem *p, int which, int64_t b, int64_t h, int64_t i)
{
    const bool packed = p->desc.inputs & MHA_ATTN_CU_SEQLENS;
    return tensor_get(&p->stats[which], packed ? 0 : b, h, packed ? p->cu_q[b] + i : i, 0);
}

static bool row_agrees(const problem *p, const seen *s, int64_t b, int64_t h, int64_t i)
{
    const int64_t at = (b * s->heads + h) * s->rows + i;
    const shown_row *r = &s->row[at];
    if (r->order != i + 1 || r->keys != keys_of(p, b)) return false;
    for (int64_t j = 0; j < r->keys && p->probs.memory; j++)
        if (!same(s->p[at * s->keys + j], tensor_get(&p->probs, b, h, i, j))) return false;
    if (!(p->desc.outputs & MHA_ATTN_STATS)) return true;
    const double entropy = s->wide ? r->entropy : (double)(float)r->entropy;
    const double distance = s->wide ? r->distance : (double)(float)r->distance;
    return same(entropy, statistic(p, ROW_ENTROPY, b, h, i)) && same(r->largest, statistic(p, ROW_MAX, b, h, i)) &&
           same(distance, statistic(p, ROW_DISTANCE, b, h, i)) &&
           (double)r->largest_key == statistic(p, ROW_ARGMAX, b, h, i);
}

/* Returns true if every existing row was received exactly once and in order, and no other row. */
static bool agrees(const problem *p, const seen *s)
{
    for (int64_t b = 0; b < p->desc.batch; b++)
        for (int64_t h = 0; h < s->heads; h++) {
            const int64_t rows = rows_of(p, b);
            if (s->number[b * s->heads + h] != rows) return false;
            for (int64_t i = 0; i < rows; i++)
                if (!row_agrees(p, s, b, h, i)) return false;
        }
    return true;
}

/* ---- comparison with the full maps ---- */

static void compare(mha_ctx *ctx, problem *p, problem *plain, uint64_t number)
{
    char text[400];
    seen s = seen_make(p);
    show_to(p, &s);
    problem_run(ctx, p);
    if (!agrees(p, &s))
        fail_msg("%s: case %llu: rows passed to on_rows must equal the maps: %s", mha_ctx_isa(ctx),
                 (unsigned long long)number, problem_text(p, text, sizeof text));
    problem_run(ctx, plain);
    assert_true(problem_same_bits(p, plain));
    seen_free(&s);
}

/* Runs a random problem with context c, unless its type does not need this ISA. */
static void check_case(int c, uint64_t number, uint32_t outputs, bool packed)
{
    problem plain, p;
    if (outputs)
        problem_random_for(&p, outputs, seed, number), problem_random_for(&plain, outputs, seed, number);
    else
        problem_random(&p, seed, number), problem_random(&plain, seed, number);
    if (packed) packed_make(&p, number), packed_make(&plain, number);
    if (c < isa_count_of(p.desc.dtype)) compare(isa_contexts[c], &p, &plain, number);
    problem_free(&p);
    problem_free(&plain);
}

static void test_random(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++)
        for (uint64_t n = 0; n < 100; n++) {
            check_case(c, n, 0, false);
            check_case(c, n, MHA_ATTN_PROBS | MHA_ATTN_STATS, false);
        }
}

static void test_packed(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count; c++)
        for (uint64_t n = 0; n < 100; n++) {
            check_case(c, n, 0, true);
            check_case(c, n, MHA_ATTN_PROBS | MHA_ATTN_STATS, true);
        }
}

/* Tests long rows: several tiles and key chunks, all masks of a causal model, and several threads. */
static void test_long(void **state)
{
    (void)state;
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .q_len = 300,
                             .kv_len = 1300,
                             .head_dim = 24,
                             .causal = 1,
                             .align = MHA_ALIGN_BOTTOM_RIGHT,
                             .window = {1, 1100, 0},
                             .inputs = MHA_ATTN_KEEP | MHA_ATTN_SINKS | MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS,
                             .outputs = MHA_ATTN_STATS | MHA_ATTN_PROBS};
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        problem p;
        problem_make(&p, &d, NULL, 61);
        seen s = seen_make(&p);
        show_to(&p, &s);
        problem_run(isa_contexts[c], &p);
        if (!agrees(&p, &s)) fail_msg("%s", mha_ctx_isa(isa_contexts[c]));
        seen_free(&s);
        problem_free(&p);
    }
}

/* Listed heads and rows must be received once and in order, for any order of the lists. Other heads and rows must not
 * be computed. */
static void test_lists(void **state)
{
    (void)state;
    static const int32_t heads[3] = {2, 0, 2};
    static const int64_t rows[5] = {-1, 5, 130, 5, 6};
    static const int64_t order[150] = {[5] = 1, [6] = 2, [130] = 3, [149] = 4};
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 1,
                       .heads = 3,
                       .q_len = 150,
                       .kv_len = 140,
                       .head_dim = 16,
                       .outputs = MHA_ATTN_PROBS};
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        problem all, some;
        problem_make(&all, &d, NULL, 62);
        problem_run(isa_contexts[c], &all);
        d.outputs = 0;
        problem_make(&some, &d, NULL, 62);
        seen s = seen_make(&some);
        show_to(&some, &s);
        some.desc.inputs |= MHA_ATTN_MAP_HEADS | MHA_ATTN_MAP_ROWS;
        some.desc.map_heads = 3;
        some.desc.map_rows = 5;
        some.args.map_heads = heads;
        some.args.map_rows = (mha_cview){rows, {0, 1, 0, 0}};
        problem_run(isa_contexts[c], &some);
        for (int64_t h = 0; h < 3; h++)
            for (int64_t i = 0; i < 150; i++) {
                const int64_t at = h * 150 + i;
                assert_int_equal(s.row[at].order, h == 1 ? 0 : order[i]);
                for (int64_t j = 0; j < 140 && s.row[at].order; j++)
                    assert_true(s.p[at * 140 + j] == tensor_get(&all.probs, 0, h, i, j));
            }
        seen_free(&s);
        problem_free(&some);
        problem_free(&all);
        d.outputs = MHA_ATTN_PROBS;
    }
}

/* The workspace must grow with the number of keys, not with rows times keys. */
static void test_workspace(void **state)
{
    (void)state;
    size_t before = 0;
    for (int n = 0; n < 3 * isa_count; n++) {
        const int64_t L = INT64_C(1024) << n % 3;
        const mha_attn_desc d = {.size = sizeof d,
                                 .batch = 1,
                                 .heads = 12,
                                 .q_len = L,
                                 .kv_len = L,
                                 .head_dim = 64,
                                 .outputs = MHA_ATTN_ROWS};
        mha_attn_plan *plan;
        assert_int_equal(mha_attn_plan_create(isa_contexts[n / 3], &d, &plan, NULL), MHA_OK);
        const size_t bytes = mha_attn_plan_workspace(plan);
        if (n % 3 > 0) assert_true(bytes < 2 * before);
        before = bytes;
        mha_attn_plan_free(plan);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    mha_attn_desc d = {
        .size = sizeof d, .batch = 1, .heads = 2, .q_len = 3, .kv_len = 3, .head_dim = 4, .outputs = MHA_ATTN_ROWS};
    problem p;
    char why[1200];
    problem_make(&p, &d, NULL, 63);
    assert_false(problem_try(NULL, &p, why, sizeof why));
    if (!strstr(why, "on_rows must not be NULL")) fail_msg("%s", why);
    p.desc.outputs = MHA_ATTN_LSE;
    p.desc.inputs = MHA_ATTN_MAP_HEADS;
    p.desc.map_heads = 1;
    assert_false(problem_try(NULL, &p, why, sizeof why));
    if (!strstr(why,
                "map_heads must be 0 unless outputs contains MHA_ATTN_PROBS, MHA_ATTN_SCORES or MHA_ATTN_ROWS (got 1)"))
        fail_msg("%s", why);
    problem_free(&p);
}

/* The description of a plan must list on_rows. */
static void test_described(void **state)
{
    (void)state;
    const mha_attn_desc d = {
        .size = sizeof d, .batch = 1, .heads = 2, .q_len = 3, .kv_len = 3, .head_dim = 4, .outputs = MHA_ATTN_ROWS};
    mha_attn_plan *plan;
    char text[8192];
    assert_int_equal(mha_attn_plan_create(NULL, &d, &plan, NULL), MHA_OK);
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    assert_non_null(strstr(text, "\"on_rows\": true"));
    mha_attn_plan_describe(plan, 0, text, sizeof text);
    assert_non_null(strstr(text, "written: out, on_rows; the scores of these rows are computed a second time"));
    mha_attn_plan_free(plan);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),    cmocka_unit_test(test_packed),    cmocka_unit_test(test_long),
        cmocka_unit_test(test_lists),     cmocka_unit_test(test_workspace), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_described),
    };
    return cmocka_run_group_tests(tests, isa_setup_three, isa_teardown);
}
