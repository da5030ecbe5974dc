/* latent_layer.c - the public layer of latent attention. The output projection is stored [E, H value]; the layer reads
 * heads of width D, the width of q, k and v of the expanded form, so its columns are padded with zeros. */
#include "attn/cache/kv_cache.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/attention/latent.h"
#include "layer/norm.h"
#include "mha/latent_attention.h"
#include <math.h>
#include <string.h>

/* ---- options ---- */

static mha_status check_widths(const mha_latent_options *o, mha_error *err)
{
    const struct {
        const char *name;
        int64_t value, min;
    } fields[] = {{"hidden", o->hidden, 1},   {"heads", o->heads, 1}, {"q_rank", o->q_rank, 0},
                  {"kv_rank", o->kv_rank, 1}, {"nope", o->nope, 1},   {"rope", o->rope, 1},
                  {"value", o->value, 1}};
    for (size_t n = 0; n < sizeof fields / sizeof *fields; n++)
        if (fields[n].value < fields[n].min || fields[n].value > INT32_MAX)
            return mha__fail(err, MHA_ERR_ARG, "mha_latent_options: %s must be from %lld to 2^31-1 (got %lld)",
                             fields[n].name, (long long)fields[n].min, (long long)fields[n].value);
    if (o->rope % 2)
        return mha__fail(err, MHA_ERR_ARG, "mha_latent_options: rope must be even (got %lld)", (long long)o->rope);
    if (o->kv_rank + o->rope > MHA_HEAD_DIM_MAX || o->nope + o->rope > MHA_HEAD_DIM_MAX || o->value > MHA_HEAD_DIM_MAX)
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_latent_options: kv_rank + rope, nope + rope and value must be at most %d (got %lld, %lld, "
            "%lld)",
            MHA_HEAD_DIM_MAX, (long long)(o->kv_rank + o->rope), (long long)(o->nope + o->rope), (long long)o->value);
    if (o->heads <= 65536) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_latent_options: heads must be at most 65536 (got %lld)",
                     (long long)o->heads);
}

static mha_status check_weights(const mha_latent_options *o, mha_error *err)
{
    const struct {
        const char *name;
        const mha_matrix *matrix;
        bool needed, bias;
    } parts[] = {{"q_a", &o->q_a, o->q_rank > 0, true},
                 {"q_b", &o->q_b, true, false},
                 {"kv_a", &o->kv_a, true, true},
                 {"kv_b", &o->kv_b, true, false},
                 {"o", &o->o, true, true}};
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
        const mha_matrix *m = parts[n].matrix;
        if (parts[n].needed && (!m->weight || m->transposed || (m->bias && !parts[n].bias)))
            return mha__fail(err, MHA_ERR_ARG, "mha_latent_options: %s must have a weight%s and must not be transposed",
                             parts[n].name, parts[n].bias ? "" : ", must not have a bias");
    }
    if ((o->q_rank && (!o->q_norm.weight || o->q_norm.bias)) || !o->kv_norm.weight || o->kv_norm.bias)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_latent_options: q_norm and kv_norm must have a weight and must not have a bias");
    if (o->q_rank) MHA__TRY(mha__norm_check("mha_latent_options: q_norm", &o->q_norm, err));
    return mha__norm_check("mha_latent_options: kv_norm", &o->kv_norm, err);
}

static int64_t head_width(const mha_latent_options *o)
{
    return mha__max64(o->nope + o->rope, o->value);
}

/* ---- the output projection ---- */

/* Copies [E, H value] to [E, H D], padded with zeros. */
static void pad(const mha_latent_options *o, const float *narrow, float *wide)
{
    const int64_t D = head_width(o), V = o->value;
    for (int64_t r = 0; r < o->hidden * o->heads; r++, narrow += V, wide += D)
        for (int64_t i = 0; i < D; i++)
            wide[i] = i < V ? narrow[i] : 0;
}

/* Adds [E, H D] without the padding to [E, H value]. */
static void add_unpadded(const mha_latent_options *o, const float *wide, float *narrow)
{
    const int64_t D = head_width(o), V = o->value;
    for (int64_t r = 0; r < o->hidden * o->heads; r++, narrow += V, wide += D)
        for (int64_t i = 0; i < V; i++)
            narrow[i] += wide[i];
}

