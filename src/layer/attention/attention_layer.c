/* attention_layer.c - attention between two projections.
 *
 * One linear layer computes q, k and v of all heads into one buffer whose rows are [q of H heads | k of Hkv | v of
 * Hkv]; if k and v have different head counts, repeat_kv_heads.c repeats heads. The operator reads the buffer through
 * strides and writes [B, L, H, D], which the output projection reads. With a 16-bit dtype the projection writes 16 bit
 * directly; if heads are rotated, normalized or cached, the operator reads a 16-bit copy. */
#include "layer/attention/attention_layer.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/linear/linear.h"
#include "layer/norm.h"
#include "layer/selection/computed_heads.h"
#include "layer/selection/head_count_per_sequence.h"
#include <string.h>

/* ---- creation ---- */

static mha_status check_options(mha_attn_layer_options *o, mha_error *err)
{
    if (o->hidden < 1 || o->hidden > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: hidden must be from 1 to 2^31-1 (got %lld)",
                         (long long)o->hidden);
    if (o->heads < 1 || o->heads > 65536)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: heads must be from 1 to 65536 (got %lld)",
                         (long long)o->heads);
    if (!o->kv_heads) o->kv_heads = o->heads;
    if (!o->v_heads) o->v_heads = o->kv_heads;
    if (o->kv_heads < 1 || o->heads % o->kv_heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: kv_heads must divide heads = %lld (got %lld)",
                         (long long)o->heads, (long long)o->kv_heads);
    if (o->v_heads < 1 || o->heads % o->v_heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: v_heads must divide heads = %lld (got %lld)",
                         (long long)o->heads, (long long)o->v_heads);
    if (!o->head_dim && o->hidden % o->heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: heads must divide hidden = %lld (got %lld)",
                         (long long)o->hidden, (long long)o->heads);
    if (!o->head_dim) o->head_dim = o->hidden / o->heads;
    if (o->head_dim < 1 || o->head_dim > MHA_HEAD_DIM_MAX)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: head_dim must be 1 to %d (got %lld)", MHA_HEAD_DIM_MAX,
                         (long long)o->head_dim);
    if (o->q_norm.weight) MHA__TRY(mha__norm_check("attention layer: q_norm", &o->q_norm, err));
    if (o->k_norm.weight) MHA__TRY(mha__norm_check("attention layer: k_norm", &o->k_norm, err));
    if (o->whole_norms && o->v_heads != o->kv_heads)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "attention layer: v_heads must be kv_heads = %lld with whole_norms",
                         (long long)o->kv_heads);
    if (o->rope && o->rope->head_dim != o->head_dim)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: head_dim of rope must be %lld (got %lld)",
                         (long long)o->head_dim, (long long)o->rope->head_dim);
    if (o->qkv.weight && (o->q.weight || o->k.weight || o->v.weight))
        return mha__fail(err, MHA_ERR_ARG, "attention layer: qkv must be NULL with q, k or v");
    if (!o->dtype) o->dtype = MHA_F32;
    if (o->dtype != MHA_F32 && o->dtype != MHA_BF16 && o->dtype != MHA_F16)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: dtype must be f32, bf16 or f16 (got %s)",
                         mha_dtype_name(o->dtype));
    return mha__attn_choice_check(o, err);
}

/* Packs the projections; q, k and v become one linear layer. */
static mha_status create_projections(mha_attn_layer *l, const mha_attn_layer_options *o, mha_error *err)
{
    const int64_t q_width = o->heads * o->head_dim;
    mha_matrix parts[] = {o->q, o->k, o->v}, one = o->qkv, out = o->o;
    parts[0].out = q_width;
    parts[1].out = o->kv_heads * o->head_dim;
    parts[2].out = o->v_heads * o->head_dim;
    one.out = parts[0].out + parts[1].out + parts[2].out;
    out.out = o->hidden;
    const bool fused = one.weight != NULL;
    mha_status status = MHA_OK;
    if (!mha__heads_pack(l, o, &status, err))
        status =
            mha_linear_create_stack(l->ctx, o->hidden, fused ? &one : parts, fused ? 1 : 3, MHA_ACT_NONE, &l->qkv, err);
    if (status != MHA_OK) return status;
    return mha_linear_create_stack(l->ctx, q_width, &out, 1, MHA_ACT_NONE, &l->o, err);
}

/* The layer's own copy of a norm over D. */
static mha_norm keep_norm(const mha_norm *norm, int64_t width, float *copy)
{
    mha_norm own = *norm;
    if (norm->weight) own.weight = memcpy(copy, norm->weight, (size_t)width * sizeof *copy);
    if (norm->weight && norm->bias) own.bias = memcpy(copy + width, norm->bias, (size_t)width * sizeof *copy);
    return own;
}

