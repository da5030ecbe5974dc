/* gguf_save_keys.c - the keys of a GGUF file that is saved: the config of the model, and its tokenizer. */
#include "base/ctx.h"
#include "base/error.h"
#include "model/gguf/gguf_config.h"
#include "model/weights/gguf/gguf_save.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"
#include <string.h>

typedef struct saving_keys {
    const mha_model *m;
    const mha__gguf_arch *arch;
    mha__gguf_keys *keys;
} saving_keys;

static void put_int(saving_keys *s, const char *suffix, int64_t value)
{
    char key[MHA__GGUF_CONFIG_KEY];
    mha__gguf_key_u32(s->keys, mha__gguf_config_key(s->arch, suffix, key), (uint32_t)value);
}

static void put_real(saving_keys *s, const char *suffix, double value)
{
    char key[MHA__GGUF_CONFIG_KEY];
    mha__gguf_key_f32(s->keys, mha__gguf_config_key(s->arch, suffix, key), (float)value);
}

/* Writes the keys of the rotation of long texts by YaRN. Defaults of the betas are those of readers. */
static void put_yarn(saving_keys *s)
{
    const mha_rope_options *o = &s->m->config.rope;
    put_int(s, "rope.scaling.original_context_length", o->original_positions);
    if (o->beta_fast != 0) put_real(s, "rope.scaling.yarn_beta_fast", o->beta_fast);
    if (o->beta_slow != 0) put_real(s, "rope.scaling.yarn_beta_slow", o->beta_slow);
}

static mha_status put_rope(saving_keys *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    const mha_rope_options *o = &c->rope;
    const bool yarn = o->kind == MHA_ROPE_YARN;
    char key[MHA__GGUF_CONFIG_KEY];
    double f[MHA_HEAD_DIM_MAX / 2], gain;
    put_int(s, "rope.dimension_count", o->rotary_dim ? o->rotary_dim : c->head_dim);
    put_real(s, "rope.freq_base", o->theta != 0 ? o->theta : 10000);
    if (o->kind == MHA_ROPE_LINEAR || yarn) {
        mha__gguf_key_text(s->keys, mha__gguf_config_key(s->arch, "rope.scaling.type", key), yarn ? "yarn" : "linear");
        put_real(s, "rope.scaling.factor",
                 o->factor != 0 ? o->factor : (double)o->max_positions / (double)o->original_positions);
    }
    if (yarn) put_yarn(s);
    if (!s->arch->phi || o->kind != MHA_ROPE_LONGROPE) return MHA_OK;
    MHA__TRY(mha_rope_frequencies(o, 1, f, &gain, err));
    put_int(s, "rope.scaling.original_context_length", o->original_positions);
    put_real(s, "rope.scaling.attn_factor", gain);
    return MHA_OK;
}

/* Writes the factors of Granite; readers divide logits by the last one. */
static void put_multipliers(saving_keys *s)
{
    const mha__config *c = &s->m->config;
    put_real(s, "attention.scale", c->attention_multiplier);
    put_real(s, "embedding_scale", c->embed_multiplier);
    put_real(s, "residual_scale", c->residual_multiplier);
    put_real(s, "logit_scale", c->logit_divisor);
}

static void put_experts(saving_keys *s)
{
    const mha__config *c = &s->m->config;
    put_int(s, "expert_count", c->experts);
    put_int(s, "expert_used_count", c->experts_chosen);
    if (s->arch->expert_width || s->arch->sinks)
        put_int(s, "expert_feed_forward_length", s->arch->sinks ? c->intermediate : c->expert_width);
}

/* Writes the keys of the widths of heads and of RMS norms, which decoders and T5 share. */
static void put_heads_and_norms(saving_keys *s)
{
    const mha__config *c = &s->m->config;
    put_int(s, "attention.key_length", c->head_dim);
    put_int(s, "attention.value_length", c->head_dim);
    put_real(s, "attention.layer_norm_rms_epsilon", c->eps);
}

static mha_status put_decoder(saving_keys *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    put_int(s, "attention.head_count_kv", c->layer_kv_heads[0]);
    put_heads_and_norms(s);
    MHA__TRY(put_rope(s, err));
    if (s->arch->multipliers) put_multipliers(s);
    if (s->arch->experts) put_experts(s);
    if (s->arch->phi || s->arch->sinks) put_int(s, "attention.sliding_window", c->window);
    if (!s->arch->window) return MHA_OK;
    put_int(s, "attention.sliding_window", c->window);
    if (s->arch->local_theta && c->local_rope.theta != 10000) put_real(s, "rope.freq_base_swa", c->local_rope.theta);
    if (c->softcap != 0) put_real(s, "attn_logit_softcapping", c->softcap);
    if (c->logit_cap != 0) put_real(s, "final_logit_softcapping", c->logit_cap);
    return MHA_OK;
}

