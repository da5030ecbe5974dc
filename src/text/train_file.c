/* train_file.c - the files of a trained tokenizer.
 *
 * tokenizer.json is what the `tokenizers` library would write; tokenizer_config.json names the class that transformers
 * wraps it in, whose own files (vocab.json and merges.txt, vocab.txt) lie beside it.
 */
#include "text/train.h"

#include "base/ctx.h"
#include "io/folder.h"
#include <string.h>

/* ---- what the types of tokenizers are ---- */

#define FIRST "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"

static const char bpe_file[] = FIRST
    "\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
    "\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
    "\"vocab\":{},\"merges\":[]}}";

/* Ids of [CLS] and [SEP] are their places among the special tokens. */
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
          "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
          "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
          "\"max_input_chars_per_word\":100,\"vocab\":{}}}";

/* What transformers calls the special tokens, in the order of their ids; a token may have several names. */
typedef struct role {
    const char *name, *token;
} role;

static const role bpe_roles[] = {
    {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}, {NULL, NULL}};
static const role wordpiece_roles[] = {{"pad_token", "[PAD]"}, {"unk_token", "[UNK]"},   {"cls_token", "[CLS]"},
                                       {"sep_token", "[SEP]"}, {"mask_token", "[MASK]"}, {NULL, NULL}};

static const struct type {
    const char *file;
    const char *class; /* of transformers */
    const role *roles;
} types[] = {
    [MHA_TOKENIZER_BPE] = {bpe_file, "GPT2Tokenizer", bpe_roles},
    [MHA_TOKENIZER_WORDPIECE] = {wordpiece_file, "BertTokenizer", wordpiece_roles},
};

static mha_status no_tree(mha_error *err)
{
    return mha__no_memory(err, 0, "the files of the tokenizer");
}

/* ---- tokenizer.json ---- */

static json_t *vocab_of(const mha_tokenizer_trainer *t)
{
    return json_object_get(json_object_get(t->json, "model"), "vocab");
}

static bool add_special(mha_tokenizer_trainer *t, const char *token)
{
    json_t *vocab = vocab_of(t);
    if (json_object_get(vocab, token)) return true;
    const json_int_t id = (json_int_t)json_object_size(vocab);
    json_t *added = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", token, "single_word", 0,
                              "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    return json_array_append_new(json_object_get(t->json, "added_tokens"), added) == 0 &&
           json_object_set_new(vocab, token, json_integer(id)) == 0;
}

mha_status mha__train_file_begin(mha_tokenizer_trainer *t, mha_error *err)
{
    const struct type *type = &types[t->o.type];
    MHA__TRY(mha__json_parse(MHA__TOKENIZER_FILE, type->file, strlen(type->file), 0, &t->json, err));
    bool whole = true;
    for (const role *r = type->roles; r->name; r++)
        whole = whole && add_special(t, r->token);
    for (int64_t i = 0; i < t->o.special_count; i++)
        whole = whole && add_special(t, t->o.special[i]);
    if (t->o.lowercase)
        whole = whole && json_object_set_new(json_object_get(t->json, "normalizer"), "lowercase", json_true()) == 0;
    return whole ? MHA_OK : no_tree(err);
}

static json_t *token_json(const mha_tokenizer_trainer *t, uint32_t id)
{
    return json_string(mha__strings_at(&t->vocab, id)); /* NUL is no character of words: it is removed, or a byte's */
}

static bool add_merge(const mha_tokenizer_trainer *t, const struct mha__merge *merge, json_t *merges)
{
    json_t *both = json_array();
    const bool whole = both && json_array_append_new(both, token_json(t, merge->left)) == 0 &&
                       json_array_append_new(both, token_json(t, merge->right)) == 0;
    return json_array_append_new(merges, both) == 0 && whole;
}

