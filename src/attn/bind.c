/* bind.c - checks the arguments of one call and fills in their strides. Part of params.h: the rest trusts what it
 * leaves. */
#include "attn/params.h"
#include "base/error.h"
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

/* Every element must be where a load may be made: at an aligned address, at a distance that can be counted in bytes. */
static mha_status check_place(const operand *o, size_t size, mha_error *err)
{
    uintptr_t begin, end;
    if (is_empty(o->extent, 4)) return MHA_OK;
    if ((uintptr_t)o->view.data % size != 0)
        return mha__fail(err, MHA_ERR_ARG, "%s.data = %p: must be aligned to its element of %zu bytes", o->name,
                         o->view.data, size);
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
static mha_status check_overlap(const operand *out, const operand *in, bool may_be_equal, size_t size, mha_error *err)
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
    if (!same && byte_range(out, size, &a, &b) && byte_range(in, size, &c, &d))
        same = a < d && c < b && dense(out, size, a, b) && dense(in, size, c, d);
    if (!same) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "out overlaps %s; it may be exactly q, nothing else", in->name);
}

static mha_status bind_tensors(const mha_attn_desc *d, size_t size, mha_attn_args *a, mha_error *err)
{
    const int64_t B = d->batch, H = d->heads, Hkv = d->kv_heads, Lq = d->q_len, Lk = d->kv_len, D = d->head_dim,
                  Dv = d->v_head_dim;
    operand q = {"q", a->q, {B, H, Lq, D}, false}, k = {"k", a->k, {B, Hkv, Lk, D}, false};
    operand v = {"v", a->v, {B, Hkv, Lk, Dv}, false};
    operand out = {"out", {a->out.data, {0}}, {B, H, Lq, Dv}, false};
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
    MHA__TRY(check_place(&k, size, err));
    MHA__TRY(check_place(&v, size, err));
    MHA__TRY(check_place(&out, size, err));
    MHA__TRY(check_overlap(&out, &q, true, size, err));
    MHA__TRY(check_overlap(&out, &k, false, size, err));
    MHA__TRY(check_overlap(&out, &v, false, size, err));
    a->q = q.view, a->k = k.view, a->v = v.view;
    return MHA_OK;
}

/* lse and probs: an output that the description asked for. */
static mha_status bind_output(const char *name, mha_view *view, const int64_t extent[4], int dims, size_t size,
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

static mha_status bind_extras(const mha_attn_desc *d, size_t size, mha_attn_args *a, mha_error *err)
{
    const int64_t lse[4] = {d->batch, d->heads, d->q_len, 1}, probs[4] = {d->batch, d->heads, d->q_len, d->kv_len};
    operand keep = {"keep", a->keep, {d->batch, d->heads, d->q_len, d->keep_keys}, true};
    operand bias = {"bias", a->bias, {d->batch, d->heads, d->q_len, d->kv_len}, true};
    if (d->inputs & MHA_ATTN_KEEP) {
        MHA__TRY(bind_view(&keep, err));
        MHA__TRY(check_place(&keep, 1, err));
    }
    if (d->inputs & MHA_ATTN_BIAS) {
        MHA__TRY(bind_view(&bias, err));
        MHA__TRY(check_place(&bias, mha_dtype_size(d->bias_dtype), err));
    }
    if (d->outputs & MHA_ATTN_LSE) MHA__TRY(bind_output("lse", &a->lse, lse, 3, size, err));
    if (d->outputs & MHA_ATTN_PROBS) MHA__TRY(bind_output("probs", &a->probs, probs, 4, size, err));
    return MHA_OK;
}

/* ---- lengths ---- */

static mha_status check_lengths(const char *name, const int64_t *lens, int64_t count, int64_t max, mha_error *err)
{
    if (!lens) return mha__fail(err, MHA_ERR_ARG, "%s is NULL", name);
    for (int64_t b = 0; b < count; b++)
        if (lens[b] < 0 || lens[b] > max)
            return mha__fail(err, MHA_ERR_ARG, "%s[%" PRId64 "] = %" PRId64 ": must be from 0 to %" PRId64, name, b,
                             lens[b], max);
    return MHA_OK;
}

static mha_status bind_lengths(const mha_attn_plan *plan, mha_attn_args *a, mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    if (!(d->inputs & MHA_ATTN_Q_LENS)) a->q_lens = NULL;
    if (!(d->inputs & MHA_ATTN_KV_LENS)) a->kv_lens = NULL;
    if (d->inputs & MHA_ATTN_Q_LENS) MHA__TRY(check_lengths("q_lens", a->q_lens, d->batch, d->q_len, err));
    if (d->inputs & MHA_ATTN_KV_LENS) MHA__TRY(check_lengths("kv_lens", a->kv_lens, d->batch, d->kv_len, err));
    if (d->align == MHA_ALIGN_OFFSETS && plan->positional && !a->offsets)
        return mha__fail(err, MHA_ERR_ARG, "offsets is NULL, but align is MHA_ALIGN_OFFSETS");
    if (d->align != MHA_ALIGN_UNSET || !plan->positional) return MHA_OK;
    for (int64_t b = 0; b < d->batch; b++) {
        const int64_t queries = a->q_lens ? a->q_lens[b] : d->q_len, keys = a->kv_lens ? a->kv_lens[b] : d->kv_len;
        if (queries != keys)
            return mha__fail(err, MHA_ERR_ARG,
                             "align is unset, but it matters: sequence %" PRId64 " has %" PRId64 " queries and %" PRId64
                             " keys, and causal or window is on",
                             b, queries, keys);
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
    MHA__TRY(bind_lengths(plan, &call->args, err));
    MHA__TRY(bind_tensors(&plan->desc, plan->kernels->real_size, &call->args, err));
    return bind_extras(&plan->desc, plan->kernels->real_size, &call->args, err);
}
