/* config.c - reads and validates config.json; no other code validates dimensions.
 *
 * The table of a family lists the keys, their valid values and their defaults. Unknown keys are ignored, including keys
 * that name code to execute. One table covers the key names of transformers 4.x and 5.x. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/json/json.h"
#include "mha/attn.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define FILE_NAME "config.json"

/* The model of a checkpoint whose config is read. */
typedef enum side { MAIN, ENCODER, VISION } side;

/* Replaces the table of a decoder by that of an encoder if config.json turns the causal mask off. */
static mha_status find_direction(const mha__json_obj *root, const mha__family **family, mha_error *err)
{
    bool on = false;
    if (!(*family)->bidirectional) return MHA_OK;
    MHA__TRY(mha__json_bool(root, "use_bidirectional_attention", MHA__OPTIONAL, &on, err));
    if (on) *family = (*family)->bidirectional;
    return MHA_OK;
}

static mha_status find_family(const mha__json_obj *root, side side, const mha__family **family, mha_error *err)
{
    const char *type = NULL;
    char names[600];
    MHA__TRY(mha__json_string(root, "model_type", MHA__REQUIRED, &type, NULL, err));
    *family = mha__family_find(type);
    if (*family && side != MAIN) *family = side == ENCODER ? (*family)->encoder : (*family)->vision;
    if (*family) return find_direction(root, family, err);
    mha__family_names(names, sizeof names);
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: model_type must be one of %s (got \"%s\")", root->file, names,
                     mha__quote(&(mha__quoted){0}, type, strlen(type)));
}

/* Computes the rows of the position table, and the number of tokens that it supports. */
static mha_status derive_positions(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    c->position_rows = c->max_positions + mha__first_position(c->family);
    if (c->family->padding) c->padding = c->family->padding;
    if (c->family->position_rule != MHA__POSITIONS_AFTER_PAD) return MHA_OK;
    if (c->family->padding && c->padding + 1 >= c->position_rows)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: max_position_embeddings must be at least %lld (got %lld)",
                         root->file, (long long)c->padding + 2, (long long)c->position_rows);
    if (c->padding < 0 || c->padding + 1 >= c->position_rows)
        return mha__fail(
            err, MHA_ERR_FORMAT,
            "%s: pad_token_id must be from 0 to %lld, since position ids start at pad_token_id + 1 (got %lld)",
            root->file, (long long)c->position_rows - 2, (long long)c->padding);
    c->max_positions -= c->padding + 1;
    return MHA_OK;
}

/* Checks the width of the embeddings, and whether the model maps them to the hidden states. */
static mha_status derive_embeddings(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const bool maps = c->family->parts[MHA__EMBED_MAP].kind != MHA__PART_ABSENT;
    if (!c->embed_width) c->embed_width = c->hidden;
    c->embed_mapped = maps && (c->family->always_mapped || c->embed_width != c->hidden);
    if (c->embed_width > c->hidden)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must be at most hidden_size = %lld (got %lld)", root->file,
                         c->family->positions_mapped ? "word_embed_proj_dim" : "embedding_size", (long long)c->hidden,
                         (long long)c->embed_width);
    if (c->group_layers <= 1) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: inner_group_num must be 1 (got %lld)", root->file,
                     (long long)c->group_layers);
}

/* Sets whether `architectures` names the class of a discriminator, which has other output tensors. */
static mha_status find_discriminator(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const mha__json *list = NULL;
    if (!c->family->discriminator) return MHA_OK;
    MHA__TRY(mha__json_array(root, "architectures", MHA__OPTIONAL, &list, err));
    for (mha__json_step i = {0}; list && mha__json_each(list, &i);) {
        const char *name = mha__json_as_text(i.value);
        if (name && strcmp(name, c->family->discriminator) == 0) c->discriminator = true;
    }
    if (c->discriminator) c->tied = false;
    return MHA_OK;
}

/* Checks the width of the embeddings, and sets the kind of the output head and its activation. */
static mha_status derive_outer(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    MHA__TRY(find_discriminator(root, c, err));
    c->head_normed = !c->discriminator;
    if (c->family->exact_head && !c->discriminator) c->head_activation = MHA_ACT_GELU;
    if (c->family->linear_head)
        c->head_activation = MHA_ACT_NONE;
    else if (!c->head_activation)
        c->head_activation = c->activation;
    return derive_embeddings(root, c, err);
}

/* Sets the widths of the output head, and the width and place of the position table. vocab and the embeddings must
 * be set. */
static void derive_output(mha__config *c)
{
    c->logit_width = c->discriminator ? 1 : c->vocab;
    c->head_width = c->discriminator ? c->hidden : c->embed_width;
    c->positions_late = c->family->positions_mapped && c->embed_mapped;
    c->position_width = c->positions_late ? c->hidden : c->embed_width;
}

