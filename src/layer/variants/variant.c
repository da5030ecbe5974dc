/* variant.c - the object of mha/variants.h: its named parameters, their initialization and packing. */
#include "layer/variants/variant.h"
#include "base/ctx.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_WIDTH (1 << 24) /* keeps every parameter count below overflow, even with 4,096 experts */

/* ---- checks that constructors share ---- */

mha_status mha__check_layer(mha_variant **layer, mha_error *err)
{
    if (!layer) return mha__fail(err, MHA_ERR_ARG, "attention layer: where to store it must not be NULL");
    *layer = NULL;
    return MHA_OK;
}

mha_status mha__check_width(const mha_variant *v, const char *field, int64_t width, mha_error *err)
{
    if (width < 1 || width > MAX_WIDTH)
        return mha__fail(err, MHA_ERR_ARG, "%s: %s must be from 1 to %d (got %lld)", v->name, field, MAX_WIDTH,
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
    MHA__TRY(mha__check_width(v, field, width, err));
    MHA__TRY(mha__check_heads(v, "num_heads", heads, field, width, err));
    v->heads = v->kv_heads = heads;
    v->head_dim = width / heads;
    return MHA_OK;
}

mha_status mha__share_heads(mha_variant *v, int64_t kv_heads, mha_error *err)
{
    if (!kv_heads) kv_heads = v->heads;
    if (kv_heads < 1 || v->heads % kv_heads)
        return mha__fail(err, MHA_ERR_ARG, "%s: num_kv_heads must divide num_heads = %lld (got %lld)", v->name,
                         (long long)v->heads, (long long)kv_heads);
    v->kv_heads = kv_heads;
    return MHA_OK;
}

mha_status mha__check_scale(mha_variant *v, mha_scale_rule rule, mha_error *err)
{
    if (rule != MHA_SCALE_HEAD_DIM && rule != MHA_SCALE_D_OUT)
        return mha__fail(err, MHA_ERR_ARG, "%s: scale_rule must be a value of mha_scale_rule (got %d)", v->name,
                         (int)rule);
    v->scale = rule == MHA_SCALE_D_OUT ? 1 / sqrt((double)v->d_out) : 0;
    return MHA_OK;
}

mha_status mha__check_selection(const mha_variant *v, mha_error *err)
{
    if ((int)v->choice.selection < MHA_SELECTION_HARD || v->choice.selection > MHA_SELECTION_STRAIGHT_THROUGH)
        return mha__fail(err, MHA_ERR_ARG, "%s: selection must be a value of mha_selection (got %d)", v->name,
                         (int)v->choice.selection);
    return MHA_OK;
}

mha_status mha__check_dropout(const mha_variant *v, mha_error *err)
{
    if (!(v->dropout >= 0 && v->dropout <= 1))
        return mha__fail(err, MHA_ERR_ARG, "%s: dropout must be from 0 to 1 (got %g)", v->name, v->dropout);
    if (v->context_length < 0)
        return mha__fail(err, MHA_ERR_ARG, "%s: context_length must not be negative (got %lld)", v->name,
                         (long long)v->context_length);
    return MHA_OK;
}

/* ---- the list of parameters ---- */

static void name_one(mha_variant *v, const char *format, int64_t number, const char *suffix, int64_t fan_in, int rank,
                     int64_t rows, int64_t columns)
{
    const int n = v->parameters++;
    if (!v->parameter) return;
    char stem[40];
    snprintf(stem, sizeof stem, format, (long long)number);
    snprintf(v->parameter[n].name, sizeof v->parameter[n].name, "%s%s", stem, suffix);
    v->parameter[n].fan_in = fan_in;
    v->values[n] = v->gradients[n] = (mha_named_tensor){
        .name = v->parameter[n].name, .dtype = v->dtype, .rank = rank, .shape = {rows, columns, 0, 0}};
}

void mha__name_matrix(mha_variant *v, int dense, int t, const char *format, int64_t number)
{
    mha__dense *d = &v->dense[dense];
    const int64_t out = d->out / d->tensors;
    if (t == 0) d->first = v->parameters;
    if (t == 1) d->step = v->parameters - d->first;
    if (d->plain) {
        name_one(v, format, number, "", 0, 2, d->in, out);
        return;
    }
    name_one(v, format, number, ".weight", d->in, 2, out, d->in);
    if (d->bias) name_one(v, format, number, ".bias", d->in, 1, out, 0);
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
    if (!v->dtype) v->dtype = MHA_F32;
    v->real = mha_dtype_size(v->dtype);
    if (v->dtype != MHA_F32 && v->dtype != MHA_F64)
        return mha__fail(err, MHA_ERR_ARG, "%s: dtype must be f32 or f64 (got %s)", v->name, mha_dtype_name(v->dtype));
    return MHA_OK;
}

static mha_variant *lay_out(mha__arena *arena, int parameters)
{
    mha_variant *v = mha__take(arena, 1, sizeof *v);
    mha__parameter *parameter = mha__take(arena, (size_t)parameters, sizeof *parameter);
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
    described->ctx = ctx;
    described->parameter = v->parameter;
    described->values = v->values;
    described->gradients = v->gradients;
    described->parameters = 0;
    name_all(described);
    *v = *described;
    *layer = v;
    return MHA_OK;
}

void mha_variant_free(mha_variant *v)
{
    if (!v) return;
    for (int d = 0; d < MHA__DENSES; d++)
        mha_linear_free(v->dense[d].linear);
    mha__free(v->ctx, mha__value(v, 0));
    mha__free(v->ctx, mha__gradient(v, 0));
    mha__free(v->ctx, v);
}

static int64_t elements(const mha_named_tensor *t)
{
    return t->shape[0] * (t->rank == 2 ? t->shape[1] : 1);
}

int64_t mha_variant_parameter_count(const mha_variant *v)
{
    int64_t count = 0;
    for (int n = 0; v && n < v->parameters; n++)
        count += elements(&v->values[n]);
    return count;
}

const mha_named_tensor *mha_variant_parameters(const mha_variant *v, int64_t *count)
{
    if (count) *count = v ? v->parameters : 0;
    return v ? v->values : NULL;
}

const mha_named_tensor *mha_variant_gradients(const mha_variant *v, int64_t *count)
{
    if (count) *count = v ? v->parameters : 0;
    return v ? v->gradients : NULL;
}

/* ---- their memory ---- */

/* Allocates a list of tensors at once, each 64-byte aligned and zero. */
static mha_status allocate(const mha_variant *v, mha_named_tensor *list, const char *what, mha_error *err)
{
    mha__arena arena = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (int n = 0; n < v->parameters; n++) {
            void *data = mha__take(&arena, (size_t)elements(&list[n]), v->real);
            if (pass) list[n].data = data;
        }
        if (pass) break;
        arena.base = arena.overflow ? NULL : mha__calloc(v->ctx, arena.used, 1);
        if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, what);
        arena.used = 0;
    }
    return MHA_OK;
}

