/* shard_call.c - builds the operator calls of one rank for parts of a distributed sequence. */
#include "library/shard_call.h"

#include <stdlib.h>
#include <string.h>

static int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- checks ---- */

static mha_status check_supported(const mha__shared_call *s, mha_error *err)
{
    const uint32_t heads = MHA_ATTN_PREFIX_LENS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES;
    const uint32_t padded = heads | MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS;
    const mha_attn_desc *d = &s->desc;
    const uint32_t inputs = s->packed ? heads | MHA_ATTN_CU_SEQLENS : padded;
    if (d->inputs & ~inputs)
        return mha__cluster_fail(s->cluster, err, MHA_ERR_UNSUPPORTED,
                                 "inputs must be a subset of 0x%x for %s distributed over ranks (got 0x%x)",
                                 (unsigned)inputs, s->packed ? "packed sequences" : "a sequence", (unsigned)d->inputs);
    if (d->outputs & ~(uint32_t)(MHA_ATTN_LSE | MHA_ATTN_GRADS))
        return mha__cluster_fail(s->cluster, err, MHA_ERR_UNSUPPORTED,
                                 "outputs must be a subset of 0x%x for a sequence distributed over ranks (got 0x%x)",
                                 (unsigned)(MHA_ATTN_LSE | MHA_ATTN_GRADS), (unsigned)d->outputs);
    if (d->kv_dtype == MHA_Q8_0 || d->kv_dtype == MHA_Q4_0 || d->kv_dtype == MHA_F8_E4M3)
        return mha__cluster_fail(
            s->cluster, err, MHA_ERR_UNSUPPORTED,
            "kv_dtype must be one of f32, f64, bf16, f16 for a sequence distributed over ranks (got %s)",
            mha_dtype_name(d->kv_dtype));
    if (d->keep_keys != 0 && d->keep_keys != d->kv_len)
        return mha__cluster_fail(s->cluster, err, MHA_ERR_UNSUPPORTED,
                                 "keep_keys must be 0 or kv_len for a sequence distributed over ranks (got %lld)",
                                 (long long)d->keep_keys);
    return MHA_OK;
}

/* Validates the description by creating a plan of the whole call, which is never run. */
static mha_status check_description(const mha__shared_call *s, mha_error *err)
{
    mha_attn_plan *plan;
    mha_error why = {0};
    const mha_status status = mha_attn_plan_create(s->ctx, &s->desc, &plan, &why);
    mha_attn_plan_free(plan);
    return status == MHA_OK ? MHA_OK : mha__cluster_fail(s->cluster, err, status, "%s", why.message);
}

static mha_status check_pointers(const mha__shared_call *s, mha_error *err)
{
    const mha_attn_args *a = &s->args;
    const uint32_t in = s->desc.inputs;
    const bool rows = mha__part_length(&s->rows) > 0, keys = mha__part_length(&s->keys) > 0;
    const struct {
        const char *name;
        bool missing;
    } needed[] = {{"q", rows && !a->q.data},
                  {"out", rows && !a->out.data},
                  {"k", keys && !a->k.data},
                  {"v", keys && !a->v.data},
                  {"keep", rows && (in & MHA_ATTN_KEEP) && !a->keep.data},
                  {"bias", rows && (in & MHA_ATTN_BIAS) && !a->bias.data},
                  {"q_lens", (in & MHA_ATTN_Q_LENS) && !a->q_lens},
                  {"kv_lens", (in & MHA_ATTN_KV_LENS) && !a->kv_lens},
                  {"prefix_lens", (in & MHA_ATTN_PREFIX_LENS) && !a->prefix_lens},
                  {"offsets", s->desc.align == MHA_ALIGN_OFFSETS && !a->offsets},
                  {"lse", rows && (s->desc.outputs & MHA_ATTN_LSE) && !a->lse.data}};
    for (size_t n = 0; n < sizeof needed / sizeof *needed; n++)
        if (needed[n].missing)
            return mha__cluster_fail(s->cluster, err, MHA_ERR_ARG, "%s must not be NULL", needed[n].name);
    return MHA_OK;
}

