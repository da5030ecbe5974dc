/* tokenizer_files.c - writes the files of a trained tokenizer.
 *
 * tokenizer.json has the format that the `tokenizers` library writes. tokenizer_config.json names the matching
 * transformers class. The files of that class (vocab.json and merges.txt, or vocab.txt) are also written. */
#include "base/ctx.h"
#include "io/files/output_folder.h"
#include "io/json/json_write.h"
#include "text/train/tokenizer_train.h"
#include <string.h>

/* ---- definitions of the tokenizer types ---- */

#define FIRST "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"

static const char bpe_file[] = FIRST
    "\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
    "\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}}";

static const char bpe_model[] =
    "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
    "\"vocab\":{},\"merges\":[]}";

/* A WordPiece tokenizer.json without the model. The ids of [CLS] and [SEP] are their indices among the special
 * tokens. */
static const char wordpiece_file[] =
    FIRST "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
          "\"strip_accents\":null,\"lowercase\":false},"
          "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
          "\"post_processor\":{\"type\":\"TemplateProcessing\","
          "\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
          "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}],"
          "\"pair\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
          "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},"
          "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":1}}],"
          "\"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[2],\"tokens\":[\"[CLS]\"]},"
          "\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[3],\"tokens\":[\"[SEP]\"]}}},"
          "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}}";

static const char wordpiece_model[] =
    "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
    "\"max_input_chars_per_word\":100,\"vocab\":{}}";

static const char lowercase_normalizer[] =
    "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
    "\"strip_accents\":null,\"lowercase\":true}";

/* The names of the special tokens in transformers, in the order of their ids; a token may have several names. */
typedef struct role {
    const char *name, *token;
} role;

static const role bpe_roles[] = {
    {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}, {NULL, NULL}};
static const role wordpiece_roles[] = {{"pad_token", "[PAD]"}, {"unk_token", "[UNK]"},   {"cls_token", "[CLS]"},
                                       {"sep_token", "[SEP]"}, {"mask_token", "[MASK]"}, {NULL, NULL}};

static const struct type {
    const char *file; /* without the model, which is appended as the last key */
    const char *model;
    const char *class; /* class name in transformers */
    const role *roles;
} types[] = {
    [MHA_TOKENIZER_BPE] = {bpe_file, bpe_model, "GPT2Tokenizer", bpe_roles},
    [MHA_TOKENIZER_WORDPIECE] = {wordpiece_file, wordpiece_model, "BertTokenizer", wordpiece_roles},
};

static const char what[] = "the files of the tokenizer";

/* ---- tokenizer.json ---- */

static void write_vocab(const mha_tokenizer_trainer *t, mha__json_writer *w)
{
    mha__json_open(w, '{');
    for (size_t i = 0; i < t->vocab.count; i++) {
        mha__json_key(w, mha__strings_at(&t->vocab, i)); /* tokens contain no NUL, because it is removed or mapped to
                                                          * another character */
        mha__json_put_int(w, (int64_t)i);
    }
    mha__json_close(w, '}');
}

static void write_merges(const mha_tokenizer_trainer *t, mha__json_writer *w)
{
    mha__json_open(w, '[');
    for (size_t i = 0; i < t->merges_count; i++) {
        mha__json_open(w, '[');
        mha__json_put_text(w, mha__strings_at(&t->vocab, t->merges[i].left));
        mha__json_put_text(w, mha__strings_at(&t->vocab, t->merges[i].right));
        mha__json_close(w, ']');
    }
    mha__json_close(w, ']');
}

/* Writes the special tokens, the only tokens in the vocabulary so far. */
static void write_added(const mha_tokenizer_trainer *t, mha__json_writer *w)
{
    static const char *const off[] = {"single_word", "lstrip", "rstrip", "normalized"};
    mha__json_open(w, '[');
    for (size_t i = 0; i < t->vocab.count; i++) {
        mha__json_open(w, '{');
        mha__json_key(w, "id");
        mha__json_put_int(w, (int64_t)i);
        mha__json_key(w, "content");
        mha__json_put_text(w, mha__strings_at(&t->vocab, i));
        for (size_t n = 0; n < sizeof off / sizeof *off; n++) {
            mha__json_key(w, off[n]);
            mha__json_put_bool(w, false);
        }
        mha__json_key(w, "special");
        mha__json_put_bool(w, true);
        mha__json_close(w, '}');
    }
    mha__json_close(w, ']');
}

