/* variant_input.c - checks a layer's input and converts its masks to the operator's form.
 *
 * The operator returns 0 for a row without keys. The published code sets all scores of such a row to -1e9, so that all
 * keys have equal weight. To reproduce this, q and the bias of the row are set to 0 and its keys are unmasked, so that
 * every score is 0. Since this q is constant, no gradient reaches the scores, as in the published code. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/variants/variant.h"
#include <stdio.h>
#include <string.h>

/* ---- checks ---- */

static mha_status refuse(const mha_variant *v, const char *field, const char *why, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "%s: %s %s", v->name, field, why);
}

static mha_status check_sizes(const mha_variant *v, mha_variant_input *in, mha_error *err)
{
    size_t bytes = 0;
    if (!in->kv_len) in->kv_len = in->q_len;
    const struct {
        const char *field;
        int64_t value, min, max;
    } sizes[] = {{"q_len", in->q_len, 1, INT32_MAX},
                 {"kv_len", in->kv_len, 1, INT32_MAX},
                 {"past_len", in->past_len, 0, INT32_MAX}};
    if (in->batch < 1)
        return mha__fail(err, MHA_ERR_ARG, "%s: batch must be at least 1 (got %lld)", v->name, (long long)in->batch);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (sizes[n].value < sizes[n].min || sizes[n].value > sizes[n].max)
            return mha__fail(err, MHA_ERR_ARG, "%s: %s must be from %lld to %lld (got %lld)", v->name, sizes[n].field,
                             (long long)sizes[n].min, (long long)sizes[n].max, (long long)sizes[n].value);
    const int64_t tokens = in->q_len + in->kv_len + in->past_len,
                  width = v->layer.options.hidden + v->layer.out + v->dense[MHA__Q].out;
    if (!mha__bytes((int64_t[]){in->batch, tokens, width + mha__choices(v) + 64}, 3, 64, &bytes) ||
        (uint64_t)bytes > INT64_MAX || !mha__bytes((int64_t[]){in->q_len, in->past_len + in->kv_len}, 2, 64, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "%s: batch and length must fit in memory (got %lld, %lld)", v->name,
                         (long long)in->batch, (long long)tokens);
    if (v->context_length && in->past_len + in->q_len > v->context_length)
        return mha__fail(err, MHA_ERR_ARG, "%s: number of tokens must be at most context_length = %lld (got %lld)",
                         v->name, (long long)v->context_length, (long long)(in->past_len + in->q_len));
    return MHA_OK;
}

static mha_status check_operands(const mha_variant *v, const mha_variant_input *in, mha_error *err)
{
    if (!in->query) return refuse(v, "query", "must not be NULL", err);
    if (v->self && (in->key || in->value))
        return refuse(v, in->key ? "key" : "value", "must be NULL, since the layer reads only query", err);
    if (v->self && in->kv_len != in->q_len)
        return refuse(v, "kv_len", "must be 0 or q_len, since the layer reads only query", err);
    if (!in->key && in->kv_len != in->q_len) return refuse(v, "key", "must not be NULL unless kv_len is q_len", err);
    if (in->positions && !v->layer.options.rope)
        return refuse(v, "positions", "must be NULL for a layer without rotation", err);
    if (in->past_len && !v->takes_past)
        return refuse(v, "past_len", "must be 0, since the layer does not accept past tokens", err);
    if (in->past_len && (!in->past_key || !in->past_value))
        return refuse(v, in->past_key ? "past_value" : "past_key", "must not be NULL unless past_len is 0", err);
    if ((in->past_key || in->past_value) && !v->takes_past)
        return refuse(v, in->past_key ? "past_key" : "past_value",
                      "must be NULL, since the layer does not accept past tokens", err);
    if (in->blocked.data && in->additive.data) return refuse(v, "blocked", "must be NULL with additive", err);
    for (int64_t r = 0; in->positions && r < in->batch * in->q_len; r++)
        if (in->positions[r] < 0) return refuse(v, "positions", "must be at least 0", err);
    return MHA_OK;
}

/* Checks the dropout fields, which are ignored without `training`. */
static mha_status check_dropout(const mha_variant *v, const mha_variant_input *in, mha_error *err)
{
    if (!in->training) return MHA_OK;
    if (in->rng && !v->takes_dropout) return refuse(v, "rng", "must be NULL for a layer without dropout", err);
    if (in->dropout_keep && !v->takes_dropout)
        return refuse(v, "dropout_keep", "must be NULL for a layer without dropout", err);
    if (in->dropout_keep && v->dropout == 0) return refuse(v, "dropout_keep", "must be NULL with dropout = 0", err);
    if (in->dropout_keep && in->rng) return refuse(v, "dropout_keep", "must be NULL with rng", err);
    return MHA_OK;
}

/* Computes the shape of a mask as [batch, heads, q, k]; a missing dimension is 1. */
static void mask_shape(const mha_mask *m, int64_t shape[4])
{
    shape[0] = m->rank >= 3 ? m->shape[0] : 1;
    shape[1] = m->rank == 4 ? m->shape[1] : 1;
    shape[2] = m->shape[m->rank - 2];
    shape[3] = m->shape[m->rank - 1];
}

static mha_status check_mask(const mha_variant *v, const mha_variant_input *in, const char *field, const mha_mask *m,
                             mha_error *err)
{
    if (!m->data) return MHA_OK;
    if (m->rank < 2 || m->rank > 4)
        return mha__fail(err, MHA_ERR_ARG, "%s: rank of %s must be from 2 to 4 (got %d)", v->name, field, m->rank);
    int64_t shape[4];
    /* `heads` is 1 if the head count varies */
    const int64_t want[4] = {in->batch, v->layer.options.heads, in->q_len, in->past_len + in->kv_len};
    mask_shape(m, shape);
    bool fits = shape[3] == want[3];
    for (int n = 0; n < 3; n++)
        fits &= shape[n] == 1 || shape[n] == want[n];
    if (fits) return MHA_OK;
    char text[120];
    int length = 0;
    for (int n = 0; n < m->rank; n++)
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "%s%lld", n ? ", " : "", (long long)m->shape[n]);
    return mha__fail(err, MHA_ERR_ARG,
                     "%s: shape of %s must be [q, k], [batch, q, k] or [batch, heads, q, k] with batch = %lld, heads = "
                     "%lld, q = %lld and k = %lld, where batch, heads and q may also be 1 (got [%s])",
                     v->name, field, (long long)want[0], (long long)want[1], (long long)want[2], (long long)want[3],
                     text);
}