static mha_status check_lengths(const mha__shared_call *s, const char *name, const int64_t *lens, int64_t limit,
                                mha_error *err)
{
    for (int64_t b = 0; lens && b < s->desc.batch; b++)
        if (lens[b] < 0 || lens[b] > limit)
            return mha__cluster_fail(s->cluster, err, MHA_ERR_ARG, "%s[%lld] must be from 0 to %lld (got %lld)", name,
                                     (long long)b, (long long)limit, (long long)lens[b]);
    return MHA_OK;
}

/* ---- defaults ---- */

static void fill_description(mha__shared_call *s)
{
    mha_attn_desc *d = &s->desc;
    if (d->kv_heads == 0) d->kv_heads = d->heads;
    if (d->v_head_dim == 0) d->v_head_dim = d->head_dim;
    if (d->dtype == MHA_DTYPE_DEFAULT) d->dtype = MHA_F32;
    if (d->kv_dtype == MHA_DTYPE_DEFAULT) d->kv_dtype = d->dtype;
    if (d->bias_dtype == MHA_DTYPE_DEFAULT) d->bias_dtype = d->dtype == MHA_F64 ? MHA_F64 : MHA_F32;
    d->keep_keys = 0;
    s->planes = s->packed ? 1 : d->batch;
    s->sequences = s->packed ? d->batch : 1;
    s->group = d->heads / d->kv_heads;
    s->size = mha_dtype_size(d->dtype);
    s->kv_size = mha_dtype_size(d->kv_dtype);
    s->bias_size = mha_dtype_size(d->bias_dtype);
    s->real_size = d->dtype == MHA_F64 ? sizeof(double) : sizeof(float);
}

/* Sets the strides of a contiguous view if all four strides are 0. */
static void fill_strides(int64_t stride[4], int64_t heads, int64_t rows, int64_t width)
{
    if (stride[0] || stride[1] || stride[2] || stride[3]) return;
    stride[0] = heads * rows * width;
    stride[1] = rows * width;
    stride[2] = width;
    stride[3] = 1;
}

static void fill_views(mha__shared_call *s)
{
    const mha_attn_desc *d = &s->desc;
    mha_attn_args *a = &s->args;
    const int64_t rows = mha__part_length(&s->rows), keys = mha__part_length(&s->keys);
    fill_strides(a->q.stride, d->heads, rows, d->head_dim);
    fill_strides(a->out.stride, d->heads, rows, d->v_head_dim);
    fill_strides(a->lse.stride, d->heads, rows, 1);
    fill_strides(a->k.stride, d->kv_heads, keys, d->head_dim);
    fill_strides(a->v.stride, d->kv_heads, keys, d->v_head_dim);
}

/* Replaces the alignment with offsets, because bottom-right alignment requires the full lengths. */
static void fill_offsets(mha__shared_call *s)
{
    mha_attn_desc *d = &s->desc;
    const mha_attn_args *a = &s->args;
    for (int64_t b = 0; b < d->batch; b++) {
        const int64_t keys = s->packed                      ? a->cu_seqlens_k[b + 1] - a->cu_seqlens_k[b]
                             : d->inputs & MHA_ATTN_KV_LENS ? a->kv_lens[b]
                                                            : d->kv_len;
        const int64_t rows = s->packed                     ? a->cu_seqlens_q[b + 1] - a->cu_seqlens_q[b]
                             : d->inputs & MHA_ATTN_Q_LENS ? a->q_lens[b]
                                                           : d->q_len;
        const int64_t offset = d->align == MHA_ALIGN_OFFSETS        ? a->offsets[b]
                               : d->align == MHA_ALIGN_BOTTOM_RIGHT ? keys - rows
                                                                    : 0;
        s->lengths[b] = offset;
        s->low = b == 0 ? offset : mha__min64(s->low, offset);
        s->high = b == 0 ? offset : max(s->high, offset);
        if (d->inputs & MHA_ATTN_PREFIX_LENS) s->prefix = max(s->prefix, a->prefix_lens[b]);
    }
    d->align = MHA_ALIGN_OFFSETS;
}

