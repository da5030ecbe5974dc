/* known_expressions.c - the regular expressions of published tokenizers, rewritten for PCRE2.
 *
 * Expressions are rewritten so that PCRE2 matches like the reference (Oniguruma with the tables of Unicode 16). White
 * space is listed explicitly, because PCRE2's \s includes U+180E. Letters and numbers newer than PCRE2's tables are
 * added. All other parts of the expressions are unchanged, because alternatives and quantifiers have the same meaning
 * in both. */
#include "text/pretokenize/known_expressions.h"

#include "text/unicode.h"
#include <stdio.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

const char mha__regex_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char mha__regex_llama3[] = CONTRACTIONS
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char mha__regex_qwen2[] =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE_WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define AFTER_WORDS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BEFORE_WORD_OURS "[^\\r\\n<L><N>]?"
#define AFTER_WORDS_OURS "| ?[^<S><L><N>]+[\\r\\n/]*|[<S>]*[\\r\\n]+|[<S>]+(?![^<S>])|[<S>]+"
const char mha__regex_gpt_oss[] = BEFORE_WORD UPPER "*" SMALL "+" CONTRACTIONS "?|" BEFORE_WORD UPPER "+" SMALL
                                                    "*" CONTRACTIONS "?|\\p{N}{1,3}" AFTER_WORDS;

#define ASCII_SYMBOLS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"

#define CLIP_SPECIAL "<\\|startoftext\\|>|<\\|endoftext\\|>"
#define CLIP_WORDS "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"
#define CLIP_OURS "'s|'t|'re|'ve|'m|'ll|'d|[<L>]+|[<N>]|[^<S><L><N>]+"

/* In the rewritten expressions, the names of `classes` between < and > represent character classes. They only occur
 * inside brackets. */
static const struct {
    const char *text, *ours;
} known[] = {
    {mha__regex_gpt2, "'s|'t|'re|'ve|'m|'ll|'d| ?[<L>]+| ?[<N>]+| ?[^<S><L><N>]+|[<S>]+(?![^<S>])|[<S>]+"},
    /* LLaMA-3 */
    {mha__regex_llama3, CONTRACTIONS
     "|[^\\r\\n<L><N>]?[<L>]+|[<N>]{1,3}| ?[^<S><L><N>]+[\\r\\n]*|[<S>]*[\\r\\n]+|[<S>]+(?![^<S>])|[<S>]+"},
    /* Qwen2, Qwen3 */
    {mha__regex_qwen2,
     CONTRACTIONS "|[^\\r\\n<L><N>]?[<L>]+|[<N>]| ?[^<S><L><N>]+[\\r\\n]*|[<S>]*[\\r\\n]+|[<S>]+(?![^<S>])|[<S>]+"},
    /* Qwen3.5 */
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                  "\\s+(?!\\S)|\\s+",
     CONTRACTIONS
     "|[^\\r\\n<L><N>]?[<L><M>]+|[<N>]| ?[^<S><L><M><N>]+[\\r\\n]*|[<S>]*[\\r\\n]+|[<S>]+(?![^<S>])|[<S>]+"},
    /* BLOOM: the parentheses, the bar and the inner brackets are part of one class */
    {" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
     " ?[^(<S>|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"},
    /* gpt-oss */
    {mha__regex_gpt_oss, BEFORE_WORD_OURS "[<U>]*[<l>]+" CONTRACTIONS "?|" BEFORE_WORD_OURS "[<U>]+[<l>]*" CONTRACTIONS
                                          "?|[<N>]{1,3}" AFTER_WORDS_OURS},
    /* Mistral NeMo and its successors */
    {BEFORE_WORD UPPER "*" SMALL "+|" BEFORE_WORD UPPER "+" SMALL "*|\\p{N}" AFTER_WORDS,
     BEFORE_WORD_OURS "[<U>]*[<l>]+|" BEFORE_WORD_OURS "[<U>]+[<l>]*|[<N>]" AFTER_WORDS_OURS},
    /* Falcon: the numbers, after Digits */
    {"[0-9][0-9][0-9]", "[0-9][0-9][0-9]"},
    /* DeepSeek Coder: four expressions, the first in two spellings */
    {"[\\r\\n]", "[\\r\\n]"},
    {"[\r\n]", "[\\r\\n]"},
    {"\\s?\\p{L}+", "[<S>]?[<L>]+"},
    {"\\s?\\p{P}+", "[<S>]?[<p>]+"},
    {"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"},
    /* DeepSeek-V3: three expressions */
    {"\\p{N}{1,3}", "[<N>]{1,3}"},
    {"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"},
    {ASCII_SYMBOLS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                   "\\s+(?!\\S)|\\s+",
     ASCII_SYMBOLS "[A-Za-z]+|[^\\r\\n<L><P>]?[<L><M>]+| ?[<P>]+[\\r\\n]*|[<S>]*[\\r\\n]+|[<S>]+(?![^<S>])|[<S>]+"},
    {"\\p{N}", "[<N>]"},
    /* CLIP, in both published forms, and its normalizer */
    {CLIP_WORDS, CLIP_OURS},
    {CLIP_SPECIAL "|" CLIP_WORDS, CLIP_SPECIAL "|" CLIP_OURS},
    {"\\s+", "[<S>]+"},
    /* T5's normalizer */
    {" {2,}", " {2,}"},
    /* The normalizers that transformers 5 writes for DeBERTa-v2 and SeamlessM4T */
    {"\\s{2,}|[\\n\\r\\t]", "[<S>]{2,}|[\\n\\r\\t]"},
    {"[\\n\\r\\t]", "[\\n\\r\\t]"},
};

