/* gguf_config.c - writes config.json from the keys of a GGUF file. The config is then read like any other: this source
 * file translates names, and checks only what config.json cannot express. */
#include "model/gguf/gguf_config.h"

#include "io/input_limits.h"
#include "layer/block/feed_forward.h"
#include "model/gguf/gguf_model.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef mha__gguf_config_writer config;

enum { KEY = MHA__GGUF_CONFIG_KEY };

mha_status mha__gguf_arch_int(const mha_file *file, const mha__gguf_arch *arch, const char *suffix, int64_t max,
                              int64_t *value, mha_error *err)
{
    char key[KEY], rule[80];
    const mha__gguf_value *v = mha__gguf_find(file, mha__gguf_config_key(arch, suffix, key));
    int64_t first, other;
    if (!v || !v->array) return mha__gguf_int(file, key, 1, max, value, err);
    snprintf(rule, sizeof rule, "one integer from 1 to %lld, equal in all layers", (long long)max);
    if (v->count < 1 || v->count > MHA__LAYERS || !mha__gguf_element(v, 0, &first) || first < 1 || first > max)
        return mha__gguf_refuse(file, key, rule, err);
    for (uint64_t n = 1; n < v->count; n++)
        if (!mha__gguf_element(v, n, &other) || other != first) return mha__gguf_refuse(file, key, rule, err);
    *value = first;
    return MHA_OK;
}

static mha_status required(const config *c, const char *suffix, int64_t max, int64_t *value)
{
    char key[KEY];
    *value = 0;
    MHA__TRY(mha__gguf_arch_int(c->file, c->arch, suffix, max, value, c->err));
    if (*value) return MHA_OK;
    return mha__gguf_refuse(c->file, mha__gguf_config_key(c->arch, suffix, key), "an integer of at least 1", c->err);
}

static void put_bool(config *c, const char *key, bool value)
{
    mha__json_key(&c->w, key);
    mha__json_put_bool(&c->w, value);
}

static mha_status copy_dim(config *c, const char *suffix, const char *key, int64_t max, int64_t *value)
{
    int64_t own;
    MHA__TRY(required(c, suffix, max, value ? value : &own));
    mha__gguf_config_int(c, key, value ? *value : own);
    return MHA_OK;
}

static mha_status copy_epsilon(config *c, const char *suffix, const char *key)
{
    char name[KEY];
    bool found = false;
    MHA__TRY(mha__gguf_config_copy(c, suffix, key, &found));
    return found ? MHA_OK : mha__gguf_refuse(c->file, mha__gguf_config_key(c->arch, suffix, name), "a number", c->err);
}

static const mha_tensor *tensor(const config *c, const char *name)
{
    return mha_file_find(c->file, name);
}

/* Returns the rows of a table that the file must have. */
static mha_status rows_of(const config *c, const char *name, int64_t *rows)
{
    const mha_tensor *t = tensor(c, name);
    if (t && t->rank == 2) {
        *rows = t->shape[0];
        return MHA_OK;
    }
    return mha__fail(c->err, MHA_ERR_FORMAT, "%s: tensor \"%s\" must be a matrix (got %s)",
                     mha__quote(&(mha__quoted){0}, c->file->path, strlen(c->file->path)), name,
                     t ? "another rank" : "no such tensor");
}

/* ---- tokens ---- */

/* Reads the tokens that end a text, a turn or a message. */
static mha_status put_ends(config *c)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t end[3];
    int count = 0;
    for (int n = 0; n < 3; n++) {
        int64_t id = -1;
        MHA__TRY(mha__gguf_int(c->file, keys[n], 0, INT32_MAX, &id, c->err));
        if (id >= 0 && (count < 1 || id != end[0]) && (count < 2 || id != end[1])) end[count++] = id;
    }
    /* transformers rejects a list in some families. An empty list means that no token ends a text of a decoder. */
    if (count == 1) mha__gguf_config_int(c, "eos_token_id", end[0]);
    if (count == 1 || (count == 0 && c->arch->bert)) return MHA_OK;
    mha__json_key(&c->w, "eos_token_id");
    mha__json_open(&c->w, '[');
    for (int n = 0; n < count; n++)
        mha__json_put_int(&c->w, end[n]);
    mha__json_close(&c->w, ']');
    return MHA_OK;
}