mha_status mha__shared_call_open(mha__shared_call *call, mha_cluster *cluster, mha_ctx *ctx, const mha_attn_desc *desc,
                                 const mha_attn_args *args, mha_error *err)
{
    *call = (mha__shared_call){.cluster = cluster, .ctx = ctx};
    if (!cluster || !desc || !args)
        return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "cluster, desc and args must not be NULL");
    MHA__TRY(mha__cluster_read(cluster, &call->desc, sizeof call->desc, desc, "mha_attn_desc", err));
    MHA__TRY(mha__cluster_read(cluster, &call->args, sizeof call->args, args, "mha_attn_args", err));
    call->cp = cluster->info.cp;
    call->me = cluster->info.cp_rank;
    call->packed = (call->desc.inputs & MHA_ATTN_CU_SEQLENS) != 0;
    MHA__TRY(check_description(call, err));
    MHA__TRY(check_supported(call, err));
    fill_description(call);
    MHA__TRY(mha__divide_call(call, err));
    MHA__TRY(check_pointers(call, err));
    MHA__TRY(check_lengths(call, "q_lens", call->args.q_lens, desc->q_len, err));
    MHA__TRY(check_lengths(call, "kv_lens", call->args.kv_lens, desc->kv_len, err));
    MHA__TRY(check_lengths(call, "prefix_lens", call->args.prefix_lens, desc->kv_len, err));
    const size_t bytes = 4 * (size_t)desc->batch * sizeof *call->lengths;
    call->lengths = malloc(bytes);
    if (!call->lengths) return mha__cluster_no_memory(cluster, err, bytes, "the lengths of sequences");
    fill_views(call);
    fill_offsets(call);
    return MHA_OK;
}

void mha__shared_call_free(mha__shared_call *call)
{
    free(call->lengths);
    free(call->row_parts);
}

mha_cluster_part mha__keys_of(const mha__shared_call *call, int cp_rank)
{
    return call->row_parts[call->cp + cp_rank];
}

mha_cluster_part mha__rows_of(const mha__shared_call *call, int cp_rank)
{
    return call->row_parts[cp_rank];
}

int mha__peer(const mha__shared_call *call, int cp_rank)
{
    const mha__group group = mha__cp_group(call->cluster);
    return mha__group_rank(&group, cp_rank);
}

mha__range mha__chunk(const mha_cluster_part *part, int n)
{
    return (mha__range){part->start[n], part->length[n], n == 0 ? 0 : part->length[0]};
}

int64_t mha__part_length(const mha_cluster_part *part)
{
    return part->length[0] + part->length[1];
}

bool mha__any_row_attends(const mha__shared_call *call, const mha__range *rows, const mha__range *keys)
{
    const mha_attn_desc *d = &call->desc;
    const int64_t first = rows->start + call->low, last = rows->start + rows->length - 1 + call->high;
    if (rows->length == 0 || keys->length == 0) return false;
    if (keys->start < call->prefix) return true;
    if (d->causal && keys->start > last) return false;
    if (!d->window.on) return true;
    if (d->window.left >= 0 && keys->start + keys->length - 1 < first - d->window.left) return false;
    return d->window.right < 0 || keys->start <= last + d->window.right;
}

/* ---- calls ---- */

const void *mha__moved(const mha_cview *view, size_t size, int64_t b, int64_t h, int64_t row, int64_t column)
{
    const int64_t *s = view->stride;
    if (!view->data) return NULL;
    return (const char *)view->data + (b * s[0] + h * s[1] + row * s[2] + column * s[3]) * (int64_t)size;
}

static void *moved_out(const mha_view *view, size_t size, int64_t h, int64_t row)
{
    const mha_cview as = {view->data, {view->stride[0], view->stride[1], view->stride[2], view->stride[3]}};
    return (void *)mha__moved(&as, size, 0, h, row, 0);
}

/* Clips the length of each sequence to a range of rows or keys. */
static void cut_lengths(int64_t *to, const int64_t *whole, const mha__range *range, int64_t batch)
{
    for (int64_t b = 0; b < batch; b++)
        to[b] = max(0, mha__min64(whole[b] - range->start, range->length));
}

