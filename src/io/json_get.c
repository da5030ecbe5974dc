/* json_get.c - typed values out of a parsed JSON object (json.h): one getter per type, one sentence for all
 * refusals. */
#include "io/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The longest string that a sentence shows, in bytes. */
enum { SHOWN = 100 };

static const char *show_string(mha__quoted *q, const json_t *value)
{
    const char *s = json_string_value(value);
    size_t n = json_string_length(value), cut = n;
    if (n > SHOWN)
        for (cut = SHOWN; cut > 0 && ((unsigned char)s[cut] & 0xC0) == 0x80;)
            cut--; /* to the beginning of a character */
    const char *end = cut < n ? "...\"" : "\"";
    char raw[SHOWN + 8] = "\"";
    memcpy(raw + 1, s, cut);
    memcpy(raw + 1 + cut, end, strlen(end));
    return mha__quote(q, raw, 1 + cut + strlen(end));
}

const char *mha__json_show(mha__quoted *q, const json_t *value)
{
    if (json_is_string(value)) return show_string(q, value);
    const char *text = !value                  ? "nothing"
                       : json_is_object(value) ? "an object"
                       : json_is_array(value)  ? "an array"
                       : json_is_null(value)   ? "null"
                       : json_is_true(value)   ? "true"
                       : json_is_false(value)  ? "false"
                                               : NULL;
    if (text) return mha__quote(q, text, strlen(text));
    char number[64];
    size_t n = json_dumpb(value, number, sizeof number, JSON_ENCODE_ANY);
    return n > 0 && n <= sizeof number ? mha__quote(q, number, n) : mha__quote(q, "a number", 8);
}

/* The value of a key; NULL when absent or null. */
static const json_t *find(const mha__json_obj *o, const char *key)
{
    const json_t *value = json_object_get(o->json, key);
    return json_is_null(value) ? NULL : value;
}

bool mha__json_has(const mha__json_obj *o, const char *key)
{
    return find(o, key) != NULL;
}

static mha_status refuse(const mha__json_obj *o, const char *key, const char *place, const json_t *got,
                         const char *want, mha_error *err)
{
    mha__quoted file, where, name, value;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s%s%s%s: want %s, got %s", mha__quote(&file, o->file, strlen(o->file)),
                     o->where ? mha__quote(&where, o->where, strlen(o->where)) : "", o->where ? "." : "",
                     mha__quote(&name, key, strlen(key)), place, want, mha__json_show(&value, got));
}

mha_status mha__json_refuse(const mha__json_obj *o, const char *key, const char *want, mha_error *err)
{
    return refuse(o, key, "", json_object_get(o->json, key), want, err);
}

mha_status mha__json_refuse_item(const mha__json_obj *o, const char *key, size_t index, const char *want,
                                 mha_error *err)
{
    char place[32];
    snprintf(place, sizeof place, "[%zu]", index);
    return refuse(o, key, place, json_array_get(json_object_get(o->json, key), index), want, err);
}

/* The end of every getter: fine when the value was taken, or when it is absent and may be. */
static mha_status finish(const mha__json_obj *o, const char *key, mha__need need, bool taken, const char *want,
                         mha_error *err)
{
    if (taken || (need == MHA__OPTIONAL && !find(o, key))) return MHA_OK;
    return mha__json_refuse(o, key, want, err);
}

mha_status mha__json_int(const mha__json_obj *o, const char *key, mha__need need, int64_t min, int64_t max,
                         int64_t *value, mha_error *err)
{
    const json_t *json = find(o, key);
    json_int_t got = json_integer_value(json);
    bool taken = json_is_integer(json) && got >= min && got <= max;
    if (taken) *value = got;
    char want[96];
    snprintf(want, sizeof want, "an integer from %lld to %lld", (long long)min, (long long)max);
    return finish(o, key, need, taken, want, err);
}

mha_status mha__json_dim(const mha__json_obj *o, const char *key, mha__need need, int64_t max, int64_t *value,
                         mha_error *err)
{
    const json_t *json = find(o, key);
    double real = json_real_value(json);
    if (!json_is_real(json) || !(real >= 1 && real <= (double)max && real == floor(real)))
        return mha__json_int(o, key, need, 1, max, value, err);
    *value = (int64_t)real;
    return MHA_OK;
}

mha_status mha__json_number(const mha__json_obj *o, const char *key, mha__need need, double min, double max,
                            double *value, mha_error *err)
{
    const json_t *json = find(o, key);
    double got = json_number_value(json);
    bool taken = json_is_number(json) && isfinite(got) && got >= min && got <= max;
    if (taken) *value = got;
    char want[96];
    snprintf(want, sizeof want, "a number from %g to %g", min, max);
    return finish(o, key, need, taken, want, err);
}

mha_status mha__json_bool(const mha__json_obj *o, const char *key, mha__need need, bool *value, mha_error *err)
{
    const json_t *json = find(o, key);
    bool taken = json_is_boolean(json);
    if (taken) *value = json_is_true(json);
    return finish(o, key, need, taken, "true or false", err);
}

mha_status mha__json_string(const mha__json_obj *o, const char *key, mha__need need, const char **value, size_t *bytes,
                            mha_error *err)
{
    const json_t *json = find(o, key);
    const char *text = json_string_value(json);
    size_t n = json_string_length(json);
    bool taken = text && (bytes || !memchr(text, '\0', n));
    if (taken) *value = text;
    if (taken && bytes) *bytes = n;
    return finish(o, key, need, taken, bytes ? "a string" : "a string without NUL", err);
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

mha_status mha__json_array(const mha__json_obj *o, const char *key, mha__need need, const json_t **value,
                           mha_error *err)
{
    const json_t *json = find(o, key);
    bool taken = json_is_array(json);
    if (taken) *value = json;
    return finish(o, key, need, taken, "an array", err);
}

mha_status mha__json_object(const mha__json_obj *o, const char *key, mha__need need, mha__json_obj *value,
                            mha_error *err)
{
    const json_t *json = find(o, key);
    bool taken = json_is_object(json);
    *value = (mha__json_obj){.json = taken ? json : NULL, .file = o->file, .where = key};
    return finish(o, key, need, taken, "an object", err);
}
