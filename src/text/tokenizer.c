/* tokenizer.c - opens tokenizer.json and looks up tokens.
 *
 * Everything in the file is validated before it is stored, and no allocation size is taken from the file. The table of
 * tokens by id has one entry per id, so ids must be below 4 times the number of tokens plus 1024. */
#include "text/tokenizer.h"

#include "base/ctx.h"
#include "base/error.h"
#include "io/files/input_file.h"
#include "io/input_limits.h"
#include "text/gguf_tokenizer.h"
#include <string.h>

/* ---- kinds of models ---- */

/* Returns the kind of a model that has no type, inferred from its keys, for files written before tokenizers 0.9. */
static const mha__model_kind *guess_model(const mha__json *json)
{
    if (mha__json_get(json, "type")) return NULL;
    if (mha__json_get(json, "merges")) return &mha__model_bpe;
    if (mha__json_get(json, "max_input_chars_per_word")) return &mha__model_wordpiece;
    return mha__json_is(mha__json_get(json, "vocab"), MHA__JSON_ARRAY) ? &mha__model_unigram : NULL;
}

static mha_status model_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__model_kind *const models[] = {&mha__model_wordpiece, &mha__model_bpe, &mha__model_unigram};
    enum { MODELS = sizeof models / sizeof models[0] };
    mha__kind kinds[MODELS + 1] = {{0}};
    mha__json_obj json;
    for (int i = 0; i < MODELS; i++)
        kinds[i] = models[i]->kind;
    MHA__TRY(mha__json_object(root, "model", MHA__REQUIRED, &json, err));
    t->model = guess_model(json.json);
    if (t->model) return t->model->kind.load(t, &json, NULL, err);
    const mha__stage stage = {"model", NULL, kinds};
    MHA__TRY(mha__stage_load(t, root, &stage, NULL, NULL, err));
    const char *type = mha__json_as_text(mha__json_get(json.json, "type"));
    for (int i = 0; i < MODELS; i++)
        if (strcmp(kinds[i].type, type) == 0) t->model = models[i];
    return MHA_OK;
}

/* ---- tokens by id ---- */

static int64_t largest_id(const mha_tokenizer *t)
{
    int64_t largest = -1;
    for (size_t i = 0; i < t->vocab.count; i++)
        if (t->vocab.entries[i].value > largest) largest = t->vocab.entries[i].value;
    for (size_t i = 0; i < t->added_count; i++)
        if (t->added[i].id > largest) largest = t->added[i].id;
    return largest;
}

static mha_status name_id(mha_tokenizer *t, int32_t id, const char *token, const char *shown, mha_error *err)
{
    const char *other = t->token[id];
    if (other && strcmp(other, token) != 0)
        return mha__fail(err, MHA_ERR_FORMAT,
                         MHA__TOKENIZER_FILE ": id %d must belong to one token (got \"%s\" and \"%s\")", (int)id,
                         mha__quote(&(mha__quoted){0}, other, strlen(other)),
                         mha__quote(&(mha__quoted){0}, token, strlen(token)));
    t->token[id] = shown;
    return MHA_OK;
}

static mha_status build_ids(mha_tokenizer *t, mha_error *err)
{
    t->ids = largest_id(t) + 1;
    size_t n = (size_t)t->ids + 1;
    MHA__TRY(mha__room_take(&t->room, n * (sizeof *t->token + sizeof *t->special), err));
    t->token = mha__calloc(t->ctx, n, sizeof *t->token);
    t->special = mha__calloc(t->ctx, n, sizeof *t->special);
    if (!t->token || !t->special) return mha__no_memory(err, n * (sizeof *t->token + sizeof *t->special), "the tokens");
    for (size_t i = 0; i < t->vocab.count; i++)
        MHA__TRY(name_id(t, t->vocab.entries[i].value, t->vocab.bytes + t->vocab.entries[i].begin,
                         t->vocab.bytes + t->vocab.entries[i].begin, err));
    for (size_t i = 0; i < t->added_count; i++) {
        MHA__TRY(name_id(t, t->added[i].id, t->added[i].content, t->added[i].shown, err));
        if (t->added[i].special) t->special[t->added[i].id] |= MHA__SPECIAL;
        const int32_t same = mha__vocab_find(&t->added_names, t->added[i].shown, strlen(t->added[i].shown));
        if (same >= 0 && t->added[same].special) t->special[t->added[i].id] |= MHA__SKIPPED;
    }
    return MHA_OK;
}

