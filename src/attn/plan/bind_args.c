/* bind_args.c - checks the arguments of a call and sets their strides. Later code relies on these checks. */
#include "attn/plan/map_lists.h"
#include "attn/plan/operand_table.h"
#include "attn/plan/params.h"
#include "attn/plan/rotary.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <inttypes.h>
#include <string.h>

enum { WORKSPACE_ALIGN = 64, RESULTS = MHA__OUTPUT_ROWS + MHA__STATS_ROWS };

/* ---- inputs ---- */

/* Lists the tables and positions of a rotary embedding. mha__rope_bind has set their strides. */
static int list_rope(const mha_attn_plan *plan, const mha_attn_rope *rope, mha__input *list)
{
    const size_t size = plan->kernels->real_size;
    const int64_t pairs = rope->rotary_dim / 2, rows[4] = {plan->desc.batch, plan->desc.max_q_len, 1, 1};
    const int64_t keys[4] = {plan->desc.batch, plan->desc.max_kv_len, 1, 1}, table[4] = {1, 1, rope->positions, pairs};
    const struct {
        const char *name;
        mha_cview view;
        const int64_t *shape;
        size_t size;
    } all[] = {{"rope.cos", {rope->cos, {0, 0, pairs, 1}}, table, size},
               {"rope.sin", {rope->sin, {0, 0, pairs, 1}}, table, size},
               {"rope.q_positions", rope->q_positions, rows, sizeof(int64_t)},
               {"rope.k_positions", rope->k_positions, keys, sizeof(int64_t)}};
    int count = 0;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const int64_t *e = all[n].shape;
        if (!all[n].view.data) continue;
        list[count++] = (mha__input){{all[n].name, all[n].view, {e[0], e[1], e[2], e[3]}, false}, all[n].size};
    }
    return count;
}

int mha__attn_inputs(const mha_attn_plan *plan, const mha_attn_args *a, mha__input list[MHA__INPUTS])
{
    int count = 0;
    for (int n = 0; n < MHA__INPUT_ROWS; n++) {
        const mha__operand_row *row = &mha__input_rows[n];
        if (!mha__operand_data(row, a) || !mha__operand_is_used(&plan->desc, row)) continue;
        if (row->element == MHA__OF_NONE) continue;
        list[count++] = (mha__input){mha__operand_at(plan, row, a), mha__element_bytes(plan, row->element)};
    }
    return a->rope ? count + list_rope(plan, a->rope, list + count) : count;
}

/* Checks an input and sets its strides. All-zero strides mean a contiguous view, unless the operand may be
 * broadcast. */
static mha_status bind_input(const mha_attn_plan *plan, const mha__operand_row *row, mha_attn_args *a, mha_error *err)
{
    MHA__TRY(mha__operand_check_flag(plan, row, a, err));
    if (!mha__operand_is_used(&plan->desc, row) || row->element == MHA__OF_NONE) return MHA_OK;
    mha__operand o = mha__operand_at(plan, row, a);
    if (!o.view.data && (row->facts & MHA__IS_OPTIONAL)) return MHA_OK;
    MHA__TRY(mha__operand_bind(&o, err));
    MHA__TRY(mha__operand_check_addresses(&o, mha__element_bytes(plan, row->element), err));
    if (!(row->facts & MHA__IS_ARRAY)) memcpy((char *)a + row->field, &o.view, sizeof o.view);
    return MHA_OK;
}

static mha_status bind_inputs(const mha_attn_plan *plan, mha_attn_args *a, mha_error *err)
{
    for (int n = 0; n < MHA__INPUT_ROWS; n++)
        MHA__TRY(bind_input(plan, &mha__input_rows[n], a, err));
    return MHA_OK;
}

