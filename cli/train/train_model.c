/* train_model.c - opens a checkpoint, or creates a new model from --shape. */
#include "train/train_model.h"

#include "input/input.h"
#include "output.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- --shape ---- */

/* For each family, the config.json keys that a shape such as "gpt2:2x8x128" sets; NULL if the family lacks a key. */
static const struct family {
    const char *name, *architecture, *layers, *heads, *width, *positions, *inner, *head_dim;
    int inner_times; /* feed-forward size in eighths of the width */
} families[] = {
    {"gpt2", "GPT2LMHeadModel", "n_layer", "n_head", "n_embd", "n_positions", NULL, NULL, 0},
    {"bert", "BertForMaskedLM", "num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings",
     "intermediate_size", NULL, 32},
#define LIKE_LLAMA                                                                                             \
    "num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings", "intermediate_size", \
        "head_dim", 22
    {"llama", "LlamaForCausalLM", LIKE_LLAMA},
    {"mistral", "MistralForCausalLM", LIKE_LLAMA},
    {"qwen2", "Qwen2ForCausalLM", LIKE_LLAMA},
    {"qwen3", "Qwen3ForCausalLM", LIKE_LLAMA},
};
enum { FAMILIES = sizeof families / sizeof *families };

static int bad_shape(const cli_session *s, const char *text)
{
    return cli_usage(s,
                     "--shape must be FAMILY:LAYERSxHEADSxWIDTH, such as gpt2:2x8x128, where FAMILY is gpt2, bert, "
                     "llama, mistral, qwen2 or qwen3 and HEADS divides WIDTH; or a config.json (got \"%s\")",
                     cli_shown(text));
}

/* Parses a number followed by the character `end`, and advances *text past both. Returns 0 on failure. */
static long take_number(const char **text, char end)
{
    enum { MAX = 7 }; /* maximum number of digits */
    const size_t n = strspn(*text, "0123456789");
    const char *start = *text;
    if (n == 0 || n > MAX || start[n] != end) return 0;
    *text += n + (end != '\0');
    return strtol(start, NULL, 10);
}

static int read_words(const cli_session *s, const char *text, json_t **config)
{
    const char *colon = strchr(text, ':'), *at = colon + 1;
    const struct family *f = families, *last = families + FAMILIES;
    while (f < last && (strlen(f->name) != (size_t)(colon - text) || memcmp(f->name, text, strlen(f->name)) != 0))
        f++;
    const long layers = take_number(&at, 'x'), heads = take_number(&at, 'x'), width = take_number(&at, '\0');
    if (f == last || !layers || !heads || !width || width % heads) return bad_shape(s, text);
    *config = json_pack("{s:s, s:[s], s:i, s:i, s:i}", "model_type", f->name, "architectures", f->architecture,
                        f->layers, (int)layers, f->heads, (int)heads, f->width, (int)width);
    const int inner = (int)((width * f->inner_times / 8 + 7) / 8 * 8); /* rounded up to a multiple of 8 */
    if (f->inner) json_object_set_new(*config, f->inner, json_integer(inner));
    if (f->head_dim) json_object_set_new(*config, f->head_dim, json_integer(width / heads));
    if (f->head_dim) json_object_set_new(*config, "num_key_value_heads", json_integer(heads));
    return CLI_DONE;
}

static int read_file(const cli_session *s, const char *path, json_t **config)
{
    const int code = cli_json_read(s, path, config);
    if (code != CLI_DONE || json_is_object(*config)) return code;
    return cli_error(s, CLI_REFUSED, "%s must contain a JSON object", cli_shown(path));
}

static int read_shape(const cli_session *s, const char *text, json_t **config)
{
    json_error_t wrong;
    if (*text == '{') {
        *config = json_loads(text, JSON_REJECT_DUPLICATES, &wrong);
        return *config ? CLI_DONE : cli_error(s, CLI_REFUSED, "--shape: %s", cli_shown(wrong.text));
    }
    const char *colon = strchr(text, ':');
    return colon && access(text, F_OK) != 0 ? read_words(s, text, config) : read_file(s, text, config);
}

/* ---- defaults of keys that a shape lacks ---- */

