/* json_get.c - typed access to a parsed JSON object (json.h): one getter per type, with uniform error messages. */
#include "io/json/json.h"
#include "io/json/json_number.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Maximum length of a string in a message [bytes]. */
enum { SHOWN = 100 };

/* Formats a string of n bytes, of which at least the first SHOWN + 1 are available. */
static const char *show_string(mha__quoted *q, const char *s, size_t n)
{
    size_t cut = n;
    if (n > SHOWN)
        for (cut = SHOWN; cut > 0 && ((unsigned char)s[cut] & 0xC0) == 0x80;)
            cut--; /* go back to the start of a UTF-8 character */
    const char *end = cut < n ? "...\"" : "\"";
    char raw[SHOWN + 8] = "\"";
    memcpy(raw + 1, s, cut);
    memcpy(raw + 1 + cut, end, strlen(end));
    return mha__quote(q, raw, 1 + cut + strlen(end));
}

static const char *show_number(mha__quoted *q, mha__json_kind kind, int64_t integer, double real)
{
    char text[MHA__JSON_REAL_BYTES];
    if (kind == MHA__JSON_INTEGER)
        snprintf(text, sizeof text, "%lld", (long long)integer);
    else
        mha__json_real_text(real, MHA__JSON_EXACT, text);
    return mha__quote(q, text, strlen(text));
}

static const char *show_kind(mha__quoted *q, mha__json_kind kind)
{
    const char *name = mha__json_kind_name(kind);
    return mha__quote(q, name, strlen(name));
}

const char *mha__json_show(mha__quoted *q, const mha__json *value)
{
    const mha__json_kind kind = mha__json_kind_of(value);
    if (mha__json_as_text(value)) return show_string(q, mha__json_as_text(value), mha__json_bytes(value));
    if (!mha__json_is_number(value)) return show_kind(q, kind);
    return show_number(q, kind, mha__json_as_int(value), mha__json_as_number(value));
}

const char *mha__json_show_token(mha__quoted *q, const mha__json_token *token)
{
    char text[SHOWN + 1];
    if (token->kind == MHA__JSON_STRING || token->kind == MHA__JSON_KEY) {
        mha__json_decode(token, text, sizeof text);
        return show_string(q, text, token->bytes);
    }
    if (token->kind != MHA__JSON_INTEGER && token->kind != MHA__JSON_REAL) return show_kind(q, token->kind);
    return show_number(q, token->kind, token->integer, token->real);
}

/* Returns the value of a key; NULL if absent or null. */
static const mha__json *find(const mha__json_obj *o, const char *key)
{
    const mha__json *value = mha__json_get(o->json, key);
    return mha__json_is(value, MHA__JSON_NULL) ? NULL : value;
}

bool mha__json_has(const mha__json_obj *o, const char *key)
{
    return find(o, key) != NULL;
}

static mha_status refuse(const mha__json_obj *o, const char *key, const char *place, const mha__json *got,
                         const char *want, mha_error *err)
{
    mha__quoted file, where, name, value;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s%s%s%s must be %s (got %s)",
                     mha__quote(&file, o->file, strlen(o->file)),
                     o->where ? mha__quote(&where, o->where, strlen(o->where)) : "", o->where ? "." : "",
                     mha__quote(&name, key, strlen(key)), place, want, mha__json_show(&value, got));
}

mha_status mha__json_refuse(const mha__json_obj *o, const char *key, const char *want, mha_error *err)
{
    return refuse(o, key, "", mha__json_get(o->json, key), want, err);
}

mha_status mha__json_refuse_item(const mha__json_obj *o, const char *key, size_t index, const char *want,
                                 mha_error *err)
{
    char place[32];
    snprintf(place, sizeof place, "[%zu]", index);
    return refuse(o, key, place, mha__json_item(mha__json_get(o->json, key), index), want, err);
}

/* Returns the status of a getter: MHA_OK if the value was read, or is absent and optional. */
static mha_status finish(const mha__json_obj *o, const char *key, mha__need need, bool taken, const char *want,
                         mha_error *err)
{
    if (taken || (need == MHA__OPTIONAL && !find(o, key))) return MHA_OK;
    return mha__json_refuse(o, key, want, err);
}

