/* gguf_save.c - saves a model as a GGUF file. The written file is opened as a check, and its config is compared with
 * that of the model (gguf_compare.c). */
#include "model/weights/gguf_save.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "io/derived_tensor.h"
#include "mha/model_save.h"
#include "model/gguf/gguf_config.h"
#include "model/gguf/gguf_layout.h"
#include "model/model_struct.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"
#include <string.h>

enum { NAME = 96 };

/* A tensor, and its form in the file. */
typedef struct item {
    const mha_tensor *from; /* of the first expert, with MHA__GGUF_EXPERTS */
    const float *elements;  /* instead of `from`, or NULL */
    mha__gguf_change change;
    int64_t heads; /* for MHA__GGUF_ROWS_Q and MHA__GGUF_ROWS_K */
    mha__tensor_step at;
    int64_t shape[MHA__GGUF_RANK];
    char name[NAME];
} item;

typedef struct saving {
    const mha_model *m;
    const mha__gguf_arch *arch;
    mha_model_save_options o;
    mha__gguf_keys keys;
    item *items;              /* [count] */
    mha__gguf_outgoing *list; /* [count] points to names and shapes of the items */
    int64_t count;
    float rope_factors[2][MHA_HEAD_DIM_MAX / 2];
    float *read, *changed; /* the elements of the largest tensor */
} saving;

/* ---- keys ---- */

static void put_int(saving *s, const char *suffix, int64_t value)
{
    char key[MHA__GGUF_CONFIG_KEY];
    mha__gguf_key_u32(&s->keys, mha__gguf_config_key(s->arch, suffix, key), (uint32_t)value);
}

static void put_real(saving *s, const char *suffix, double value)
{
    char key[MHA__GGUF_CONFIG_KEY];
    mha__gguf_key_f32(&s->keys, mha__gguf_config_key(s->arch, suffix, key), (float)value);
}

/* Writes the keys of the rotation of long texts by YaRN. Defaults of the betas are those of readers. */
static void put_yarn(saving *s)
{
    const mha_rope_options *o = &s->m->config.rope;
    put_int(s, "rope.scaling.original_context_length", o->original_positions);
    if (o->beta_fast != 0) put_real(s, "rope.scaling.yarn_beta_fast", o->beta_fast);
    if (o->beta_slow != 0) put_real(s, "rope.scaling.yarn_beta_slow", o->beta_slow);
}

