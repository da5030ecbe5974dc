/* cross_attention.c - keys and values of another sequence, for attention layers with `cross`. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/attention_layer.h"

/* Checks that queries and source are both packed, or neither. */
static mha_status check_packed(const mha_layer_input *in, mha_error *err)
{
    const mha_layer_source *source = in->source;
    if (!in->starts != !source->starts)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: starts of source must be %s starts of the input",
                         source->starts ? "NULL without" : "given with");
    if (!source->starts || (!source->lengths && !source->keep.data && !in->probs)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: lengths, keep and probs of source must be NULL with starts");
}

mha_status mha__cross_input(const mha_attn_layer *layer, const mha_layer_input *in, bool given, mha_error *err)
{
    const mha_layer_source *source = in->source;
    if (!layer->options.cross) return MHA_OK;
    if (!source || source->tokens < 1 || (given && !source->kv))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_layer_input: source must have tokens and kv for a layer with cross (got %lld tokens)",
                         source ? (long long)source->tokens : 0);
    const char *name = in->keep.data                             ? "keep"
                       : in->bias.data                           ? "bias"
                       : in->cache                               ? "cache"
                       : in->stats                               ? "stats"
                       : in->shard                               ? "shard"
                       : in->activations && in->activations->qkv ? "qkv of activations"
                                                                 : NULL;
    if (name) return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: %s must be NULL for a layer with cross", name);
    return check_packed(in, err);
}

mha_status mha_attn_layer_source(const mha_attn_layer *layer, const float *x, int64_t rows, float *kv, mha_error *err)
{
    if (!layer || !x || !kv) return mha__fail(err, MHA_ERR_ARG, "attention layer: layer, x and kv must not be NULL");
    if (!layer->options.cross)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: cross must be 1 to have keys of another sequence (got 0)");
    if (rows < 0)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: rows must be at least 0 (got %lld)", (long long)rows);
    const int64_t half = layer->options.kv_heads * layer->options.head_dim;
    const size_t bytes = mha__linear_max_left((const mha_linear *[]){layer->project[1], layer->project[2]}, 2, rows);
    void *left = bytes ? mha__alloc(layer->ctx, bytes) : NULL;
    if (bytes && !left) return mha__no_memory(err, bytes, "the input of keys and values");
    for (int p = 1; p < 3 && rows; p++)
        mha__linear_run(
            layer->project[p],
            &(mha__linear_call){.x = x, .rows = rows, .y = kv + (p - 1) * half, .y_stride = 2 * half, .left = left});
    mha__free(layer->ctx, left);
    return MHA_OK;
}