mha_status mha__json_int(const mha__json_obj *o, const char *key, mha__need need, int64_t min, int64_t max,
                         int64_t *value, mha_error *err)
{
    const mha__json *json = find(o, key);
    const int64_t got = mha__json_as_int(json);
    bool taken = mha__json_is(json, MHA__JSON_INTEGER) && got >= min && got <= max;
    if (taken) *value = got;
    char want[96];
    snprintf(want, sizeof want, "an integer from %lld to %lld", (long long)min, (long long)max);
    return finish(o, key, need, taken, want, err);
}

mha_status mha__json_dim(const mha__json_obj *o, const char *key, mha__need need, int64_t max, int64_t *value,
                         mha_error *err)
{
    const mha__json *json = find(o, key);
    const double real = mha__json_as_number(json);
    if (!mha__json_is(json, MHA__JSON_REAL) || !(real >= 1 && real <= (double)max && real == floor(real)))
        return mha__json_int(o, key, need, 1, max, value, err);
    *value = (int64_t)real;
    return MHA_OK;
}

mha_status mha__json_number(const mha__json_obj *o, const char *key, mha__need need, double min, double max,
                            double *value, mha_error *err)
{
    const mha__json *json = find(o, key);
    const double got = mha__json_as_number(json);
    bool taken = mha__json_is_number(json) && isfinite(got) && got >= min && got <= max;
    if (taken) *value = got;
    char want[96];
    snprintf(want, sizeof want, "a number from %g to %g", min, max);
    return finish(o, key, need, taken, want, err);
}

mha_status mha__json_bool(const mha__json_obj *o, const char *key, mha__need need, bool *value, mha_error *err)
{
    const mha__json *json = find(o, key);
    bool taken = mha__json_is_bool(json);
    if (taken) *value = mha__json_is(json, MHA__JSON_TRUE);
    return finish(o, key, need, taken, "true or false", err);
}

mha_status mha__json_string(const mha__json_obj *o, const char *key, mha__need need, const char **value, size_t *bytes,
                            mha_error *err)
{
    const mha__json *json = find(o, key);
    const char *text = mha__json_as_text(json);
    size_t n = mha__json_bytes(json);
    bool taken = text && (bytes || !memchr(text, '\0', n));
    if (taken) *value = text;
    if (taken && bytes) *bytes = n;
    return finish(o, key, need, taken, bytes ? "a string" : "a string without NUL characters", err);
}

mha_status mha__json_choice(const mha__json_obj *json, const char *key, mha__need need, const char *const *names,
                            const char *want, int *index, mha_error *err)
{
    const char *value = NULL;
    MHA__TRY(mha__json_string(json, key, need, &value, NULL, err));
    if (!value) return MHA_OK;
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], value) == 0) {
            *index = i;
            return MHA_OK;
        }
    return mha__json_refuse(json, key, want, err);
}

mha_status mha__json_array(const mha__json_obj *o, const char *key, mha__need need, const mha__json **value,
                           mha_error *err)
{
    const mha__json *json = find(o, key);
    bool taken = mha__json_is(json, MHA__JSON_ARRAY);
    if (taken) *value = json;
    return finish(o, key, need, taken, "an array", err);
}

mha_status mha__json_object(const mha__json_obj *o, const char *key, mha__need need, mha__json_obj *value,
                            mha_error *err)
{
    const mha__json *json = find(o, key);
    bool taken = mha__json_is(json, MHA__JSON_OBJECT);
    *value = (mha__json_obj){.json = taken ? json : NULL, .file = o->file, .where = key};
    return finish(o, key, need, taken, "an object", err);
}

mha_status mha__json_only(const mha__json_obj *o, const char *const *keys, const char *list, mha_error *err)
{
    for (mha__json_step i = {0}; mha__json_each(o->json, &i);) {
        const char *key = mha__json_as_text(i.key);
        bool known = false;
        for (int n = 0; keys[n]; n++)
            known |= strcmp(keys[n], key) == 0;
        if (!known)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: %s.%s: unknown key (known: %s)", o->file, o->where,
                             mha__quote(&(mha__quoted){0}, key, strlen(key)), list);
    }
    return MHA_OK;
}