static mha_status put_tokens(config *c)
{
    static const char *const names[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                           {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    for (int n = 0; n < 2; n++) {
        int64_t id = -1;
        MHA__TRY(mha__gguf_int(c->file, names[n][0], 0, UINT32_MAX, &id, c->err));
        if (id >= 0 && id <= INT32_MAX) mha__gguf_config_int(c, names[n][1], id);
    }
    return put_ends(c);
}

/* ---- families ---- */

/* Refuses files whose values have another width or, except in Phi-3, whose heads are only partly rotated. */
static mha_status check_widths(const config *c)
{
    static const char *const same[] = {"attention.value_length", "rope.dimension_count"};
    for (int n = 0; n < (c->arch->phi ? 1 : 2); n++) {
        char key[KEY], rule[80];
        int64_t value = c->head_dim;
        MHA__TRY(mha__gguf_int(c->file, mha__gguf_config_key(c->arch, same[n], key), 0, MHA__DIM, &value, c->err));
        snprintf(rule, sizeof rule, "%lld, the width of a head", (long long)c->head_dim);
        if (value != c->head_dim) return mha__gguf_refuse(c->file, key, rule, c->err);
    }
    return MHA_OK;
}

static mha_status put_widths(config *c)
{
    char key[KEY];
    MHA__TRY(copy_dim(c, "attention.head_count", "num_attention_heads", MHA__HEADS, &c->heads));
    c->kv_heads = c->heads;
    MHA__TRY(mha__gguf_arch_int(c->file, c->arch, "attention.head_count_kv", MHA__HEADS, &c->kv_heads, c->err));
    mha__gguf_config_int(c, "num_key_value_heads", c->kv_heads);
    c->head_dim = c->hidden / c->heads;
    MHA__TRY(mha__gguf_int(c->file, mha__gguf_config_key(c->arch, "attention.key_length", key), 1, MHA__DIM,
                           &c->head_dim, c->err));
    c->rotated = c->head_dim;
    mha__gguf_config_int(c, "head_dim", c->head_dim);
    return check_widths(c);
}

/* Writes the keys of Gemma. The scale of scores follows the rule of llama.cpp, which identifies the models of 27B by
 * their number of layers. */
static mha_status put_gemma(config *c)
{
    const bool three = c->arch->local_theta; /* Gemma 3 */
    const bool largest = c->layers == (three ? 62 : 46);
    mha__gguf_config_text(c, "hidden_activation", "gelu_pytorch_tanh");
    if (c->arch->window) {
        mha__gguf_config_real(c, "query_pre_attn_scalar", (double)(largest ? c->hidden / c->heads : c->head_dim));
        MHA__TRY(copy_dim(c, "attention.sliding_window", "sliding_window", MHA__DIM, NULL));
        bool attention = false, final = false;
        MHA__TRY(mha__gguf_config_copy(c, "attn_logit_softcapping", "attn_logit_softcapping", &attention));
        MHA__TRY(mha__gguf_config_copy(c, "final_logit_softcapping", "final_logit_softcapping", &final));
        if (!three && !attention) mha__gguf_config_real(c, "attn_logit_softcapping", 50);
        if (!three && !final) mha__gguf_config_real(c, "final_logit_softcapping", 30);
    }
    if (c->arch->window) MHA__TRY(mha__gguf_config_windows(c));
    if (!three) return MHA_OK;
    bool local = false;
    MHA__TRY(mha__gguf_config_copy(c, "rope.freq_base_swa", "rope_local_base_freq", &local));
    if (!local) mha__gguf_config_real(c, "rope_local_base_freq", 10000);
    return MHA_OK;
}

/* Writes the factors of Granite. As in llama.cpp, scores without a factor have that of other models. */
static mha_status put_multipliers(config *c)
{
    bool found = false;
    MHA__TRY(mha__gguf_config_copy(c, "attention.scale", "attention_multiplier", &found));
    if (!found) mha__gguf_config_real(c, "attention_multiplier", 1 / sqrt((double)c->head_dim));
    MHA__TRY(mha__gguf_config_copy(c, "embedding_scale", "embedding_multiplier", NULL));
    MHA__TRY(mha__gguf_config_copy(c, "residual_scale", "residual_multiplier", NULL));
    return mha__gguf_config_copy(c, "logit_scale", "logits_scaling", NULL);
}

/* Writes the keys of experts. llama.cpp divides their weights by the sum of the weights of the chosen experts. */
static mha_status put_experts(config *c)
{
    MHA__TRY(copy_dim(c, "expert_count", c->arch->expert_width ? "num_experts" : "num_local_experts", MHA__EXPERTS_MAX,
                      NULL));
    MHA__TRY(copy_dim(c, "expert_used_count", "num_experts_per_tok", MHA__EXPERTS_MAX, NULL));
    if (!c->arch->expert_width) return MHA_OK;
    put_bool(c, "norm_topk_prob", true);
    return copy_dim(c, "expert_feed_forward_length", "moe_intermediate_size", MHA__DIM, NULL);
}

/* Writes the window of Phi-3, which all layers have, and the part of a head that is rotated. */
static mha_status put_phi(config *c)
{
    char key[KEY];
    int64_t window = 0, rotated = c->head_dim;
    MHA__TRY(mha__gguf_int(c->file, mha__gguf_config_key(c->arch, "attention.sliding_window", key), 0, MHA__DIM,
                           &window, c->err));
    if (window) mha__gguf_config_int(c, "sliding_window", window);
    MHA__TRY(mha__gguf_int(c->file, mha__gguf_config_key(c->arch, "rope.dimension_count", key), 2, c->head_dim,
                           &rotated, c->err));
    if (rotated == c->head_dim) return MHA_OK;
    mha__gguf_config_real(c, "partial_rotary_factor", (double)rotated / (double)c->head_dim);
    c->rotated = rotated;
    return MHA_OK;
}

static mha_status put_llama(config *c)
{
    int64_t positions = 0;
    bool theta = false;
    MHA__TRY(put_widths(c));
    MHA__TRY(copy_dim(c, c->arch->sinks ? "expert_feed_forward_length" : "feed_forward_length", "intermediate_size",
                      MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "context_length", "max_position_embeddings", MHA__DIM, &positions));
    MHA__TRY(copy_epsilon(c, "attention.layer_norm_rms_epsilon", "rms_norm_eps"));
    MHA__TRY(mha__gguf_config_copy(c, "rope.freq_base", "rope_theta", &theta));
    if (!theta) mha__gguf_config_real(c, "rope_theta", 10000);
    put_bool(c, "attention_bias",
             tensor(c, "blk.0.attn_output.bias") || (c->arch->biased && tensor(c, "blk.0.attn_q.bias")));
    put_bool(c, "mlp_bias", tensor(c, "blk.0.ffn_up.bias") != NULL);
    put_bool(c, "use_sliding_window", false);
    if (c->arch->gemma_scale) MHA__TRY(put_gemma(c));
    if (c->arch->multipliers) MHA__TRY(put_multipliers(c));
    if (c->arch->experts) MHA__TRY(put_experts(c));
    if (c->arch->phi) MHA__TRY(put_phi(c));
    if (c->arch->sinks) MHA__TRY(copy_dim(c, "attention.sliding_window", "sliding_window", MHA__DIM, NULL));
    if (c->arch->sinks) MHA__TRY(mha__gguf_config_windows(c));
    return mha__gguf_config_rope(c, positions);
}

static mha_status put_gpt2(config *c)
{
    MHA__TRY(copy_dim(c, "attention.head_count", "num_attention_heads", MHA__HEADS, NULL));
    MHA__TRY(copy_dim(c, "feed_forward_length", "n_inner", MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "context_length", "max_position_embeddings", MHA__DIM, NULL));
    return copy_epsilon(c, "attention.layer_norm_epsilon", "layer_norm_epsilon");
}

static mha_status put_bert(config *c)
{
    char key[KEY];
    int64_t types = 0;
    bool causal = false, theta = false;
    MHA__TRY(copy_dim(c, "attention.head_count", "num_attention_heads", MHA__HEADS, NULL));
    MHA__TRY(copy_dim(c, "feed_forward_length", "intermediate_size", MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "context_length", "max_position_embeddings", MHA__DIM, NULL));
    MHA__TRY(copy_epsilon(c, "attention.layer_norm_epsilon", "layer_norm_eps"));
    MHA__TRY(rows_of(c, "token_types.weight", &types));
    mha__gguf_config_int(c, "type_vocab_size", types);
    MHA__TRY(mha__gguf_bool(c->file, mha__gguf_config_key(c->arch, "attention.causal", key), &causal, c->err));
    if (causal) return mha__gguf_refuse(c->file, key, "false", c->err);
    if (c->arch->rotary) MHA__TRY(mha__gguf_config_copy(c, "rope.freq_base", "rope_theta", &theta));
    if (c->arch->rotary && !theta) mha__gguf_config_real(c, "rope_theta", 10000);
    return MHA_OK;
}

/* Refuses files of T5 whose heads share keys, or whose second epsilon, which readers ignore, is another one. */
static mha_status check_t5(const config *c)
{
    char key[KEY], rule[80];
    int64_t kv_heads = c->heads;
    double eps = 0, other;
    MHA__TRY(mha__gguf_arch_int(c->file, c->arch, "attention.head_count_kv", MHA__HEADS, &kv_heads, c->err));
    snprintf(rule, sizeof rule, "%lld, the number of heads", (long long)c->heads);
    if (kv_heads != c->heads)
        return mha__gguf_unsupported(c->file, mha__gguf_config_key(c->arch, "attention.head_count_kv", key), rule,
                                     c->err);
    MHA__TRY(
        mha__gguf_real(c->file, mha__gguf_config_key(c->arch, "attention.layer_norm_rms_epsilon", key), &eps, c->err));
    other = eps;
    MHA__TRY(
        mha__gguf_real(c->file, mha__gguf_config_key(c->arch, "attention.layer_norm_epsilon", key), &other, c->err));
    snprintf(rule, sizeof rule, "%g, as attention.layer_norm_rms_epsilon", eps);
    return other == eps ? MHA_OK : mha__gguf_refuse(c->file, key, rule, c->err);
}

/* Writes the keys of T5. Distances have the limit that llama.cpp computes with. */
static mha_status put_t5(config *c)
{
    char key[KEY];
    int64_t start = 0, layers = c->layers;
    MHA__TRY(mha__gguf_int(c->file, mha__gguf_config_key(c->arch, "decoder_block_count", key), 1, MHA__LAYERS, &layers,
                           c->err));
    mha__gguf_config_int(c, "num_decoder_layers", layers);
    MHA__TRY(copy_dim(c, "attention.head_count", "num_heads", MHA__HEADS, &c->heads));
    MHA__TRY(copy_dim(c, "attention.key_length", "d_kv", MHA__DIM, &c->head_dim));
    MHA__TRY(check_widths(c));
    MHA__TRY(check_t5(c));
    MHA__TRY(copy_dim(c, "feed_forward_length", "d_ff", MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "context_length", "n_positions", MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "attention.relative_buckets_count", "relative_attention_num_buckets", MHA__DIM, NULL));
    mha__gguf_config_int(c, "relative_attention_max_distance", 128);
    MHA__TRY(copy_epsilon(c, "attention.layer_norm_rms_epsilon", "layer_norm_epsilon"));
    mha__gguf_config_text(c, "feed_forward_proj", c->arch->gated ? "gated-gelu" : "relu");
    MHA__TRY(mha__gguf_int(c->file, mha__gguf_config_key(c->arch, "decoder_start_token_id", key), 0, INT32_MAX, &start,
                           c->err));
    mha__gguf_config_int(c, "decoder_start_token_id", start);
    put_bool(c, "is_encoder_decoder", true);
    put_bool(c, "scale_decoder_outputs", !tensor(c, "output.weight"));
    return MHA_OK;
}

static mha_status put_all(config *c)
{
    int64_t rows = 0;
    mha__gguf_config_text(c, "model_type", c->arch->family);
    MHA__TRY(rows_of(c, "token_embd.weight", &rows));
    mha__gguf_config_int(c, "vocab_size", rows);
    const bool t5 = c->arch->seq2seq;
    MHA__TRY(copy_dim(c, "embedding_length", t5 ? "d_model" : "hidden_size", MHA__DIM, &c->hidden));
    MHA__TRY(copy_dim(c, "block_count", t5 ? "num_layers" : "num_hidden_layers", MHA__LAYERS, &c->layers));
    put_bool(c, "tie_word_embeddings", c->arch->bert || !tensor(c, "output.weight"));
    MHA__TRY(put_tokens(c));
    if (t5) return put_t5(c);
    return c->arch->bert ? put_bert(c) : c->arch->gpt2 ? put_gpt2(c) : put_llama(c);
}

mha_status mha__gguf_config(const mha_file *file, const mha__gguf_arch *arch, char **config_json, mha_error *err)
{
    config c = {.file = file, .arch = arch, .w = {.ctx = file->ctx, .indent = 2}, .err = err};
    mha__json_open(&c.w, '{');
    const mha_status status = put_all(&c);
    mha__json_close(&c.w, '}');
    if (status == MHA_OK) return mha__json_written(&c.w, "config.json", config_json, NULL, err);
    mha__json_written(&c.w, "config.json", NULL, NULL, NULL);
    return status;
}
