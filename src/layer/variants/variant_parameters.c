/* variant_parameters.c - the parameters of a variant: memory, initialization as in PyTorch, packing for the layer. */
#include "base/ctx.h"
#include "layer/selection/computed_heads.h"
#include "layer/variants/variant.h"
#include <math.h>
#include <string.h>

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

/* ---- memory ---- */

/* Allocates the matrix and the bias of each projection; a list of matrices is contiguous. */
static void lay_out_dense(const mha_variant *v, mha__arena *arena, char *weight[MHA__DENSES], char *bias[MHA__DENSES])
{
    const size_t real = mha__attn_real(&v->layer);
    for (int d = 0; d < MHA__DENSES; d++) {
        weight[d] = mha__take(arena, (size_t)(v->dense[d].out * v->dense[d].in), real);
        bias[d] = v->dense[d].bias ? mha__take(arena, (size_t)v->dense[d].out, real) : NULL;
    }
}

/* Allocates all elements of a list of tensors in one block, set to zero. */
static mha_status allocate(const mha_variant *v, mha_named_tensor *list, char *weight[MHA__DENSES],
                           char *bias[MHA__DENSES], void **memory, const char *what, mha_error *err)
{
    mha__arena arena = {0};
    lay_out_dense(v, &arena, weight, bias);
    *memory = arena.base = arena.overflow ? NULL : mha__calloc(v->layer.ctx, arena.used, 1);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, what);
    arena.used = 0;
    lay_out_dense(v, &arena, weight, bias);
    for (int n = 0; n < v->parameters; n++) {
        const mha__variant_parameter *p = &v->parameter[n];
        const size_t each = (size_t)elements(&list[n]) * mha__attn_real(&v->layer);
        list[n].data = (p->bias ? bias : weight)[p->dense] + (size_t)p->tensor * each;
    }
    return MHA_OK;
}

static void clear(const mha_variant *v, const mha_named_tensor *list)
{
    for (int n = 0; n < v->parameters; n++)
        memset(list[n].data, 0, (size_t)elements(&list[n]) * mha__attn_real(&v->layer));
}

static mha_status zero_values(mha_variant *v, mha_error *err)
{
    char *weight[MHA__DENSES], *bias[MHA__DENSES];
    if (v->value_memory) {
        clear(v, v->values);
        return MHA_OK;
    }
    MHA__TRY(allocate(v, v->values, weight, bias, &v->value_memory, "the parameters of a layer", err));
    for (int d = 0; d < MHA__DENSES; d++) {
        v->dense[d].weight = weight[d];
        v->dense[d].biases = bias[d];
    }
    return MHA_OK;
}

mha_status mha_variant_zero_gradients(mha_variant *v, mha_error *err)
{
    char *weight[MHA__DENSES], *bias[MHA__DENSES];
    if (!v) return mha__fail(err, MHA_ERR_ARG, "attention layer must not be NULL");
    if (v->gradient_memory) {
        clear(v, v->gradients);
        return MHA_OK;
    }
    MHA__TRY(allocate(v, v->gradients, weight, bias, &v->gradient_memory, "the gradients of a layer", err));
    for (int d = 0; d < MHA__DENSES; d++) {
        v->dense[d].dweight = weight[d];
        v->dense[d].dbiases = bias[d];
    }
    return MHA_OK;
}

/* ---- initialization ---- */

/* Converts the float32 elements at the start of the array to double, in place. */
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
        else /* a bias has the same bound as its matrix */
            MHA__TRY(mha_rng_uniform(rng, -1 / sqrt((double)fan_in), 1 / sqrt((double)fan_in), x, count, err));
        if (v->layer.options.dtype == MHA_F64) widen(v->values[n].data, count);
    }
    return MHA_OK;
}

/* Rejects heads that are too wide for the operator. A variant with such heads can be created and its parameters
 * counted, but it cannot run. */
