/* bind_args.c - checks the arguments of one call and fills in their strides. Part of params.h: the rest trusts what it
 * leaves. */
#include "attn/plan/params.h"
#include "attn/stats/attention_stats.h"
#include "attn/stats/requested_maps.h"
#include "base/error.h"
#include "base/size.h"
#include "math/q8_0.h"
#include <inttypes.h>

enum { WORKSPACE_ALIGN = 64, VIEWS = 9, ARRAYS = 8, RESULTS = 4 + MHA__STATS_RESULTS };

/* ---- inputs ---- */

static void list_qkv(const mha_attn_plan *plan, const mha_attn_args *args, mha__input list[MHA__QKV])
{
    const mha_attn_desc *d = &plan->desc;
    const bool paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
    const int64_t B = d->inputs & MHA_ATTN_CU_SEQLENS ? 1 : d->batch, Hkv = d->kv_heads;
    const int64_t pieces = paged ? d->pages : B, keys = paged ? d->page_size : d->kv_len;
    const int64_t k_width = mha__element_count(d->kv_dtype, d->head_dim);
    const int64_t v_width = mha__element_count(d->kv_dtype, d->v_head_dim);
    list[0] = (mha__input){{"q", args->q, {B, d->heads, d->q_len, d->head_dim}, false}, plan->q.size};
    list[1] = (mha__input){{"k", args->k, {pieces, Hkv, keys, k_width}, false}, plan->kv.size};
    list[2] = (mha__input){{"v", args->v, {pieces, Hkv, keys, v_width}, false}, plan->kv.size};
}

/* Mask blocks of one axis; a size of 0 means that there is no block mask. */
static int64_t blocks(int64_t length, int64_t size)
{
    return size > 0 ? mha__ceil_div(length, size) : 0;
}

/* The views that the description names. */
static int list_views(const mha_attn_plan *plan, const mha_attn_args *a, mha__input list[VIEWS])
{
    const mha_attn_desc *d = &plan->desc;
    const size_t real = plan->kernels->real_size;
    const int64_t B = d->batch, H = d->heads, rows = d->max_q_len, keys = d->max_kv_len;
    const struct {
        uint32_t input;
        mha__input view;
    } all[VIEWS] = {
        {MHA_ATTN_KEEP, {{"keep", a->keep, {B, H, rows, d->keep_keys}, true}, 1}},
        {MHA_ATTN_BIAS, {{"bias", a->bias, {B, H, rows, keys}, true}, plan->bias.size}},
        {MHA_ATTN_BLOCK_KEEP,
         {{"block_keep", a->block_keep, {B, H, blocks(rows, d->block_q), blocks(keys, d->block_k)}, true}, 1}},
        {MHA_ATTN_DROPOUT_KEEP, {{"dropout_keep", a->dropout_keep, {B, H, rows, keys}, true}, 1}},
        {MHA_ATTN_SLOPES, {{"slopes", a->slopes, {B, H, 1, 1}, true}, real}},
        {MHA_ATTN_SINKS, {{"sinks", a->sinks, {B, H, 1, 1}, true}, real}},
        {MHA_ATTN_GATES, {{"gates", a->gates, {B, H, 1, 1}, true}, real}},
        {MHA_ATTN_BLOCK_TABLE,
         {{"block_table", a->block_table, {B, blocks(d->kv_len, d->page_size), 1, 1}, false}, sizeof(int32_t)}},
        {MHA_ATTN_MAP_ROWS, {{"map_rows", a->map_rows, {B, d->map_rows, 1, 1}, false}, sizeof(int64_t)}}};
    int count = 0;
    for (int n = 0; n < VIEWS; n++)
        if (d->inputs & all[n].input) list[count++] = all[n].view;
    return count;
}

/* Its arrays; those that it does not name are NULL by now, or left out here. */
static int list_arrays(const mha_attn_plan *plan, const mha_attn_args *a, mha__input list[ARRAYS])
{
    const mha_attn_desc *d = &plan->desc;
    const int64_t B = d->batch;
    const struct {
        const char *name;
        const void *data;
        int64_t length;
        size_t size;
    } all[ARRAYS] = {
        {"q_lens", a->q_lens, B, sizeof(int64_t)},
        {"kv_lens", a->kv_lens, B, sizeof(int64_t)},
        {"offsets", d->align == MHA_ALIGN_OFFSETS ? a->offsets : NULL, B, sizeof(int64_t)},
        {"prefix_lens", a->prefix_lens, B, sizeof(int64_t)},
        {"cu_seqlens_q", a->cu_seqlens_q, B + 1, sizeof(int64_t)},
        {"cu_seqlens_k", a->cu_seqlens_k, B + 1, sizeof(int64_t)},
        {"head_list", d->inputs & MHA_ATTN_HEAD_LIST ? a->head_list : NULL, d->listed_heads, sizeof(int32_t)},
        {"map_heads", d->inputs & MHA_ATTN_MAP_HEADS ? a->map_heads : NULL, d->map_heads, sizeof(int32_t)}};
    int count = 0;
    for (int n = 0; n < ARRAYS; n++)
        if (all[n].data)
            list[count++] =
                (mha__input){{all[n].name, {all[n].data, {0, 0, 0, 1}}, {1, 1, 1, all[n].length}, false}, all[n].size};
    return count;
}

