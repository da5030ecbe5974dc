/* added_tokens.c - loads and finds added tokens: strings that become one token wherever they occur, before the other
 * stages run.
 *
 * The leftmost match wins, then the longest. Tokens with normalized = false are matched in the raw text. For all other
 * tokens, both the text and their content are normalized first. With lstrip and rstrip, the match includes adjacent
 * white space. With single_word, no word character may be adjacent. The flag `special` only affects decoding. */
#include "base/ctx.h"
#include "text/tokenizer.h"
#include "text/trim_offsets.h"
#include "text/unicode.h"
#include <stdio.h>
#include <string.h>

/* Maximum length of an added token. The search takes at most this number of steps per byte of text. The longest tokens
 * in published files have about 100 bytes. */
enum { CONTENT_BYTES_MAX = 1024 };

/* ---- search ---- */

static bool is_word_at(const mha__slice *in, size_t at)
{
    size_t length;
    return at < in->n && mha__char_is(MHA__CHAR_WORD, mha__slice_next(in, at, &length));
}

static bool is_word_before(const mha__slice *in, size_t at)
{
    size_t length;
    return at > 0 && mha__char_is(MHA__CHAR_WORD, mha__slice_last(in, at, &length));
}

/* Returns the start of the white space that ends at `begin`, but not before `stop`. */
static size_t strip_left(const mha__slice *in, size_t begin, size_t stop)
{
    size_t length;
    while (begin > stop && mha__char_is(MHA__CHAR_SPACE, mha__slice_last(in, begin, &length)))
        begin -= length;
    return begin;
}

static size_t strip_right(const mha__slice *in, size_t end)
{
    size_t length;
    while (end < in->n && mha__char_is(MHA__CHAR_SPACE, mha__slice_next(in, end, &length)))
        end += length;
    return end;
}

/* Returns the next token at or after *at whose adjacent characters permit the match, and moves *at to the end of its
 * pattern. Returns NULL at the end of the text. */
static const mha__added_token *next_token(const mha_tokenizer *t, const mha__added_set *set, const mha__slice *in,
                                          size_t *begin, size_t *at)
{
    for (size_t length = 1; *at < in->n; *at += length) {
        int32_t index = -1;
        length = 1;
        if (set->first[(unsigned char)in->bytes[*at]])
            index = mha__vocab_longest(&set->patterns, &mha__vocab_no_prefix, in->bytes + *at, in->n - *at, &length);
        if (index < 0) continue;
        const mha__added_token *token = &t->added[index];
        if (token->single_word && (is_word_before(in, *at) || is_word_at(in, *at + length))) continue;
        *begin = *at;
        *at += length;
        return token;
    }
    return NULL;
}

mha_status mha__added_split(const mha_tokenizer *t, const mha__added_set *set, mha__pass *pass, const mha__slice *in,
                            mha__rest_fn rest)
{
    size_t done = 0; /* end of the processed text */
    size_t begin;
    const mha__added_token *token;
    for (size_t at = 0; (token = next_token(t, set, in, &begin, &at)) != NULL;) {
        /* If at < done, the text between `at` and `done` is white space that belongs to the previous token. It is not
         * processed again. */
        const size_t end = token->rstrip ? strip_right(in, at > done ? at : done) : at;
        if (token->lstrip) {
            begin = begin > done ? strip_left(in, begin, done) : done;
            if (end <= begin) continue; /* the previous token contains the whole match */
        }
        if (done < begin) {
            mha__slice before = mha__slice_cut(in, done, begin);
            MHA__TRY(rest(t, pass, &before));
        }
        done = end;
        MHA__TRY(mha__pass_token(pass, in, token->id, begin, done));
        if (t->trim.wanted)
            mha__trim_count(&pass->tokens.items[pass->tokens.count - 1], in->bytes + begin, done - begin);
    }
    mha__slice after = mha__slice_cut(in, done, in->n);
    return after.n ? rest(t, pass, &after) : MHA_OK;
}

/* ---- loading ---- */

/* Returns the id that the reference reader assigns to a token, regardless of its id in the file: the id in the
 * model's vocabulary, or the next free id. */
static int32_t reference_id(const mha_tokenizer *t, const mha__added_token *token)
{
    int32_t id = mha__vocab_find(&t->vocab, token->content, token->n);
    return id >= 0 ? id : t->next_id;
}

static mha_status load_fields(const mha_tokenizer *t, const mha__json_obj *json, mha__added_token *token,
                              mha_error *err)
{
    int64_t id;
    MHA__TRY(mha__json_int(json, "id", MHA__REQUIRED, 0, t->id_limit - 1, &id, err));
    MHA__TRY(mha__json_string(json, "content", MHA__REQUIRED, &token->content, NULL, err));
    MHA__TRY(mha__json_bool(json, "special", MHA__REQUIRED, &token->special, err));
    MHA__TRY(mha__json_bool(json, "normalized", MHA__REQUIRED, &token->normalized, err));
    MHA__TRY(mha__json_bool(json, "lstrip", MHA__REQUIRED, &token->lstrip, err));
    MHA__TRY(mha__json_bool(json, "rstrip", MHA__REQUIRED, &token->rstrip, err));
    MHA__TRY(mha__json_bool(json, "single_word", MHA__REQUIRED, &token->single_word, err));
    token->id = (int32_t)id;
    token->n = strlen(token->content);
    char want[64];
    snprintf(want, sizeof want, "a string of 1 to %d bytes", (int)CONTENT_BYTES_MAX);
    if (token->n == 0 || token->n > CONTENT_BYTES_MAX) return mha__json_refuse(json, "content", want, err);
    return MHA_OK;
}