/* Copies the user functions, and checks that their combination is valid. */
static mha_status bind_functions(mha__call *call, mha_error *err)
{
    mha_attn_functions *f = &call->functions;
    if (!(call->plan->desc.inputs & MHA_ATTN_FUNCTIONS)) return MHA_OK;
    MHA__TRY(mha__options_need(f, sizeof *f, call->args.functions, "mha_attn_functions", err));
    if (!f->score && !f->keep && !f->block)
        return mha__fail(err, MHA_ERR_ARG, "functions.score, keep or block must be set (got NULL for all)");
    if (f->score_added != 0 && f->score_added != 1)
        return mha__fail(err, MHA_ERR_ARG, "functions.score_added must be 0 or 1 (got %d)", f->score_added);
    if (!f->score && (f->score_back || f->score_added))
        return mha__fail(err, MHA_ERR_ARG, "functions.score must be set with score_back or score_added (got NULL)");
    if (f->score_back && f->score_added)
        return mha__fail(err, MHA_ERR_ARG, "functions.score_back must be NULL with score_added (got a function)");
    return MHA_OK;
}

/* Folds a view that has heads and rows: turns the heads of a group into rows of one head. With more than one query, the
 * rows of each head keep their stride, and the heads are mha__folded_stride apart. */
static void fold_view(const mha_attn_desc *d, const mha__operand_row *row, mha_attn_args *a)
{
    if (!(row->facts & (MHA__FOLDS_ONE | MHA__FOLDS_ROWS)) || !mha__operand_is_used(d, row)) return;
    int64_t *stride = (int64_t *)(void *)((char *)a + row->field + offsetof(mha_view, stride));
    if (d->q_len == 1) stride[2] = stride[1];
    stride[1] *= d->heads / d->kv_heads;
}

static void fold(const mha_attn_desc *d, mha_attn_args *a)
{
    for (int n = 0; n < MHA__INPUT_ROWS; n++)
        fold_view(d, &mha__input_rows[n], a);
    for (int n = 0; n < MHA__OUTPUT_ROWS; n++)
        fold_view(d, &mha__output_rows[n], a);
}

/* ---- results ---- */

static int list_results(const mha_attn_plan *plan, mha_attn_args *a, mha_attn_stats *stats, mha__result list[RESULTS])
{
    int count = 0;
    for (int n = 0; n < MHA__OUTPUT_ROWS; n++) {
        const mha__operand_row *row = &mha__output_rows[n];
        if (row->element != MHA__OF_NONE && mha__operand_is_used(&plan->desc, row))
            list[count++] = mha__result_at(plan, row, a);
    }
    for (int n = 0; n < MHA__STATS_ROWS && (plan->desc.outputs & MHA_ATTN_STATS); n++)
        if (mha__operand_data(&mha__stats_rows[n], stats))
            list[count++] = mha__result_at(plan, &mha__stats_rows[n], stats);
    return count;
}

/* Checks that an output overlaps neither an input nor another output. Only out may equal q, unless a list of heads
 * gives it a different shape. */
static mha_status check_apart(const mha_attn_plan *plan, const mha_attn_args *a, const mha__result list[], int count,
                              mha_error *err)
{
    const bool listed = plan->desc.inputs & MHA_ATTN_HEAD_LIST;
    mha__input in[MHA__INPUTS];
    mha__operand out[RESULTS];
    const int inputs = mha__attn_inputs(plan, a, in);
    for (int x = 0; x < count; x++) {
        const char *const more = x == 0 ? "; the only permitted overlap is exactly q" : "";
        out[x] = mha__operand_of(list[x].name, list[x].view, list[x].shape);
        for (int y = 0; y < inputs; y++) {
            if (x == 0 && y == 0 && !listed && mha__operand_same(&out[x], &in[y].operand)) continue;
            if (mha__operand_overlaps(&out[x], list[x].size, &in[y].operand, in[y].size))
                return mha__fail(err, MHA_ERR_ARG, "%s must not overlap %s%s", out[x].name, in[y].operand.name, more);
        }
        for (int y = 0; y < x; y++)
            if (mha__operand_overlaps(&out[x], list[x].size, &out[y], list[y].size))
                return mha__fail(err, MHA_ERR_ARG, "%s must not overlap %s", out[x].name, out[y].name);
    }
    return MHA_OK;
}

