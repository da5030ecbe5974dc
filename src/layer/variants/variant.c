/* variant.c - the struct of a variant (mha/variants.h): checks for all constructors, and the shapes and names of
 * parameters. */
#include "layer/variants/variant.h"

#include "base/ctx.h"
#include <math.h>
#include <stdio.h>

enum { WIDTH_MAX = 1 << 24 }; /* prevents overflow of parameter counts, even with 4,096 experts */

/* ---- checks for all constructors ---- */

mha_status mha__check_layer(mha_variant **layer, mha_error *err)
{
    if (!layer) return mha__fail(err, MHA_ERR_ARG, "attention layer: the output pointer must not be NULL");
    *layer = NULL;
    return MHA_OK;
}

mha_status mha__check_width(const mha_variant *v, const char *field, int64_t width, mha_error *err)
{
    if (width < 1 || width > WIDTH_MAX)
        return mha__fail(err, MHA_ERR_ARG, "%s: %s must be from 1 to %d (got %lld)", v->name, field, WIDTH_MAX,
                         (long long)width);
    return MHA_OK;
}

mha_status mha__check_heads(const mha_variant *v, const char *field, int64_t heads, const char *of, int64_t width,
                            mha_error *err)
{
    if (heads < 1 || heads > 65536)
        return mha__fail(err, MHA_ERR_ARG, "%s: %s must be from 1 to 65536 (got %lld)", v->name, field,
                         (long long)heads);
    if (width % heads)
        return mha__fail(err, MHA_ERR_ARG, "%s: %s must divide %s = %lld (got %lld)", v->name, field, of,
                         (long long)width, (long long)heads);
    return MHA_OK;
}

mha_status mha__split_heads(mha_variant *v, int64_t heads, const char *field, int64_t width, mha_error *err)
{
    mha_attn_layer_options *o = &v->layer.options;
    MHA__TRY(mha__check_width(v, field, width, err));
    MHA__TRY(mha__check_heads(v, "num_heads", heads, field, width, err));
    o->heads = o->kv_heads = heads;
    o->head_dim = width / heads;
    return MHA_OK;
}

mha_status mha__share_heads(mha_variant *v, int64_t kv_heads, mha_error *err)
{
    const int64_t heads = v->layer.options.heads;
    if (!kv_heads) kv_heads = heads;
    if (kv_heads < 1 || heads % kv_heads)
        return mha__fail(err, MHA_ERR_ARG, "%s: num_kv_heads must divide num_heads = %lld (got %lld)", v->name,
                         (long long)heads, (long long)kv_heads);
    v->layer.options.kv_heads = kv_heads;
    return MHA_OK;
}

mha_status mha__check_scale(mha_variant *v, mha_scale_rule rule, mha_error *err)
{
    if (rule != MHA_SCALE_HEAD_DIM && rule != MHA_SCALE_D_OUT)
        return mha__fail(err, MHA_ERR_ARG, "%s: scale_rule must be a value of mha_scale_rule (got %d)", v->name,
                         (int)rule);
    v->layer.options.scale = rule == MHA_SCALE_D_OUT ? 1 / sqrt((double)v->layer.out) : 0;
    return MHA_OK;
}

mha_status mha__check_selection(const mha_variant *v, mha_error *err)
{
    const mha_selection selection = v->layer.options.choice.selection;
    if ((int)selection < MHA_SELECTION_HARD || selection > MHA_SELECTION_STRAIGHT_THROUGH)
        return mha__fail(err, MHA_ERR_ARG, "%s: selection must be a value of mha_selection (got %d)", v->name,
                         (int)selection);
    return MHA_OK;
}

mha_status mha__check_dropout(const mha_variant *v, mha_error *err)
{
    if (!(v->dropout >= 0 && v->dropout <= 1))
        return mha__fail(err, MHA_ERR_ARG, "%s: dropout must be from 0 to 1 (got %g)", v->name, v->dropout);
    if (v->context_length < 0)
        return mha__fail(err, MHA_ERR_ARG, "%s: context_length must be at least 0 (got %lld)", v->name,
                         (long long)v->context_length);
    return MHA_OK;
}