/* ---- opening ---- */

/* Returns the exclusive upper bound of ids, computed from the number of tokens in all lists of the file. The loaders
 * validate the lists later. */
static int64_t limit_of_ids(const mha__json *root)
{
    const size_t tokens = mha__json_size(mha__json_get(mha__json_get(root, "model"), "vocab")) +
                          mha__json_size(mha__json_get(root, "added_tokens"));
    const int64_t limit = 4 * (int64_t)tokens + 1024;
    return limit <= INT32_MAX ? limit : INT32_MAX;
}

/* Rejects unknown keys, such as a misspelled "pre_tokeniser", since ignoring a stage would change the tokens. */
static mha_status check_keys(const mha__json_obj *root, mha_error *err)
{
    static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model"};
    for (mha__json_step i = {0}; mha__json_each(root->json, &i);) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(mha__json_as_text(i.key), known[k]) != 0)
            k++;
        if (k == sizeof known / sizeof *known)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: unknown key %s", root->file,
                             mha__json_show(&(mha__quoted){0}, i.key));
    }
    return MHA_OK;
}

static mha_status load(mha_tokenizer *t, const mha__json *json, mha_error *err)
{
    mha__json_obj root = {json, MHA__TOKENIZER_FILE, NULL};
    t->id_limit = limit_of_ids(json);
    MHA__TRY(model_load(t, &root, err)); /* loaded first, because an unsupported model type is the most useful error */
    MHA__TRY(check_keys(&root, err));
    MHA__TRY(mha__normalizer_load(t, &root, err));
    MHA__TRY(mha__splitter_load(t, &root, err));
    MHA__TRY(mha__added_load(t, &root, err));
    MHA__TRY(build_ids(t, err));
    MHA__TRY(mha__template_load(t, &root, err));
    MHA__TRY(mha__decoder_load(t, &root, err));
    return mha__limits_load(t, &root, err);
}

/* Loads all stages, and frees the tree before completing the model, to save memory. */
static mha_status load_and_finish(mha_tokenizer *t, const mha__json *json, mha_error *err)
{
    const size_t tree = mha__json_memory(json);
    t->room = tree < MHA__TOKENIZER_MEMORY ? MHA__TOKENIZER_MEMORY - tree : 0;
    const mha_status status = load(t, json, err);
    mha__json_free(json);
    t->room += tree;
    return status == MHA_OK && t->model->finish ? t->model->finish(t, err) : status;
}

/* Builds the tokenizer and frees the tree. */
static mha_status tokenizer_make(mha_ctx *ctx, const mha__json *json, mha_tokenizer **out, mha_error *err)
{
    mha_tokenizer *t = mha__calloc(ctx, 1, sizeof *t);
    *out = NULL;
    if (!t) {
        mha__json_free(json);
        return mha__no_memory(err, sizeof *t, "the tokenizer");
    }
    t->ctx = ctx;
    const mha_status status = load_and_finish(t, json, err);
    if (status == MHA_OK)
        *out = t;
    else
        mha_tokenizer_free(t);
    return status;
}

mha_status mha__tokenizer_read(mha_ctx *ctx, const char *text, size_t n, mha_tokenizer **out, mha_error *err)
{
    const mha__json *json;
    *out = NULL;
    MHA__TRY(mha__json_parse(ctx, MHA__TOKENIZER_FILE, text, n, MHA__JSON_BOM, &json, err));
    return tokenizer_make(ctx, json, out, err);
}

/* Rejects a folder whose only tokenizer is a file of another format, as in published checkpoints of Marian. */
static mha_status check_format(const char *folder, mha_error *err)
{
    static const char *const names[] = {"source.spm", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model"};
    if (mha__source_exists(folder, MHA__TOKENIZER_FILE)) return MHA_OK;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (mha__source_exists(folder, names[n]))
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             MHA__TOKENIZER_FILE " must exist, since files of SentencePiece are not supported (got %s)",
                             names[n]);
    return MHA_OK;
}