/* Elements of the weights and biases of both norms. */
static int64_t norm_floats(const mha_attn_layer_options *o)
{
    return 2 * (mha__attn_norm_width(o, o->heads) + mha__attn_norm_width(o, o->kv_heads));
}

void mha__attn_layer_keep_norms(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    const int64_t q = mha__attn_norm_width(o, o->heads), k = mha__attn_norm_width(o, l->k_heads);
    l->options.q_norm = keep_norm(&o->q_norm, q, l->norms);
    l->options.k_norm = keep_norm(&o->k_norm, k, l->norms + 2 * q);
}

static void keep_options(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    l->options = *o;
    l->options.kv_heads = mha__common_multiple(o->kv_heads, o->v_heads);
    l->k_heads = o->kv_heads;
    l->v_heads = o->v_heads;
    l->options.q = l->options.k = l->options.v = l->options.qkv = l->options.o = (mha_matrix){0};
    l->options.choice.score = l->options.choice.hidden = (mha_matrix){0};
    if (o->choice.of == MHA_CHOICE_OPTIONS) l->options.choice.keep = 1;
    mha__attn_layer_keep_norms(l, o);
    if (o->slopes)
        l->options.slopes = memcpy(l->norms + norm_floats(o), o->slopes, (size_t)o->heads * sizeof *l->norms);
    l->options.rope = NULL;
    if (!o->rope) return;
    l->rope = (mha_rope_options){.size = sizeof l->rope,
                                 .head_dim = o->head_dim,
                                 .rotary_dim = o->rope->rotary_dim,
                                 .interleaved = o->rope->interleaved};
    l->options.rope = &l->rope;
}