static mha_status make_model(const mha_tokenizer_trainer *t, char **text, mha_error *err)
{
    mha__json_writer changes = {.ctx = t->ctx};
    mha__json_open(&changes, '{');
    mha__json_key(&changes, "vocab");
    write_vocab(t, &changes);
    if (t->o.type == MHA_TOKENIZER_BPE) {
        mha__json_key(&changes, "merges");
        write_merges(t, &changes);
    }
    mha__json_close(&changes, '}');
    return mha__json_changed(MHA__TOKENIZER_FILE, types[t->o.type].model, NULL, &changes, MHA__JSON_COMPACT, text, err);
}

/* Writes the changes to t->json: the model and, on the first call, the special tokens. */
static mha_status write_changes(const mha_tokenizer_trainer *t, mha__json_writer *w, mha_error *err)
{
    char *model = NULL;
    mha__json_open(w, '{');
    if (!t->json) {
        mha__json_key(w, "added_tokens");
        write_added(t, w);
    }
    if (!t->json && t->o.lowercase) {
        mha__json_key(w, "normalizer");
        MHA__TRY(mha__json_put_json(w, MHA__TOKENIZER_FILE, lowercase_normalizer, err));
    }
    mha__json_key(w, "model");
    MHA__TRY(make_model(t, &model, err));
    const mha_status status = mha__json_put_json(w, MHA__TOKENIZER_FILE, model, err);
    mha__free(t->ctx, model);
    mha__json_close(w, '}');
    return status;
}

static mha_status make_file(mha_tokenizer_trainer *t, mha_error *err)
{
    const char *from = t->json ? t->json : types[t->o.type].file;
    mha__json_writer changes = {.ctx = t->ctx};
    char *made = NULL;
    mha_status status = write_changes(t, &changes, err);
    if (status == MHA_OK)
        status = mha__json_changed(MHA__TOKENIZER_FILE, from, NULL, &changes, MHA__JSON_COMPACT, &made, err);
    else
        mha__json_written(&changes, what, NULL, NULL, NULL);
    if (status != MHA_OK) return status;
    mha__free(t->ctx, t->json);
    t->json = made;
    return MHA_OK;
}

static mha_status add_special(mha_tokenizer_trainer *t, const char *token, mha_error *err)
{
    return mha__strings_add(&t->vocab, token, strlen(token), 0, NULL, err);
}

mha_status mha__train_file_begin(mha_tokenizer_trainer *t, mha_error *err)
{
    for (const role *r = types[t->o.type].roles; r->name; r++)
        MHA__TRY(add_special(t, r->token, err));
    for (int64_t i = 0; i < t->o.special_count; i++)
        MHA__TRY(add_special(t, t->o.special[i], err));
    return make_file(t, err);
}

mha_status mha__train_file_finish(mha_tokenizer_trainer *t, mha_error *err)
{
    t->trained.tokens = (int64_t)t->vocab.count;
    t->trained.merges = (int64_t)t->merges_count;
    return make_file(t, err);
}

/* ---- files of the folder ---- */

static const char *const known[] = {MHA__TOKENIZER_FILE,
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "vocab.txt",
                                    NULL};

/* A growing buffer of text. */
typedef struct lines {
    mha_ctx *ctx;
    char *bytes;
    size_t n, room;
} lines;

static mha_status add_text(lines *l, const char *text, size_t n, const char *end, mha_error *err)
{
    const size_t more = n + strlen(end);
    MHA__TRY(mha__items_grow(l->ctx, &l->bytes, &l->room, l->n + more, 1, err));
    memcpy(l->bytes + l->n, text, n);
    memcpy(l->bytes + l->n + n, end, strlen(end));
    l->n += more;
    return MHA_OK;
}

static mha_status put_written(const mha__folder *folder, const char *name, mha__json_writer *w, mha_error *err)
{
    char *text;
    size_t n;
    MHA__TRY(mha__json_written(w, what, &text, &n, err));
    const mha_status status = mha__folder_put(folder, name, text, n, err);
    mha__free(w->ctx, text);
    return status;
}

