/* tokenizer.h - internals of a tokenizer, which has one stage for each section of tokenizer.json.
 *
 * The supported objects of a stage are listed as an array of kinds (the file's type name, and its loader) at the end of
 * the stage's source file. A Sequence of kinds is flattened. Normalizers and pre-tokenizers become edits (text_edit.h),
 * decoders become decode steps; each model is one kind. Any other type is an error whose message names it. */
#ifndef MHA_TEXT_TOKENIZER_H
#define MHA_TEXT_TOKENIZER_H

#include "io/json/json.h"
#include "io/tensor_file.h"
#include "mha/text.h"
#include "text/decode/decode.h"
#include "text/encode_buffers.h"
#include "text/memory_budget.h"
#include "text/normalize/text_edit.h"
#include "text/vocabulary/bpe.h"
#include "text/vocabulary/unigram.h"
#include "text/vocabulary/vocab.h"

#define MHA__TOKENIZER_FILE "tokenizer.json"

/* ---- stages and kinds of objects ---- */

typedef struct mha__kind {
    const char *type;
    /* Reads the object and appends its edits or steps to `into`, the argument of mha__stage_load. */
    mha_status (*load)(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err);
} mha__kind;

typedef struct mha__stage {
    const char *name;
    const char *list;       /* key of the list in a Sequence; NULL = the stage does not support Sequence */
    const mha__kind *kinds; /* ends with a NULL type */
} mha__stage;

/* Loads the object at root's key stage->name by its "type". Sets *found (may be NULL) to true if the file has the
 * key. */
mha_status mha__stage_load(mha_tokenizer *t, const mha__json_obj *root, const mha__stage *stage, void *into,
                           bool *found, mha_error *err);

typedef struct mha__model_kind {
    mha__kind kind;
    /* Appends the tokens of bytes [begin, end) of `in` to pass->tokens. */
    mha_status (*tokenize)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, const mha__word *word);
    /* Builds tables that depend only on the vocabulary, after the file has been validated and freed; may be NULL. */
    mha_status (*finish)(mha_tokenizer *t, mha_error *err);
} mha__model_kind;

extern const mha__model_kind mha__model_wordpiece, mha__model_bpe, mha__model_unigram;

/* ---- elements of tokenizer.json that several stages read ---- */

/* Copies `n` bytes of the file and appends a NUL; the copy is valid until the tokenizer is freed. */
mha_status mha__copy_text(mha_tokenizer *t, const char *text, size_t n, const char **copy, mha_error *err);
void mha__free_copies(mha_tokenizer *t);

/* Appends an edit to an mha__edit_list; fails if the list is full. */
mha_status mha__edit_add(const mha_tokenizer *t, const mha__json_obj *json, void *list, const mha__edit *edit,
                         mha_error *err);

/* Reads {"pattern": ..., "content": "..."}. */
mha_status mha__replace_load(mha_tokenizer *t, const mha__json_obj *json, mha__pattern *pattern, const char **with,
                             size_t *n, mha_error *err);

/* Reads a string that must be one character, and copies it with mha__copy_text; *n is its length in bytes. */
mha_status mha__character_load(mha_tokenizer *t, const mha__json_obj *json, const char *key, const char **text,
                               size_t *n, mha_error *err);

typedef enum mha__prepend { MHA__PREPEND_ALWAYS, MHA__PREPEND_FIRST, MHA__PREPEND_NEVER } mha__prepend;

/* The settings of "Metaspace", which is a pre-tokenizer and a decoder. */
typedef struct mha__metaspace {
    const char *mark; /* the marker: one character of n bytes */
    size_t n;
    mha__prepend scheme;
    bool split;
} mha__metaspace;

mha_status mha__metaspace_load(mha_tokenizer *t, const mha__json_obj *json, mha__metaspace *m, mha_error *err);

/* Reads "vocab": {token: id} into t->vocab. */
mha_status mha__vocab_load(mha_tokenizer *t, const mha__json_obj *model, mha_error *err);

/* ---- added tokens ---- */

typedef struct mha__added_token {
    const char *content; /* text, owned by added_names */
    size_t n;
    const char *shown; /* decoded text: the content, normalized if the token is matched in normalized text */
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
} mha__added_token;

/* The patterns that are matched in raw text, or the patterns that are matched in normalized text. */
typedef struct mha__added_set {
    mha__vocab patterns; /* value: index into `added` */
    bool first[256];     /* true if a pattern begins with this byte */
} mha__added_set;