void mha__usual_dense(mha_variant *v, bool bias, bool output)
{
    const mha_attn_layer_options *o = &v->layer.options;
    for (int d = MHA__Q; d <= MHA__V; d++)
        v->dense[d] = (mha__variant_projection){
            .in = o->hidden, .out = (d == MHA__Q ? o->heads : o->kv_heads) * o->head_dim, .bias = bias};
    if (output)
        v->dense[MHA__O] = (mha__variant_projection){.in = o->heads * o->head_dim, .out = v->layer.out, .bias = bias};
}

/* ---- the list of parameters ---- */

static void name_one(mha_variant *v, mha__variant_parameter as, const char *format, int64_t number, const char *suffix,
                     int rank, int64_t rows, int64_t columns)
{
    const int n = v->parameters++;
    if (!v->parameter) return;
    char stem[40];
    snprintf(stem, sizeof stem, format, (long long)number);
    v->parameter[n] = as;
    snprintf(v->parameter[n].name, sizeof v->parameter[n].name, "%s%s", stem, suffix);
    v->values[n] = v->gradients[n] = (mha_named_tensor){
        .name = v->parameter[n].name, .dtype = v->layer.options.dtype, .rank = rank, .shape = {rows, columns, 0, 0}};
}

void mha__name_matrix(mha_variant *v, int dense, int t, const char *format, int64_t number)
{
    const mha__variant_projection *d = &v->dense[dense];
    const int64_t out = d->out / (d->tensors ? d->tensors : 1);
    const mha__variant_parameter weight = {.fan_in = d->plain ? 0 : d->in, .dense = dense, .tensor = t};
    const mha__variant_parameter bias = {.fan_in = d->in, .dense = dense, .tensor = t, .bias = true};
    if (d->plain) {
        name_one(v, weight, format, number, "", 2, d->in, out);
        return;
    }
    name_one(v, weight, format, number, ".weight", 2, out, d->in);
    if (d->bias) name_one(v, bias, format, number, ".bias", 1, out, 0);
}

void mha__name_usual(mha_variant *v)
{
    mha__name_matrix(v, MHA__Q, 0, "q_proj", 0);
    mha__name_matrix(v, MHA__K, 0, "k_proj", 0);
    mha__name_matrix(v, MHA__V, 0, "v_proj", 0);
    if (v->dense[MHA__O].out) mha__name_matrix(v, MHA__O, 0, "o_proj", 0);
}

static mha_status check_dtype(mha_variant *v, mha_error *err)
{
    mha_dtype *dtype = &v->layer.options.dtype;
    if (!*dtype) *dtype = MHA_F32;
    if (*dtype != MHA_F32 && *dtype != MHA_F64)
        return mha__fail(err, MHA_ERR_ARG, "%s: dtype must be one of f32, f64 (got %s)", v->name,
                         mha__quote_dtype(&(mha__quoted){0}, *dtype));
    return MHA_OK;
}

static mha_variant *lay_out(mha__arena *arena, int parameters)
{
    mha_variant *v = mha__take(arena, 1, sizeof *v);
    mha__variant_parameter *parameter = mha__take(arena, (size_t)parameters, sizeof *parameter);
    mha_named_tensor *values = mha__take(arena, 2 * (size_t)parameters, sizeof *values);
    if (v) *v = (mha_variant){.parameter = parameter, .values = values, .gradients = values + parameters};
    return v;
}

mha_status mha__variant_create(mha_ctx *ctx, mha_variant *described, void (*name_all)(mha_variant *v),
                               mha_variant **layer, mha_error *err)
{
    MHA__TRY(check_dtype(described, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    described->parameters = 0;
    described->parameter = NULL;
    name_all(described);
    mha__arena arena = {0};
    lay_out(&arena, described->parameters);
    arena.base = mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.used, described->name);
    arena.used = 0;
    mha_variant *v = lay_out(&arena, described->parameters);
    described->layer.ctx = ctx;
    described->layer.as_published = true;
    described->layer.k_heads = described->layer.v_heads = described->layer.options.kv_heads;
    described->parameter = v->parameter;
    described->values = v->values;
    described->gradients = v->gradients;
    described->parameters = 0;
    name_all(described);
    *v = *described;
    if (v->layer.rope.head_dim) v->layer.options.rope = &v->layer.rope;
    *layer = v;
    return MHA_OK;
}

void mha_variant_free(mha_variant *v)
{
    if (!v) return;
    mha__attn_layer_release(&v->layer);
    mha__free(v->layer.ctx, v->value_memory);
    mha__free(v->layer.ctx, v->gradient_memory);
    mha__free(v->layer.ctx, v);
}