mha_status mha__train_file_finish(mha_tokenizer_trainer *t, mha_error *err)
{
    json_t *vocab = vocab_of(t);
    json_t *merges = json_object_get(json_object_get(t->json, "model"), "merges"); /* WordPiece has none */
    bool whole = true;
    for (size_t i = json_object_size(vocab); i < t->vocab.count && whole; i++)
        whole = json_object_set_new(vocab, mha__strings_at(&t->vocab, i), json_integer((json_int_t)i)) == 0;
    for (size_t i = 0; merges && i < t->merges_count && whole; i++)
        whole = add_merge(t, &t->merges[i], merges);
    t->trained.tokens = (int64_t)t->vocab.count;
    t->trained.merges = (int64_t)t->merges_count;
    return whole ? MHA_OK : no_tree(err);
}

/* ---- the folder ---- */

static const char *const known[] = {MHA__TOKENIZER_FILE,
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "vocab.txt",
                                    NULL};

/* Texts one behind the other. */
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

/* What jansson writes goes to `user`, lines; 0 as long as there is memory. */
static int add_json(const char *text, size_t n, void *user)
{
    return add_text(user, text, n, "", NULL) == MHA_OK ? 0 : -1;
}

static mha_status put_json(const mha_tokenizer_trainer *t, const mha__folder *folder, const char *name,
                           const json_t *json, size_t flags, mha_error *err)
{
    lines l = {.ctx = t->ctx};
    mha_status status = json && json_dump_callback(json, add_json, &l, flags) == 0 ? MHA_OK : no_tree(err);
    if (status == MHA_OK) status = mha__folder_put(folder, name, l.bytes, l.n, err);
    mha__free(t->ctx, l.bytes);
    return status;
}

static mha_status put_config(const mha_tokenizer_trainer *t, const mha__folder *folder, mha_error *err)
{
    const struct type *type = &types[t->o.type];
    json_t *map = json_object();
    json_t *config = json_pack("{s:s}", "tokenizer_class", type->class);
    bool whole = map && config;
    for (const role *r = type->roles; r->name; r++) {
        whole = whole && json_object_set_new(map, r->name, json_string(r->token)) == 0;
        whole = whole && json_object_set_new(config, r->name, json_string(r->token)) == 0;
    }
    if (t->o.type == MHA_TOKENIZER_WORDPIECE)
        whole = whole && json_object_set_new(config, "do_lower_case", json_boolean(t->o.lowercase)) == 0;
    else
        whole = whole && json_object_set_new(config, "add_prefix_space", json_false()) == 0;
    mha_status status = whole ? MHA_OK : no_tree(err);
    if (status == MHA_OK) status = put_json(t, folder, "special_tokens_map.json", map, JSON_INDENT(2), err);
    if (status == MHA_OK) status = put_json(t, folder, "tokenizer_config.json", config, JSON_INDENT(2), err);
    json_decref(map);
    json_decref(config);
    return status;
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
    return put_json(t, folder, "vocab.json", vocab_of(t), JSON_COMPACT, err);
}

mha_status mha_tokenizer_trainer_save(const mha_tokenizer_trainer *t, const char *path, int overwrite, mha_error *err)
{
    mha__folder folder;
    if (!t || !path) return mha__fail(err, MHA_ERR_ARG, "mha_tokenizer_trainer_save: want a trainer and a folder");
    if (t->state != MHA__TRAIN_DONE)
        return mha__fail(err, MHA_ERR_ARG, "the trainer has not learned yet: run comes before save");
    MHA__TRY(mha__folder_begin(&folder, path, overwrite != 0, known, err));
    mha_status status = put_json(t, &folder, MHA__TOKENIZER_FILE, t->json, JSON_INDENT(1), err);
    if (status == MHA_OK) status = put_config(t, &folder, err);
    if (status == MHA_OK) status = put_vocabulary(t, &folder, err);
    if (status == MHA_OK) return mha__folder_commit(&folder, known, err);
    mha__folder_abort(&folder);
    return status;
}