static mha_status put_rope(saving *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    const mha_rope_options *o = &c->rope;
    const bool yarn = o->kind == MHA_ROPE_YARN;
    char key[MHA__GGUF_CONFIG_KEY];
    double f[MHA_HEAD_DIM_MAX / 2], gain;
    put_int(s, "rope.dimension_count", o->rotary_dim ? o->rotary_dim : c->head_dim);
    put_real(s, "rope.freq_base", o->theta != 0 ? o->theta : 10000);
    if (o->kind == MHA_ROPE_LINEAR || yarn) {
        mha__gguf_key_text(&s->keys, mha__gguf_config_key(s->arch, "rope.scaling.type", key), yarn ? "yarn" : "linear");
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
static void put_multipliers(saving *s)
{
    const mha__config *c = &s->m->config;
    put_real(s, "attention.scale", c->attention_multiplier);
    put_real(s, "embedding_scale", c->embed_multiplier);
    put_real(s, "residual_scale", c->residual_multiplier);
    put_real(s, "logit_scale", c->logit_divisor);
}

static void put_experts(saving *s)
{
    const mha__config *c = &s->m->config;
    put_int(s, "expert_count", c->experts);
    put_int(s, "expert_used_count", c->experts_chosen);
    if (s->arch->expert_width || s->arch->sinks)
        put_int(s, "expert_feed_forward_length", s->arch->sinks ? c->intermediate : c->expert_width);
}

static mha_status put_decoder(saving *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    put_int(s, "attention.head_count_kv", c->layer_kv_heads[0]);
    put_int(s, "attention.key_length", c->head_dim);
    put_int(s, "attention.value_length", c->head_dim);
    put_real(s, "attention.layer_norm_rms_epsilon", c->eps);
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
static void put_t5(saving *s)
{
    const mha__config *c = &s->m->config;
    put_int(s, "decoder_block_count", c->layers);
    put_int(s, "attention.key_length", c->head_dim);
    put_int(s, "attention.value_length", c->head_dim);
    put_int(s, "attention.relative_buckets_count", c->buckets);
    put_real(s, "attention.layer_norm_rms_epsilon", c->eps);
    if (c->start >= 0) put_int(s, "decoder_start_token_id", c->start);
}

static mha_status put_model(saving *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    const mha_model *encoder = s->m->encoder;
    char key[MHA__GGUF_CONFIG_KEY];
    mha__gguf_key_text(&s->keys, "general.architecture", s->arch->name);
    mha__gguf_key_u32(&s->keys, "general.quantization_version", 2);
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
    if (s->arch->bert) mha__gguf_key_bool(&s->keys, mha__gguf_config_key(s->arch, "attention.causal", key), false);
    return MHA_OK;
}

/* Writes the tokenizer, and the token that ends a text unless the tokenizer has added it. */
static mha_status put_tokenizer(saving *s, mha_error *err)
{
    const mha_model *m = s->m;
    char from[PATH_MAX], *own = NULL;
    size_t n = 0;
    MHA__TRY(mha__shards_folder(&m->shards, from, sizeof from, err));
    if (m->gguf_config) MHA__TRY(mha__gguf_tokenizer(m->shards.file, &own, &n, err));
    if (!own && (m->gguf_config || !mha__source_exists(from, MHA__TOKENIZER_FILE))) {
        mha__gguf_key_text(&s->keys, "tokenizer.ggml.model", "no_vocab");
        if (m->config.eos_count) mha__gguf_key_u32(&s->keys, "tokenizer.ggml.eos_token_id", (uint32_t)m->config.eos[0]);
        return MHA_OK;
    }
    if (!own) {
        const mha_status status = mha__read_whole(m->ctx, from, MHA__TOKENIZER_FILE, MHA__JSON_BYTES, &own, &n, err);
        if (status != MHA_OK) return mha__in_folder(status, from, MHA__TOKENIZER_FILE, err);
    }
    const mha_status status = mha__gguf_tokenizer_write(m->ctx, own, n, m->config.vocab,
                                                        m->config.eos_count ? m->config.eos[0] : -1, &s->keys, err);
    mha__free(m->ctx, own);
    return status;
}

/* Writes the other tokens that end a text, and the padding. */
static void put_tokens(saving *s)
{
    const mha__config *c = &s->m->config;
    if (c->eos_count > 1) mha__gguf_key_u32(&s->keys, "tokenizer.ggml.eot_token_id", (uint32_t)c->eos[1]);
    if (c->eos_count > 2) mha__gguf_key_u32(&s->keys, "tokenizer.ggml.eom_token_id", (uint32_t)c->eos[2]);
    const int64_t padding = s->m->encoder ? c->pad : c->padding;
    if (padding >= 0 && padding < c->vocab)
        mha__gguf_key_u32(&s->keys, "tokenizer.ggml.padding_token_id", (uint32_t)padding);
}

/* ---- tensors ---- */

/* Returns the type in which a tensor is stored. */
static const char *type_of(const saving *s, const mha_tensor *t, const char *name)
{
    const int64_t row = t->rank ? t->shape[t->rank - 1] : 1;
    const mha_dtype dtype = s->o.dtype ? s->o.dtype : t->dtype;
    if (t->rank < 2 || strncmp(name, "position_embd", 13) == 0 || strncmp(name, "token_types", 11) == 0 ||
        strstr(name, ".ffn_gate_inp.") || strstr(name, ".bias"))
        return "F32";
    if (!s->o.dtype && t->dtype_name && strcmp(t->dtype_name, "MXFP4") == 0 && row % 32 == 0) return "MXFP4";
    if (dtype == MHA_BF16) return "BF16";
    if (s->o.dtype == MHA_Q8_0) return row % 32 ? "F16" : "Q8_0";
    return dtype == MHA_F16 ? "F16" : "F32";
}

/* Sets the shape of the last item, and adds it to the list. */
static void add_item(saving *s, const mha_tensor *t)
{
    item *to = &s->items[s->count];
    const int experts = to->change == MHA__GGUF_EXPERTS, rank = t->rank + experts;
    int64_t *last = &to->shape[rank - 1];
    if (experts) to->shape[0] = s->m->config.experts;
    memcpy(to->shape + experts, t->shape, (size_t)t->rank * sizeof *t->shape);
    if (mha__gguf_is_half(to->change)) *last /= 2;
    if (to->change == MHA__GGUF_TRANSPOSED || (rank == 3 && mha__gguf_is_stack(to->change))) {
        const int64_t rows = *last;
        *last = last[-1];
        last[-1] = rows;
    }
    const mha_tensor stored = {
        .rank = rank, .shape = to->shape, .dtype = mha__tensor_dtype(t), .dtype_name = t->dtype_name};
    s->list[s->count++] =
        (mha__gguf_outgoing){.name = to->name, .rank = rank, .shape = to->shape, .type = type_of(s, &stored, to->name)};
}

/* Adds the part that has the odd columns of the tensor whose even columns were added last. */
static mha_status add_up(saving *s, const char *own, const mha_tensor *t, mha_error *err)
{
    item *to = &s->items[s->count];
    *to = to[-1];
    to->change = MHA__GGUF_UP;
    char *gate = strstr(to->name, "gate_exps");
    if (!gate) return mha__fail(err, MHA_ERR_UNSUPPORTED, "tensor \"%s\" must have a gate (got \"%s\")", own, to->name);
    memmove(gate + 2, gate + 4, strlen(gate + 4) + 1);
    memcpy(gate, "up", 2);
    add_item(s, t);
    return MHA_OK;
}

static mha_status add_tensor(saving *s, const mha__config *c, const mha__tensor_step *at, const mha_tensor *t,
                             mha_error *err)
{
    char own[MHA__TENSOR_NAME];
    mha_named_tensor named;
    item *to = &s->items[s->count];
    mha__weights_expected(c, at->role, at->layer, at->bias, own, &named);
    const mha__gguf_part *part = mha__gguf_part_named(s->arch, own, false, to->name, sizeof to->name);
    if (!part || t->rank > MHA__GGUF_RANK || (at->bias && s->arch->unbiased))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "tensor \"%s\" must be absent in a GGUF file of architecture %s",
                         t->name, s->arch->name);
    to->from = t;
    to->at = *at;
    const bool matrix = part->change == MHA__GGUF_TRANSPOSED || part->change == MHA__GGUF_STACK;
    to->change = at->bias && matrix ? MHA__GGUF_SAME : part->change;
    to->heads = part->change == MHA__GGUF_ROWS_Q ? c->layer_heads[0] : c->layer_k_heads[0];
    add_item(s, t);
    return to->change == MHA__GGUF_GATE ? add_up(s, own, t, err) : MHA_OK;
}

/* Returns true for tensors that the file omits: the pooler of BERT, and a tied output matrix. */
static bool is_omitted(const saving *s, mha__role role)
{
    return role == MHA__POOLER ||
           (role == MHA__LM_HEAD && mha__model_is_tied(s->m, (mha_model_range){0, s->m->config.vocab}));
}

static void add_factors(saving *s, const char *name, const float *factors, int64_t count)
{
    item *to = &s->items[s->count];
    *to = (item){.elements = factors, .shape = {count}};
    s->list[s->count++] = (mha__gguf_outgoing){.name = name, .rank = 1, .shape = to->shape, .type = "F32"};
}

/* Adds the factors by which Phi-3 divides the frequencies of short and of long texts. */
static void add_long_factors(saving *s)
{
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    const mha_rope_options *o = &s->m->config.rope;
    for (int n = 0; n < 2; n++) {
        for (int64_t i = 0; i < o->rotary_dim / 2; i++)
            s->rope_factors[n][i] = (float)(n ? o->long_by : o->short_by)[i];
        add_factors(s, names[n], s->rope_factors[n], o->rotary_dim / 2);
    }
}

/* Adds the factors by which LLaMA 3 scales its rotation. */
static mha_status add_rope_factors(saving *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    mha_rope_options plain = c->rope;
    double f[2][MHA_HEAD_DIM_MAX / 2], gain;
    if (c->rope.kind != MHA_ROPE_LLAMA3 && c->rope.kind != MHA_ROPE_LONGROPE) return MHA_OK;
    if (s->arch->phi) {
        add_long_factors(s);
        return MHA_OK;
    }
    plain.kind = MHA_ROPE_DEFAULT;
    MHA__TRY(mha_rope_frequencies(&plain, 1, f[0], &gain, err));
    MHA__TRY(mha_rope_frequencies(&c->rope, 1, f[1], &gain, err));
    for (int64_t i = 0; i < c->head_dim / 2; i++)
        s->rope_factors[0][i] = (float)(f[0][i] / f[1][i]);
    add_factors(s, "rope_freqs.weight", s->rope_factors[0], c->head_dim / 2);
    return MHA_OK;
}

/* Adds the tensors of a model, or of one side of an encoder-decoder. Words that the sides share are those of the
 * decoder. *largest receives the elements of the largest tensor. */
static mha_status list_side(saving *s, const mha_model *m, int64_t *largest, mha_error *err)
{
    for (mha__tensor_step at = {0}; mha__tensor_each(&m->config, &at);) {
        const mha_tensor *t = mha__weights_tensor(&m->outer, at.role, at.layer, at.bias);
        if (!t || is_omitted(s, at.role) || (m != s->m && at.role == MHA__WORDS)) continue;
        if (mha__of_experts(at.role) && at.role >= MHA__ROLES) continue; /* belongs to the tensor of expert 0 */
        MHA__TRY(add_tensor(s, &m->config, &at, t, err));
        const int64_t elements = mha__of_experts(at.role) ? t->elements * m->config.experts : t->elements;
        if (elements > *largest) *largest = elements;
    }
    return MHA_OK;
}

static mha_status list_tensors(saving *s, mha_error *err)
{
    const mha_model *m = s->m;
    /* gate and up may be one tensor of the model */
    const size_t most = 2 * ((size_t)mha_file_count(m->shards.file) + (size_t)m->shards.instead_count) + 2;
    int64_t largest = 1;
    s->list = mha__calloc(m->ctx, most, sizeof *s->list);
    s->items = mha__calloc(m->ctx, most, sizeof *s->items);
    if (!s->list || !s->items)
        return mha__no_memory(err, most * (sizeof *s->list + sizeof *s->items), "the list of tensors");
    MHA__TRY(list_side(s, m, &largest, err));
    if (m->encoder) MHA__TRY(list_side(s, m->encoder, &largest, err));
    MHA__TRY(add_rope_factors(s, err));
    s->read = mha__alloc(m->ctx, (size_t)largest * sizeof *s->read);
    s->changed = mha__alloc(m->ctx, (size_t)largest * sizeof *s->changed);
    return s->read && s->changed ? MHA_OK : mha__no_memory(err, (size_t)largest * 8, "a tensor");
}

/* Reads the matrices of all experts, one after another. */
static mha_status read_experts(saving *s, const item *it, mha_error *err)
{
    const mha_model *m = s->m;
    for (int64_t n = 0; n < m->config.experts; n++) {
        const mha__role role = mha__expert_role(it->at.role, n);
        const mha_tensor *t = mha__weights_tensor(&m->outer, role, it->at.layer, it->at.bias);
        if (!t || t->rank != it->from->rank ||
            memcmp(t->shape, it->from->shape, (size_t)t->rank * sizeof *t->shape) != 0)
            return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\" must have the same shape in every expert",
                             it->from->name);
        MHA__TRY(mha_tensor_read(t, MHA_F32, s->read + n * t->elements, err));
    }
    return MHA_OK;
}

static mha_status read_tensor(void *user, int64_t index, const float **elements, mha_error *err)
{
    saving *s = user;
    const item *it = &s->items[index];
    const mha_tensor *t = it->from;
    *elements = it->elements ? it->elements : s->read;
    if (it->elements) return MHA_OK;
    if (it->change == MHA__GGUF_EXPERTS) return read_experts(s, it, err);
    MHA__TRY(mha_tensor_read(t, MHA_F32, s->read, err));
    if (mha__gguf_lay_out(t, it->change, it->heads, s->read, s->changed)) *elements = s->changed;
    return MHA_OK;
}

/* ---- the file ---- */

static mha_status check(void *user, const char *path, mha_error *err)
{
    const saving *s = user;
    const mha_model_options o = {.size = sizeof o, .no_weights = 1};
    mha_model *written = NULL;
    mha_status status = mha_model_open(s->m->ctx, path, &o, &written, err);
    if (status == MHA_OK) status = mha__gguf_compare(s->m, written, s->arch->name, err);
    mha_model_free(written);
    return status;
}

static mha_status save(saving *s, const char *path, mha_error *err)
{
    MHA__TRY(mha__gguf_expressible(s->m, s->arch, err));
    MHA__TRY(put_model(s, err));
    MHA__TRY(put_tokenizer(s, err));
    put_tokens(s);
    MHA__TRY(list_tensors(s, err));
    return mha__gguf_write(path, s->o.overwrite != 0, &s->keys, s->list, s->count, read_tensor, check, s, err);
}

static mha_status check_options(const mha_model_save_options *o, mha_error *err)
{
    if (o->dtype && o->dtype != MHA_F32 && o->dtype != MHA_BF16 && o->dtype != MHA_F16 && o->dtype != MHA_Q8_0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_save_options: dtype must be one of f32, bf16, f16, q8_0 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, o->dtype));
    if (o->count || o->tensors)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_save_options: count must be 0 and tensors NULL in a GGUF file (got count %lld)",
                         (long long)o->count);
    if (o->config_json)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_save_options: config_json must be NULL in a GGUF file (got a config)");
    return MHA_OK;
}