static mha_status derive_scales(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const double embed = c->embed_multiplier != 0 ? c->embed_multiplier : 1;
    const double divisor = c->scaled_head ? sqrt((double)c->hidden) : c->logit_divisor != 0 ? c->logit_divisor : 1;
    const double scale = (c->logit_multiplier != 0 ? c->logit_multiplier : 1) / divisor;
    c->embed_scale = c->family->embed_scaled || c->scaled_words ? sqrtf((float)c->hidden) : (float)embed;
    c->logit_scale = (float)scale;
    if (scale >= FLT_MIN && scale <= FLT_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: logits_scaling must have an inverse in the range of float (got %g)",
                     root->file, divisor);
}

/* Rejects head counts (mha.heads, mha.kv_heads) that the tensor layout or the norms of the family do not support. */
static mha_status check_heads(const mha__json_obj *root, const mha__config *c, mha_error *err)
{
    const mha__family *f = c->family;
    const bool per_head = f->parts[MHA__QKV].per_head;
    static const char *const per_layer[] = {"mha.heads", "mha.kv_heads", "mha.attention", "mha.feed_forward"};
    for (size_t n = 0; mha__config_shares(c) && n < sizeof per_layer / sizeof *per_layer; n++)
        if (mha__json_has(root, per_layer[n]))
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must be absent, since layers of %s share their tensors",
                             root->file, per_layer[n], f->name);
    for (int64_t l = 0; l < c->layers; l++) {
        const bool shared = c->layer_k_heads[l] != c->layer_heads[l] || c->layer_v_heads[l] != c->layer_heads[l];
        if ((f->distances || f->latent) && shared)
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: mha.kv_heads must be absent, since each head of %s has %s",
                             root->file, f->name,
                             f->latent ? "keys and values of its own" : "relative positions of its own");
        if (per_head && shared)
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "%s: mha.kv_heads must be absent, since the tensors of %s interleave q, k and v by head",
                             root->file, f->name);
    }
    return MHA_OK;
}

/* Rejects pruned and regrouped layers whose norms of q and k belong to all heads. */
static mha_status check_norms(const mha__json_obj *root, const mha__config *c, mha_error *err)
{
    const mha__family *f = c->family;
    if (!f->whole_norms && !f->head_gains) return MHA_OK;
    for (int64_t l = 0; l < c->layers; l++) {
        const bool whole = c->layer_heads[l] == c->heads && c->layer_k_heads[l] == c->layer_v_heads[l];
        if (!whole && (f->whole_norms || c->attention[l].normed))
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "%s: mha.heads and mha.kv_heads must be absent, since the norms of %s %s", root->file,
                             f->name, f->whole_norms ? "cover all heads together" : "have weights per head");
    }
    return MHA_OK;
}

/* Derives the width of a head, and checks it and the head counts. */
static mha_status derive_widths(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    if (!c->head_dim) {
        if (c->hidden % c->heads)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: num_attention_heads must divide hidden_size = %lld (got %lld)",
                             root->file, (long long)c->hidden, (long long)c->heads);
        c->head_dim = c->hidden / c->heads;
    }
    if (c->heads % c->kv_heads)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: num_key_value_heads must divide num_attention_heads = %lld (got %lld)", root->file,
                         (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim > MHA_HEAD_DIM_MAX)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: head_dim must be at most %d (got %lld; hidden_size %lld, num_attention_heads %lld)",
                         root->file, MHA_HEAD_DIM_MAX, (long long)c->head_dim, (long long)c->hidden,
                         (long long)c->heads);
    return MHA_OK;
}

/* Derives the remaining fields from the keys, and checks that they are consistent. */
static mha_status derive(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    if (!c->kv_heads) c->kv_heads = c->heads;
    MHA__TRY(mha__config_latent(root, c, err));
    if (!c->intermediate) c->intermediate = 4 * c->hidden;
    MHA__TRY(derive_widths(root, c, err));
    c->final_normed = c->pre_norm && !c->no_final_norm;
    MHA__TRY(derive_outer(root, c, err));
    MHA__TRY(mha__config_relative(root, c, err));
    MHA__TRY(mha__config_distances(root, c, err));
    MHA__TRY(mha__config_one_side(root, c, err));
    MHA__TRY(mha__config_vision(root, c, err));
    derive_output(c);
    MHA__TRY(derive_positions(root, c, err));
    MHA__TRY(derive_scales(root, c, err));
    MHA__TRY(mha__config_heads(root, c, err));
    MHA__TRY(check_heads(root, c, err));
    MHA__TRY(mha__config_feed(root, c, err));
    MHA__TRY(mha__config_experts(root, c, err));
    MHA__TRY(mha__config_turned(root, c, err));
    MHA__TRY(mha__config_windows(root, c, err));
    MHA__TRY(mha__config_attention(root, c, err));
    MHA__TRY(check_norms(root, c, err));
    MHA__TRY(mha__config_rope(root, c, err));
    mha__config_latent_scale(c);
    return MHA_OK;
}

int64_t mha__config_tensors(const mha__config *c, int64_t layer)
{
    if (!c->layer_groups) return layer;
    return (int64_t)((double)layer / ((double)c->layers / (double)c->layer_groups)); /* as in transformers */
}

bool mha__config_head_gains(const mha__config *c)
{
    bool normed = false;
    for (int64_t l = 0; l < c->layers; l++)
        normed |= c->attention[l].normed;
    return normed && c->family->head_gains;
}

