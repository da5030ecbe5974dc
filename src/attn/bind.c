/* bind.c - checks the arguments of one call and fills in their strides. Part of params.h: the rest trusts what it
 * leaves. */
#include "attn/params.h"
#include "attn/stats.h"
#include "base/error.h"
#include "base/q8.h"
#include "base/size.h"
#include <inttypes.h>

enum { WORKSPACE_ALIGN = 64 };

static bool all_zero(const int64_t stride[4])
{
    return stride[0] == 0 && stride[1] == 0 && stride[2] == 0 && stride[3] == 0;
}

static void contiguous(const int64_t extent[4], int64_t stride[4])
{
    stride[3] = 1;
    for (int i = 3; i > 0; i--)
        stride[i - 1] = stride[i] * mha__max64(extent[i], 1);
}

static bool is_empty(const int64_t *extent, int dims)
{
    for (int i = 0; i < dims; i++)
        if (extent[i] == 0) return true;
    return false;
}

/* Two numbers of an output must never share a place. Only the certain case is found: a stride of 0. An empty output
 * has no numbers, so its strides may be anything. */
static mha_status check_output(const char *name, const mha_view *view, const int64_t extent[4], int dims,
                               mha_error *err)
{
    if (is_empty(extent, dims)) return MHA_OK;
    for (int i = 0; i < dims; i++)
        if (view->stride[i] == 0 && extent[i] > 1)
            return mha__fail(err, MHA_ERR_ARG, "%s.stride[%d] = 0 with %" PRId64 " elements: they would overlap", name,
                             i, extent[i]);
    return MHA_OK;
}

/* ---- pointers and strides ---- */

typedef struct operand {
    const char *name;
    mha_cview view;
    int64_t extent[4];
    bool broadcasts; /* a stride of 0 repeats, also when all are 0 */
} operand;

static mha_status bind_view(operand *o, mha_error *err)
{
    if (!o->view.data && !is_empty(o->extent, 4)) return mha__fail(err, MHA_ERR_ARG, "%s is NULL", o->name);
    if (!o->broadcasts && all_zero(o->view.stride)) contiguous(o->extent, o->view.stride);
    return MHA_OK;
}

/* The bytes from the first to behind the last element; false where the strides reach too far to say. */
static bool byte_range(const operand *o, size_t size, uintptr_t *begin, uintptr_t *end)
{
    int64_t low = 0, high = 0, reach, bytes_low, bytes_high;
    for (int i = 0; i < 4; i++) {
        if (__builtin_mul_overflow(o->extent[i] - 1, o->view.stride[i], &reach)) return false;
        if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
    }
    if (__builtin_add_overflow(high, 1, &high)) return false;
    if (__builtin_mul_overflow(low, (int64_t)size, &bytes_low) ||
        __builtin_mul_overflow(high, (int64_t)size, &bytes_high))
        return false;
    *begin = (uintptr_t)o->view.data + (uintptr_t)bytes_low;
    *end = (uintptr_t)o->view.data + (uintptr_t)bytes_high;
    return true;
}

/* Every element must be where a load may be made: at an aligned address, at a distance that can be counted in bytes.
 * (The elements of q8_0 are blocks of 34 bytes that begin with a 16-bit number: the lowest bit of a size is its
 * alignment.) */
static mha_status check_place(const operand *o, size_t size, mha_error *err)
{
    uintptr_t begin, end;
    if (is_empty(o->extent, 4)) return MHA_OK;
    if ((uintptr_t)o->view.data % (size & -size) != 0)
        return mha__fail(err, MHA_ERR_ARG, "%s.data = %p: must be aligned to %zu bytes, as its elements are", o->name,
                         o->view.data, size & -size);
    if (byte_range(o, size, &begin, &end)) return MHA_OK;
    const int64_t *s = o->view.stride;
    return mha__fail(err, MHA_ERR_ARG,
                     "%s.stride = {%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "}: reaches beyond all memory",
                     o->name, s[0], s[1], s[2], s[3]);
}

/* True if the view has no gaps, so that its byte range is exactly what it holds. */
static bool dense(const operand *o, size_t size, uintptr_t begin, uintptr_t end)
{
    size_t bytes;
    return mha__bytes(o->extent, 4, size, &bytes) && bytes == end - begin;
}

/* Out may be exactly q. Any other overlap is refused where it is cheap to see: the same first element, or two ranges
 * without gaps that meet. */