mha_status mha__variant_input(const mha_variant *v, mha_variant_input *in, const mha_variant_input *given,
                              mha_error *err)
{
    if (!v) return mha__fail(err, MHA_ERR_ARG, "attention layer must not be NULL");
    MHA__TRY(mha__options_read(in, sizeof *in, given, "mha_variant_input", err));
    if (!v->packed)
        return refuse(v, "parameters", "must be initialized (mha_variant_init) or packed (mha_variant_update) first",
                      err);
    MHA__TRY(check_sizes(v, in, err));
    MHA__TRY(check_operands(v, in, err));
    MHA__TRY(check_dropout(v, in, err));
    MHA__TRY(check_mask(v, in, "keep", &in->keep, err));
    MHA__TRY(check_mask(v, in, "additive", &in->additive, err));
    MHA__TRY(check_mask(v, in, "blocked", &in->blocked, err));
    if (!in->key) in->key = in->query;
    if (!in->value) in->value = in->key;
    return MHA_OK;
}

/* ---- mask views ---- */

static mha_cview mask_view(const void *data, const int64_t shape[4])
{
    const int64_t q = shape[3], h = shape[2] * q, b = shape[1] * h;
    return (mha_cview){data, {shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : q, 1}};
}

/* Returns the number of keys that query i may attend to before masks are applied: all keys or, with causal attention,
 * the keys up to its own position. */
static int64_t visible(const mha_variant *v, const mha_variant_input *in, int64_t i)
{
    const int64_t keys = in->past_len + in->kv_len;
    return v->layer.options.causal ? mha__min64(keys, in->past_len + i + 1) : keys;
}

static bool row_is_empty(const mha_cview *keep, int64_t b, int64_t h, int64_t i, int64_t keys)
{
    const uint8_t *row = (const uint8_t *)keep->data + b * keep->stride[0] + h * keep->stride[1] + i * keep->stride[2];
    for (int64_t j = 0; j < keys; j++)
        if (row[j]) return false;
    return true;
}

/* Returns true if the keep mask masks every key of some row. */
static bool any_row_empty(const mha_variant *v, const mha_variant_input *in, const int64_t shape[4],
                          const mha_cview *keep)
{
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < in->q_len; i++)
                if (row_is_empty(keep, b, h, i, visible(v, in, i))) return true;
    return false;
}

/* Returns the mask that is added to the scores, and its factor; data NULL = none. */
static const mha_mask *added(const mha_variant_input *in, double *factor)
{
    *factor = in->blocked.data ? -1e10 : 1;
    return in->blocked.data ? &in->blocked : &in->additive;
}

/* Computes the shape of the copy of the additive mask, with one row per query if rows are unmasked. Returns false if no
 * copy is needed. */
static bool bias_shape(const mha_variant_input *in, const mha_trace *t, int64_t shape[4])
{
    double factor;
    const mha_mask *m = added(in, &factor);
    if (!m->data) return false;
    mask_shape(m, shape);
    if (!t->opens_rows) return factor != 1;
    for (int n = 0; n < 2; n++)
        shape[n] = mha__max64(shape[n], t->keep_shape[n]);
    shape[2] = in->q_len;
    return true;
}

