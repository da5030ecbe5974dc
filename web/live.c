/* live.c - opens a model from memory and encodes texts, for the page of `mha live`. */
#include "live.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

live_state live;
mha_error live_err;

static live_state opening; /* collects the files of the next model */

mha_status live_fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    live_err.status = MHA_ERR_ARG;
    vsnprintf(live_err.message, sizeof live_err.message, format, values);
    va_end(values);
    return MHA_ERR_ARG;
}

mha_status live_check_token(int64_t token)
{
    if (live.count < 1) return live_fail("text must have at least 1 token (got 0)");
    if (token >= 0 && token < live.count) return MHA_OK;
    return live_fail("token must be from 0 to %lld (got %lld)", (long long)live.count - 1, (long long)token);
}

LIVE_EXPORT(live_error) const char *live_error(void)
{
    return live_err.message;
}

LIVE_EXPORT(live_version) const char *live_version(void)
{
    return mha_version();
}

/* ---- memory of the page ---- */

LIVE_EXPORT(live_alloc) void *live_alloc(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

LIVE_EXPORT(live_free) void live_free(void *memory)
{
    free(memory);
}

/* ---- opening ---- */

static void close_text(live_state *s)
{
    mha_encoding_free(s->encoding);
    free(s->ids);
    s->encoding = NULL;
    s->ids = NULL;
    s->count = 0;
}

static void close_state(live_state *s)
{
    live_runs_free(s);
    live_pair_free(s);
    close_text(s);
    mha_model_free(s->model);
    for (int n = 0; n < s->files; n++) {
        mha_file_free(s->file[n]);
        free(s->data[n]);
    }
    mha_ctx_free(s->ctx);
    free(s->gates);
    free(s->means);
    free(s->fills);
    memset(s, 0, sizeof *s);
}

/* Begins to open another model with the newest ISA `isa`: "scalar" or "wasm128". */
LIVE_EXPORT(live_begin) mha_status live_begin(const char *isa)
{
    close_state(&opening);
    return mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = 1, .isa = isa}, &opening.ctx,
                          &live_err);
}

/* Adds a safetensors file, whose `data` then belong to the module even after an error. */
LIVE_EXPORT(live_file) mha_status live_file(const char *name, void *data, size_t bytes)
{
    if (opening.files == LIVE_FILES) {
        free(data);
        return live_fail("checkpoint must have at most %d safetensors files on this page (got more)", LIVE_FILES);
    }
    opening.data[opening.files++] = data;
    return mha_file_open_memory(opening.ctx, name, data, bytes, &opening.file[opening.files - 1], &live_err);
}

static mha_status set_up(live_state *s)
{
    s->info = mha_model_describe(s->model);
    s->heads = s->info->heads;
    s->width = s->heads * s->info->head_dim;
    s->gates = malloc((size_t)(s->info->layers * s->heads) * sizeof *s->gates);
    s->means = calloc((size_t)(s->info->layers * s->width), sizeof *s->means);
    s->fills = calloc((size_t)(s->info->layers * s->width), sizeof *s->fills);
    if (!s->gates || !s->means || !s->fills) return live_fail("out of memory for the gates of the heads");
    for (int64_t n = 0; n < s->info->layers * s->heads; n++)
        s->gates[n] = 1;
    if (s->info->encoder_decoder)
        return live_fail("model must be an encoder or a decoder (got %s, an encoder-decoder)", s->info->family);
    if (!mha_model_tokenizer(s->model)) return live_fail("checkpoint must contain a tokenizer.json (got none)");
    return MHA_OK;
}

/* Opens the model of the added files, and closes the previous model unless this fails. */
LIVE_EXPORT(live_open) mha_status live_open(const char *config_json, const char *tokenizer_json)
{
    const mha_model_options options = {.size = sizeof options,
                                       .memory_only = 1,
                                       .config_json = config_json,
                                       .tokenizer_json = tokenizer_json,
                                       .files = (const mha_file *const *)opening.file,
                                       .file_count = opening.files};
    mha_status status = mha_model_open(opening.ctx, NULL, &options, &opening.model, &live_err);
    if (status == MHA_OK) status = set_up(&opening);
    if (status == MHA_OK) {
        close_state(&live);
        live = opening;
        memset(&opening, 0, sizeof opening);
    } else {
        close_state(&opening);
    }
    return status;
}

