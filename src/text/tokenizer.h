/* tokenizer.h - the inside of a tokenizer: one stage for each part of tokenizer.json.
 *
 * A stage is a kind (a const table: the file's type name, how to load it, how to run it) and the settings that its
 * load function read. A new type of normalizer, pre-tokenizer, model, post-processor or decoder is a new kind,
 * listed in the array at the end of the stage's file. What no kind claims is refused by name.
 */
#ifndef MHA_TEXT_TOKENIZER_H
#define MHA_TEXT_TOKENIZER_H

#include "io/json.h"
#include "mha/text.h"
#include "text/pass.h"
#include "text/vocab.h"

#define MHA__TOKENIZER_FILE "tokenizer.json"

/* ---- kinds ---- */

typedef struct mha__kind {
    const char *type;
    /* Reads the stage's object. */
    mha_status (*load)(mha_tokenizer *t, const mha__json_obj *json, mha_error *err);
} mha__kind;

typedef struct mha__normalizer_kind {
    mha__kind kind;
    /* Appends the normalized text to pass->normal. */
    mha_status (*apply)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in);
} mha__normalizer_kind;

typedef struct mha__splitter_kind {
    mha__kind kind;
    /* Appends the words of `in` to pass->words. */
    mha_status (*split)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in);
} mha__splitter_kind;

typedef struct mha__model_kind {
    mha__kind kind;
    /* Appends the tokens of bytes [begin, end) of `in` to pass->tokens. */
    mha_status (*tokenize)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, const mha__word *word);
} mha__model_kind;

typedef struct mha__decoder_kind {
    mha__kind kind;
    /* Writes token number `index` of a text; at most 1 + strlen(token) bytes. Returns how many. */
    size_t (*decode)(const mha_tokenizer *t, const char *token, int64_t index, char *to);
} mha__decoder_kind;

/* Finds the kind of `stage` ("normalizer") by its "type" and loads it. *kind is NULL when the file has no such stage
 * (or null). */
mha_status mha__stage_load(mha_tokenizer *t, const mha__json_obj *root, const char *stage,
                           const mha__kind *const *kinds, const mha__kind **kind, mha_error *err);

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

struct mha_tokenizer {
    mha_ctx *ctx;

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

    const mha__normalizer_kind *normalizer; /* NULL = text stays as it is */
    struct {
        bool clean_text, chinese, strip_accents, lowercase;
    } bert;
    const mha__splitter_kind *splitter; /* NULL = a slice is one word */
    const mha__model_kind *model;
    struct {
        mha__vocab_prefix prefix; /* "##" inside of a word; its bytes are owned */
        int32_t unk;
        int64_t max_chars;
    } wordpiece;
    mha__template single, pair;
    const mha__decoder_kind *decoder; /* NULL = tokens joined by spaces */
    struct {
        char *prefix; /* owned */
        bool cleanup;
    } wordpiece_decoder;
    mha__stored_limits limits;
};

/* mha_tokenizer_open, from the parsed file. */
mha_status mha__tokenizer_make(mha_ctx *ctx, const json_t *json, mha_tokenizer **out, mha_error *err);

/* A terminated copy of a string of the file. */
mha_status mha__copy_text(mha_tokenizer *t, const char *text, char **copy, mha_error *err);

/* Loaders, in the order in which they are called; each file says what it fills. */
mha_status mha__normalizer_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__splitter_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__model_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__added_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__template_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__decoder_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);
mha_status mha__limits_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err);

/* Writes the normalized form of `in` to pass->normal, which is emptied first; *out is a view of it, or `in` itself. */
mha_status mha__normalize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, mha__slice *out);

/* Cuts `in` at the set's tokens: `rest` gets what lies between, the tokens go to pass->tokens. */
typedef mha_status (*mha__rest_fn)(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in);
mha_status mha__added_split(const mha_tokenizer *t, const mha__added_set *set, mha__pass *pass, const mha__slice *in,
                            mha__rest_fn rest);
void mha__added_free(mha_tokenizer *t);

#endif
