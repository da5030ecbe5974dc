/* test_attn_fold.c - the operand table alone must determine which plans are folded, and which strides a folded call
 * changes. */
#include "attn/plan/operand_table.h"
#include "attn/plan/params.h"
#include "support/check.h"
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, GROUP = HEADS / KV_HEADS, KEYS = 300, WIDTH = 8, QUERIES_MAX = 3, BYTES = 1 << 16 };
enum { ROWS = MHA__INPUT_ROWS + MHA__OUTPUT_ROWS };

static const mha__operand_row *row_at(int n)
{
    return n < MHA__INPUT_ROWS ? &mha__input_rows[n] : &mha__output_rows[n - MHA__INPUT_ROWS];
}

/* Returns a plan for `queries` queries per head, with the flag of an operand row set. */
static mha_attn_plan *plan_with(const mha__operand_row *row, int64_t queries)
{
    mha_attn_plan *plan;
    mha_error err = {0};
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 1,
                       .heads = HEADS,
                       .kv_heads = KV_HEADS,
                       .q_len = queries,
                       .kv_len = KEYS,
                       .head_dim = WIDTH};
    const uint32_t flag = row->flag;
    if (row->facts & MHA__IS_RESULT)
        d.outputs = flag;
    else if (row->facts & MHA__BY_ALIGN)
        d.align = MHA_ALIGN_OFFSETS;
    else
        d.inputs = flag;
    if (d.inputs & (MHA_ATTN_SLOPES | MHA_ATTN_FUNCTIONS)) d.align = MHA_ALIGN_BOTTOM_RIGHT;
    if (d.inputs & MHA_ATTN_BLOCK_KEEP) d.block_q = d.block_k = 4;
    if (d.inputs & MHA_ATTN_BLOCK_TABLE) d.page_size = 16, d.pages = 20;
    if (d.inputs & MHA_ATTN_HEAD_LIST) d.listed_heads = 2;
    if (d.inputs & MHA_ATTN_MAP_HEADS) d.map_heads = 2, d.outputs = MHA_ATTN_PROBS;
    if (d.inputs & MHA_ATTN_MAP_ROWS) d.map_rows = 1, d.outputs = MHA_ATTN_PROBS;
    if (mha_attn_plan_create(NULL, &d, &plan, &err) != MHA_OK) fail_msg("%s: %s", row->name, err.message);
    return plan;
}

static void test_plans(void **state)
{
    (void)state;
    for (int n = 0; n < ROWS; n++)
        for (int64_t queries = 1; queries <= QUERIES_MAX; queries++) {
            const mha__operand_row *row = row_at(n);
            const uint32_t facts = MHA__FOLDS | MHA__FOLDS_ROWS | (queries == 1 ? MHA__FOLDS_ONE : 0);
            const bool flagged = row->flag != 0 && !(row->facts & MHA__BY_ALIGN);
            mha_attn_plan *plan = plan_with(row, queries);
            if (plan->folded != (!flagged || (row->facts & facts)))
                fail_msg("%s, %d queries: folded must be %d (got %d)", row->name, (int)queries, !plan->folded,
                         plan->folded);
            mha_attn_plan_free(plan);
        }
}

/* ---- strides ---- */

static bool is_view(const mha__operand_row *row)
{
    return row->element != MHA__OF_NONE && !(row->facts & MHA__IS_ARRAY);
}

static mha_view view_of(const mha_attn_args *a, const mha__operand_row *row)
{
    mha_view view;
    memcpy(&view, (const char *)a + row->field, sizeof view);
    return view;
}

/* Makes views with contiguous strides of the operands that the plan uses. The strides of all other views are the
 * largest integer, and a call must not read them. */
static mha_attn_args args_of(const mha_attn_plan *plan, char *memory)
{
    mha_attn_args a = {.size = sizeof a};
    for (int n = 0; n < ROWS; n++) {
        const mha__operand_row *row = row_at(n);
        if (!is_view(row)) continue;
        mha_view view = {NULL, {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
        if (mha__operand_is_used(&plan->desc, row)) {
            view.data = memory + (size_t)n * BYTES;
            view.stride[3] = 1;
            for (int i = 3; i > 0; i--)
                view.stride[i - 1] = view.stride[i] * mha__dimension_of(plan, row->shape[i]);
        }
        memcpy((char *)&a + row->field, &view, sizeof view);
    }
    return a;
}

static void check_strides(const mha_attn_plan *plan, const mha_attn_args *given, const mha_attn_args *bound)
{
    const int64_t queries = plan->desc.q_len;
    for (int n = 0; n < ROWS; n++) {
        const mha__operand_row *row = row_at(n);
        if (!is_view(row)) continue;
        mha_view want = view_of(given, row), got = view_of(bound, row);
        const bool folds = row->facts & (MHA__FOLDS_ROWS | MHA__FOLDS_ONE);
        if (folds && mha__operand_is_used(&plan->desc, row)) {
            if (queries == 1) want.stride[2] = want.stride[1];
            want.stride[1] *= GROUP;
        }
        if (memcmp(&want, &got, sizeof want) != 0)
            fail_msg("%s, %d queries: strides of heads and rows must be %lld, %lld (got %lld, %lld)", row->name,
                     (int)queries, (long long)want.stride[1], (long long)want.stride[2], (long long)got.stride[1],
                     (long long)got.stride[2]);
    }
}

static void test_strides(void **state)
{
    (void)state;
    char *memory = calloc(ROWS, BYTES);
    void *workspace = mha_alloc(NULL, BYTES);
    int folded = 0;
    for (int n = 0; n < ROWS; n++)
        for (int64_t queries = 1; queries <= QUERIES_MAX; queries++) {
            mha_error err = {0};
            mha__call call;
            mha_attn_plan *plan = plan_with(row_at(n), queries);
            const mha_attn_args args = args_of(plan, memory);
            if (plan->folded && is_view(row_at(n))) {
                if (mha__attn_bind(plan, &args, workspace, BYTES, 0, &call, &err) != MHA_OK)
                    fail_msg("%s: %s", row_at(n)->name, err.message);
                check_strides(plan, &args, &call.args);
                folded++;
            }
            mha_attn_plan_free(plan);
        }
    /* q, k, v, out, lse, partial and pages; keep, bias, block_keep, probs and scores */
    assert_int_equal(folded, 3 * 7 + 5);
    mha_free(NULL, workspace);
    free(memory);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans), cmocka_unit_test(test_strides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