/* ---- post-processing: special tokens, truncation, padding ---- */

typedef struct mha__template_item {
    int sequence; /* 0 = first text, 1 = second text, -1 = the special token `id` */
    int32_t id;
    int32_t type_id;
} mha__template_item;

typedef struct mha__template {
    mha__template_item *items;
    size_t count;
    int64_t specials;
} mha__template;

typedef enum mha__cut { MHA__CUT_LONGEST = 0, MHA__CUT_FIRST, MHA__CUT_SECOND } mha__cut;

/* The truncation and padding that the file stores; applied only if the caller requests it. */
typedef struct mha__stored_limits {
    bool truncate, pad;
    int64_t max_tokens;
    mha__cut cut;
    bool cut_left, pad_left;
    int64_t pad_to;       /* fixed padded length, longer texts are not padded; -1 = the length of the text */
    int64_t pad_multiple; /* the padded length is rounded up to a multiple; 0 = not rounded */
    int32_t pad_id, pad_type_id;
} mha__stored_limits;

/* ---- the tokenizer ---- */

typedef struct mha__copy mha__copy;

/* MHA__SKIPPED: left out by decoding without special tokens. The reference compares the text of a token with the
 * contents of special tokens, so it does not leave out a special token whose content the normalizer changes, unless the
 * changed content is that of a special token. */
enum { MHA__SPECIAL = 1, MHA__SKIPPED = 2 };

struct mha_tokenizer {
    mha_ctx *ctx;
    size_t room;             /* remaining memory for loading, see memory_budget.h */
    mha__copy *copies;       /* copied strings, see mha__copy_text */
    mha__regex_list regexes; /* compiled expressions of all patterns in the file */

    mha__vocab vocab;   /* vocabulary of the model, token -> id */
    const char **token; /* by id; NULL if the id has no token */
    uint8_t *special;   /* by id: sum of MHA__SPECIAL and MHA__SKIPPED; 0 = ordinary token */
    int64_t ids;        /* number of entries in `token` and `special` */
    int64_t id_limit;   /* exclusive upper bound of ids in the file: 4 times the number of tokens plus 1024 */

    mha__added_token *added;
    size_t added_count;
    int32_t next_id; /* id of the next added token that is missing in the vocabulary */
    mha__added_set raw, normalized;
    mha__vocab added_names; /* content -> index into `added` */

    mha__edit_list normalizer, splitter;
    const mha__model_kind *model;
    struct {
        mha__vocab_prefix prefix; /* prefix of tokens inside a word, such as "##" */
        int32_t unk;
        int64_t max_chars;
    } wordpiece;
    mha__bpe bpe;
    mha__unigram unigram;
    mha__template single, pair;
    struct {
        bool wanted;       /* offsets exclude white space at both ends of a token */
        bool prefix_space; /* except a single space that the pre-tokenizer inserted before the text */
    } trim;
    mha__decode_list decoder;
    mha__stored_limits limits;
};

/* Returns the text of a token; NULL if the id has no token. */
static inline const char *mha__token_text(const mha_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->ids ? t->token[id] : NULL;
}

/* Opens a tokenizer, like mha_tokenizer_open, from the content of a tokenizer.json. */
mha_status mha__tokenizer_read(mha_ctx *ctx, const char *text, size_t n, mha_tokenizer **out, mha_error *err);

/* Opens the tokenizer of a GGUF file; *out is NULL if the file has none. */
mha_status mha__tokenizer_gguf(const mha_file *file, mha_tokenizer **out, mha_error *err);

/* Creates an encoding of `count` ids without a text. Its offsets, type ids and sequences are 0. */
mha_status mha__encoding_of_ids(mha_ctx *ctx, const int32_t *ids, int64_t count, mha_encoding **out, mha_error *err);

/* Loaders, in the order of their calls; see their source files for the fields that they set. */
mha_status mha__normalizer_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__splitter_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__added_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__template_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__decoder_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__limits_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);

/* Writes the normalized form of `in` to pass->normal; *out is a view of pass->normal, or `in` itself. */
mha_status mha__normalize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, mha__slice *out);

/* Splits `in` at the tokens of the set and appends these to pass->tokens. Calls `rest` for the text between the
 * tokens. */
typedef mha_status (*mha__rest_fn)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in);
mha_status mha__added_split(const mha_tokenizer *t, const mha__added_set *set, mha__pass *pass, const mha__slice *in,
                            mha__rest_fn rest);
void mha__added_free(mha_tokenizer *t);

#endif