mha_status mha_attn_layer_create(mha_ctx *ctx, const mha_attn_layer_options *options, mha_attn_layer **layer,
                                 mha_error *err)
{
    if (!layer) return mha__fail(err, MHA_ERR_ARG, "attention layer: where to store it must not be NULL");
    *layer = NULL;
    mha_attn_layer_options o;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_attn_layer_options", err));
    MHA__TRY(check_options(&o, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    const size_t slopes = o.slopes ? (size_t)o.heads : 0;
    const size_t bytes = sizeof(mha_attn_layer) + ((size_t)norm_floats(&o) + slopes) * sizeof(float);
    mha_attn_layer *l = mha__calloc(ctx, 1, bytes);
    if (!l) return mha__no_memory(err, bytes, "an attention layer");
    l->ctx = ctx;
    mha_status status = create_projections(l, &o, err);
    if (status == MHA_OK) status = mha__attn_choice_create(l, &o, err);
    if (status != MHA_OK) {
        mha_attn_layer_free(l);
        return status;
    }
    keep_options(l, &o);
    *layer = l;
    return MHA_OK;
}

void mha_attn_layer_free(mha_attn_layer *layer)
{
    if (!layer) return;
    mha_linear_free(layer->qkv);
    mha_linear_free(layer->o);
    mha__free(layer->ctx, layer->head_part);
    mha__free(layer->ctx, layer->one_head);
    mha__free(layer->ctx, layer->scores);
    mha__free(layer->ctx, layer);
}

/* ---- forward ---- */

typedef struct workspace {
    float *qkv;             /* [B L, (H + 2 Hkv) D]; NULL where `half` is computed directly */
    float *context;         /* [B L, H D] */
    uint16_t *half, *mixed; /* qkv and context in 16 bit; NULL in f32 */
    /* rounded input of the linear layers; of the output projection it is `mixed` itself, if the types match */
    void *left;
    mha__chosen chosen;
    void *scratch; /* workspace of the operator */
} workspace;

static int64_t qkv_width(const mha_attn_layer_options *o)
{
    return (o->heads + 2 * o->kv_heads) * o->head_dim;
}

/* True if no step reads q, k and v as f32. */
static bool rounds_at_once(const mha_attn_layer *l, const mha_layer_input *in)
{
    const mha_attn_layer_options *o = &l->options;
    return o->dtype != MHA_F32 && !o->q_norm.weight && !o->k_norm.weight && !o->rope && !in->cache &&
           l->k_heads == l->v_heads;
}

static workspace lay_out(mha__arena *arena, const mha_attn_layer *l, const mha_layer_input *input, size_t scratch_bytes)
{
    workspace w = {0};
    const int64_t rows = input->batch * input->length;
    const mha_attn_layer_options *o = &l->options;
    const size_t q_width = (size_t)(o->heads * o->head_dim), wide = (size_t)qkv_width(o);
    const size_t in = mha__linear_left(l->qkv, rows), out = mha__linear_left(l->o, rows);
    if (!rounds_at_once(l, input)) w.qkv = mha__take(arena, (size_t)rows, wide * sizeof *w.qkv);
    w.left = mha__take(arena, 1, in > out ? in : out);
    if (o->dtype != MHA_F32) w.half = mha__take(arena, (size_t)rows, wide * sizeof *w.half);
    if (o->dtype == MHA_BF16 && mha__linear_takes_bf16(l->o) && !input->fills) {
        w.mixed = mha__take(arena, 1, out);
    } else {
        w.context = mha__take(arena, (size_t)rows, q_width * sizeof *w.context);
        if (o->dtype != MHA_F32) w.mixed = mha__take(arena, (size_t)rows, q_width * sizeof *w.mixed);
    }
    mha__chosen_take(arena, l, input, &w.chosen);
    w.scratch = mha__take(arena, 1, scratch_bytes);
    return w;
}

mha_status mha__attn_layer_bytes(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                                 size_t *bytes, mha_error *err)
{
    mha__arena arena = {0};
    lay_out(&arena, layer, in, mha_attn_plan_workspace(plan));
    if (arena.overflow) return mha__no_memory(err, SIZE_MAX, "an attention layer's workspace");
    *bytes = arena.used;
    return MHA_OK;
}

mha_status mha__attn_layer_prepare(const mha_attn_layer *layer, const mha_layer_input *in, int64_t rows, float *qkv,
                                   mha_error *err)
{
    const mha_attn_layer_options *o = &layer->options;
    const int64_t D = o->head_dim, row = qkv_width(o);
    float *k = qkv + o->heads * D;
    const int64_t q_norms = o->whole_norms ? 1 : o->heads, k_norms = o->whole_norms ? 1 : o->kv_heads;
    const int64_t q_width = mha__attn_norm_width(o, o->heads), k_width = mha__attn_norm_width(o, o->kv_heads);
    if (o->q_norm.weight) mha__norm_heads(layer->ctx, &o->q_norm, rows, row, q_norms, q_width, qkv);
    if (o->k_norm.weight) mha__norm_heads(layer->ctx, &o->k_norm, rows, row, k_norms, k_width, k);
    if (!o->rope) return MHA_OK;
    if (!in->cos || !in->sin)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: %s must not be NULL where the layer rotates",
                         in->cos ? "sin" : "cos");
    /* q and k are adjacent, so their heads form one array */
    return mha_rope_turn(layer->ctx, o->rope, in->cos, in->sin, rows, o->heads + o->kv_heads, qkv, row, D, 0, err);
}

/* Appends the keys and values of this call to the cache, and binds all cached ones to the operator. */
static mha_status through_cache(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_args *args,
                                mha_error *err)
{
    mha_attn_desc desc = {.size = sizeof desc, .heads = layer->options.heads, .q_len = in->length, .causal = 1};
    const mha_cache_tokens fresh = {
        .size = sizeof fresh, .count = in->length, .counts = in->lengths, .dtype = MHA_F32, .k = args->k, .v = args->v};
    desc.window = layer->options.window;
    MHA__TRY(mha_cache_append(in->cache, mha__layer_sequence(in), &fresh, err));
    return mha_cache_bind(in->cache, mha__layer_sequence(in), in->lengths, &desc, args, err);
}

/* Binds q, k and v in 16 bit; cached k and v are bound already. */
static void take_halves(const mha_attn_layer *layer, const workspace *w, mha_attn_args *args, bool cached)
{
    const mha_attn_layer_options *o = &layer->options;
    const int64_t q_width = o->heads * o->head_dim, kv_width = o->kv_heads * o->head_dim;
    args->q.data = w->half;
    args->out.data = w->mixed;
    if (cached) return;
    args->k.data = w->half + q_width;
    args->v.data = w->half + q_width + kv_width;
}

/* Computes q, k and v as the operator reads them. */
static mha_status project(const mha_attn_layer *layer, const mha_layer_input *in, int64_t rows, const workspace *w,
                          const float *x, mha_attn_args *args, mha_error *err)
{
    const mha_attn_layer_options *o = &layer->options;
    const mha__linear_call rounded = {.x = x, .rows = rows, .y = w->half, .left = w->left, .rounded = o->dtype};
    if (w->qkv) {
        mha__heads_project(layer, in, &w->chosen, x, w->left, w->qkv);
    } else {
        mha__linear_run(layer->qkv, &rounded);
    }
    if (w->qkv) MHA__TRY(mha__attn_layer_prepare(layer, in, rows, w->qkv, err));
    if (in->cache) MHA__TRY(through_cache(layer, in, args, err));
    if (w->qkv && w->half) mha__attn_convert(layer, rows, qkv_width(o), w->qkv, w->half, false);
    if (w->half) take_halves(layer, w, args, in->cache != NULL);
    return MHA_OK;
}

static void show(const mha_attn_layer *layer, const mha_layer_activations *to, int64_t rows, const workspace *w,
                 const float *x)
{
    const mha_attn_layer_options *o = &layer->options;
    mha__attn_show(layer, rows, o->hidden, x, NULL, to->input);
    mha__attn_show(layer, rows, qkv_width(o), w->qkv, w->half, to->qkv);
    mha__attn_show(layer, rows, o->heads * o->head_dim, w->context, w->context ? NULL : w->mixed, to->context);
}

mha_status mha__attn_layer_attend(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                                  const float *x, mha_error *err)
{
    const int64_t rows = in->batch * in->length;
    if (in->context) return MHA_OK;
    mha__arena arena = {.base = in->workspace};
    const workspace w = lay_out(&arena, layer, in, mha_attn_plan_workspace(plan));
    if (arena.overflow || arena.used > in->workspace_bytes)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: workspace_bytes must be at least %zu (got %zu)",
                         arena.used, in->workspace_bytes);
    float *const at_first = w.qkv ? w.qkv : (float *)(void *)w.half; /* replaced by take_halves without qkv */
    mha_attn_args args = mha__attn_layer_args(&layer->options, in, at_first, w.context);
    mha__attn_choose(layer, in, x, &w.chosen, &args);
    MHA__TRY(project(layer, in, rows, &w, x, &args, err));
    if (mha__attn_splits(layer))
        MHA__TRY(mha__attn_split_run(layer, in, &(mha__split){.args = &args, .chosen = &w.chosen}, err));
    else
        MHA__TRY(mha_attn_forward(plan, &args, w.scratch, mha_attn_plan_workspace(plan), err));
    const int64_t q_width = layer->options.heads * layer->options.head_dim;
    if (w.mixed && w.context) mha__attn_convert(layer, rows, q_width, w.context, w.mixed, true);
    if (in->fills) mha__attn_fill(layer, rows, in->fills, w.context);
    if (in->activations) show(layer, in->activations, rows, &w, x);
    return MHA_OK;
}