static void set_missing(json_t *config, const char *key, json_t *value)
{
    if (json_object_get(config, key))
        json_decref(value);
    else
        json_object_set_new(config, key, value);
}

static const char *const ends[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]", NULL};

static int32_t find_token(const mha_tokenizer *tokenizer, const char *const *names)
{
    int32_t id = -1;
    for (int n = 0; tokenizer && names[n] && id < 0; n++)
        id = mha_tokenizer_id(tokenizer, names[n]);
    return id;
}

static int complete(const cli_session *s, const train_settings *t, const mha_tokenizer *tokenizer, json_t *config)
{
    const int64_t tokens = tokenizer ? mha_tokenizer_size(tokenizer) : 0;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const bool encoder = type && strcmp(type, "bert") == 0;
    const int32_t end = find_token(tokenizer, t->end_token ? (const char *const[]){t->end_token, NULL} : ends);
    if (t->vocab > 0) json_object_set_new(config, "vocab_size", json_integer(t->vocab));
    if (tokens) set_missing(config, "vocab_size", json_integer(tokens));
    if (!json_object_get(config, "vocab_size"))
        return cli_usage(s, "missing vocabulary: give --tokenizer FOLDER or --vocab N");
    if (json_integer_value(json_object_get(config, "vocab_size")) < tokens)
        return cli_error(s, CLI_REFUSED,
                         "vocab_size of the shape must be at least the %lld tokens of the tokenizer (got %lld)",
                         (long long)tokens, (long long)json_integer_value(json_object_get(config, "vocab_size")));
    for (int n = 0; n < FAMILIES; n++)
        if (type && strcmp(families[n].name, type) == 0)
            set_missing(config, families[n].positions, json_integer(t->length > 0 ? t->length : 128));
    const char *const end_keys[] = {"bos_token_id", "eos_token_id"};
    for (int n = 0; n < 2 && !encoder;
         n++) /* null without a tokenizer: the family's default id may exceed the vocabulary */
        set_missing(config, end_keys[n], end < 0 ? json_null() : json_integer(end));
    const int32_t padding = find_token(tokenizer, (const char *const[]){"[PAD]", "<pad>", NULL});
    if (encoder) set_missing(config, "pad_token_id", padding < 0 ? json_null() : json_integer(padding));
    return CLI_DONE;
}

static int create(cli_session *s, const train_settings *t, json_t *config, mha_model **model)
{
    mha_error error = {0};
    const mha_model_create_options o = {.size = sizeof o, .seed = (uint64_t)t->seed, .folder = t->tokenizer};
    char *text = json_dumps(config, JSON_INDENT(2));
    if (!text) return cli_error(s, CLI_FAILED, "out of memory for the config");
    const mha_status status = mha_model_create(s->ctx, text, &o, model, &error);
    free(text);
    if (status == MHA_OK) return CLI_DONE;
    static const char file[] = "config.json: "; /* the library's name for a config without a folder */
    if (strncmp(error.message, file, strlen(file)) != 0) return cli_refuse(s, &error);
    return cli_error(s, CLI_REFUSED, "--shape: %s", error.message + strlen(file));
}

static int make(cli_session *s, const train_settings *t, mha_model **model)
{
    mha_tokenizer *tokenizer = NULL;
    mha_error error = {0};
    json_t *config = NULL;
    if (t->tokenizer && mha_tokenizer_open(s->ctx, t->tokenizer, &tokenizer, &error) != MHA_OK)
        return cli_refuse(s, &error);
    int code = read_shape(s, t->shape, &config);
    if (code == CLI_DONE) code = complete(s, t, tokenizer, config);
    if (code == CLI_DONE) code = create(s, t, config, model);
    s->model = t->tokenizer;
    s->model_name = t->shape;
    json_decref(config);
    mha_tokenizer_free(tokenizer);
    return code;
}

/* ---- --from or --shape ---- */