static mha_status padded_output(mha_ctx *ctx, const mha_latent_options *o, float **wide, mha_error *err)
{
    size_t bytes = 0;
    if (!mha__bytes((int64_t[]){o->hidden, o->heads, head_width(o)}, 3, sizeof(float), &bytes))
        return mha__no_memory(err, SIZE_MAX, "the output projection of latent attention");
    *wide = mha__alloc(ctx, bytes);
    if (!*wide) return mha__no_memory(err, bytes, "the output projection of latent attention");
    pad(o, o->o.weight, *wide);
    return MHA_OK;
}

/* ---- creation ---- */

static mha_status create(mha_ctx *ctx, const mha_latent_options *o, const float *wide, mha_attn_layer **layer,
                         mha_error *err)
{
    const mha_rope_options rope = {
        .size = sizeof rope, .head_dim = head_width(o), .rotary_dim = o->rope, .interleaved = o->interleaved};
    mha_attn_layer_options outer = {.size = sizeof outer,
                                    .hidden = o->hidden,
                                    .heads = o->heads,
                                    .head_dim = head_width(o),
                                    .o = o->o,
                                    .rope = &rope,
                                    .scale = o->scale != 0 ? o->scale : 1 / sqrt((double)(o->nope + o->rope)),
                                    .causal = o->causal,
                                    .window = o->window};
    const mha__latent_options inner = {.q_rank = o->q_rank,
                                       .kv_rank = o->kv_rank,
                                       .nope = o->nope,
                                       .rope = o->rope,
                                       .value = o->value,
                                       .q_a = o->q_a,
                                       .q_b = o->q_b,
                                       .kv_a = o->kv_a,
                                       .kv_b = o->kv_b,
                                       .q_norm = o->q_norm,
                                       .kv_norm = o->kv_norm};
    outer.o.weight = wide;
    MHA__TRY(mha__attn_layer_create(ctx, &outer, MHA__WITHOUT_QKV, layer, err));
    const mha_status status = mha__latent_set(*layer, &inner, err);
    if (status == MHA_OK) return MHA_OK;
    mha_attn_layer_free(*layer);
    *layer = NULL;
    return status;
}

