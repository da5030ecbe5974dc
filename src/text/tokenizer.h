/* tokenizer.h - the inside of a tokenizer: one stage for each part of tokenizer.json.
 *
 * What a stage's object may be is listed as an array of kinds (the file's type name, how to load it) at the end of the
 * stage's file; a Sequence of kinds is flattened. Normalizers and pre-tokenizers become edits (text_edit.h), decoders
 * become decode steps, a model is a kind of its own. What no kind claims is refused by name.
 */
#ifndef MHA_TEXT_TOKENIZER_H
#define MHA_TEXT_TOKENIZER_H

#include "io/json/json.h"
#include "mha/text.h"
#include "text/decode/decode.h"
#include "text/encode_buffers.h"
#include "text/memory_budget.h"
#include "text/normalize/text_edit.h"
#include "text/vocabulary/bpe.h"
#include "text/vocabulary/unigram.h"
#include "text/vocabulary/vocab.h"

#define MHA__TOKENIZER_FILE "tokenizer.json"

/* ---- kinds ---- */

typedef struct mha__kind {
    const char *type;
    /* Reads the object and adds what it stands for to `into`, which is what mha__stage_load was given. */
    mha_status (*load)(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err);
} mha__kind;

typedef struct mha__stage {
    const char *name;
    const char *list;       /* key of a Sequence's list; NULL = a Sequence is unknown here */
    const mha__kind *kinds; /* ends with a type of NULL */
} mha__stage;

/* Loads what stands at root's key stage->name, by its "type". *found (may be NULL) says whether the file has it. */
mha_status mha__stage_load(mha_tokenizer *t, const mha__json_obj *root, const mha__stage *stage, void *into,
                           bool *found, mha_error *err);

typedef struct mha__model_kind {
    mha__kind kind;
    /* Appends the tokens of bytes [begin, end) of `in` to pass->tokens. */
    mha_status (*tokenize)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, const mha__word *word);
    /* Makes what only needs the vocabulary, when the file has been found good and is gone; NULL: nothing. */
    mha_status (*finish)(mha_tokenizer *t, mha_error *err);
} mha__model_kind;

extern const mha__model_kind mha__model_wordpiece, mha__model_bpe, mha__model_unigram;

/* ---- parts that more than one stage reads ---- */

/* A copy of `n` bytes of the file, terminated, that lives as long as the tokenizer. */
mha_status mha__copy_text(mha_tokenizer *t, const char *text, size_t n, const char **copy, mha_error *err);

/* Appends an edit to a mha__edit_list, which may be full. */
mha_status mha__edit_add(const mha_tokenizer *t, const mha__json_obj *json, void *list, const mha__edit *edit,
                         mha_error *err);

/* {"pattern": ..., "content": "..."} */
mha_status mha__replace_load(mha_tokenizer *t, const mha__json_obj *json, mha__pattern *pattern, const char **with,
                             size_t *n, mha_error *err);

typedef enum mha__prepend { MHA__PREPEND_ALWAYS, MHA__PREPEND_FIRST, MHA__PREPEND_NEVER } mha__prepend;

/* "Metaspace", as pre-tokenizer and as decoder. */
typedef struct mha__metaspace {
    const char *mark; /* one character, n bytes */
    size_t n;
    mha__prepend scheme;
    bool split;
} mha__metaspace;

mha_status mha__metaspace_load(mha_tokenizer *t, const mha__json_obj *json, mha__metaspace *m, mha_error *err);

/* Reads "vocab": {token: id} into t->vocab. */
mha_status mha__vocab_load(mha_tokenizer *t, const mha__json_obj *model, mha_error *err);

/* ---- added tokens ---- */

typedef struct mha__added_token {
    const char *content; /* in added_names */
    size_t n;
    const char *shown; /* what it decodes to: its content, normalized where that is what is searched for */
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
} mha__added_token;

/* Patterns to search for: those matched in raw text, or those matched in normalized text. */
typedef struct mha__added_set {
    mha__vocab patterns; /* value = index into added */
    bool first[256];     /* a pattern begins with this byte */
} mha__added_set;

/* ---- post-processing: what surrounds the tokens, and how long it may be ---- */

typedef struct mha__template_item {
    int sequence; /* 0 first text, 1 second, -1 the special token `id` */
    int32_t id;
    int32_t type_id;
} mha__template_item;

typedef struct mha__template {
    mha__template_item *items;
    size_t count;
    int64_t specials;
} mha__template;

typedef enum mha__cut { MHA__CUT_LONGEST = 0, MHA__CUT_FIRST, MHA__CUT_SECOND } mha__cut;

/* Truncation and padding as the file stores them; off unless asked for. */
typedef struct mha__stored_limits {
    bool truncate, pad;
    int64_t max_tokens;
    mha__cut cut;
    bool cut_left, pad_left;
    int64_t pad_to; /* 0 = no fixed length */
    int64_t pad_multiple;
    int32_t pad_id, pad_type_id;
} mha__stored_limits;

/* ---- the tokenizer ---- */

typedef struct mha__copy mha__copy;

struct mha_tokenizer {
    mha_ctx *ctx;
    size_t room;             /* what loading may still take: memory_budget.h */
    mha__copy *copies;       /* see mha__copy_text */
    mha__regex_list regexes; /* of all patterns */

    mha__vocab vocab;   /* the model's, token -> id */
    const char **token; /* by id; NULL where there is none */
    bool *special;      /* by id */
    int64_t ids;        /* entries of both */
    int64_t id_limit;   /* the file may use ids below it: 4 x tokens + 1024 */

    mha__added_token *added;
    size_t added_count;
    int32_t
        next_id; /* of an added token that the vocabulary lacks: past both the vocabulary's size and all ids before */
    mha__added_set raw, normalized;
    mha__vocab added_names; /* content -> index into added */

    mha__edit_list normalizer, splitter;
    const mha__model_kind *model;
    struct {
        mha__vocab_prefix prefix; /* "##" inside of a word */
        int32_t unk;
        int64_t max_chars;
    } wordpiece;
    mha__bpe bpe;
    mha__unigram unigram;
    mha__template single, pair;
    struct {
        bool wanted;       /* white space at both ends of a token does not count as its place */
        bool prefix_space; /* but a single one before the text, which the pre-tokenizer put there */
    } trim;
    mha__decode_list decoder;
    mha__stored_limits limits;
};

/* mha_tokenizer_open, from the text of the file. */
mha_status mha__tokenizer_read(mha_ctx *ctx, const char *text, size_t n, mha_tokenizer **out, mha_error *err);

/* An encoding of `count` ids that no text was read for: places, types and sequences are 0. */
mha_status mha__encoding_of_ids(mha_ctx *ctx, const int32_t *ids, int64_t count, mha_encoding **out, mha_error *err);

/* Loaders, in the order in which they are called; each file says what it fills. */
mha_status mha__normalizer_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__splitter_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__added_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__template_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__decoder_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__limits_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);

/* Writes the normalized form of `in` to pass->normal; *out is a view of it, or `in` itself. */
mha_status mha__normalize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, mha__slice *out);

/* Cuts `in` at the set's tokens: `rest` gets what lies between, the tokens go to pass->tokens. */
typedef mha_status (*mha__rest_fn)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in);
mha_status mha__added_split(const mha_tokenizer *t, const mha__added_set *set, mha__pass *pass, const mha__slice *in,
                            mha__rest_fn rest);
void mha__added_free(mha_tokenizer *t);

#endif