int mha__attn_inputs(const mha_attn_plan *plan, const mha_attn_args *a, mha__input list[MHA__INPUTS])
{
    int count = MHA__QKV;
    list_qkv(plan, a, list);
    count += list_views(plan, a, list + count);
    return count + list_arrays(plan, a, list + count);
}

static mha_status bind_qkv(const mha_attn_plan *plan, mha_attn_args *a, mha_error *err)
{
    mha__input qkv[MHA__QKV];
    list_qkv(plan, a, qkv);
    for (int n = 0; n < MHA__QKV; n++) {
        MHA__TRY(mha__operand_bind(&qkv[n].operand, err));
        MHA__TRY(mha__operand_place(&qkv[n].operand, qkv[n].size, err));
    }
    a->q = qkv[0].operand.view, a->k = qkv[1].operand.view, a->v = qkv[2].operand.view;
    return MHA_OK;
}

/* Those that broadcast; the others have strides to fill in and are bound where their entries are checked. */
static mha_status bind_views(const mha_attn_plan *plan, const mha_attn_args *a, mha_error *err)
{
    mha__input views[VIEWS];
    for (int n = 0, count = list_views(plan, a, views); n < count; n++) {
        if (!views[n].operand.broadcasts) continue;
        MHA__TRY(mha__operand_bind(&views[n].operand, err));
        MHA__TRY(mha__operand_place(&views[n].operand, views[n].size, err));
    }
    return MHA_OK;
}

/* Folded: the heads of a group become the rows of one head, in every view that has heads and rows; with more than one
 * query, those of each head lie as they did, mha__folded_stride from those of the one before. */
static void fold(const mha_attn_desc *d, mha_attn_args *a)
{
    int64_t *strides[] = {a->q.stride,      a->out.stride,  a->lse.stride, a->probs.stride,
                          a->scores.stride, a->keep.stride, a->bias.stride};
    for (size_t n = 0; n < sizeof strides / sizeof *strides; n++) {
        if (d->q_len == 1) strides[n][2] = strides[n][1];
        strides[n][1] *= d->heads / d->kv_heads;
    }
}

/* ---- results ---- */

static int list_results(const mha_attn_plan *plan, mha_attn_args *a, mha_attn_stats *stats, mha__result list[RESULTS])
{
    const mha_attn_desc *d = &plan->desc;
    const size_t real = plan->kernels->real_size;
    const int64_t B = plan->packed ? 1 : d->batch, H = d->listed_heads, Lq = d->q_len;
    int count = 0;
    int64_t map[4];
    mha__maps_extent(d, map);
    list[count++] = (mha__result){"out", &a->out, {B, H, Lq, d->v_head_dim}, 4, plan->q.size};
    if (d->outputs & MHA_ATTN_LSE) list[count++] = (mha__result){"lse", &a->lse, {B, H, Lq, 1}, 3, real};
    if (d->outputs & MHA_ATTN_PROBS)
        list[count++] = (mha__result){"probs", &a->probs, {map[0], map[1], map[2], map[3]}, 4, real};
    if (d->outputs & MHA_ATTN_SCORES)
        list[count++] = (mha__result){"scores", &a->scores, {map[0], map[1], map[2], map[3]}, 4, real};
    return d->outputs & MHA_ATTN_STATS ? count + mha__stats_results(plan, stats, list + count) : count;
}

/* What is written must meet neither what is read nor what else is written. Out may be exactly q, unless a list of heads
 * makes it another shape. */
static mha_status check_apart(const mha_attn_plan *plan, const mha_attn_args *a, const mha__result list[], int count,
                              mha_error *err)
{
    const bool listed = plan->desc.inputs & MHA_ATTN_HEAD_LIST;
    mha__input in[MHA__INPUTS];
    mha__operand out[RESULTS];
    const int inputs = mha__attn_inputs(plan, a, in);
    for (int x = 0; x < count; x++) {
        const char *const more = x == 0 ? "; it may be exactly q, nothing else" : "";
        out[x] = mha__operand_of(list[x].name, list[x].view, list[x].extent);
        for (int y = 0; y < inputs; y++) {
            if (x == 0 && y == 0 && !listed && mha__operand_same(&out[x], &in[y].operand)) continue;
            if (mha__operand_meet(&out[x], list[x].size, &in[y].operand, in[y].size))
                return mha__fail(err, MHA_ERR_ARG, "%s overlaps %s%s", out[x].name, in[y].operand.name, more);
        }
        for (int y = 0; y < x; y++)
            if (mha__operand_meet(&out[x], list[x].size, &out[y], list[y].size))
                return mha__fail(err, MHA_ERR_ARG, "%s overlaps %s", out[x].name, out[y].name);
    }
    return MHA_OK;
}

