/* bind.c - checks the arguments of one call and fills in their strides. Part of params.h: the rest trusts what it
 * leaves. */
#include "attn/maps.h"
#include "attn/params.h"
#include "attn/stats.h"
#include "base/error.h"
#include "base/q8.h"
#include "base/size.h"
#include <inttypes.h>

enum { WORKSPACE_ALIGN = 64, QKV = 3, RESULTS = 4 };

void mha__attn_operands(const mha_attn_plan *plan, const mha_attn_args *args, mha__operand qkv[QKV])
{
    const mha_attn_desc *d = &plan->desc;
    const bool paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
    const int64_t B = d->inputs & MHA_ATTN_CU_SEQLENS ? 1 : d->batch, Hkv = d->kv_heads;
    const int64_t pieces = paged ? d->pages : B, keys = paged ? d->page_size : d->kv_len;
    const int64_t k_width = mha__element_count(d->kv_dtype, d->head_dim);
    const int64_t v_width = mha__element_count(d->kv_dtype, d->v_head_dim);
    qkv[0] = (mha__operand){"q", args->q, {B, d->heads, d->q_len, d->head_dim}, false};
    qkv[1] = (mha__operand){"k", args->k, {pieces, Hkv, keys, k_width}, false};
    qkv[2] = (mha__operand){"v", args->v, {pieces, Hkv, keys, v_width}, false};
}

static mha_status bind_qkv(const mha_attn_plan *plan, mha_attn_args *a, mha_error *err)
{
    mha__operand qkv[QKV];
    mha__attn_operands(plan, a, qkv);
    for (int n = 0; n < QKV; n++) {
        MHA__TRY(mha__operand_bind(&qkv[n], err));
        MHA__TRY(mha__operand_place(&qkv[n], n ? plan->kv.size : plan->q.size, err));
    }
    a->q = qkv[0].view, a->k = qkv[1].view, a->v = qkv[2].view;
    return MHA_OK;
}

/* Mask blocks of one axis; a size of 0 means that there is no block mask. */
static int64_t blocks(int64_t length, int64_t size)
{
    return size > 0 ? mha__ceil_div(length, size) : 0;
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

static mha_status bind_extras(const mha_attn_plan *plan, mha_attn_args *a, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    const size_t real = plan->kernels->real_size;
    const int64_t B = d->batch, H = d->heads, rows = d->max_q_len, keys = d->max_kv_len;
    struct {
        uint32_t input;
        size_t size;
        mha__operand view;
    } inputs[] = {{MHA_ATTN_KEEP, 1, {"keep", a->keep, {B, H, rows, d->keep_keys}, true}},
                  {MHA_ATTN_BIAS, plan->bias.size, {"bias", a->bias, {B, H, rows, keys}, true}},
                  {MHA_ATTN_BLOCK_KEEP,
                   1,
                   {"block_keep", a->block_keep, {B, H, blocks(rows, d->block_q), blocks(keys, d->block_k)}, true}},
                  {MHA_ATTN_DROPOUT_KEEP, 1, {"dropout_keep", a->dropout_keep, {B, H, rows, keys}, true}},
                  {MHA_ATTN_SLOPES, real, {"slopes", a->slopes, {B, H, 1, 1}, true}},
                  {MHA_ATTN_SINKS, real, {"sinks", a->sinks, {B, H, 1, 1}, true}},
                  {MHA_ATTN_GATES, real, {"gates", a->gates, {B, H, 1, 1}, true}}};
    for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++)
        if (d->inputs & inputs[n].input) {
            MHA__TRY(mha__operand_bind(&inputs[n].view, err));
            MHA__TRY(mha__operand_place(&inputs[n].view, inputs[n].size, err));
        }
    return MHA_OK;
}

/* ---- results ---- */

/* What a call writes, but for statistics. */
typedef struct result {
    const char *name;
    mha_view *view;
    int64_t extent[4];
    int dims; /* axes that count: the stride of the fourth is not used with three */
    size_t size;
} result;

static int list_results(const mha_attn_plan *plan, mha_attn_args *a, result list[RESULTS])
{
    const mha_attn_desc *d = &plan->desc;
    const size_t real = plan->kernels->real_size;
    const int64_t B = plan->packed ? 1 : d->batch, H = d->listed_heads, Lq = d->q_len;
    int count = 0;
    int64_t map[4];
    mha__maps_extent(d, map);
    list[count++] = (result){"out", &a->out, {B, H, Lq, d->v_head_dim}, 4, plan->q.size};
    if (d->outputs & MHA_ATTN_LSE) list[count++] = (result){"lse", &a->lse, {B, H, Lq, 1}, 3, real};
    if (d->outputs & MHA_ATTN_PROBS)
        list[count++] = (result){"probs", &a->probs, {map[0], map[1], map[2], map[3]}, 4, real};
    if (d->outputs & MHA_ATTN_SCORES)
        list[count++] = (result){"scores", &a->scores, {map[0], map[1], map[2], map[3]}, 4, real};
    return count;
}

/* What is written must meet neither what is read nor what else is written. Out may be exactly q, unless a list of heads
 * makes it another shape. */
static mha_status check_apart(const mha_attn_plan *plan, const mha_attn_args *a, const result list[], int count,
                              mha_error *err)
{
    const bool listed = plan->desc.inputs & MHA_ATTN_HEAD_LIST;
    mha__operand o[QKV + RESULTS];
    size_t size[QKV + RESULTS] = {plan->q.size, plan->kv.size, plan->kv.size};
    mha__attn_operands(plan, a, o);
    for (int n = 0; n < count; n++) {
        o[QKV + n] = mha__operand_of(list[n].name, list[n].view, list[n].extent);
        size[QKV + n] = list[n].size;
    }
    for (int x = QKV; x < QKV + count; x++)
        for (int y = 0; y < x; y++) {
            const bool is_out = x == QKV;
            if (is_out && y == 0 && !listed && mha__operand_same(&o[x], &o[y])) continue;
            if (mha__operand_meet(&o[x], size[x], &o[y], size[y]))
                return mha__fail(err, MHA_ERR_ARG, "%s overlaps %s%s", o[x].name, o[y].name,
                                 is_out ? "; it may be exactly q, nothing else" : "");
        }
    return MHA_OK;
}

static mha_status bind_results(const mha_attn_plan *plan, mha_attn_args *a, mha_error *err)
{
    result list[RESULTS];
    const int count = list_results(plan, a, list);
    for (int n = 0; n < count; n++)
        MHA__TRY(mha__bind_output(list[n].name, list[n].view, list[n].extent, list[n].dims, list[n].size, err));
    return check_apart(plan, a, list, count, err);
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
    return bind_extras(plan, &call->args, err);
}

mha_status mha__attn_bind(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace, size_t workspace_bytes,
                          mha__call *call, mha_error *err)
{
    MHA__TRY(mha__attn_check_workspace(workspace, workspace_bytes, mha_attn_plan_workspace(plan), err));
    MHA__TRY(mha__attn_bind_inputs(plan, args, call, err));
    call->workspace = workspace;
    MHA__TRY(bind_results(plan, &call->args, err));
    MHA__TRY(mha__maps_bind(call, err));
    if (plan->desc.outputs & MHA_ATTN_STATS) MHA__TRY(mha__stats_bind(plan, &call->args, &call->stats, err));
    if (plan->folded) fold(&plan->desc, &call->args);
    return MHA_OK;
}