void mha__attn_layer_output(const mha_attn_layer *layer, const mha_attn_plan *plan, const mha_layer_input *in,
                            int64_t first, int64_t rows, float *y)
{
    mha__arena arena = {.base = in->workspace};
    const workspace w = lay_out(&arena, layer, in, mha_attn_plan_workspace(plan));
    const int64_t at = first * layer->options.heads * layer->options.head_dim;
    mha__linear_call call = {.rows = rows, .y = y, .left = w.left};
    if (in->context)
        call.x = in->context + at;
    else if (w.context)
        call.x = w.context + at;
    else
        call.left = w.mixed + at;
    if (mha__heads_output_skips(layer, in))
        mha__heads_output(layer, in, &w.chosen, w.context, first, rows, y);
    else
        mha__linear_run(layer->o, &call);
    if (!in->activations || !in->activations->out) return;
    const int64_t width = layer->options.hidden;
    mha__attn_show(layer, rows, width, y, NULL, in->activations->out + first * width);
}

/* ---- public ---- */

mha_status mha_attn_layer_workspace(const mha_attn_layer *layer, const mha_layer_input *input, size_t *bytes,
                                    mha_error *err)
{
    mha_layer_input in;
    mha_attn_plan *plan = NULL;
    if (!layer || !bytes)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: %s must not be NULL", layer ? "bytes" : "layer");
    MHA__TRY(mha__layer_input(&in, input, err));
    MHA__TRY(mha__attn_layer_plan(layer, &in, &plan, err));
    const mha_status status = mha__attn_layer_bytes(layer, plan, &in, bytes, err);
    mha_attn_plan_free(plan);
    return status;
}

mha_status mha_attn_layer_forward(const mha_attn_layer *layer, const mha_layer_input *input, const float *x, float *y,
                                  mha_error *err)
{
    mha_layer_input in;
    mha_attn_plan *plan = NULL;
    size_t bytes = 0;
    void *own = NULL;
    if (!layer || !x || !y) return mha__fail(err, MHA_ERR_ARG, "attention layer: layer, x and y must not be NULL");
    MHA__TRY(mha__layer_input(&in, input, err));
    MHA__TRY(mha__attn_layer_plan(layer, &in, &plan, err));
    mha_status status = mha__attn_layer_bytes(layer, plan, &in, &bytes, err);
    if (status == MHA_OK)
        status = mha__layer_workspace(layer->ctx, bytes, &in, &own, "an attention layer's workspace", err);
    if (status == MHA_OK) status = mha__attn_layer_attend(layer, plan, &in, x, err);
    if (status == MHA_OK) mha__attn_layer_output(layer, plan, &in, 0, in.batch * in.length, y);
    mha_attn_plan_free(plan);
    mha__free(layer->ctx, own);
    return status;
}