#define SPACES "\\t-\\r \\x{85}\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* Each class: its PCRE2 expression, and the table of its characters that PCRE2 lacks, or MHA__CHAR_CLASSES. */
static const struct {
    char name;
    const char *start;
    mha__char_class newer;
} classes[] = {
    {'L', "\\p{L}", MHA__CHAR_LETTER},
    {'N', "\\p{N}", MHA__CHAR_NUMBER},
    {'M', "\\p{M}", MHA__CHAR_REGEX_MARK},
    {'P', "\\p{P}\\p{S}", MHA__CHAR_SYMBOL},
    {'p', "\\p{P}", MHA__CHAR_REGEX_PUNCTUATION},
    {'U', "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}", MHA__CHAR_UPPER},
    {'l', "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}", MHA__CHAR_SMALL},
    {'S', SPACES, MHA__CHAR_CLASSES},
};

enum { CLASSES = sizeof classes / sizeof *classes };

/* Returns the index of the class whose name is at p, or CLASSES. */
static int class_at(const char *p)
{
    int n = 0;
    if (p[0] != '<' || !p[1] || p[2] != '>') return CLASSES;
    while (n < CLASSES && classes[n].name != p[1])
        n++;
    return n;
}

/* Writes the expansion of a class to `to`, unless `to` is NULL; returns its length. */
static size_t write_class(int class, char *to)
{
    static const mha__char_table none = {0};
    const mha__char_class table = classes[class].newer;
    const mha__char_table *newer = table == MHA__CHAR_CLASSES ? &none : &mha__char_tables[table];
    size_t n = strlen(classes[class].start);
    if (to) memcpy(to, classes[class].start, n);
    for (int i = 0; i < newer->count; i++) {
        char range[48];
        int length = snprintf(range, sizeof range, "\\x{%X}-\\x{%X}", (unsigned)newer->range[i].first,
                              (unsigned)newer->range[i].last);
        if (to) memcpy(to + n, range, (size_t)length);
        n += (size_t)length;
    }
    return n;
}

size_t mha__expression_write(int index, char *to)
{
    size_t n = 0;
    for (const char *p = known[index].ours; *p; p++) {
        const int class = class_at(p);
        if (class < CLASSES) {
            n += write_class(class, to ? to + n : NULL);
            p += 2;
        } else {
            if (to) to[n] = *p;
            n++;
        }
    }
    return n;
}

int mha__expression_index(const char *text)
{
    int i = (int)(sizeof known / sizeof known[0]) - 1;
    while (i >= 0 && strcmp(known[i].text, text) != 0)
        i--;
    return i;
}

const char *mha__expression_text(int index)
{
    return known[index].text;
}