/* Sets all elements of a list to 0, after allocating them if needed. */
static mha_status make_zero(const mha_variant *v, mha_named_tensor *list, const char *what, mha_error *err)
{
    if (!list->data) return allocate(v, list, what, err);
    for (int n = 0; n < v->parameters; n++)
        memset(list[n].data, 0, (size_t)elements(&list[n]) * v->real);
    return MHA_OK;
}

mha_status mha_variant_zero_gradients(mha_variant *v, mha_error *err)
{
    if (!v) return mha__fail(err, MHA_ERR_ARG, "attention layer must not be NULL");
    return make_zero(v, v->gradients, "the gradients of a layer", err);
}

/* ---- drawing ---- */

/* Widens in place: float32 elements at the start of the array become doubles. */
static void widen(double *wide, int64_t count)
{
    for (int64_t i = count - 1; i >= 0; i--) {
        float narrow;
        memcpy(&narrow, (const char *)wide + (size_t)i * sizeof narrow, sizeof narrow);
        wide[i] = (double)narrow;
    }
}

static mha_status draw(mha_variant *v, mha_rng *rng, mha_error *err)
{
    for (int n = 0; n < v->parameters; n++) {
        const int64_t fan_in = v->parameter[n].fan_in, count = elements(&v->values[n]);
        float *x = v->values[n].data;
        if (fan_in == 0)
            MHA__TRY(mha_rng_rand(rng, x, count, err));
        else if (v->values[n].rank == 2)
            MHA__TRY(mha_rng_linear(rng, fan_in, v->values[n].shape[0], x, NULL, err));
        else /* a bias has the same bound as its weight */
            MHA__TRY(mha_rng_uniform(rng, -1 / sqrt((double)fan_in), 1 / sqrt((double)fan_in), x, count, err));
        if (v->dtype == MHA_F64) widen(v->values[n].data, count);
    }
    return MHA_OK;
}

