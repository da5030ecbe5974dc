/* split_pattern.c - finds matches of strings, character classes, numbers of characters and known regular expressions.
 *
 * Expressions are rewritten so that PCRE2 matches like the reference (Oniguruma with the tables of Unicode 16). White
 * space is listed explicitly, because PCRE2's \s includes U+180E. Letters and numbers newer than PCRE2's tables are
 * added. All other parts of the expressions are unchanged, because alternatives and quantifiers have the same meaning
 * in both. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize/split_pattern.h"

#include "base/ctx.h"
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

/* Maximum length of a string pattern. The search takes at most this number of steps per byte of text. */
enum { MAX_STRING_BYTES = 256 };

/* ---- the known expressions ---- */

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

/* Each class: its PCRE2 expression, and the table of its characters that PCRE2 does not know, or MHA__CHAR_CLASSES. */
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

/* Writes an expression with all classes expanded to `to`, unless `to` is NULL; returns its length. */
static size_t write_expression(const char *ours, char *to)
{
    size_t n = 0;
    for (const char *p = ours; *p; p++) {
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

/* ---- compiling expressions ---- */

struct mha__regex {
    mha__regex *next;
    const char *text; /* the expression as in the file: known[].text */
    pcre2_code *code;
};

static void *allocate(size_t bytes, void *ctx)
{
    return mha__alloc(ctx, bytes);
}

static void release(void *memory, void *ctx)
{
    mha__free(ctx, memory);
}

static mha_status compile(mha_ctx *ctx, const char *ours, pcre2_code **code, mha_error *err)
{
    size_t n = write_expression(ours, NULL);
    char *full = mha__alloc(ctx, n);
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, ctx);
    pcre2_compile_context *how = memory ? pcre2_compile_context_create(memory) : NULL;
    int problem = PCRE2_ERROR_NOMEMORY;
    size_t where;
    *code = NULL;
    if (full && how) {
        write_expression(ours, full);
        *code = pcre2_compile((PCRE2_SPTR)full, n, PCRE2_UTF | PCRE2_UCP, &problem, &where, how);
    }
    pcre2_compile_context_free(how);
    pcre2_general_context_free(memory);
    mha__free(ctx, full);
    if (!*code) return mha__no_memory(err, n, "a split pattern"); /* the only possible error for a known expression */
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);                 /* on failure, PCRE2 falls back to its interpreter */
    return MHA_OK;
}

/* Returns the index of an expression in `known`; -1 for any other expression. */
static int known_index(const char *text)
{
    int i = (int)(sizeof known / sizeof known[0]) - 1;
    while (i >= 0 && strcmp(known[i].text, text) != 0)
        i--;
    return i;
}

mha_status mha__regex_make(mha_ctx *ctx, mha__regex_list *list, const char *text, const mha__regex **regex,
                           mha_error *err)
{
    for (mha__regex *r = list->first; r; r = r->next)
        if (strcmp(r->text, text) == 0) {
            *regex = r;
            return MHA_OK;
        }
    const int i = known_index(text);
    mha__regex *r = mha__calloc(ctx, 1, sizeof *r);
    if (!r) return mha__no_memory(err, sizeof *r, "a split pattern");
    r->text = known[i].text;
    r->next = list->first;
    list->first = r;
    *regex = r;
    return compile(ctx, known[i].ours, &r->code, err);
}

void mha__regex_list_free(mha_ctx *ctx, mha__regex_list *list)
{
    while (list->first) {
        mha__regex *r = list->first;
        list->first = r->next;
        pcre2_code_free(r->code);
        mha__free(ctx, r);
    }
}

mha_status mha__pattern_load(mha_ctx *ctx, mha__regex_list *list, const mha__json_obj *json, mha__pattern *pattern,
                             mha_error *err)
{
    mha__json_obj object;
    const char *regex = NULL;
    *pattern = (mha__pattern){0};
    MHA__TRY(mha__json_object(json, "pattern", MHA__REQUIRED, &object, err));
    if (mha__json_size(object.json) != 1)
        return mha__json_refuse(json, "pattern", "an object with either String or Regex", err);
    MHA__TRY(mha__json_string(&object, "Regex", MHA__OPTIONAL, &regex, NULL, err));
    if (regex && known_index(regex) < 0)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: %s.pattern.Regex must be the regular expression of a supported tokenizer (got \"%s\")",
                         json->file, json->where, mha__quote(&(mha__quoted){0}, regex, strlen(regex)));
    if (regex) return mha__regex_make(ctx, list, regex, &pattern->regex, err);
    MHA__TRY(mha__json_string(&object, "String", MHA__REQUIRED, &pattern->string, &pattern->n, err));
    if (pattern->n == 0 || pattern->n > MAX_STRING_BYTES)
        return mha__json_refuse(&object, "String", "a string of 1 to 256 bytes", err);
    return MHA_OK;
}

