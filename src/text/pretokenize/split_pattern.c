/* split_pattern.c - finds matches of strings, character classes, numbers of characters and known expressions. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize/split_pattern.h"

#include "base/ctx.h"
#include <pcre2.h>
#include <string.h>

/* Maximum length of a string pattern. The search takes at most this number of steps per byte of text. */
enum { STRING_BYTES_MAX = 256 };

/* ---- compiling expressions ---- */

struct mha__regex {
    mha__regex *next;
    const char *text; /* the expression as in the file: mha__expression_text */
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

static mha_status compile(mha_ctx *ctx, int index, pcre2_code **code, mha_error *err)
{
    size_t n = mha__expression_write(index, NULL);
    char *full = mha__alloc(ctx, n);
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, ctx);
    pcre2_compile_context *how = memory ? pcre2_compile_context_create(memory) : NULL;
    int problem = PCRE2_ERROR_NOMEMORY;
    size_t where;
    *code = NULL;
    if (full && how) {
        mha__expression_write(index, full);
        *code = pcre2_compile((PCRE2_SPTR)full, n, PCRE2_UTF | PCRE2_UCP, &problem, &where, how);
    }
    pcre2_compile_context_free(how);
    pcre2_general_context_free(memory);
    mha__free(ctx, full);
    if (!*code) return mha__no_memory(err, n, "a split pattern"); /* the only possible error for a known expression */
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);                 /* on failure, PCRE2 falls back to its interpreter */
    return MHA_OK;
}

mha_status mha__regex_make(mha_ctx *ctx, mha__regex_list *list, const char *text, const mha__regex **regex,
                           mha_error *err)
{
    for (mha__regex *r = list->first; r; r = r->next)
        if (strcmp(r->text, text) == 0) {
            *regex = r;
            return MHA_OK;
        }
    const int index = mha__expression_index(text);
    mha__regex *r = mha__calloc(ctx, 1, sizeof *r);
    if (!r) return mha__no_memory(err, sizeof *r, "a split pattern");
    r->text = mha__expression_text(index);
    r->next = list->first;
    list->first = r;
    *regex = r;
    return compile(ctx, index, &r->code, err);
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
    if (regex && mha__expression_index(regex) < 0)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: %s.pattern.Regex must be the regular expression of a supported tokenizer (got \"%s\")",
                         json->file, json->where, mha__quote(&(mha__quoted){0}, regex, strlen(regex)));
    if (regex) return mha__regex_make(ctx, list, regex, &pattern->regex, err);
    MHA__TRY(mha__json_string(&object, "String", MHA__REQUIRED, &pattern->string, &pattern->n, err));
    if (pattern->n == 0 || pattern->n > STRING_BYTES_MAX)
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
