/* wordpiece.c - implements the WordPiece model, which splits each word into the longest known pieces, from left to
 * right.
 *
 * Pieces after the first are looked up with the prefix "##". The whole word becomes the unknown token if no piece
 * matches at some position, or if the word has more than max_input_chars_per_word characters. */
#include "text/tokenizer.h"
#include <string.h>

/* Upper limit of max_input_chars_per_word, because the number of steps per word may be quadratic in its length.
 * Published files use 100. */
enum { WORD_CHARS_MAX = 1000 };

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

static mha_status wordpiece_load(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err)
{
    (void)into;
    const char *unk;
    const char *prefix;
    const char *copy;
    MHA__TRY(mha__json_string(json, "unk_token", MHA__REQUIRED, &unk, NULL, err));
    MHA__TRY(mha__json_string(json, "continuing_subword_prefix", MHA__REQUIRED, &prefix, NULL, err));
    MHA__TRY(mha__json_int(json, "max_input_chars_per_word", MHA__REQUIRED, 0, WORD_CHARS_MAX, &t->wordpiece.max_chars,
                           err));
    MHA__TRY(mha__vocab_load(t, json, err));
    t->wordpiece.unk = mha__vocab_find(&t->vocab, unk, strlen(unk));
    if (t->wordpiece.unk < 0) return mha__json_refuse(json, "unk_token", "a token of model.vocab", err);
    MHA__TRY(mha__copy_text(t, prefix, strlen(prefix), &copy, err));
    t->wordpiece.prefix = mha__vocab_prefix_of(copy, strlen(copy));
    return MHA_OK;
}

const mha__model_kind mha__model_wordpiece = {{"WordPiece", wordpiece_load}, wordpiece_tokenize, NULL};