mha_status mha_model_save_gguf(const mha_model *model, const char *path, const mha_model_save_options *options,
                               mha_error *err)
{
    if (!model || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_save_gguf: %s must not be NULL", model ? "path" : "model");
    mha_model_save_options o;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_model_save_options", err));
    MHA__TRY(check_options(&o, err));
    saving *s = mha__calloc(model->ctx, 1, sizeof *s);
    if (!s) return mha__no_memory(err, sizeof *s, "a GGUF file");
    s->m = model;
    s->o = o;
    s->keys.ctx = model->ctx;
    s->arch = mha__gguf_arch_of(model->info.family);
    if (s->arch && s->arch->seq2seq)
        s->arch = mha__gguf_arch_named(s->arch->name, strlen(s->arch->name), model->config.gated);
    char names[200];
    mha__gguf_arch_names(names, sizeof names);
    const mha_status status =
        s->arch ? save(s, path, err)
                : mha__fail(err, MHA_ERR_UNSUPPORTED, "model_type must be one of %s in a GGUF file (got %s)", names,
                            model->info.family);
    mha__gguf_keys_free(&s->keys);
    mha__free(model->ctx, s->list);
    mha__free(model->ctx, s->items);
    mha__free(model->ctx, s->read);
    mha__free(model->ctx, s->changed);
    mha__free(model->ctx, s);
    return status;
}
