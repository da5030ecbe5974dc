/* latent_absorbed.c - latent attention on a cache of latent vectors: kv_b is applied to queries and outputs, not to the
 * cached tokens (DeepSeek-V2, 2024). */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/latent.h"
#include <string.h>

/* Rotates the last `rope` columns of rows of `heads` heads. */
static mha_status rotate(const mha_attn_layer *l, const mha_layer_input *in, int64_t rows, int64_t heads, float *x,
                         mha_error *err)
{
    const mha__latent_options *o = &l->latent->options;
    const int64_t width = o->kv_rank + o->rope;
    mha_rope_options rope = l->rope;
    rope.head_dim = rope.rotary_dim = o->rope;
    if (!l->options.rope) return MHA_OK;
    if (!in->cos || !in->sin)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: %s must not be NULL for a layer with rope",
                         in->cos ? "sin" : "cos");
    return mha_rope_turn(l->ctx, &rope, in->cos, in->sin, rows, heads, x + o->kv_rank, heads * width, width, 0, err);
}

/* Computes the queries and the keys of the operator. */
static mha_status project(const mha_attn_layer *l, const mha__attn_call *call, const float *x, const mha__attn_trace *t,
                          const mha__attn_scratch *s, mha_error *err)
{
    const mha__latent_options *o = &l->latent->options;
    const int64_t rows = mha__attn_rows(call), width = o->kv_rank + o->rope;
    mha__latent_queries(l, call, x, t, s);
    mha__latent_multiply(l, s, rows, NULL);
    mha__latent_vectors(l, call, x, t, s);
    for (int64_t r = 0; r < rows; r++) {
        float *key = s->latent_keys + r * width;
        memcpy(key, s->normed + r * o->kv_rank, (size_t)o->kv_rank * sizeof *key);
        memcpy(key + o->kv_rank, t->kv_latent + r * width + o->kv_rank, (size_t)o->rope * sizeof *key);
    }
    MHA__TRY(rotate(l, call->in, rows, l->options.heads, s->absorbed, err));
    return rotate(l, call->in, rows, 1, s->latent_keys, err);
}

/* Appends the keys to the cache, and sets the arguments of the operator. */
static mha_status bind(const mha_attn_layer *l, const mha_layer_input *in, const mha__attn_scratch *s,
                       mha_attn_args *args, mha_error *err)
{
    const mha__latent_options *o = &l->latent->options;
    const int64_t H = l->options.heads, L = in->length, width = o->kv_rank + o->rope;
    mha_attn_desc desc = {.size = sizeof desc, .heads = H, .q_len = L, .causal = 1, .window = l->options.window};
    const mha_cache_tokens fresh = {.size = sizeof fresh,
                                    .count = L,
                                    .counts = in->lengths,
                                    .dtype = MHA_F32,
                                    .k = {s->latent_keys, {L * width, width, width, 1}}};
    args->q = (mha_cview){s->absorbed, {L * H * width, width, H * width, 1}};
    args->out = (mha_view){s->latent_out, {L * H * o->kv_rank, o->kv_rank, H * o->kv_rank, 1}};
    MHA__TRY(mha_cache_append(in->cache, mha__layer_sequence(in), &fresh, err));
    return mha_cache_bind(in->cache, mha__layer_sequence(in), in->lengths, &desc, args, err);
}

mha_status mha__latent_attend(const mha_attn_layer *l, const mha__attn_call *call, const float *x,
                              const mha__attn_trace *t, const mha__attn_scratch *s, mha_attn_args *args, mha_error *err)
{
    MHA__TRY(project(l, call, x, t, s, err));
    MHA__TRY(bind(l, call->in, s, args, err));
    MHA__TRY(mha_attn_forward(call->plan, args, s->space, s->space_bytes, err));
    mha__latent_multiply(l, s, mha__attn_rows(call), t->context);
    return MHA_OK;
}