mha_status mha__tokenizer_gguf(const mha_file *file, mha_tokenizer **out, mha_error *err)
{
    char *json = NULL;
    size_t bytes = 0;
    *out = NULL;
    MHA__TRY(mha__gguf_tokenizer(file, &json, &bytes, err));
    if (!json) return MHA_OK;
    const mha_status status = mha_tokenizer_open_memory(file->ctx, json, bytes, out, err);
    mha__free(file->ctx, json);
    return mha__in_folder(status, file->path, MHA__TOKENIZER_FILE, err);
}

/* Opens the tokenizer of a GGUF file. */
static mha_status open_gguf(mha_ctx *ctx, const char *path, mha_tokenizer **out, mha_error *err)
{
    mha_file *file = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha_file_open(ctx, path, NULL, &file, err));
    mha_status status = mha__tokenizer_gguf(file, out, err);
    if (status == MHA_OK && !*out)
        status =
            mha__fail(err, MHA_ERR_FORMAT, "%s: tokenizer.ggml.model must be one of gpt2, llama, bert (got nothing)",
                      mha__quote(&(mha__quoted){0}, path, strlen(path)));
    mha_file_free(file);
    return status;
}

mha_status mha_tokenizer_open(mha_ctx *ctx, const char *folder, mha_tokenizer **out, mha_error *err)
{
    const mha__json *json = NULL;
    if (!out || !folder) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", out ? "folder" : "out");
    *out = NULL;
    if (mha__source_is_file(folder)) return open_gguf(ctx, folder, out, err);
    mha_status status = check_format(folder, err);
    if (status == MHA_OK) status = mha__json_read(ctx, folder, MHA__TOKENIZER_FILE, MHA__JSON_BYTES, &json, err);
    if (status == MHA_OK) status = tokenizer_make(ctx, json, out, err);
    return mha__in_folder(status, folder, MHA__TOKENIZER_FILE, err);
}

mha_status mha_tokenizer_open_memory(mha_ctx *ctx, const char *json, size_t bytes, mha_tokenizer **out, mha_error *err)
{
    if (!out || !json)
        return mha__fail(err, MHA_ERR_ARG, "mha_tokenizer_open_memory: %s must not be NULL", out ? "json" : "out");
    *out = NULL;
    if (bytes > MHA__JSON_BYTES)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: size must be at most %zu bytes (got %zu)", MHA__TOKENIZER_FILE,
                         MHA__JSON_BYTES, bytes);
    return mha__tokenizer_read(ctx, json, bytes, out, err);
}

void mha_tokenizer_free(mha_tokenizer *t)
{
    if (!t) return;
    mha_ctx *ctx = t->ctx;
    mha__vocab_free(&t->vocab);
    mha__pairs_free(&t->bpe.merges);
    mha__free(ctx, t->bpe.made);
    mha__pairs_free(&t->unigram.trie);
    mha__free(ctx, t->unigram.piece);
    mha__free(ctx, t->unigram.score);
    mha__added_free(t);
    mha__regex_list_free(ctx, &t->regexes);
    mha__free(ctx, t->token);
    mha__free(ctx, t->special);
    mha__free(ctx, t->single.items);
    mha__free(ctx, t->pair.items);
    mha__free_copies(t);
    mha__free(ctx, t);
}

/* ---- lookup of tokens and ids ---- */

int64_t mha_tokenizer_size(const mha_tokenizer *t)
{
    return t ? t->ids : 0;
}

const char *mha_tokenizer_token(const mha_tokenizer *t, int32_t id)
{
    return t ? mha__token_text(t, id) : NULL;
}

int32_t mha_tokenizer_id(const mha_tokenizer *t, const char *token)
{
    if (!t || !token) return -1;
    int32_t added = mha__vocab_find(&t->added_names, token, strlen(token));
    return added >= 0 ? t->added[added].id : mha__vocab_find(&t->vocab, token, strlen(token));
}

int32_t mha_tokenizer_mask_id(const mha_tokenizer *t)
{
    const int32_t id = mha_tokenizer_id(t, "[MASK]");
    return id >= 0 ? id : mha_tokenizer_id(t, "<mask>");
}

int mha_tokenizer_is_special(const mha_tokenizer *t, int32_t id)
{
    return mha_tokenizer_token(t, id) && (t->special[id] & MHA__SPECIAL) != 0;
}