mha_status mha_latent_create(mha_ctx *ctx, const mha_latent_options *options, mha_attn_layer **layer, mha_error *err)
{
    mha_latent_options o;
    float *wide = NULL;
    if (!layer) return mha__fail(err, MHA_ERR_ARG, "mha_latent_create: layer must not be NULL");
    *layer = NULL;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_latent_options", err));
    MHA__TRY(check_widths(&o, err));
    MHA__TRY(check_weights(&o, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(padded_output(ctx, &o, &wide, err));
    const mha_status status = create(ctx, &o, wide, layer, err);
    mha__free(ctx, wide);
    return status;
}

mha_status mha_latent_cache(const mha_attn_layer *layer, mha_cache_desc *desc, mha_error *err)
{
    mha_cache_desc d;
    if (!layer || !layer->latent)
        return mha__fail(err, MHA_ERR_ARG, "mha_latent_cache: layer must %s",
                         layer ? "have latent attention" : "not be NULL");
    MHA__TRY(mha__options_need(&d, sizeof d, desc, "mha_cache_desc", err));
    const mha__latent_options *o = &layer->latent->options;
    d.kv_heads = d.v_from_k = 1;
    d.head_dim = o->kv_rank + o->rope;
    d.v_head_dim = o->kv_rank;
    mha__options_write(desc, &d, sizeof d);
    return MHA_OK;
}

/* ---- gradients ---- */

/* The arrays of a call to mha_latent_backward. */
typedef struct pass {
    const mha_latent_gradient *g;
    mha_latent_options o;
    mha_layer_input in;
    mha__attn_call call;
    mha__attn_trace trace;
    mha__attn_scratch scratch;
    float *wide, *dwide, *dx; /* padded weight of the output projection, its gradient; gradient of x */
} pass;

static void lay_out(mha__arena *arena, const mha_attn_layer *l, pass *p)
{
    const size_t weights = (size_t)(p->o.hidden * p->o.heads), D = (size_t)head_width(&p->o) * sizeof(float);
    mha__attn_trace_take(arena, l, &p->call, &p->trace);
    mha__attn_scratch_take(arena, l, &p->call, mha_attn_plan_workspace(p->call.plan), &p->scratch);
    p->wide = mha__take(arena, weights, D);
    p->dwide = p->g->d_o ? mha__take(arena, weights, D) : NULL;
    p->dx =
        p->g->dx ? p->g->dx : mha__take(arena, (size_t)mha__attn_rows(&p->call), (size_t)p->o.hidden * sizeof(float));
}

static mha__grad_slot slot_of(const mha_matrix *m, float *dweight, float *dbias)
{
    return (mha__grad_slot){.dtype = MHA_F32, .weight = m->weight, .dweight = dweight, .dbias = dbias};
}

static mha_status run(const mha_attn_layer *l, pass *p, mha_error *err)
{
    const mha_latent_gradient *g = p->g;
    const mha_latent_options *o = &p->o;
    const size_t bytes = (size_t)(o->hidden * o->heads * head_width(o)) * sizeof(float);
    const mha__attn_slots slots = {.q = slot_of(&o->q_b, g->dq_b, NULL),
                                   .o = slot_of(&(mha_matrix){.weight = p->wide}, p->dwide, g->d_o_bias),
                                   .q_a = slot_of(&o->q_a, g->dq_a, g->dq_a_bias),
                                   .q_a_norm = {.dtype = MHA_F32, .dweight = g->dq_norm},
                                   .kv_a = slot_of(&o->kv_a, g->dkv_a, g->dkv_a_bias),
                                   .kv_a_norm = {.dtype = MHA_F32, .dweight = g->dkv_norm},
                                   .kv_b = slot_of(&o->kv_b, g->dkv_b, NULL)};
    pad(o, o->o.weight, p->wide);
    if (p->dwide) memset(p->dwide, 0, bytes);
    MHA__TRY(mha__attn_attend(l, &p->call, g->x, &p->trace, &p->scratch, err));
    MHA__TRY(mha__attn_back(l, &p->call, &slots, g->x, &p->trace, &p->scratch, g->dy,
                            &(mha__attn_inputs_grad){.x = {p->dx}}, err));
    if (g->d_o) add_unpadded(o, p->dwide, g->d_o);
    return MHA_OK;
}

static mha_status allocate_and_run(const mha_attn_layer *l, pass *p, mha_error *err)
{
    mha__arena arena = {0};
    lay_out(&arena, l, p);
    void *memory = arena.overflow ? NULL : mha__alloc(l->ctx, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "gradients of latent attention");
    arena = (mha__arena){.base = memory};
    lay_out(&arena, l, p);
    const mha_status status = run(l, p, err);
    mha__free(l->ctx, memory);
    return status;
}

static mha_status check_call(const mha_attn_layer *l, const pass *p, mha_error *err)
{
    const mha_layer_input *in = &p->in;
    const char *other = in->cache         ? "cache"
                        : in->activations ? "activations"
                        : in->probs       ? "probs"
                        : in->stats       ? "stats"
                        : in->on_rows     ? "on_rows"
                        : in->context     ? "context"
                        : in->shard       ? "shard"
                                          : NULL;
    const mha__latent_options *own = &l->latent->options;
    if (other) return mha__fail(err, MHA_ERR_ARG, "mha_latent_gradient: %s of input must be NULL", other);
    if (!p->g->x || !p->g->dy)
        return mha__fail(err, MHA_ERR_ARG, "mha_latent_gradient: %s must not be NULL", p->g->x ? "dy" : "x");
    if (p->o.hidden == l->options.hidden && p->o.heads == l->options.heads && p->o.q_rank == own->q_rank &&
        p->o.kv_rank == own->kv_rank && p->o.nope == own->nope && p->o.rope == own->rope && p->o.value == own->value)
        return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_latent_gradient: the widths of options must be those of the layer");
}

mha_status mha_latent_backward(const mha_attn_layer *layer, const mha_latent_gradient *gradient, mha_error *err)
{
    mha_latent_gradient g;
    mha_attn_plan *plan = NULL;
    pass p = {.g = &g};
    if (!layer || !layer->latent)
        return mha__fail(err, MHA_ERR_ARG, "mha_latent_backward: layer must %s",
                         layer ? "have latent attention" : "not be NULL");
    MHA__TRY(mha__options_need(&g, sizeof g, gradient, "mha_latent_gradient", err));
    MHA__TRY(mha__options_need(&p.o, sizeof p.o, g.options, "mha_latent_options", err));
    MHA__TRY(check_widths(&p.o, err));
    MHA__TRY(check_weights(&p.o, err));
    MHA__TRY(mha__layer_call_input(&p.in, g.input, err));
    MHA__TRY(check_call(layer, &p, err));
    p.call = (mha__attn_call){.in = &p.in, .outputs = MHA__ATTN_BOTH};
    MHA__TRY(mha__attn_plan(layer, &p.call, &plan, err));
    p.call.plan = plan;
    const mha_status status = allocate_and_run(layer, &p, err);
    mha_attn_plan_free(plan);
    return status;
}
