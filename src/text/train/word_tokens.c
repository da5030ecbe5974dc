/* word_tokens.c - creates the initial tokens, and the words as linked lists of tokens.
 *
 * Ids are assigned first to special tokens, then to the characters of the alphabet and, if characters inside words have
 * a prefix, then to these characters with the prefix. Characters are in code point order. A character outside the
 * alphabet is dropped from its word. */
#include "base/ctx.h"
#include "base/utf8.h"
#include "text/train/tokenizer_train.h"
#include <stdlib.h>
#include <string.h>

enum { BYTE_CODES = 0x144 }; /* exclusive upper bound of the characters that represent bytes */

/* ---- the alphabet ---- */

/* Returns the highest code point of all words plus 1, which is the size of the tables by character. */
static uint32_t count_codes(const mha__strings *words)
{
    uint32_t codes = BYTE_CODES;
    for (size_t i = 0; i < words->count; i++) {
        const char *word = mha__strings_at(words, i);
        const size_t n = words->items[i].length;
        for (size_t at = 0; at < n;) {
            uint32_t code = 0;
            at += (size_t)mha__utf8_read(word + at, n - at, &code);
            if (code >= codes) codes = code + 1;
        }
    }
    return codes;
}

static void count_characters(const mha__strings *words, mha__character *chars)
{
    for (size_t i = 0; i < words->count; i++) {
        const char *word = mha__strings_at(words, i);
        const size_t n = words->items[i].length;
        for (size_t at = 0, length; at < n; at += length) {
            uint32_t code = 0;
            length = (size_t)mha__utf8_read(word + at, n - at, &code);
            chars[code].count += words->items[i].sum;
            chars[code].inside |= at > 0;
        }
    }
}

/* A character that may be selected for the alphabet; sorted in the order of selection. */
typedef struct candidate {
    int64_t count;
    uint32_t code;
} candidate;

static int by_count(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->code < y->code ? -1 : x->code > y->code;
}

/* Keeps the most frequent characters, at most `max`. */
static mha_status limit_alphabet(mha_tokenizer_trainer *t, mha__character *chars, int64_t max, mha_error *err)
{
    candidate *list = mha__alloc(t->ctx, t->codes * sizeof *list);
    size_t count = 0;
    if (!list) return mha__no_memory(err, t->codes * sizeof *list, "the alphabet");
    for (uint32_t code = 0; code < t->codes; code++)
        if (chars[code].kept) list[count++] = (candidate){chars[code].count, code};
    qsort(list, count, sizeof *list, by_count);
    for (size_t i = (size_t)max; i < count; i++)
        chars[list[i].code].kept = false;
    mha__free(t->ctx, list);
    return MHA_OK;
}

static mha_status choose_alphabet(mha_tokenizer_trainer *t, mha__character *chars, mha_error *err)
{
    count_characters(&t->counters[0].words, chars);
    for (uint32_t code = 0; code < t->codes; code++)
        chars[code].kept = chars[code].count > 0;
    for (unsigned byte = 0; t->o.type == MHA_TOKENIZER_BPE && byte < 256; byte++)
        chars[mha__byte_char(byte)].kept = true;
    return t->o.alphabet ? limit_alphabet(t, chars, t->o.alphabet, err) : MHA_OK;
}

/* ---- ids ---- */

static mha_status add_characters(mha_tokenizer_trainer *t, mha__character *chars, mha_error *err)
{
    const char *prefix = mha__train_prefix(t);
    char text[8];
    memcpy(text, prefix, strlen(prefix));
    char *character = text + strlen(prefix);
    for (uint32_t code = 0; code < t->codes; code++) {
        if (!chars[code].kept) continue;
        const size_t n = (size_t)mha__utf8_write(code, character);
        MHA__TRY(mha__strings_add(&t->vocab, character, n, 0, &chars[code].first, err));
    }
    for (uint32_t code = 0; code < t->codes; code++) {
        if (!chars[code].kept || !chars[code].inside) continue;
        const size_t n = strlen(prefix) + (size_t)mha__utf8_write(code, character);
        MHA__TRY(mha__strings_add(&t->vocab, text, n, 0, &chars[code].inner, err));
    }
    return MHA_OK;
}