static mha_status bind_results(const mha_attn_plan *plan, mha__call *call, mha_error *err)
{
    mha__result list[RESULTS];
    if (plan->desc.outputs & MHA_ATTN_STATS) MHA__TRY(mha__stats_take(&call->args, &call->stats, err));
    const int count = list_results(plan, &call->args, &call->stats, list);
    for (int n = 0; n < count; n++)
        MHA__TRY(mha__bind_output(list[n].name, list[n].view, list[n].extent, list[n].dims, list[n].size, err));
    return check_apart(plan, &call->args, list, count, err);
}

/* ---- pages ---- */

/* Every entry that a key within the lengths needs: a page, or -1. */
static mha_status bind_block_table(const mha_attn_desc *d, mha_attn_args *a, mha_error *err)
{
    mha__operand table = {
        "block_table", a->block_table, {d->batch, mha__ceil_div(d->kv_len, d->page_size), 1, 1}, false};
    MHA__TRY(mha__operand_bind(&table, err));
    MHA__TRY(mha__operand_place(&table, sizeof(int32_t), err));
    a->block_table = table.view;
    for (int64_t b = 0; b < d->batch; b++) {
        const int64_t used = mha__ceil_div(a->kv_lens ? a->kv_lens[b] : d->kv_len, d->page_size);
        for (int64_t n = 0; n < used; n++) {
            const int32_t page = *(const int32_t *)mha__at(&a->block_table, sizeof page, b, n, 0, 0);
            if (page < -1 || page >= d->pages)
                return mha__fail(err, MHA_ERR_ARG,
                                 "block_table[%" PRId64 "][%" PRId64 "] = %" PRId32
                                 ": must be -1 (dropped) or below pages = %" PRId64,
                                 b, n, page, d->pages);
        }
    }
    return MHA_OK;
}

mha_status mha__attn_check_workspace(const void *workspace, size_t bytes, size_t need, mha_error *err)
{
    if (need > 0 && !workspace) return mha__fail(err, MHA_ERR_ARG, "workspace is NULL; %zu bytes are needed", need);
    if (bytes < need) return mha__fail(err, MHA_ERR_ARG, "workspace_bytes = %zu: %zu are needed", bytes, need);
    if (need > 0 && (uintptr_t)workspace % WORKSPACE_ALIGN != 0)
        return mha__fail(err, MHA_ERR_ARG, "workspace is not aligned to %d bytes", (int)WORKSPACE_ALIGN);
    return MHA_OK;
}

mha_status mha__attn_bind_inputs(const mha_attn_plan *plan, const mha_attn_args *args, mha__call *call, mha_error *err)
{
    if (!args) return mha__fail(err, MHA_ERR_ARG, "args is NULL");
    if (args->size != sizeof *args)
        return mha__fail(err, MHA_ERR_ARG, "args.size = %zu: must be sizeof(mha_attn_args) = %zu", args->size,
                         sizeof *args);
    *call = (mha__call){.plan = plan, .args = *args};
    MHA__TRY(mha__bind_lengths(call, err));
    if (plan->desc.inputs & MHA_ATTN_BLOCK_TABLE) MHA__TRY(bind_block_table(&plan->desc, &call->args, err));
    MHA__TRY(bind_qkv(plan, &call->args, err));
    return bind_views(plan, &call->args, err);
}

mha_status mha__attn_bind(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace, size_t workspace_bytes,
                          mha__call *call, mha_error *err)
{
    MHA__TRY(mha__attn_check_workspace(workspace, workspace_bytes, mha_attn_plan_workspace(plan), err));
    MHA__TRY(mha__attn_bind_inputs(plan, args, call, err));
    call->workspace = workspace;
    MHA__TRY(mha__maps_bind(call, err));
    MHA__TRY(bind_results(plan, call, err));
    if ((plan->desc.outputs & MHA_ATTN_ROWS) && !args->on_rows.rows)
        return mha__fail(err, MHA_ERR_ARG, "on_rows.rows is NULL");
    if (plan->folded) fold(&plan->desc, &call->args);
    return MHA_OK;
}
