/* wordpiece.c - the WordPiece model: each word is cut into the longest known pieces, from the left.
 *
 * Pieces after the first are looked up with "##" before them. A word with a place where no piece fits, or with more
 * than max_input_chars_per_word characters, is the unknown token as a whole.
 */
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* Work per word is at most its length squared, so the file may not set max_input_chars_per_word to anything. It is
 * 100. */
enum { MAX_WORD_CHARS = 1000 };

static int64_t count_chars(const char *p, size_t n)
{
    int64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)p[i] & 0xC0) != 0x80;
    return count;
}

static mha_status wordpiece_tokenize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in,
                                     const mha__word *word)
{
    size_t before = pass->tokens.count;
    bool known = count_chars(in->bytes + word->begin, word->end - word->begin) <= t->wordpiece.max_chars;
    for (size_t at = word->begin, length = 0; known && at < word->end; at += length) {
        const mha__vocab_prefix *prefix = at == word->begin ? &mha__vocab_no_prefix : &t->wordpiece.prefix;
        int32_t id = mha__vocab_longest(&t->vocab, prefix, in->bytes + at, word->end - at, &length);
        known = id >= 0;
        if (known) MHA__TRY(mha__pass_token(pass, in, id, at, at + length));
    }
    if (known) return MHA_OK;
    pass->tokens.count = before;
    return mha__pass_token(pass, in, t->wordpiece.unk, word->begin, word->end);
}

static mha_status refuse_id(const char *token, const json_t *value, const char *want, mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, MHA__TOKENIZER_FILE ": model.vocab: id of \"%s\": want %s, got %s",
                     mha__quote(&(mha__quoted){0}, token, strlen(token)), want,
                     mha__json_show(&(mha__quoted){0}, value));
}

/* Checks every id before anything is stored, and measures the keys. */
static mha_status measure_vocab(const mha_tokenizer *t, const json_t *json, size_t *bytes, mha_error *err)
{
    const char *token;
    json_t *id;
    *bytes = 0;
    json_object_foreach((json_t *)json, token, id)
    {
        *bytes += strlen(token); /* all keys together are within the file */
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= t->id_limit) {
            char want[64];
            snprintf(want, sizeof want, "an integer from 0 to %lld", (long long)t->id_limit - 1);
            return refuse_id(token, id, want, err);
        }
    }
    return MHA_OK;
}

static mha_status load_vocab(mha_tokenizer *t, const mha__json_obj *model, mha_error *err)
{
    mha__json_obj vocab = {0};
    size_t bytes;
    const char *token;
    json_t *id;
    MHA__TRY(mha__json_object(model, "vocab", MHA__REQUIRED, &vocab, err));
    MHA__TRY(measure_vocab(t, vocab.json, &bytes, err));
    MHA__TRY(mha__vocab_create(t->ctx, json_object_size(vocab.json), bytes, &t->vocab, err));
    json_object_foreach((json_t *)vocab.json, token, id)
        MHA__TRY(mha__vocab_add(&t->vocab, token, strlen(token), (int32_t)json_integer_value(id), NULL, err));
    return MHA_OK;
}

static mha_status wordpiece_load(mha_tokenizer *t, const mha__json_obj *json, mha_error *err)
{
    const char *unk;
    const char *prefix;
    char *copy;
    MHA__TRY(mha__json_string(json, "unk_token", MHA__REQUIRED, &unk, NULL, err));
    MHA__TRY(mha__json_string(json, "continuing_subword_prefix", MHA__REQUIRED, &prefix, NULL, err));
    MHA__TRY(mha__json_int(json, "max_input_chars_per_word", MHA__REQUIRED, 0, MAX_WORD_CHARS, &t->wordpiece.max_chars,
                           err));
    MHA__TRY(load_vocab(t, json, err));
    t->wordpiece.unk = mha__vocab_find(&t->vocab, unk, strlen(unk));
    if (t->wordpiece.unk < 0) return mha__json_refuse(json, "unk_token", "a token of model.vocab", err);
    MHA__TRY(mha__copy_text(t, prefix, &copy, err));
    t->wordpiece.prefix = mha__vocab_prefix_of(copy, strlen(copy));
    return MHA_OK;
}

static const mha__model_kind wordpiece = {{"WordPiece", wordpiece_load}, wordpiece_tokenize};

mha_status mha__model_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__kind *const kinds[] = {&wordpiece.kind, NULL};
    const mha__kind *kind = NULL;
    MHA__TRY(mha__stage_load(t, root, "model", kinds, &kind, err));
    t->model = (const mha__model_kind *)kind;
    return t->model ? MHA_OK : mha__json_refuse(root, "model", "an object", err);
}