static mha_status check_overlap(const operand *out, const operand *in, bool may_be_equal, size_t out_size,
                                size_t in_size, mha_error *err)
{
    bool same = out->view.data == in->view.data;
    uintptr_t a, b, c, d;
    if (is_empty(out->extent, 4) || is_empty(in->extent, 4)) return MHA_OK;
    if (same && may_be_equal) {
        bool equal = true;
        for (int i = 0; i < 4; i++)
            equal = equal && out->extent[i] == in->extent[i] &&
                    (out->view.stride[i] == in->view.stride[i] || out->extent[i] == 1);
        if (equal) return MHA_OK;
    }
    if (!same && byte_range(out, out_size, &a, &b) && byte_range(in, in_size, &c, &d))
        same = a < d && c < b && dense(out, out_size, a, b) && dense(in, in_size, c, d);
    if (!same) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "out overlaps %s; it may be exactly q, nothing else", in->name);
}

static mha_status bind_tensors(const mha_attn_plan *plan, mha_attn_args *a, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    const bool paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
    const bool packed = d->inputs & MHA_ATTN_CU_SEQLENS, listed = d->inputs & MHA_ATTN_HEAD_LIST;
    const size_t size = plan->q.size, kv_size = plan->kv.size;
    const int64_t B = packed ? 1 : d->batch, H = d->heads, Hkv = d->kv_heads, Lq = d->q_len, D = d->head_dim;
    const int64_t pieces = paged ? d->pages : B, keys = paged ? d->page_size : d->kv_len, Dv = d->v_head_dim;
    const int64_t k_width = mha__element_count(d->kv_dtype, D), v_width = mha__element_count(d->kv_dtype, Dv);
    operand q = {"q", a->q, {B, H, Lq, D}, false}, k = {"k", a->k, {pieces, Hkv, keys, k_width}, false};
    operand v = {"v", a->v, {pieces, Hkv, keys, v_width}, false};
    operand out = {"out", {a->out.data, {0}}, {B, d->listed_heads, Lq, Dv}, false};
    for (int i = 0; i < 4; i++)
        out.view.stride[i] = a->out.stride[i];
    MHA__TRY(bind_view(&q, err));
    MHA__TRY(bind_view(&k, err));
    MHA__TRY(bind_view(&v, err));
    MHA__TRY(bind_view(&out, err));
    for (int i = 0; i < 4; i++)
        a->out.stride[i] = out.view.stride[i];
    MHA__TRY(check_output("out", &a->out, out.extent, 4, err));
    MHA__TRY(check_place(&q, size, err));
    MHA__TRY(check_place(&k, kv_size, err));
    MHA__TRY(check_place(&v, kv_size, err));
    MHA__TRY(check_place(&out, size, err));
    MHA__TRY(check_overlap(&out, &q, !listed, size, size, err));
    MHA__TRY(check_overlap(&out, &k, false, size, kv_size, err));
    MHA__TRY(check_overlap(&out, &v, false, size, kv_size, err));
    a->q = q.view, a->k = k.view, a->v = v.view;
    return MHA_OK;
}

mha_status mha__bind_input(const char *name, mha_cview *view, const int64_t extent[4], size_t size, mha_error *err)
{
    operand o = {name, *view, {extent[0], extent[1], extent[2], extent[3]}, false};
    MHA__TRY(bind_view(&o, err));
    MHA__TRY(check_place(&o, size, err));
    *view = o.view;
    return MHA_OK;
}

mha_status mha__bind_output(const char *name, mha_view *view, const int64_t extent[4], int dims, size_t size,
                            mha_error *err)
{
    operand o = {name,
                 {view->data, {view->stride[0], view->stride[1], view->stride[2], view->stride[3]}},
                 {extent[0], extent[1], extent[2], extent[3]},
                 false};
    MHA__TRY(bind_view(&o, err));
    for (int i = 0; i < 4; i++)
        view->stride[i] = o.view.stride[i];
    if (dims < 4) o.view.stride[3] = 0; /* not used */
    MHA__TRY(check_place(&o, size, err));
    return check_output(name, view, extent, dims, err);
}

/* Mask blocks of one axis; a size of 0 means that there is no block mask. */
static int64_t blocks(int64_t length, int64_t size)
{
    return size > 0 ? mha__ceil_div(length, size) : 0;
}

/* Folded: the heads of a group become the rows of one head, in every view that has heads and rows. */
static void fold(const mha_attn_desc *d, mha_attn_args *a)
{
    int64_t *strides[] = {a->q.stride,      a->out.stride,  a->lse.stride, a->probs.stride,
                          a->scores.stride, a->keep.stride, a->bias.stride};
    for (size_t n = 0; n < sizeof strides / sizeof *strides; n++) {
        strides[n][2] = strides[n][1];
        strides[n][1] *= d->heads / d->kv_heads;
    }
}

