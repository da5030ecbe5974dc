/* json.c - parsing JSON from outside (json.h).
 *
 * jansson parses; what it leaves open is settled before it is called, in one linear pass each: UTF-8 (so that the
 * sentence can name the byte) and nesting (so that its recursion is bounded by us and not by the file).
 */
#include "io/json.h"

#include "base/ctx.h"
#include "base/utf8.h"
#include <string.h>

/* One pass over the text outside and inside of strings. It knows only quotes, escapes and brackets; whether the
 * text is JSON is left to the parser. */
typedef struct scan {
    const char *text;
    size_t n, at;
    int depth;
} scan;

/* Stands behind an opening quote; moves behind the closing one, or to the end. False if the string is too long. */
static bool skip_string(scan *s)
{
    size_t begin = s->at;
    while (s->at < s->n && s->text[s->at] != '"')
        s->at += s->text[s->at] == '\\' ? 2 : 1;
    bool fits = s->at - begin <= MHA__STRING_BYTES;
    s->at = s->at < s->n ? s->at + 1 : s->n;
    return fits;
}

/* At a '-': is this an integer -0? Readers differ on whether that is an unsigned number. */
static bool minus_zero(const scan *s)
{
    const char *p = s->text + s->at;
    size_t left = s->n - s->at;
    if (left < 2 || p[1] != '0') return false;
    return left == 2 || !strchr(".eE0123456789", p[2]) || p[2] == '\0';
}

static mha_status check_shape(const char *file, const char *text, size_t n, unsigned flags, mha_error *err)
{
    mha__quoted q;
    scan s = {.text = text, .n = n};
    while (s.at < n) {
        size_t here = s.at++;
        char c = text[here];
        if (c == '"' && !skip_string(&s))
            return mha__fail(err, MHA_ERR_FORMAT, "%s: the string at byte %zu is longer than %zu bytes",
                             mha__quote(&q, file, strlen(file)), here, MHA__STRING_BYTES);
        if ((c == '{' || c == '[') && ++s.depth > MHA__JSON_DEPTH)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: nested deeper than %d levels at byte %zu",
                             mha__quote(&q, file, strlen(file)), MHA__JSON_DEPTH, here);
        if (c == '}' || c == ']') s.depth--;
        if (c == '-' && (flags & MHA__JSON_HEADER)) {
            s.at = here;
            if (minus_zero(&s))
                return mha__fail(err, MHA_ERR_FORMAT, "%s: -0 at byte %zu of the header is not a size",
                                 mha__quote(&q, file, strlen(file)), here);
            s.at = here + 1;
        }
    }
    return MHA_OK;
}

/* Why jansson refused. An empty text means that it had no memory where it does not say so. */
static mha_status fail_parse(const char *file, const json_error_t *e, size_t n, unsigned flags, mha_error *err)
{
    mha__quoted q1, q2;
    mha__quote(&q1, file, strlen(file));
    if (e->text[0] == '\0' || json_error_code(e) == json_error_out_of_memory) return mha__no_memory(err, n, q1.text);
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %sline %d, column %d: %s", q1.text,
                     flags & MHA__JSON_HEADER ? "header: " : "", e->line, e->column,
                     mha__quote(&q2, e->text, strlen(e->text)));
}

mha_status mha__json_parse(const char *file, const char *text, size_t n, unsigned flags, json_t **root, mha_error *err)
{
    mha__quoted q;
    *root = NULL;
    if ((flags & MHA__JSON_BOM) && n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        n -= 3;
    }
    if (n == 0) return mha__fail(err, MHA_ERR_FORMAT, "%s: empty", mha__quote(&q, file, strlen(file)));
    const char *foreign = mha__foreign(text, n);
    if (foreign) return mha__fail(err, MHA_ERR_FORMAT, "%s: %s", mha__quote(&q, file, strlen(file)), foreign);
    if ((flags & MHA__JSON_HEADER) && text[0] != '{')
        return mha__fail(err, MHA_ERR_FORMAT, "%s: the header begins with byte 0x%02X, not with {",
                         mha__quote(&q, file, strlen(file)), (unsigned char)text[0]);
    size_t good = mha__utf8_check(text, n);
    if (good < n)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: byte %zu (0x%02X) is not UTF-8", mha__quote(&q, file, strlen(file)),
                         good, (unsigned char)text[good]);
    const char *nul = memchr(text, '\0', n); /* never legal; jansson overlooks one behind a number */
    if (nul)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: byte %zu is NUL", mha__quote(&q, file, strlen(file)),
                         (size_t)(nul - text));
    MHA__TRY(check_shape(file, text, n, flags, err));

    json_error_t e;
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!json) return fail_parse(file, &e, n, flags, err);
    if (!json_is_object(json)) {
        json_decref(json);
        return mha__fail(err, MHA_ERR_FORMAT, "%s: want a JSON object, got an array",
                         mha__quote(&q, file, strlen(file)));
    }
    *root = json;
    return MHA_OK;
}

mha_status mha__json_read(mha_ctx *ctx, const char *folder, const char *name, size_t limit, json_t **root,
                          mha_error *err)
{
    char *text = NULL;
    size_t n = 0;
    *root = NULL;
    MHA__TRY(mha__read_whole(ctx, folder, name, limit, &text, &n, err));
    mha_status status = mha__json_parse(name, text, n, MHA__JSON_BOM, root, err);
    mha__free(ctx, text);
    return status;
}