void mha__shard_call(const mha__shared_call *call, const mha__range *rows, const mha__range *keys, mha_attn_desc *desc,
                     mha_attn_args *args)
{
    const int64_t batch = call->desc.batch;
    int64_t *q_lens = call->lengths + batch, *kv_lens = q_lens + batch, *prefixes = kv_lens + batch;
    *desc = call->desc;
    *args = call->args;
    desc->q_len = rows->length;
    desc->kv_len = keys->length;
    desc->shard.row += rows->start;
    desc->shard.key += keys->start;
    args->offsets = call->lengths;
    if (desc->inputs & MHA_ATTN_Q_LENS) {
        cut_lengths(q_lens, call->args.q_lens, rows, batch);
        args->q_lens = q_lens;
    }
    if (desc->inputs & MHA_ATTN_KV_LENS) {
        cut_lengths(kv_lens, call->args.kv_lens, keys, batch);
        args->kv_lens = kv_lens;
    }
    for (int64_t b = 0; desc->inputs & MHA_ATTN_PREFIX_LENS && b < batch; b++)
        prefixes[b] = mha__min64(call->args.prefix_lens[b], keys->start + keys->length); /* clipped to the keys of this
                                                                                          * call */
    if (desc->inputs & MHA_ATTN_PREFIX_LENS) args->prefix_lens = prefixes;
    args->q.data = mha__moved(&args->q, call->size, 0, 0, rows->local, 0);
    args->out.data = moved_out(&args->out, call->size, 0, rows->local);
    args->lse.data = moved_out(&args->lse, call->real_size, 0, rows->local);
    args->keep.data = mha__moved(&args->keep, 1, 0, 0, rows->local, keys->start);
    args->bias.data = mha__moved(&args->bias, call->bias_size, 0, 0, rows->local, keys->start);
}

void mha__shard_head(const mha__shared_call *call, int64_t g, mha_attn_desc *desc, mha_attn_args *args)
{
    const int64_t h = g * call->group;
    desc->heads = call->group;
    desc->kv_heads = 1;
    desc->shard.head += h;
    args->q.data = mha__moved(&args->q, call->size, 0, h, 0, 0);
    args->out.data = moved_out(&args->out, call->size, h, 0);
    args->lse.data = moved_out(&args->lse, call->real_size, h, 0);
    args->keep.data = mha__moved(&args->keep, 1, 0, h, 0, 0);
    args->bias.data = mha__moved(&args->bias, call->bias_size, 0, h, 0, 0);
    args->slopes.data = mha__moved(&args->slopes, call->real_size, 0, h, 0, 0);
    args->sinks.data = mha__moved(&args->sinks, call->real_size, 0, h, 0, 0);
    args->gates.data = mha__moved(&args->gates, call->real_size, 0, h, 0, 0);
}

/* ---- copies ---- */

/* Copies strided rows to contiguous memory, or, with `back`, in the opposite direction. */
static void copy_rows(char *strided, const int64_t stride[4], char *packed, size_t size, const int64_t shape[4],
                      bool back)
{
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < shape[2]; i++) {
                char *row = strided + (b * stride[0] + h * stride[1] + i * stride[2]) * (int64_t)size;
                const int64_t pieces = stride[3] == 1 ? 1 : shape[3];
                const size_t bytes = (size_t)(shape[3] / (pieces > 0 ? pieces : 1)) * size;
                for (int64_t d = 0; d < pieces; d++, packed += bytes) {
                    char *at = row + d * stride[3] * (int64_t)size;
                    memcpy(back ? at : packed, back ? packed : at, bytes);
                }
            }
}

void mha__pack(void *to, const mha_cview *from, size_t size, const int64_t shape[4], int64_t h, int64_t row)
{
    copy_rows((char *)mha__moved(from, size, 0, h, row, 0), from->stride, to, size, shape, false);
}

void mha__unpack(const mha_view *to, const void *from, size_t size, const int64_t shape[4], int64_t h, int64_t row)
{
    copy_rows(moved_out(to, size, h, row), to->stride, (char *)from, size, shape, true);
}