int train_model_open(cli_session *s, const train_settings *t, mha_model **model)
{
    char path[PATH_MAX];
    if (t->from && (t->shape || t->tokenizer || t->vocab > 0))
        return cli_usage(s, "--%s must not be given with --from, since --from defines the shape and tokenizer",
                         t->shape       ? "shape"
                         : t->tokenizer ? "tokenizer"
                                        : "vocab");
    if (!t->from && !t->shape)
        return cli_usage(s, "missing model: give --from MODEL, or --shape SHAPE for a new model");
    if (t->shape) return make(s, t, model);
    const int code = cli_model_find(s, t->from);
    if (code != CLI_DONE) return code;
    snprintf(path, sizeof path, "%s/tokenizer.json", s->model);
    const mha_model_options how = {.size = sizeof how, .no_tokenizer = t->tokens.count && access(path, F_OK) != 0};
    return cli_model_open_named(s, t->from, &how, model);
}

/* ---- special tokens and sequence length ---- */

/* Returns the first eos_token_id in the model's config; -1 if it is absent or the config is larger than 1 MiB, because
 * parsing it could require more than 80 MiB. */
static int32_t config_end(const mha_model *model)
{
    const char *text = mha_model_config_json(model);
    json_t *config = strlen(text) <= 1 << 20 ? json_loads(text, 0, NULL) : NULL;
    const json_t *value = json_object_get(config, "eos_token_id");
    if (json_is_array(value)) value = json_array_get(value, 0);
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    json_decref(config);
    return id >= 0 && id < mha_model_describe(model)->vocab ? (int32_t)id : -1;
}

static int find_end(const cli_session *s, const train_settings *t, const mha_model *model, train_form *form)
{
    if (t->end_token) form->data.end = form->data.tokenizer ? mha_tokenizer_id(form->data.tokenizer, t->end_token) : -1;
    if (t->end_token && form->data.end < 0)
        return cli_usage(s, "--end-token must be a token of the tokenizer (got \"%s\")", cli_shown(t->end_token));
    if (t->end_token) return CLI_DONE;
    form->data.end = config_end(model);
    if (form->data.end < 0) form->data.end = find_token(form->data.tokenizer, ends);
    return form->data.end >= 0 ? CLI_DONE : cli_usage(s, "missing end-of-text token: give --end-token TOKEN");
}

static int find_encoder_tokens(const cli_session *s, train_form *form)
{
    static const char *const first[] = {"[CLS]", "<s>", NULL}, *const last[] = {"[SEP]", "</s>", NULL};
    if (!form->data.tokenizer)
        return cli_error(s, CLI_REFUSED, "an encoder requires a tokenizer with [CLS], [SEP] and [MASK]");
    form->data.first = find_token(form->data.tokenizer, first);
    form->data.end = find_token(form->data.tokenizer, last);
    form->mask = mha_tokenizer_mask_id(form->data.tokenizer);
    if (form->data.first >= 0 && form->data.end >= 0 && (form->mask >= 0 || !form->masks)) return CLI_DONE;
    return cli_error(s, CLI_REFUSED, "the tokenizer must have the token %s",
                     form->data.first < 0 ? "[CLS]"
                     : form->data.end < 0 ? "[SEP]"
                                          : "[MASK]");
}

int train_form_find(const cli_session *s, const train_settings *t, const mha_model *model, train_form *form)
{
    const mha_model_info *info = mha_model_describe(model);
    *form = (train_form){.data = {.size = sizeof form->data,
                                  .length = t->length,
                                  .vocab = info->vocab,
                                  .tokenizer = mha_model_tokenizer(model),
                                  .causal = info->causal,
                                  .shorten = 1,
                                  .no_map = s->options.no_map},
                         .masks = !info->causal && train_settings_labels(t)};
    form->data.texts_apart = !form->data.causal && !form->masks && t->file.count;
    if (t->file.count && !form->data.tokenizer)
        return cli_error(s, CLI_REFUSED, "missing tokenizer for the texts: give --tokenizer FOLDER");
    if (t->length > info->max_positions)
        return cli_usage(s, "--length must be at most the %lld tokens of the model (got %lld)",
                         (long long)info->max_positions, t->length);
    if (!form->data.causal && t->length < 3)
        return cli_usage(s, "--length must be at least 3 for an encoder (got %lld)", t->length);
    if (!form->data.causal) return find_encoder_tokens(s, form);
    return t->file.count ? find_end(s, t, model, form) : CLI_DONE;
}