/* Wider heads can be described and counted, but the operator does not support them. */
static mha_status check_head_width(const mha_variant *v, mha_error *err)
{
    int64_t width = v->head_dim;
    for (int64_t n = 0; v->choice.of == MHA_CHOICE_OPTIONS && n < v->choices; n++) {
        const int64_t option = v->d_in / v->choice.options[n];
        width = n == 0 || option > width ? option : width;
    }
    if (width <= MHA_HEAD_DIM_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s: head width must be at most %d (got %lld)", v->name, MHA_HEAD_DIM_MAX,
                     (long long)width);
}

mha_status mha_variant_init(mha_variant *v, mha_rng *rng, mha_error *err)
{
    if (!v) return mha__fail(err, MHA_ERR_ARG, "attention layer must not be NULL");
    MHA__TRY(check_head_width(v, err));
    if (!rng || !mha__value(v, 0)) MHA__TRY(make_zero(v, v->values, "the parameters of a layer", err));
    if (!rng) return MHA_OK;
    MHA__TRY(draw(v, rng, err));
    return mha_variant_update(v, err);
}

/* ---- packing ---- */

/* The matrices of a projection, one per part. */
static void list_parts(const mha_variant *v, const mha__dense *d, mha__matrix *parts)
{
    const int64_t out = d->out / d->parts, parts_of_tensor = d->parts / d->tensors;
    for (int p = 0; p < d->parts; p++) {
        const int parameter = d->first + p / (int)parts_of_tensor * d->step;
        const int64_t row = p % parts_of_tensor * out;
        parts[p] = (mha__matrix){
            .weight = mha__value(v, parameter) + (size_t)(row * d->in) * v->real,
            .bias = d->bias ? mha__value(v, parameter + 1) + (size_t)row * v->real : NULL,
            .transposed = d->plain,
            .out = out,
        };
    }
}

static mha_status pack(mha_variant *v, mha__dense *d, mha_error *err)
{
    mha__matrix *parts = mha__calloc(v->ctx, (size_t)d->parts, sizeof *parts);
    if (!parts) return mha__no_memory(err, (size_t)d->parts * sizeof *parts, "the list of a layer's matrices");
    mha_status status = MHA_OK;
    list_parts(v, d, parts);
    if (d->linear)
        mha__linear_pack(d->linear, parts);
    else
        status = mha__linear_create(v->ctx, v->dtype, d->in, parts, d->parts, MHA_ACT_NONE, &d->linear, err);
    mha__free(v->ctx, parts);
    return status;
}

mha_status mha_variant_update(mha_variant *v, mha_error *err)
{
    if (!v) return mha__fail(err, MHA_ERR_ARG, "attention layer must not be NULL");
    if (!mha__value(v, 0))
        return mha__fail(err, MHA_ERR_ARG, "%s: mha_variant_init must precede mha_variant_update", v->name);
    for (int d = 0; d < MHA__DENSES; d++)
        if (v->dense[d].out) MHA__TRY(pack(v, &v->dense[d], err));
    return MHA_OK;
}
