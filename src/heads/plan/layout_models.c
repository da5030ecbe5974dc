/* layout_models.c - writes config.json of the model of each head layout variant, with a feed-forward width that gives
 * all models the same number of parameters. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/plan/layout_table.h"
#include "heads/plan/layout_training.h"
#include "mha/host_layouts.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG = sizeof((mha_layout_model *)NULL)->config };

/* ---- config.json ---- */

static void __attribute__((format(printf, 2, 3))) put(char config[CONFIG], const char *format, ...)
{
    const size_t used = strlen(config);
    va_list args;
    va_start(args, format);
    vsnprintf(config + used, CONFIG - used, format, args);
    va_end(args);
}

/* Writes the keys that all variants have. No batch is padded, so there is no padding token. */
static void put_shape(const mha__layout_setup *s, int64_t feed_forward, char config[CONFIG])
{
    const mha_head_layout_options *m = &s->layout;
    config[0] = '\0';
    put(config, "{\"model_type\": \"%s\", \"architectures\": [\"%s\"], ", s->o.encoder ? "bert" : "llama",
        s->o.encoder ? "BertForMaskedLM" : "LlamaForCausalLM");
    put(config, "\"vocab_size\": %" PRId64 ", \"hidden_size\": %" PRId64 ", \"num_hidden_layers\": %" PRId64 ", ",
        m->vocab, m->d_model, m->layers);
    put(config, "\"num_attention_heads\": %" PRId64 ", \"intermediate_size\": %" PRId64 ", ", m->heads, feed_forward);
    put(config, "\"max_position_embeddings\": %" PRId64 ", \"tie_word_embeddings\": true, \"pad_token_id\": null",
        m->seq);
}

/* Writes the head counts that the predictor of variant adaptive selects from: half, all and twice the heads. */
static void put_adaptive(const mha_head_layout_options *m, char config[CONFIG])
{
    const int64_t options[] = {m->heads / 2, m->heads, 2 * m->heads};
    const char *separator = "";
    put(config, ", \"mha.attention\": {\"adaptive_heads\": {\"head_options\": [");
    for (int n = 0; n < 3; n++) {
        if (options[n] < 1 || m->d_model % options[n] != 0) continue;
        put(config, "%s%" PRId64, separator, options[n]);
        separator = ", ";
    }
    put(config, "]}}");
}

static void put_config(const mha__layout_setup *s, const mha_head_layout *row, int64_t feed_forward,
                       char config[CONFIG])
{
    const mha_head_layout_options *m = &s->layout;
    const bool shared = row->variant == MHA_HEAD_LAYOUT_GQA || row->variant == MHA_HEAD_LAYOUT_MQA;
    const int64_t kv_heads = shared ? row->kv_heads : m->heads;
    put_shape(s, feed_forward, config);
    if (!s->o.encoder)
        put(config, ", \"head_dim\": %" PRId64 ", \"num_key_value_heads\": %" PRId64, row->head_dim, kv_heads);
    else if (shared)
        put(config, ", \"mha.kv_heads\": {\"keys\": %" PRId64 ", \"values\": %" PRId64 "}", kv_heads, kv_heads);
    if (row->variant == MHA_HEAD_LAYOUT_DYNAMIC)
        put(config, ", \"mha.attention\": {\"head_pruning\": {\"prune_ratio\": %.17g}}", m->prune);
    if (row->variant == MHA_HEAD_LAYOUT_MOE)
        put(config, ", \"mha.attention\": {\"moe_heads\": {\"top_k\": %" PRId64 "}}", m->top_k);
    if (row->variant == MHA_HEAD_LAYOUT_ADAPTIVE) put_adaptive(m, config);
    put(config, "}");
}

/* ---- parameter counts ---- */

/* Sets the number of parameters and the memory of a training step from the config, without weights. */
static mha_status count(mha_ctx *ctx, const mha__layout_setup *s, mha_layout_model *m, mha_error *err)
{
    mha_host_model shape = {.size = sizeof shape};
    mha_host_layout row = {0};
    MHA__TRY(mha_host_model_of_config(ctx, m->config, &shape, err));
    const mha_host_options o = {.size = sizeof o,
                                .hosts = 1,
                                .memory = INT64_MAX,
                                .speed = {1, 1}, /* times are not used */
                                .job = MHA_HOSTS_TRAIN,
                                .seq = s->layout.seq,
                                .batch = s->layout.batch,
                                .moments = s->train.moments};
    MHA__TRY(mha_host_layout_predict(&shape, &o, 1, 1, 1, &row, err));
    m->train_bytes = row.bytes;
    m->parameters = shape.layer_weights + shape.word_weights + shape.other_weights; /* the output matrix is tied */
    return MHA_OK;
}