static mha_status bind_extras(const mha_attn_desc *d, size_t size, mha_attn_args *a, mha_error *err)
{
    const int64_t B = d->batch, H = d->heads, results = d->inputs & MHA_ATTN_CU_SEQLENS ? 1 : B;
    const int64_t lse[4] = {results, d->listed_heads, d->q_len, 1};
    const int64_t probs[4] = {results, d->listed_heads, d->q_len, d->kv_len};
    struct {
        uint32_t input;
        size_t size;
        operand view;
    } inputs[] = {
        {MHA_ATTN_KEEP, 1, {"keep", a->keep, {B, H, d->q_len, d->keep_keys}, true}},
        {MHA_ATTN_BIAS, mha_dtype_size(d->bias_dtype), {"bias", a->bias, {B, H, d->q_len, d->kv_len}, true}},
        {MHA_ATTN_BLOCK_KEEP,
         1,
         {"block_keep", a->block_keep, {B, H, blocks(d->q_len, d->block_q), blocks(d->kv_len, d->block_k)}, true}},
        {MHA_ATTN_DROPOUT_KEEP, 1, {"dropout_keep", a->dropout_keep, {B, H, d->q_len, d->kv_len}, true}},
        {MHA_ATTN_SLOPES, sizeof(float), {"slopes", a->slopes, {B, H, 1, 1}, true}},
        {MHA_ATTN_SINKS, sizeof(float), {"sinks", a->sinks, {B, H, 1, 1}, true}},
        {MHA_ATTN_GATES, sizeof(float), {"gates", a->gates, {B, H, 1, 1}, true}}};
    for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++)
        if (d->inputs & inputs[n].input) {
            MHA__TRY(bind_view(&inputs[n].view, err));
            MHA__TRY(check_place(&inputs[n].view, inputs[n].size, err));
        }
    if (d->outputs & MHA_ATTN_LSE) MHA__TRY(mha__bind_output("lse", &a->lse, lse, 3, size, err));
    if (d->outputs & MHA_ATTN_PROBS) MHA__TRY(mha__bind_output("probs", &a->probs, probs, 4, size, err));
    if (d->outputs & MHA_ATTN_SCORES) MHA__TRY(mha__bind_output("scores", &a->scores, probs, 4, size, err));
    return MHA_OK;
}

/* ---- lengths ---- */

/* No longer than the sequence, of which `cu` or `longest` says the length. */
static mha_status check_lengths(const char *name, const int64_t *lens, int64_t count, const int64_t *cu,
                                int64_t longest, mha_error *err)
{
    if (!lens) return mha__fail(err, MHA_ERR_ARG, "%s is NULL", name);
    for (int64_t b = 0; b < count; b++) {
        const int64_t most = cu ? cu[b + 1] - cu[b] : longest;
        if (lens[b] < 0 || lens[b] > most)
            return mha__fail(err, MHA_ERR_ARG, "%s[%" PRId64 "] = %" PRId64 ": must be from 0 to %" PRId64, name, b,
                             lens[b], most);
    }
    return MHA_OK;
}

/* Ascending from 0 to the number of packed rows. */
static mha_status check_packing(const char *name, const int64_t *cu, int64_t count, int64_t total, mha_error *err)
{
    if (!cu) return mha__fail(err, MHA_ERR_ARG, "%s is NULL", name);
    if (cu[0] != 0) return mha__fail(err, MHA_ERR_ARG, "%s[0] = %" PRId64 ": must be 0", name, cu[0]);
    for (int64_t b = 0; b < count; b++)
        if (cu[b + 1] < cu[b])
            return mha__fail(err, MHA_ERR_ARG,
                             "%s[%" PRId64 "] = %" PRId64 ": must not be below the %" PRId64 " before it", name, b + 1,
                             cu[b + 1], cu[b]);
    if (cu[count] == total) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s[%" PRId64 "] = %" PRId64 ": must be the length of all, %" PRId64, name,
                     count, cu[count], total);
}

static mha_status check_head_list(const mha_attn_desc *d, const int32_t *list, mha_error *err)
{
    if (!list) return mha__fail(err, MHA_ERR_ARG, "head_list is NULL");
    for (int64_t n = 0; n < d->listed_heads; n++)
        if (list[n] < 0 || list[n] >= d->heads)
            return mha__fail(err, MHA_ERR_ARG, "head_list[%" PRId64 "] = %" PRId32 ": must be from 0 to %" PRId64, n,
                             list[n], d->heads - 1);
    return MHA_OK;
}

