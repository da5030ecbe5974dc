/* gguf_config.c - writes config.json from the keys of a GGUF file. The config is then read like any other: this source
 * file translates names, and checks only what config.json cannot express. */
#include "base/ctx.h"
#include "io/gguf/gguf.h"
#include "io/input_limits.h"
#include "io/json/json_number.h"
#include "io/json/json_write.h"
#include "model/gguf/gguf_model.h"
#include <stdio.h>
#include <string.h>

typedef struct config {
    const mha_file *file;
    const mha__gguf_arch *arch;
    mha__json_writer w;
    int64_t hidden, heads, kv_heads, head_dim, layers;
    mha_error *err;
} config;

enum { KEY = 120 };

static const char *key_of(const mha__gguf_arch *arch, const char *suffix, char key[KEY])
{
    snprintf(key, KEY, "%s.%s", arch->name, suffix);
    return key;
}

mha_status mha__gguf_arch_int(const mha_file *file, const mha__gguf_arch *arch, const char *suffix, int64_t max,
                              int64_t *value, mha_error *err)
{
    char key[KEY], rule[80];
    const mha__gguf_value *v = mha__gguf_find(file, key_of(arch, suffix, key));
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
    return mha__gguf_refuse(c->file, key_of(c->arch, suffix, key), "an integer of at least 1", c->err);
}

static void put_int(config *c, const char *key, int64_t value)
{
    mha__json_key(&c->w, key);
    mha__json_put_int(&c->w, value);
}

static void put_real(config *c, const char *key, double value)
{
    mha__json_key(&c->w, key);
    mha__json_put_real(&c->w, value);
}

static void put_text(config *c, const char *key, const char *value)
{
    mha__json_key(&c->w, key);
    mha__json_put_text(&c->w, value);
}

static void put_bool(config *c, const char *key, bool value)
{
    mha__json_key(&c->w, key);
    mha__json_put_bool(&c->w, value);
}

/* Returns the shortest decimal that is the same float32, which is what the config had before it was stored as f32. */
static double shortest(double value)
{
    char text[MHA__JSON_REAL_BYTES];
    for (int digits = 1; digits < 9; digits++) {
        mha__json_real_text(value, digits, text);
        const mha__json_decimal d = mha__json_decimal_of(text);
        const double back = mha__json_real_of(text, &d);
        if ((float)back == (float)value) return back;
    }
    return value;
}

/* Copies a real number, if the file has it. */
static mha_status copy_real(config *c, const char *suffix, const char *key, bool *found)
{
    char name[KEY];
    double value = 0;
    const bool has = mha__gguf_find(c->file, key_of(c->arch, suffix, name)) != NULL;
    if (found) *found = has;
    MHA__TRY(mha__gguf_real(c->file, name, &value, c->err));
    if (has) put_real(c, key, shortest(value));
    return MHA_OK;
}