static mha_status name_characters(mha_tokenizer_trainer *t, mha__character *chars, mha_error *err)
{
    const size_t specials = t->vocab.count; /* the special tokens were added when the trainer was created */
    MHA__TRY(add_characters(t, chars, err));
    t->trained.characters = (int64_t)(t->vocab.count - specials);
    if ((int64_t)t->vocab.count <= t->o.vocab_size) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "vocab_size must be at least the %zu special tokens and %zu %s (got %lld)",
                     specials, t->vocab.count - specials,
                     t->o.type == MHA_TOKENIZER_BPE ? "bytes" : "characters (alphabet limits these)",
                     (long long)t->o.vocab_size);
}

/* ---- linked lists ---- */

/* Converts a word to its initial tokens and returns their number. Writes the tokens unless `to` is NULL. */
static size_t word_tokens(const mha__strings *words, size_t number, const mha__character *chars, uint32_t *to)
{
    const char *word = mha__strings_at(words, number);
    const size_t n = words->items[number].length;
    size_t count = 0;
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t code = 0;
        length = (size_t)mha__utf8_read(word + at, n - at, &code);
        if (!chars[code].kept) continue;
        if (to) to[count] = at ? chars[code].inner : chars[code].first;
        count++;
    }
    return count;
}

/* Counts the words with at least two tokens, and their tokens. Sets *longest to the number of tokens in the longest
 * word. */
static mha_status count_symbols(mha_tokenizer_trainer *t, const mha__character *chars, size_t *longest, mha_error *err)
{
    const mha__strings *words = &t->counters[0].words;
    *longest = 0;
    for (size_t i = 0; i < words->count; i++) {
        const size_t n = word_tokens(words, i, chars, NULL);
        if (n < 2) continue;
        t->word_count++;
        t->symbol_count += n;
        if (n > *longest) *longest = n;
    }
    if (t->symbol_count < MHA__TRAIN_NONE) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "distinct words must have fewer than %u characters in total (got %zu)",
                     (unsigned)MHA__TRAIN_NONE, t->symbol_count);
}

static void link_word(mha_tokenizer_trainer *t, uint32_t word, uint32_t begin, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = begin + (uint32_t)i;
        t->symbols[at] = (mha__symbol){.id = ids[i],
                                       .prev = i ? at - 1 : MHA__TRAIN_NONE,
                                       .next = i + 1 < n ? at + 1 : MHA__TRAIN_NONE,
                                       .word = word};
    }
}

static void link_words(mha_tokenizer_trainer *t, const mha__character *chars, uint32_t *ids)
{
    const mha__strings *words = &t->counters[0].words;
    uint32_t word = 0;
    uint32_t begin = 0;
    for (size_t i = 0; i < words->count; i++) {
        const size_t n = word_tokens(words, i, chars, NULL);
        if (n < 2) continue;
        word_tokens(words, i, chars, ids);
        t->word_counts[word] = words->items[i].sum;
        link_word(t, word++, begin, ids, n);
        begin += (uint32_t)n;
    }
}

static mha_status make_chains(mha_tokenizer_trainer *t, const mha__character *chars, mha_error *err)
{
    size_t longest;
    MHA__TRY(count_symbols(t, chars, &longest, err));
    t->symbols = mha__calloc(t->ctx, t->symbol_count + 1, sizeof *t->symbols);
    t->word_counts = mha__calloc(t->ctx, t->word_count + 1, sizeof *t->word_counts);
    uint32_t *ids = mha__calloc(t->ctx, longest + 1, sizeof *ids);
    const bool whole = t->symbols && t->word_counts && ids;
    if (whole) link_words(t, chars, ids);
    mha__free(t->ctx, ids);
    return whole ? MHA_OK : mha__no_memory(err, t->symbol_count * sizeof *t->symbols, "the distinct words");
}

mha_status mha__train_words(mha_tokenizer_trainer *t, mha_error *err)
{
    t->codes = count_codes(&t->counters[0].words);
    mha__character *chars = mha__calloc(t->ctx, t->codes, sizeof *chars);
    if (!chars) return mha__no_memory(err, t->codes * sizeof *chars, "the alphabet");
    mha_status status = choose_alphabet(t, chars, err);
    if (status == MHA_OK) status = name_characters(t, chars, err);
    if (status == MHA_OK) status = make_chains(t, chars, err);
    mha__free(t->ctx, chars);
    return status;
}