static mha_status check_head_width(const mha_variant *v, mha_error *err)
{
    const mha_attn_layer_options *o = &v->layer.options;
    int64_t width = o->choice.of == MHA_CHOICE_OPTIONS ? 0 : o->head_dim;
    for (int64_t n = 0; o->choice.of == MHA_CHOICE_OPTIONS && n < o->choice.option_count; n++)
        width = mha__max64(width, o->hidden / o->choice.options[n]);
    if (width <= MHA_HEAD_DIM_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s: head width must be at most %d (got %lld)", v->name, MHA_HEAD_DIM_MAX,
                     (long long)width);
}

mha_status mha_variant_init(mha_variant *v, mha_rng *rng, mha_error *err)
{
    if (!v) return mha__fail(err, MHA_ERR_ARG, "attention layer must not be NULL");
    MHA__TRY(check_head_width(v, err));
    if (!rng || !v->value_memory) MHA__TRY(zero_values(v, err));
    if (!rng) return MHA_OK;
    MHA__TRY(draw(v, rng, err));
    return mha_variant_update(v, err);
}

/* ---- packing ---- */

static mha__matrix matrix_of(const mha_variant *v, int dense)
{
    const mha__variant_projection *d = &v->dense[dense];
    return (mha__matrix){.weight = d->weight, .bias = d->biases, .transposed = d->plain, .out = d->out};
}

/* Packs q, k and v. They are packed head by head if calls skip heads, or if they are lists of plain matrices, which do
 * not form one matrix. */
static mha_status pack_inputs(mha_variant *v, mha_error *err)
{
    mha_attn_layer *l = &v->layer;
    const mha__matrix qkv[] = {matrix_of(v, MHA__Q), matrix_of(v, MHA__K), matrix_of(v, MHA__V)};
    if (mha__by_head(v)) return mha__heads_pack(l, qkv, err);
    for (int p = 0; p < 3; p++)
        MHA__TRY(mha__linear_keep(l->ctx, l->options.dtype, l->options.hidden, &qkv[p], 1, &l->project[p], err));
    return MHA_OK;
}

static mha_status pack_experts(mha_variant *v, mha_error *err)
{
    mha_attn_layer *l = &v->layer;
    const mha__matrix all = matrix_of(v, MHA__EXPERT_O);
    const size_t real = mha__attn_real(l);
    const int64_t E = l->options.hidden, D = l->options.head_dim, experts = l->options.heads;
    mha__matrix *expert = l->head_part; /* reuses the list of head matrices, which are already packed */
    for (int64_t e = 0; e < experts; e++)
        expert[e] = (mha__matrix){.weight = (const char *)all.weight + (size_t)(e * E * D) * real, .out = E};
    l->expert_bias = all.bias;
    return mha__linear_keep(l->ctx, l->options.dtype, D, expert, experts, &l->expert_o, err);
}

mha_status mha_variant_update(mha_variant *v, mha_error *err)
{
    if (!v) return mha__fail(err, MHA_ERR_ARG, "attention layer must not be NULL");
    if (!v->value_memory)
        return mha__fail(err, MHA_ERR_ARG, "%s: mha_variant_init must be called before mha_variant_update", v->name);
    mha_attn_layer *l = &v->layer;
    const mha__matrix o = matrix_of(v, MHA__O), score = matrix_of(v, MHA__CHOICE);
    const mha__matrix hidden = matrix_of(v, MHA__CHOICE_HIDDEN);
    MHA__TRY(pack_inputs(v, err));
    if (v->dense[MHA__EXPERT_O].out) MHA__TRY(pack_experts(v, err));
    if (o.out) MHA__TRY(mha__linear_keep(l->ctx, l->options.dtype, v->dense[MHA__O].in, &o, 1, &l->o, err));
    MHA__TRY(mha__attn_choice_keep(l, &score, &hidden, err));
    v->packed = true;
    return MHA_OK;
}