/* ---- searching for matches ---- */

typedef struct matches {
    mha_ctx *ctx;
    pcre2_match_data *data;
    pcre2_match_context *how;
} matches;

void mha__matches_free(void *memory)
{
    matches *m = memory;
    if (!m) return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->how);
    mha__free(m->ctx, m);
}

static mha_status make_matches(mha__pass *pass)
{
    if (pass->matches) return MHA_OK;
    matches *m = mha__calloc(pass->ctx, 1, sizeof *m);
    if (!m) return mha__no_memory(pass->err, sizeof *m, "a text");
    pass->matches = m;
    m->ctx = pass->ctx;
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, pass->ctx);
    m->data = memory ? pcre2_match_data_create(1, memory) : NULL;
    m->how = memory ? pcre2_match_context_create(memory) : NULL;
    pcre2_general_context_free(memory);
    if (m->data && m->how) {
        /* The limits prevent exponential backtracking. The known expressions backtrack at most once per byte,
         * regardless of the text's length. */
        pcre2_set_match_limit(m->how, UINT32_MAX);
        return MHA_OK;
    }
    mha__matches_free(m);
    pass->matches = NULL;
    return mha__no_memory(pass->err, sizeof *m, "a text");
}

static mha_status find_regex(const mha__regex *regex, mha__pass *pass, const mha__slice *in, size_t at, size_t *begin,
                             size_t *end)
{
    MHA__TRY(make_matches(pass));
    const matches *m = pass->matches;
    PCRE2_SPTR text = (PCRE2_SPTR)in->bytes;
    int found = pcre2_match(regex->code, text, in->n, at, PCRE2_NO_UTF_CHECK, m->data, m->how);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(regex->code, text, in->n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->how);
    *begin = *end = in->n;
    if (found == PCRE2_ERROR_NOMATCH) return MHA_OK;
    if (found == PCRE2_ERROR_NOMEMORY) return mha__no_memory(pass->err, in->n, "splitting a text");
    if (found < 0) return mha__fail(pass->err, MHA_ERR_UNSUPPORTED, "text: PCRE2 cannot split it (error %d)", found);
    const size_t *place = pcre2_get_ovector_pointer(m->data);
    *begin = place[0];
    *end = place[1];
    return MHA_OK;
}

static void find_string(const mha__pattern *pattern, const mha__slice *in, size_t at, size_t *begin, size_t *end)
{
    *begin = *end = in->n;
    while (in->n - at >= pattern->n) {
        const char *first = memchr(in->bytes + at, pattern->string[0], in->n - at - pattern->n + 1);
        if (!first) return;
        at = (size_t)(first - in->bytes);
        if (memcmp(first, pattern->string, pattern->n) == 0) {
            *begin = at;
            *end = at + pattern->n;
            return;
        }
        at++;
    }
}

static void find_length(int64_t length, const mha__slice *in, size_t at, size_t *begin, size_t *end)
{
    *begin = *end = at;
    for (size_t bytes; length > 0 && *end < in->n; length--) {
        mha__slice_next(in, *end, &bytes);
        *end += bytes;
    }
}

static void find_character(mha__char_class class, const mha__slice *in, size_t at, size_t *begin, size_t *end)
{
    *begin = *end = in->n;
    for (size_t length; at < in->n; at += length)
        if (mha__char_is(class, mha__slice_next(in, at, &length))) {
            *begin = at;
            *end = at + length;
            return;
        }
}

mha_status mha__pattern_find(const mha__pattern *pattern, mha__pass *pass, const mha__slice *in, size_t at,
                             size_t *begin, size_t *end)
{
    if (pattern->regex) return find_regex(pattern->regex, pass, in, at, begin, end);
    if (pattern->string)
        find_string(pattern, in, at, begin, end);
    else if (pattern->length)
        find_length(pattern->length, in, at, begin, end);
    else
        find_character(pattern->character, in, at, begin, end);
    return MHA_OK;
}
