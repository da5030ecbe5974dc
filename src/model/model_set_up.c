/* model_set_up.c - fills the struct of a model from its config, and takes its weights. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "model/model_struct.h"
#include <math.h>
#include <string.h>

/* ---- information about a model ---- */

/* Allocates the lists with one entry per layer. */
static mha_status take_lists(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    m->heads_per_layer = mha__calloc(m->ctx, 5 * (size_t)c->layers, sizeof *m->heads_per_layer);
    m->attention_per_layer = mha__calloc(m->ctx, (size_t)c->layers, sizeof *m->attention_per_layer);
    m->block = mha__calloc(m->ctx, (size_t)c->layers, sizeof(mha_block *));
    if (!m->heads_per_layer || !m->attention_per_layer || !m->block)
        return mha__no_memory(err, 5 * (size_t)c->layers * sizeof *m->heads_per_layer, "the list of layers");
    m->key_heads_per_layer = m->heads_per_layer + c->layers;
    m->value_heads_per_layer = m->key_heads_per_layer + c->layers;
    m->feed_forward_per_layer = m->value_heads_per_layer + c->layers;
    m->cross_heads_per_layer = m->feed_forward_per_layer + c->layers;
    return MHA_OK;
}

static mha_status fill_info(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    MHA__TRY(take_lists(m, err));
    m->info = (mha_model_info){
        .family = c->family->name,
        .layers = c->layers,
        .heads = c->heads,
        .original_heads = c->original_heads,
        .rotation_by_length = c->rope.kind == MHA_ROPE_DYNAMIC || c->rope.kind == MHA_ROPE_LONGROPE,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .hidden = c->hidden,
        .intermediate = c->intermediate,
        .vocab = c->channels ? 0 : c->vocab,
        .image_channels = c->channels,
        .image_height = c->image_height,
        .image_width = c->image_width,
        .patch_height = c->patch_height,
        .patch_width = c->patch_width,
        .embedding_width = c->hidden,
        .max_positions = c->max_positions,
        .type_vocab = c->type_vocab,
        .heads_per_layer = m->heads_per_layer,
        .key_heads_per_layer = m->key_heads_per_layer,
        .value_heads_per_layer = m->value_heads_per_layer,
        .feed_forward_per_layer = m->feed_forward_per_layer,
        .attention_per_layer = m->attention_per_layer,
        .causal = c->family->causal,
        .images_ignored = c->family->tower && !c->family->vision && !c->channels,
        .encoder_decoder = c->family->encoder != NULL,
        .decoder_start = c->start,
        .feature_bins = c->mel_bins,
        .cross_heads_per_layer = c->family->encoder ? m->cross_heads_per_layer : NULL,
    };
    return MHA_OK;
}

static mha_model_attention attention_of(const mha__config *c, int64_t layer)
{
    const mha__layer_attention *a = &c->attention[layer];
    const bool split = a->choice.of == MHA_CHOICE_OPTIONS;
    return (mha_model_attention){.window = a->window,
                                 .rotary = a->turned,
                                 .qk_norm = a->normed,
                                 .alibi = a->alibi,
                                 .scale = a->scale != 0 || split ? a->scale : 1 / sqrt((double)c->head_dim),
                                 .softcap = a->softcap,
                                 .choice = a->choice.of,
                                 .selection = a->choice.selection,
                                 .heads_per_text = mha__config_kept(c, layer),
                                 .head_options = a->choice.options,
                                 .head_option_count = a->choice.option_count};
}

/* Returns the columns of feed-forward that each token uses. */
static int64_t feed_forward_of(const mha__config *c, int64_t layer)
{
    const int64_t expert = c->expert_width ? c->expert_width : c->intermediate;
    if (c->attention_only[layer]) return 0;
    return c->sparse[layer] ? c->experts_chosen * expert + c->shared_width : c->intermediate;
}

/* Sets the information per layer, after the tensors have been read. */
static void fill_layers(mha_model *m)
{
    const mha__config *c = &m->config;
    int64_t kv_heads = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        m->heads_per_layer[i] = c->layer_heads[i];
        m->key_heads_per_layer[i] = c->layer_k_heads[i];
        m->value_heads_per_layer[i] = c->layer_v_heads[i];
        m->feed_forward_per_layer[i] = feed_forward_of(c, i);
        m->cross_heads_per_layer[i] = c->cross_heads[i];
        m->attention_per_layer[i] = attention_of(c, i);
        kv_heads += mha__model_kv_heads(m, i);
    }
    const int64_t latent = mha__config_latent_width(c),
                  width = latent ? c->layers * latent : 2 * kv_heads * c->head_dim;
    m->info.kv_bytes_per_token = c->family->causal ? width * (int64_t)sizeof(float) : 0;
}

/* ---- steps of opening a model ---- */

mha_status mha__model_set_up(mha_model *m, const mha_model_options *options, mha_error *err)
{
    MHA__TRY(fill_info(m, err));
    MHA__TRY(mha__model_number_heads(m, err));
    MHA__TRY(mha__model_slopes(m, err));
    m->outer = (mha__weights){.ctx = m->ctx,
                              .config = &m->config,
                              .shards = &m->shards,
                              .packed = options->dtype ? options->dtype : MHA_F32,
                              .check_only = options->no_weights};
    return MHA_OK;
}

mha_status mha__model_take_weights(mha_model *m, mha_error *err)
{
    MHA__TRY(mha__model_take_outer(m, err));
    for (int64_t layer = 0; layer < m->config.layers; layer++)
        MHA__TRY(mha__model_create_block(m, layer, err));
    m->packed = !m->outer.check_only;
    return MHA_OK;
}

void mha__model_fill_info(mha_model *m)
{
    fill_layers(m);
    m->info.parameters = m->outer.parameters;
    m->info.bytes = m->outer.bytes;
    m->info.dtype = m->outer.dtype; /* type of the word embeddings, which are read first */
    m->info.position_table = m->positions.out > 0;
    m->info.logits = m->lm_head && !m->config.discriminator;
    m->info.logit_width = m->lm_head ? m->config.logit_width : 0;
    if (m->config.channels && mha__weights_tensor(&m->outer, MHA__LM_HEAD, -1, false))
        m->info.classes = m->config.vocab;
    if (mha__weights_tensor(&m->outer, MHA__PROJECTION, -1, false)) m->info.embedding_width = m->config.projection;
}