/* ---- properties of the model ---- */

LIVE_EXPORT(live_family) const char *live_family(void)
{
    return live.info->family;
}

LIVE_EXPORT(live_isa) const char *live_isa(void)
{
    return mha_ctx_isa(live.ctx);
}

/* Returns property n: layers, heads, hidden width, vocabulary, head_dim, 1 if causal, 1 if it has logits, and the
 * maximum number of learned positions. */
LIVE_EXPORT(live_info) int live_info(int n)
{
    const mha_model_info *i = live.info;
    const int64_t values[] = {i->layers,   live.heads, i->hidden, i->vocab,
                              i->head_dim, i->causal,  i->logits, i->max_positions};
    return n >= 0 && n < (int)(sizeof values / sizeof *values) ? (int)values[n] : -1;
}

LIVE_EXPORT(live_layer_heads) int live_layer_heads(int layer)
{
    return layer >= 0 && layer < live.info->layers ? (int)live.info->heads_per_layer[layer] : 0;
}

/* Returns the number that a head had in the unpruned model, by which commands name it; -1 if the head does not
 * exist. */
LIVE_EXPORT(live_head_number) int live_head_number(int layer, int head)
{
    return (int)mha_head_number(live.model, layer, head);
}

/* ---- tokens ---- */

/* Encodes a text of at most `max` tokens; more are truncated. Frees the results of the previous text. Returns the
 * number of tokens, or -1. */
LIVE_EXPORT(live_encode) int live_encode(const char *text, size_t bytes, int max)
{
    const mha_encode_options options = {.size = sizeof options, .max_tokens = max};
    mha_encoding *encoding = NULL;
    if (mha_tokenizer_encode(mha_model_tokenizer(live.model), text, bytes, NULL, 0, &options, &encoding, &live_err))
        return -1;
    int32_t *ids = malloc((size_t)(encoding->count + 1) * sizeof *ids);
    if (!ids) {
        mha_encoding_free(encoding);
        live_fail("out of memory for the ids");
        return -1;
    }
    memcpy(ids, encoding->ids, (size_t)encoding->count * sizeof *ids);
    live_runs_free(&live); /* they have the sizes of the previous text */
    live_pair_free(&live);
    close_text(&live);
    live.encoding = encoding;
    live.ids = ids;
    live.count = encoding->count;
    return (int)live.count;
}

LIVE_EXPORT(live_truncated) int live_truncated(void)
{
    return live.encoding ? (int)live.encoding->truncated : 0;
}

LIVE_EXPORT(live_ids) const int32_t *live_ids(void)
{
    return live.ids;
}

/* Returns the first byte of a token in the text (end = 0), or the byte after its last one (end = 1). */
LIVE_EXPORT(live_offset) int live_offset(int token, int end)
{
    if (!live.encoding || token < 0 || token >= live.encoding->count) return -1;
    return (int)(end ? live.encoding->end : live.encoding->begin)[token];
}

/* Returns the token as the file spells it; NULL if the id has none. */
LIVE_EXPORT(live_token) const char *live_token(int id)
{
    return mha_tokenizer_token(mha_model_tokenizer(live.model), id);
}

/* Returns the text of `count` ids, which live_text_free frees; NULL on failure. */
LIVE_EXPORT(live_decode) char *live_decode(const int32_t *ids, int count)
{
    char *text = NULL;
    return mha_tokenizer_decode(mha_model_tokenizer(live.model), ids, count, 0, &text, NULL, &live_err) ? NULL : text;
}

LIVE_EXPORT(live_text_free) void live_text_free(char *text)
{
    mha_tokenizer_text_free(mha_model_tokenizer(live.model), text);
}