static mha_status copy_dim(config *c, const char *suffix, const char *key, int64_t max, int64_t *value)
{
    int64_t own;
    MHA__TRY(required(c, suffix, max, value ? value : &own));
    put_int(c, key, value ? *value : own);
    return MHA_OK;
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

/* Copies the ids of tokens; eos_token_id becomes a list if the file also ends turns with another token. */
static mha_status put_tokens(config *c)
{
    static const char *const names[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                           {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    int64_t eos = -1, eot = -1;
    for (int n = 0; n < 2; n++) {
        int64_t id = -1;
        MHA__TRY(mha__gguf_int(c->file, names[n][0], 0, UINT32_MAX, &id, c->err));
        if (id >= 0 && id <= INT32_MAX) put_int(c, names[n][1], id);
    }
    MHA__TRY(mha__gguf_int(c->file, "tokenizer.ggml.eos_token_id", 0, INT32_MAX, &eos, c->err));
    MHA__TRY(mha__gguf_int(c->file, "tokenizer.ggml.eot_token_id", 0, INT32_MAX, &eot, c->err));
    mha__json_key(&c->w, "eos_token_id");
    mha__json_open(&c->w, '[');
    if (eos >= 0) mha__json_put_int(&c->w, eos);
    if (eot >= 0 && eot != eos) mha__json_put_int(&c->w, eot);
    mha__json_close(&c->w, ']');
    return MHA_OK;
}

/* ---- rotation ---- */

static mha_status put_list(config *c, const char *key, const mha_tensor *t)
{
    float *factors = mha__alloc(c->file->ctx, (size_t)t->elements * sizeof *factors);
    if (!factors) return mha__no_memory(c->err, (size_t)t->elements * sizeof *factors, t->name);
    const mha_status status = mha_tensor_read(t, MHA_F32, factors, c->err);
    mha__json_key(&c->w, key);
    mha__json_open(&c->w, '[');
    for (int64_t i = 0; status == MHA_OK && i < t->elements; i++)
        mha__json_put_real(&c->w, factors[i] > 0 && factors[i] < 1e30F ? factors[i] : 0); /* 0 is refused later */
    mha__json_close(&c->w, ']');
    mha__free(c->file->ctx, factors);
    return status;
}

/* Writes the frequency factors of rope_freqs.weight, by which LLaMA 3 scales its rotation, as two equal lists. */
static mha_status put_factors(config *c, const mha_tensor *t, int64_t positions)
{
    if (t->elements != c->head_dim / 2)
        return mha__fail(c->err, MHA_ERR_FORMAT, "%s: tensor \"%s\" must have %lld elements (got %lld)",
                         mha__quote(&(mha__quoted){0}, c->file->path, strlen(c->file->path)), t->name,
                         (long long)(c->head_dim / 2), (long long)t->elements);
    put_text(c, "rope_type", "longrope");
    put_real(c, "factor", 1);
    put_int(c, "original_max_position_embeddings", positions);
    MHA__TRY(put_list(c, "short_factor", t));
    return put_list(c, "long_factor", t);
}

static mha_status put_yarn(config *c)
{
    char key[KEY];
    int64_t old = 0;
    put_text(c, "rope_type", "yarn");
    MHA__TRY(copy_real(c, "rope.scaling.factor", "factor", NULL));
    MHA__TRY(mha__gguf_int(c->file, key_of(c->arch, "rope.scaling.original_context_length", key), 1, MHA__DIM, &old,
                           c->err));
    if (old) put_int(c, "original_max_position_embeddings", old);
    MHA__TRY(copy_real(c, "rope.scaling.yarn_beta_fast", "beta_fast", NULL));
    MHA__TRY(copy_real(c, "rope.scaling.yarn_beta_slow", "beta_slow", NULL));
    return MHA_OK;
}

static bool equal(const char *text, size_t n, const char *with)
{
    return n == strlen(with) && memcmp(text, with, n) == 0;
}

static mha_status put_rope(config *c, int64_t positions)
{
    char key[KEY];
    const char *type = "none";
    size_t n = 4;
    const mha_tensor *factors = tensor(c, "rope_freqs.weight");
    MHA__TRY(mha__gguf_text(c->file, key_of(c->arch, "rope.scaling.type", key), &type, &n, c->err));
    mha__json_key(&c->w, "rope_scaling");
    mha__json_open(&c->w, '{');
    mha_status status = MHA_OK;
    if (factors)
        status = put_factors(c, factors, positions);
    else if (equal(type, n, "linear")) {
        put_text(c, "rope_type", "linear");
        status = copy_real(c, "rope.scaling.factor", "factor", NULL);
    } else if (equal(type, n, "yarn"))
        status = put_yarn(c);
    else if (equal(type, n, "none"))
        put_text(c, "rope_type", "default");
    else
        status = mha__gguf_refuse(c->file, key, "none, linear or yarn", c->err);
    mha__json_close(&c->w, '}');
    return status;
}

/* ---- families ---- */

/* Refuses files whose heads are only partly rotated, or whose values have another width. */
static mha_status check_widths(const config *c)
{
    static const char *const same[] = {"attention.value_length", "rope.dimension_count"};
    for (int n = 0; n < 2; n++) {
        char key[KEY], rule[80];
        int64_t value = c->head_dim;
        MHA__TRY(mha__gguf_int(c->file, key_of(c->arch, same[n], key), 0, MHA__DIM, &value, c->err));
        snprintf(rule, sizeof rule, "%lld, the width of a head", (long long)c->head_dim);
        if (value != c->head_dim) return mha__gguf_refuse(c->file, key, rule, c->err);
    }
    return MHA_OK;
}

static mha_status put_widths(config *c)
{
    char key[KEY];
    int64_t experts = 0;
    MHA__TRY(copy_dim(c, "attention.head_count", "num_attention_heads", MHA__HEADS, &c->heads));
    c->kv_heads = c->heads;
    MHA__TRY(mha__gguf_arch_int(c->file, c->arch, "attention.head_count_kv", MHA__HEADS, &c->kv_heads, c->err));
    put_int(c, "num_key_value_heads", c->kv_heads);
    c->head_dim = c->hidden / c->heads;
    MHA__TRY(mha__gguf_int(c->file, key_of(c->arch, "attention.key_length", key), 1, MHA__DIM, &c->head_dim, c->err));
    put_int(c, "head_dim", c->head_dim);
    MHA__TRY(mha__gguf_int(c->file, key_of(c->arch, "expert_count", key), 0, INT32_MAX, &experts, c->err));
    if (experts) return mha__gguf_refuse(c->file, key, "0, since files with experts are not supported", c->err);
    return check_widths(c);
}

/* Writes the keys of Gemma. The scale of scores follows the rule of llama.cpp, which knows the models of 27B by their
 * layers. */
static mha_status put_gemma(config *c)
{
    const bool three = strcmp(c->arch->name, "gemma3") == 0;
    const bool largest = c->layers == (three ? 62 : 46);
    put_text(c, "hidden_activation", "gelu_pytorch_tanh");
    if (c->arch->window) {
        put_real(c, "query_pre_attn_scalar", (double)(largest ? c->hidden / c->heads : c->head_dim));
        MHA__TRY(copy_dim(c, "attention.sliding_window", "sliding_window", MHA__DIM, NULL));
        bool attention = false, final = false;
        MHA__TRY(copy_real(c, "attn_logit_softcapping", "attn_logit_softcapping", &attention));
        MHA__TRY(copy_real(c, "final_logit_softcapping", "final_logit_softcapping", &final));
        if (!three && !attention) put_real(c, "attn_logit_softcapping", 50);
        if (!three && !final) put_real(c, "final_logit_softcapping", 30);
    }
    if (three) put_real(c, "rope_local_base_freq", 10000);
    return MHA_OK;
}

static mha_status put_llama(config *c)
{
    int64_t positions = 0;
    bool theta = false, eps = false;
    MHA__TRY(put_widths(c));
    MHA__TRY(copy_dim(c, "feed_forward_length", "intermediate_size", MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "context_length", "max_position_embeddings", MHA__DIM, &positions));
    MHA__TRY(copy_real(c, "attention.layer_norm_rms_epsilon", "rms_norm_eps", &eps));
    if (!eps) {
        char key[KEY];
        return mha__gguf_refuse(c->file, key_of(c->arch, "attention.layer_norm_rms_epsilon", key), "a number", c->err);
    }
    MHA__TRY(copy_real(c, "rope.freq_base", "rope_theta", &theta));
    if (!theta) put_real(c, "rope_theta", 10000);
    put_bool(c, "attention_bias",
             tensor(c, "blk.0.attn_output.bias") ||
                 (strcmp(c->arch->name, "llama") == 0 && tensor(c, "blk.0.attn_q.bias")));
    put_bool(c, "mlp_bias", tensor(c, "blk.0.ffn_up.bias") != NULL);
    put_bool(c, "use_sliding_window", false);
    if (c->arch->gemma_scale) MHA__TRY(put_gemma(c));
    return put_rope(c, positions);
}

static mha_status put_gpt2(config *c)
{
    MHA__TRY(copy_dim(c, "attention.head_count", "num_attention_heads", MHA__HEADS, NULL));
    MHA__TRY(copy_dim(c, "feed_forward_length", "n_inner", MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "context_length", "max_position_embeddings", MHA__DIM, NULL));
    return copy_real(c, "attention.layer_norm_epsilon", "layer_norm_epsilon", NULL);
}

static mha_status put_bert(config *c)
{
    int64_t types = 0;
    bool causal = false;
    MHA__TRY(copy_dim(c, "attention.head_count", "num_attention_heads", MHA__HEADS, NULL));
    MHA__TRY(copy_dim(c, "feed_forward_length", "intermediate_size", MHA__DIM, NULL));
    MHA__TRY(copy_dim(c, "context_length", "max_position_embeddings", MHA__DIM, NULL));
    MHA__TRY(copy_real(c, "attention.layer_norm_epsilon", "layer_norm_eps", NULL));
    MHA__TRY(rows_of(c, "token_types.weight", &types));
    put_int(c, "type_vocab_size", types);
    MHA__TRY(mha__gguf_bool(c->file, "bert.attention.causal", &causal, c->err));
    return causal ? mha__gguf_refuse(c->file, "bert.attention.causal", "false", c->err) : MHA_OK;
}

static mha_status put_all(config *c)
{
    int64_t rows = 0;
    put_text(c, "model_type", c->arch->family);
    MHA__TRY(rows_of(c, "token_embd.weight", &rows));
    put_int(c, "vocab_size", rows);
    MHA__TRY(copy_dim(c, "embedding_length", "hidden_size", MHA__DIM, &c->hidden));
    MHA__TRY(copy_dim(c, "block_count", "num_hidden_layers", MHA__LAYERS, &c->layers));
    put_bool(c, "tie_word_embeddings", c->arch->bert || !tensor(c, "output.weight"));
    MHA__TRY(put_tokens(c));
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