int64_t mha__config_roles(const mha__config *c)
{
    return MHA__ROLES * (c->experts ? c->experts : 1);
}

bool mha__config_shares(const mha__config *c)
{
    return c->layer_groups > 0 && c->layer_groups < c->layers;
}

int64_t mha__config_owner(const mha__config *c, int64_t layer)
{
    int64_t first = layer;
    while (c->layer_groups && first > 0 && mha__config_tensors(c, first - 1) == mha__config_tensors(c, layer))
        first--;
    return first;
}

mha__layer_widths mha__config_widths(const mha__config *c, int64_t layer)
{
    const mha__layer_choice *choice = &c->attention[layer].choice;
    const bool split = choice->of == MHA_CHOICE_OPTIONS;
    mha__layer_widths w = {.q = c->layer_heads[layer] * c->head_dim,
                           .k = c->layer_k_heads[layer] * c->head_dim,
                           .v = c->layer_v_heads[layer] * c->head_dim,
                           .scores = split ? choice->option_count : c->layer_heads[layer],
                           .scored = split ? choice->width : c->hidden};
    w.heads = c->layer_heads[layer];
    w.k_heads = c->layer_k_heads[layer];
    w.cross = c->cross_heads[layer] * c->head_dim;
    w.q_in = c->q_rank ? c->q_rank : c->hidden;
    w.q_out = w.heads * (c->nope_width + c->rope_width);
    w.kv_low = c->kv_rank + c->rope_width;
    w.kv_out = w.heads * (c->nope_width + c->value_width);
    w.o_in = w.heads * c->value_width;
    w.qkv = w.q + w.k + w.v;
    w.gate_up = 2 * c->intermediate;
    w.one = 1;
    return w;
}

static mha_status read_keys(mha_ctx *ctx, const char *folder, const mha__json_obj *file, side side, mha__config *config,
                            mha_error *err)
{
    mha__json_obj own, *const root = &own;
    *config =
        (mha__config){.scaled = true, .padding = -1, .start = -1, .pad = -1, .forced_first = -1, .forced_last = -1};
    MHA__TRY(find_family(file, side, &config->family, err));
    MHA__TRY(mha__config_tower(file, config, root, err));
    MHA__TRY(mha__config_top(file, config, err));
    const mha__family *f = config->family;
    config->pre_norm = f->pre_norm;
    config->parallel = f->parallel;
    MHA__TRY(mha__config_keys(root, config, err));
    MHA__TRY(derive(root, config, err));
    MHA__TRY(mha__config_features(ctx, folder, config, err));
    MHA__TRY(mha__config_eos(ctx, folder, root, config, err));
    return mha__config_generation(ctx, folder, root, config, err);
}

static mha_status copy_given(mha_ctx *ctx, const char *given, char **text, size_t *bytes, mha_error *err)
{
    *bytes = strlen(given);
    *text = mha__alloc(ctx, *bytes + 1);
    if (!*text) return mha__no_memory(err, *bytes + 1, FILE_NAME);
    memcpy(*text, given, *bytes + 1);
    return MHA_OK;
}

static mha_status read_text(mha_ctx *ctx, const char *folder, const char *given, side side, mha__config *config,
                            char **text, mha_error *err)
{
    size_t bytes = 0;
    const mha__json *json = NULL;
    MHA__TRY(given ? copy_given(ctx, given, text, &bytes, err)
                   : mha__read_whole(ctx, folder, FILE_NAME, MHA__CONFIG_BYTES, text, &bytes, err));
    MHA__TRY(mha__json_parse(ctx, FILE_NAME, *text, bytes, MHA__JSON_BOM, &json, err));
    const mha__json_obj root = {.json = json, .file = FILE_NAME};
    const mha_status status = read_keys(ctx, folder, &root, side, config, err);
    mha__json_free(json);
    if (bytes >= 3 && memcmp(*text, "\xEF\xBB\xBF", 3) == 0) memmove(*text, *text + 3, bytes - 2);
    return status;
}

static mha_status read_side(mha_ctx *ctx, const char *folder, const char *given, side side, mha__config *config,
                            char **text, mha_error *err)
{
    *text = NULL;
    config->banned = NULL;
    const mha_status status = read_text(ctx, folder, given, side, config, text, err);
    if (status == MHA_OK) return MHA_OK;
    mha__config_release(ctx, config);
    mha__free(ctx, *text);
    *text = NULL;
    return mha__in_folder(status, given ? "" : folder, FILE_NAME, err);
}

mha_status mha__config_read(mha_ctx *ctx, const char *folder, const char *given, mha__config *config, char **text,
                            mha_error *err)
{
    return read_side(ctx, folder, given, MAIN, config, text, err);
}

mha_status mha__config_read_encoder(mha_ctx *ctx, const char *folder, const char *given, mha__config *config,
                                    char **text, mha_error *err)
{
    return read_side(ctx, folder, given, ENCODER, config, text, err);
}

mha_status mha__config_read_vision(mha_ctx *ctx, const char *folder, const char *given, mha__config *config,
                                   char **text, mha_error *err)
{
    return read_side(ctx, folder, given, VISION, config, text, err);
}