static mha_status put_file(const mha_tokenizer_trainer *t, const mha__folder *folder, mha_error *err)
{
    mha__json_writer w = {.ctx = t->ctx, .indent = 1};
    const mha_status status = mha__json_put_json(&w, MHA__TOKENIZER_FILE, t->json, err);
    if (status == MHA_OK) return put_written(folder, MHA__TOKENIZER_FILE, &w, err);
    mha__json_written(&w, what, NULL, NULL, NULL);
    return status;
}

static void write_roles(const struct type *type, mha__json_writer *w)
{
    for (const role *r = type->roles; r->name; r++) {
        mha__json_key(w, r->name);
        mha__json_put_text(w, r->token);
    }
}

static mha_status put_map(const mha_tokenizer_trainer *t, const mha__folder *folder, mha_error *err)
{
    mha__json_writer w = {.ctx = t->ctx, .indent = 2};
    mha__json_open(&w, '{');
    write_roles(&types[t->o.type], &w);
    mha__json_close(&w, '}');
    return put_written(folder, "special_tokens_map.json", &w, err);
}

static mha_status put_config(const mha_tokenizer_trainer *t, const mha__folder *folder, mha_error *err)
{
    const bool wordpiece = t->o.type == MHA_TOKENIZER_WORDPIECE;
    mha__json_writer w = {.ctx = t->ctx, .indent = 2};
    mha__json_open(&w, '{');
    mha__json_key(&w, "tokenizer_class");
    mha__json_put_text(&w, types[t->o.type].class);
    write_roles(&types[t->o.type], &w);
    mha__json_key(&w, wordpiece ? "do_lower_case" : "add_prefix_space");
    mha__json_put_bool(&w, wordpiece && t->o.lowercase);
    mha__json_close(&w, '}');
    return put_written(folder, "tokenizer_config.json", &w, err);
}

static mha_status add_token(lines *l, const mha_tokenizer_trainer *t, uint32_t id, const char *end, mha_error *err)
{
    return add_text(l, mha__strings_at(&t->vocab, id), t->vocab.items[id].length, end, err);
}

static mha_status list_merges(const mha_tokenizer_trainer *t, lines *l, mha_error *err)
{
    static const char head[] = "#version: 0.2";
    MHA__TRY(add_text(l, head, strlen(head), "\n", err));
    for (size_t i = 0; i < t->merges_count; i++) {
        MHA__TRY(add_token(l, t, t->merges[i].left, " ", err));
        MHA__TRY(add_token(l, t, t->merges[i].right, "\n", err));
    }
    return MHA_OK;
}

static mha_status list_tokens(const mha_tokenizer_trainer *t, lines *l, mha_error *err)
{
    for (size_t i = 0; i < t->vocab.count; i++)
        MHA__TRY(add_token(l, t, (uint32_t)i, "\n", err));
    return MHA_OK;
}

static mha_status put_vocabulary(const mha_tokenizer_trainer *t, const mha__folder *folder, mha_error *err)
{
    const bool bpe = t->o.type == MHA_TOKENIZER_BPE;
    lines l = {.ctx = t->ctx};
    mha_status status = bpe ? list_merges(t, &l, err) : list_tokens(t, &l, err);
    if (status == MHA_OK) status = mha__folder_put(folder, bpe ? "merges.txt" : "vocab.txt", l.bytes, l.n, err);
    mha__free(t->ctx, l.bytes);
    if (status != MHA_OK || !bpe) return status;
    mha__json_writer w = {.ctx = t->ctx};
    write_vocab(t, &w);
    return put_written(folder, "vocab.json", &w, err);
}

mha_status mha_tokenizer_trainer_save(const mha_tokenizer_trainer *t, const char *path, int overwrite, mha_error *err)
{
    mha__folder folder;
    if (!t || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_tokenizer_trainer_save: trainer and folder must not be NULL");
    if (t->state != MHA__TRAIN_DONE)
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_tokenizer_trainer_save: trainer must have finished; call mha_tokenizer_trainer_run first");
    MHA__TRY(mha__folder_begin(&folder, path, overwrite != 0, known, err));
    mha_status status = put_file(t, &folder, err);
    if (status == MHA_OK) status = put_map(t, &folder, err);
    if (status == MHA_OK) status = put_config(t, &folder, err);
    if (status == MHA_OK) status = put_vocabulary(t, &folder, err);
    if (status == MHA_OK) return mha__folder_commit(&folder, known, err);
    return mha__folder_abort(&folder, status, err);
}