/* Returns the number of parameters of all heads that variant pruned removes. */
static int64_t removed(const mha__layout_setup *s, const mha_head_layout *row)
{
    const int64_t all = 4 * s->layout.d_model * row->head_dim + (s->o.encoder ? 3 * row->head_dim : 0);
    return row->variant == MHA_HEAD_LAYOUT_PRUNED ? s->layout.layers * (s->layout.heads - row->heads) * all : 0;
}

/* Writes the config with a feed-forward width, and counts its parameters. */
static mha_status try_width(mha_ctx *ctx, const mha__layout_setup *s, const mha_head_layout *row, int64_t width,
                            mha_layout_model *m, mha_error *err)
{
    m->feed_forward = width;
    put_config(s, row, width, m->config);
    MHA__TRY(count(ctx, s, m, err));
    m->parameters -= removed(s, row);
    return MHA_OK;
}

/* Sets the feed-forward width whose parameter count is closest to `wanted`. The count is linear in the width. */
static mha_status adapt_width(mha_ctx *ctx, const mha__layout_setup *s, const mha_head_layout *row, int64_t wanted,
                              mha_layout_model *m, mha_error *err)
{
    const int64_t width = s->o.feed_forward;
    MHA__TRY(try_width(ctx, s, row, width, m, err));
    const int64_t before = m->parameters;
    if (before == wanted) return MHA_OK;
    MHA__TRY(try_width(ctx, s, row, width + 1, m, err));
    const double change = (double)(wanted - before) / (double)(m->parameters - before);
    if ((double)width + round(change) >= 1) MHA__TRY(try_width(ctx, s, row, width + (int64_t)round(change), m, err));
    if (fabs((double)(m->parameters - wanted)) > 0.01 * (double)wanted)
        m->refused = "no feed-forward width gives this variant the number of parameters of variant mha";
    return MHA_OK;
}

/* ---- rows ---- */

/* Returns the reason why no model has this variant; NULL if one has it. */
static const char *reason_against(const mha__layout_setup *s, const mha_head_layout *row)
{
    const bool selects = row->variant == MHA_HEAD_LAYOUT_DYNAMIC || row->variant == MHA_HEAD_LAYOUT_MOE ||
                         row->variant == MHA_HEAD_LAYOUT_ADAPTIVE;
    if (row->left_out) return row->left_out;
    if (row->refused) return row->refused;
    if (selects && !s->o.encoder)
        return "it selects heads by the mean of all tokens, and in a decoder this mean includes later tokens";
    return NULL;
}

static void set_cache(const mha__layout_setup *s, const mha_head_layout *row, mha_layout_model *m)
{
    const bool pruned = row->variant == MHA_HEAD_LAYOUT_PRUNED;
    m->kept_heads = pruned ? s->layout.layers * row->heads : 0;
    m->kv_bytes = s->o.encoder ? 0
                               : 2.0 * (double)(s->layout.layers * row->kv_heads * row->head_dim) *
                                     (double)mha_dtype_size(s->layout.dtype);
}

static mha_status fill_row(mha_ctx *ctx, const mha__layout_setup *s, const mha_head_layout *row, int64_t wanted,
                           mha_layout_model *m, mha_error *err)
{
    m->refused = reason_against(s, row);
    if (m->refused) return MHA_OK;
    set_cache(s, row, m);
    if (row->variant != MHA_HEAD_LAYOUT_MHA) return adapt_width(ctx, s, row, wanted, m, err);
    return try_width(ctx, s, row, s->o.feed_forward, m, err);
}

mha_status mha_layout_models(mha_ctx *ctx, const mha_layout_training *options,
                             mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS], mha_error *err)
{
    mha__layout_setup setup;
    mha_head_layout row;
    if (!models) return mha__fail(err, MHA_ERR_ARG, "mha_layout_models: models must not be NULL");
    MHA__TRY(mha__layout_setup_read(options, &setup, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++) {
        models[v] = (mha_layout_model){.variant = (mha_head_layout_variant)v};
        MHA__TRY(mha__head_layout_row(&setup.layout, models[v].variant, &row, err));
        MHA__TRY(fill_row(ctx, &setup, &row, models[MHA_HEAD_LAYOUT_MHA].parameters, &models[v], err));
    }
    return MHA_OK;
}