void mha__place_masks(const mha_variant *v, const mha_variant_input *in, mha__arena *arena, mha_trace *t)
{
    const size_t scores = (size_t)(in->q_len * t->Lk);
    if (t->opens_rows) {
        const size_t planes = (size_t)(t->keep_shape[0] * t->keep_shape[1]);
        t->keep_memory = mha__take(arena, planes, scores);
        t->empty = mha__take(arena, planes, (size_t)in->q_len);
    }
    int64_t shape[4];
    if (bias_shape(in, t, shape))
        t->bias_memory =
            mha__take(arena, (size_t)(shape[0] * shape[1]), (size_t)(shape[2] * shape[3]) * mha__attn_real(&v->layer));
    if (t->draws) t->drop_memory = mha__take(arena, (size_t)(in->batch * v->layer.options.heads), scores);
}

void mha__look_at_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t)
{
    t->drops = in->training && v->dropout > 0;
    t->draws = t->drops && !in->dropout_keep && in->rng && v->dropout < 1;
    if (!in->keep.data) return;
    mask_shape(&in->keep, t->keep_shape);
    t->in.keep = mask_view(in->keep.data, t->keep_shape);
    t->opens_rows = any_row_empty(v, in, t->keep_shape, &t->in.keep);
}

/* ---- mask contents ---- */

/* Copies keep with one row per query, unmasks rows without keys, and records these rows. */
static void open_rows(const mha_variant *v, const mha_variant_input *in, mha_trace *t)
{
    const int64_t Lk = t->Lk;
    const mha_cview given = t->in.keep;
    uint8_t *row = t->keep_memory, *empty = t->empty;
    for (int64_t b = 0; b < t->keep_shape[0]; b++)
        for (int64_t h = 0; h < t->keep_shape[1]; h++)
            for (int64_t i = 0; i < in->q_len; i++, row += Lk) {
                const uint8_t *from =
                    (const uint8_t *)given.data + b * given.stride[0] + h * given.stride[1] + i * given.stride[2];
                *empty = row_is_empty(&given, b, h, i, visible(v, in, i));
                if (*empty++)
                    memset(row, 1, (size_t)Lk);
                else
                    memcpy(row, from, (size_t)Lk);
            }
    t->keep_shape[2] = in->q_len;
    t->in.keep = mask_view(t->keep_memory, t->keep_shape);
}

/* Returns the marks [Lq] of the rows without keys for sequence b and head h. */
static const uint8_t *empty_rows(const mha_trace *t, int64_t b, int64_t h)
{
    const int64_t *shape = t->keep_shape;
    return t->empty + ((shape[0] == 1 ? 0 : b) * shape[1] + (shape[1] == 1 ? 0 : h)) * t->Lq;
}

/* Writes one row of the additive mask in the layer's dtype. A blocked key adds -1e10, which in f32 rounds the score
 * away, as in the published code. */
static void fill_bias_row(const mha_variant *v, const mha_mask *m, double factor, int64_t from, int64_t count,
                          char *row)
{
    const mha_dtype dtype = v->layer.options.dtype;
    for (int64_t j = 0; j < count; j++)
        mha__put(dtype, row, j, mha__get(dtype, m->data, from + j) * factor);
}

static void place_bias(const mha_variant *v, const mha_variant_input *in, mha_trace *t)
{
    int64_t given[4], shape[4];
    double factor;
    const mha_mask *m = added(in, &factor);
    if (!m->data) return;
    mask_shape(m, given);
    t->in.bias = mask_view(m->data, given);
    if (!bias_shape(in, t, shape)) return;
    const int64_t *stride = t->in.bias.stride;
    const size_t bytes = (size_t)shape[3] * mha__attn_real(&v->layer);
    char *row = t->bias_memory;
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < shape[2]; i++, row += bytes)
                if (t->opens_rows && empty_rows(t, b, h)[i])
                    memset(row, 0, bytes);
                else
                    fill_bias_row(v, m, factor, b * stride[0] + h * stride[1] + i * stride[2], shape[3], row);
    t->in.bias = mask_view(t->bias_memory, shape);
}

static mha_status drop(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err)
{
    const int64_t plane = in->q_len * t->Lk, B = in->batch, H = v->layer.options.heads;
    const uint8_t *data = in->dropout_keep ? in->dropout_keep : t->drop_memory;
    if (t->draws)
        MHA__TRY(mha_rng_dropout_mask(in->rng, v->dropout, MHA_RNG_ROUTE_DEFAULT, t->drop_memory, B * H * plane, err));
    t->call.drop = (mha_cview){data, {H * plane, plane, t->Lk, 1}};
    if (t->draws && v->dropout_by_head) t->call.drop = (mha_cview){data, {plane, B * plane, t->Lk, 1}};
    return MHA_OK;
}

mha_status mha__fill_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err)
{
    const int64_t *shape = t->keep_shape;
    if (t->opens_rows) open_rows(v, in, t);
    place_bias(v, in, t);
    if (t->opens_rows)
        t->call.empty = (mha_cview){t->empty, {shape[0] == 1 ? 0 : shape[1] * t->Lq, shape[1] == 1 ? 0 : t->Lq, 1}};
    t->call.dropout = t->drops ? v->dropout : 0;
    t->call.dropout_seed = in->dropout_seed;
    return t->drops ? drop(v, in, t, err) : MHA_OK;
}