static mha_status load_token(mha_tokenizer *t, const mha__json *value, size_t index, mha_error *err)
{
    char where[48];
    mha__added_token token = {0};
    const mha__vocab_entry *entry;
    snprintf(where, sizeof where, "added_tokens[%zu]", index);
    if (!mha__json_is(value, MHA__JSON_OBJECT)) {
        mha__json_obj none = {NULL, MHA__TOKENIZER_FILE, NULL};
        return mha__json_refuse(&none, where, "an object", err);
    }
    mha__json_obj json = {value, MHA__TOKENIZER_FILE, where};
    MHA__TRY(load_fields(t, &json, &token, err));
    int32_t id = reference_id(t, &token);
    char want[64];
    snprintf(want, sizeof want, "%d, the id that follows from the model's vocabulary", (int)id);
    if (token.id != id) return mha__json_refuse(&json, "id", want, err);
    MHA__TRY(mha__vocab_add(&t->added_names, token.content, token.n, (int32_t)t->added_count, &entry, err));
    if (entry->value != (int32_t)t->added_count)
        return mha__json_refuse(&json, "content", "unique among the added tokens", err);
    token.content = token.shown = t->added_names.bytes + entry->begin;
    t->added[t->added_count++] = token;
    if (id >= t->next_id) t->next_id = id + 1;
    return MHA_OK;
}

/* Sets *out to the pattern of a token: its content, normalized if the token is matched in normalized text. */
static mha_status pattern_of(const mha_tokenizer *t, const mha__added_token *token, mha__pass *pass, mha__slice *out)
{
    mha__slice content = {.bytes = token->content, .n = token->n};
    pass->text = content.bytes;
    pass->text_bytes = content.n;
    *out = content;
    return token->normalized ? mha__normalize(t, pass, &content, out) : MHA_OK;
}

/* Adds the patterns of all tokens that are matched in normalized text, or else those matched in raw text. If several
 * tokens are equal after normalization, the first one is matched; the reference does not specify which one. */
static mha_status add_patterns(mha_tokenizer *t, bool normalized, mha__pass *pass, mha__added_set *set)
{
    for (size_t i = 0; i < t->added_count; i++) {
        mha__added_token *token = &t->added[i];
        const mha__vocab_entry *entry;
        mha__slice pattern;
        if (token->normalized != normalized) continue;
        MHA__TRY(pattern_of(t, token, pass, &pattern));
        if (pattern.n == 0) { /* a token whose content is empty after normalization never matches */
            token->shown = "";
            continue;
        }
        MHA__TRY(mha__vocab_add(&set->patterns, pattern.bytes, pattern.n, (int32_t)i, &entry, pass->err));
        set->first[(unsigned char)pattern.bytes[0]] = true;
        token->shown = set->patterns.bytes + entry->begin;
    }
    return MHA_OK;
}

static mha_status make_set(mha_tokenizer *t, bool normalized, mha__pass *pass, mha__added_set *set)
{
    size_t bytes = 0;
    for (size_t i = 0; i < t->added_count; i++) {
        mha__slice pattern;
        if (t->added[i].normalized != normalized) continue;
        MHA__TRY(pattern_of(t, &t->added[i], pass, &pattern));
        bytes += pattern.n;
    }
    MHA__TRY(mha__vocab_create(t->ctx, t->added_count, bytes, &t->room, &set->patterns, pass->err));
    return add_patterns(t, normalized, pass, set);
}

mha_status mha__added_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    const mha__json *list = NULL;
    size_t bytes = 0;
    MHA__TRY(mha__json_array(root, "added_tokens", MHA__OPTIONAL, &list, err));
    size_t count = mha__json_size(list);
    for (mha__json_step i = {0}; mha__json_each(list, &i);)
        bytes += mha__json_bytes(mha__json_get(i.value, "content"));
    MHA__TRY(mha__vocab_create(t->ctx, count, bytes, &t->room, &t->added_names, err));
    MHA__TRY(mha__room_take(&t->room, (count + 1) * sizeof *t->added, err));
    t->added = mha__calloc(t->ctx, count + 1, sizeof *t->added);
    if (!t->added) return mha__no_memory(err, (count + 1) * sizeof *t->added, "the added tokens");
    t->next_id = (int32_t)t->vocab.count;
    for (mha__json_step i = {0}; mha__json_each(list, &i);)
        MHA__TRY(load_token(t, i.value, i.index, err));

    mha__pass pass = {.ctx = t->ctx, .err = err};
    mha_status status = make_set(t, false, &pass, &t->raw);
    if (status == MHA_OK) status = make_set(t, true, &pass, &t->normalized);
    mha__pass_free(&pass);
    return status;
}

void mha__added_free(mha_tokenizer *t)
{
    mha__vocab_free(&t->raw.patterns);
    mha__vocab_free(&t->normalized.patterns);
    mha__vocab_free(&t->added_names);
    mha__free(t->ctx, t->added);
}