static mha_status bind_results(const mha_attn_plan *plan, mha__call *call, mha_error *err)
{
    mha__result list[RESULTS];
    for (int n = 0; n < MHA__OUTPUT_ROWS; n++)
        MHA__TRY(mha__operand_check_flag(plan, &mha__output_rows[n], &call->args, err));
    if (plan->desc.outputs & MHA_ATTN_STATS)
        MHA__TRY(mha__options_need(&call->stats, sizeof call->stats, call->args.stats, "mha_attn_stats", err));
    const int count = list_results(plan, &call->args, &call->stats, list);
    for (int n = 0; n < count; n++)
        MHA__TRY(mha__bind_output(list[n].name, list[n].view, list[n].shape, list[n].dims, list[n].size, err));
    return check_apart(plan, &call->args, list, count, err);
}

/* ---- pages ---- */

/* Checks the entries of the block table for keys within the lengths: each must be a page or -1. A call without queries
 * reads none of them. */
static mha_status check_block_table(const mha_attn_desc *d, const mha_attn_args *a, mha_error *err)
{
    for (int64_t b = 0; b < d->batch && d->q_len > 0; b++) {
        const int64_t used = mha__ceil_div(a->kv_lens ? a->kv_lens[b] : d->kv_len, d->page_size);
        for (int64_t n = 0; n < used; n++) {
            const int32_t page = *(const int32_t *)mha__at(&a->block_table, sizeof page, b, n, 0, 0);
            if (page < -1 || page >= d->pages)
                return mha__fail(err, MHA_ERR_ARG,
                                 "block_table[%" PRId64 "][%" PRId64 "] must be -1 (dropped) or below pages = %" PRId64
                                 " (got %" PRId32 ")",
                                 b, n, d->pages, page);
        }
    }
    return MHA_OK;
}

mha_status mha__attn_check_workspace(const void *workspace, size_t bytes, size_t need, mha_error *err)
{
    if (need > 0 && !workspace)
        return mha__fail(err, MHA_ERR_ARG, "workspace must not be NULL if %zu bytes are required", need);
    if (bytes < need) return mha__fail(err, MHA_ERR_ARG, "workspace_bytes must be at least %zu (got %zu)", need, bytes);
    if (need > 0 && (uintptr_t)workspace % WORKSPACE_ALIGN != 0)
        return mha__fail(err, MHA_ERR_ARG, "workspace must be aligned to %d bytes (got %p)", (int)WORKSPACE_ALIGN,
                         workspace);
    return MHA_OK;
}

mha_status mha__attn_bind_inputs(const mha_attn_plan *plan, const mha_attn_args *args, mha__call *call, mha_error *err)
{
    *call = (mha__call){.plan = plan};
    MHA__TRY(mha__options_need(&call->args, sizeof call->args, args, "mha_attn_args", err));
    MHA__TRY(bind_inputs(plan, &call->args, err));
    MHA__TRY(mha__rope_bind(call, err));
    MHA__TRY(mha__bind_lengths(call, err));
    MHA__TRY(mha__rope_check(call, err));
    MHA__TRY(bind_functions(call, err));
    return plan->desc.inputs & MHA_ATTN_BLOCK_TABLE ? check_block_table(&plan->desc, &call->args, err) : MHA_OK;
}

mha_status mha__attn_bind(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace, size_t workspace_bytes,
                          size_t need, mha__call *call, mha_error *err)
{
    MHA__TRY(mha__attn_check_workspace(workspace, workspace_bytes, need, err));
    MHA__TRY(mha__attn_bind_inputs(plan, args, call, err));
    call->workspace = workspace;
    MHA__TRY(mha__maps_check(call, err));
    MHA__TRY(bind_results(plan, call, err));
    if (plan->folded) fold(&plan->desc, &call->args);
    return MHA_OK;
}