/* Without an align, a position is only clear where queries and keys are as many. */
static mha_status check_align(const mha__call *call, mha_error *err)
{
    const mha_attn_args *a = &call->args;
    for (int64_t b = 0; b < call->plan->desc.batch; b++) {
        const int64_t queries = a->q_lens ? a->q_lens[b] : mha__rows_of(call, b);
        const int64_t keys = a->kv_lens ? a->kv_lens[b] : mha__keys_of(call, b);
        if (queries != keys)
            return mha__fail(err, MHA_ERR_ARG,
                             "align is unset, but it matters: sequence %" PRId64 " has %" PRId64 " queries and %" PRId64
                             " keys, and causal, window or slopes are on",
                             b, queries, keys);
    }
    return MHA_OK;
}

static mha_status bind_lengths(mha__call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    mha_attn_args *a = &call->args;
    const uint32_t in = d->inputs;
    if (!(in & MHA_ATTN_Q_LENS)) a->q_lens = NULL;
    if (!(in & MHA_ATTN_KV_LENS)) a->kv_lens = NULL;
    if (!(in & MHA_ATTN_PREFIX_LENS)) a->prefix_lens = NULL;
    if (!plan->packed) a->cu_seqlens_q = a->cu_seqlens_k = NULL;
    const int64_t *cu_q = a->cu_seqlens_q, *cu_k = a->cu_seqlens_k, B = d->batch;
    if (plan->packed) MHA__TRY(check_packing("cu_seqlens_q", cu_q, B, d->q_len, err));
    if (plan->packed) MHA__TRY(check_packing("cu_seqlens_k", cu_k, B, d->kv_len, err));
    if (in & MHA_ATTN_Q_LENS) MHA__TRY(check_lengths("q_lens", a->q_lens, B, cu_q, d->q_len, err));
    if (in & MHA_ATTN_KV_LENS) MHA__TRY(check_lengths("kv_lens", a->kv_lens, B, cu_k, d->kv_len, err));
    if (in & MHA_ATTN_PREFIX_LENS) MHA__TRY(check_lengths("prefix_lens", a->prefix_lens, B, cu_k, d->kv_len, err));
    if (in & MHA_ATTN_HEAD_LIST) MHA__TRY(check_head_list(d, a->head_list, err));
    if (d->align == MHA_ALIGN_OFFSETS && (plan->positional || (d->outputs & MHA_ATTN_STATS)) && !a->offsets)
        return mha__fail(err, MHA_ERR_ARG, "offsets is NULL, but align is MHA_ALIGN_OFFSETS");
    if (d->align == MHA_ALIGN_UNSET && plan->positional) MHA__TRY(check_align(call, err));
    return MHA_OK;
}

/* ---- pages ---- */

/* Every entry that a key within the lengths needs: a page, or -1. */
static mha_status bind_block_table(const mha_attn_desc *d, mha_attn_args *a, mha_error *err)
{
    operand table = {"block_table", a->block_table, {d->batch, mha__ceil_div(d->kv_len, d->page_size), 1, 1}, false};
    MHA__TRY(bind_view(&table, err));
    MHA__TRY(check_place(&table, sizeof(int32_t), err));
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

mha_status mha__attn_bind(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace, size_t workspace_bytes,
                          mha__call *call, mha_error *err)
{
    const size_t need = mha_attn_plan_workspace(plan);
    if (!args) return mha__fail(err, MHA_ERR_ARG, "args is NULL");
    if (args->size != sizeof *args)
        return mha__fail(err, MHA_ERR_ARG, "args.size = %zu: must be sizeof(mha_attn_args) = %zu", args->size,
                         sizeof *args);
    if (need > 0 && !workspace) return mha__fail(err, MHA_ERR_ARG, "workspace is NULL; %zu bytes are needed", need);
    if (workspace_bytes < need)
        return mha__fail(err, MHA_ERR_ARG, "workspace_bytes = %zu: %zu are needed", workspace_bytes, need);
    if (need > 0 && (uintptr_t)workspace % WORKSPACE_ALIGN != 0)
        return mha__fail(err, MHA_ERR_ARG, "workspace is not aligned to %d bytes", (int)WORKSPACE_ALIGN);
    call->plan = plan;
    call->args = *args;
    call->workspace = workspace;
    call->first_key = 0;
    MHA__TRY(bind_lengths(call, err));
    if (plan->desc.inputs & MHA_ATTN_BLOCK_TABLE) MHA__TRY(bind_block_table(&plan->desc, &call->args, err));
    MHA__TRY(bind_tensors(plan, &call->args, err));
    MHA__TRY(bind_extras(&plan->desc, plan->kernels->real_size, &call->args, err));
    if (plan->desc.outputs & MHA_ATTN_STATS) MHA__TRY(mha__stats_bind(plan, &call->args, &call->stats, err));
    if (plan->folded) fold(&plan->desc, &call->args);
    return MHA_OK;
}