/* Writes the keys of T5 that follow those of all architectures. */
static void put_t5(saving_keys *s)
{
    const mha__config *c = &s->m->config;
    put_int(s, "decoder_block_count", c->layers);
    put_heads_and_norms(s);
    put_int(s, "attention.relative_buckets_count", c->buckets);
    if (c->start >= 0) put_int(s, "decoder_start_token_id", c->start);
}

static mha_status put_model(saving_keys *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    const mha_model *encoder = s->m->encoder;
    char key[MHA__GGUF_CONFIG_KEY];
    mha__gguf_key_text(s->keys, "general.architecture", s->arch->name);
    mha__gguf_key_u32(s->keys, "general.quantization_version", 2);
    put_int(s, "vocab_size", c->vocab);
    put_int(s, "context_length", c->max_positions);
    put_int(s, "embedding_length", c->hidden);
    put_int(s, "block_count", encoder ? encoder->config.layers : c->layers);
    put_int(s, "feed_forward_length", c->intermediate);
    put_int(s, "attention.head_count", c->layer_heads[0]);
    if (!s->arch->bert && !s->arch->gpt2 && !encoder) return put_decoder(s, err);
    if (encoder) put_t5(s);
    put_real(s, "attention.layer_norm_epsilon", c->eps);
    if (s->arch->rotary) put_real(s, "rope.freq_base", c->rope.theta);
    if (!s->arch->bert) return MHA_OK;
    mha__gguf_key_bool(s->keys, mha__gguf_config_key(s->arch, "attention.causal", key), false);
    mha__gguf_key_u32(s->keys, "tokenizer.ggml.token_type_count", (uint32_t)c->type_vocab); /* llama.cpp requires it */
    return MHA_OK;
}

/* Writes the tokenizer, and the token that ends a text unless the tokenizer has added it. */
static mha_status put_tokenizer(saving_keys *s, mha_error *err)
{
    const mha_model *m = s->m;
    char from[PATH_MAX], *own = NULL;
    size_t n = 0;
    MHA__TRY(mha__shards_folder(&m->shards, from, sizeof from, err));
    if (m->gguf_config) MHA__TRY(mha__gguf_tokenizer(m->shards.file, &own, &n, err));
    if (!own && (m->gguf_config || !mha__source_exists(from, MHA__TOKENIZER_FILE))) {
        mha__gguf_key_text(s->keys, "tokenizer.ggml.model", "no_vocab");
        if (m->config.eos_count) mha__gguf_key_u32(s->keys, "tokenizer.ggml.eos_token_id", (uint32_t)m->config.eos[0]);
        return MHA_OK;
    }
    if (!own) {
        const mha_status status = mha__read_whole(m->ctx, from, MHA__TOKENIZER_FILE, MHA__JSON_BYTES, &own, &n, err);
        if (status != MHA_OK) return mha__in_folder(status, from, MHA__TOKENIZER_FILE, err);
    }
    const mha_status status = mha__gguf_tokenizer_write(m->ctx, own, n, m->config.vocab,
                                                        m->config.eos_count ? m->config.eos[0] : -1, s->keys, err);
    mha__free(m->ctx, own);
    return m->gguf_config ? status : mha__in_folder(status, from, MHA__TOKENIZER_FILE, err);
}

/* Writes the other tokens that end a text, and the padding. */
static void put_tokens(saving_keys *s)
{
    const mha__config *c = &s->m->config;
    if (c->eos_count > 1) mha__gguf_key_u32(s->keys, "tokenizer.ggml.eot_token_id", (uint32_t)c->eos[1]);
    if (c->eos_count > 2) mha__gguf_key_u32(s->keys, "tokenizer.ggml.eom_token_id", (uint32_t)c->eos[2]);
    const int64_t padding = c->pad >= 0 ? c->pad : c->padding;
    if (padding >= 0 && padding < c->vocab)
        mha__gguf_key_u32(s->keys, "tokenizer.ggml.padding_token_id", (uint32_t)padding);
}

mha_status mha__gguf_save_keys(const mha_model *model, const mha__gguf_arch *arch, mha__gguf_keys *keys, mha_error *err)
{
    saving_keys s = {model, arch, keys};
    MHA__TRY(put_model(&s, err));
    MHA__TRY(put_tokenizer(&s, err));
    put_tokens(&s);
    return MHA_OK;
}
