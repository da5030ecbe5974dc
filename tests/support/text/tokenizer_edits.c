/* tokenizer_edits.c - implements tokenizer_edits.h. */
#include "support/text/tokenizer_edits.h"

#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

json_t *edits_load(const char *name)
{
    json_error_t e;
    char path[512];
    snprintf(path, sizeof path, MHA_TEST_DATA "/tokenizer/%s/tokenizer.json", name);
    json_t *json = json_load_file(path, 0, &e);
    if (!json) fail_msg("%s", e.text);
    return json;
}

/* Sets the value at a path, such as "added_tokens/0/id", to the JSON text `value`; NULL removes the key. */
void edits_put(json_t *json, const char *path, const char *value)
{
    char key[64];
    const char *slash;
    for (; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(slash - path), path);
        json = json_is_array(json) ? json_array_get(json, (size_t)atoi(key)) : json_object_get(json, key);
        assert_non_null(json);
    }
    json_t *new = value ? json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    assert_true(new || !value);
    if (json_is_array(json))
        assert_int_equal(json_array_set_new(json, (size_t)atoi(path), new), 0);
    else if (new)
        assert_int_equal(json_object_set_new(json, path, new), 0);
    else
        assert_int_equal(json_object_del(json, path), 0);
}

mha_status edits_open(const json_t *json, mha_tokenizer **out, mha_error *err)
{
    char *text = json_dumps(json, JSON_COMPACT);
    assert_non_null(text);
    const mha_status status = mha__tokenizer_read(NULL, text, strlen(text), out, err);
    free(text);
    return status;
}

static void check_edit(const char *name, const edit *e)
{
    json_t *json = edits_load(name);
    mha_tokenizer *t;
    mha_error err = {0};
    edits_put(json, e->path, e->value);
    mha_status status = edits_open(json, &t, &err);
    const char *shown = e->value ? e->value : "nothing";
    if (!e->sentence) {
        if (status) fail_msg("%s = %s must be accepted (got %s)", e->path, shown, err.message);
    } else {
        if (!status) fail_msg("%s = %s must be rejected", e->path, shown);
        assert_null(t);
        if (strncmp(err.message, "tokenizer.json: ", 16) != 0 || !strstr(err.message, e->sentence))
            fail_msg("%s = %s: message must contain \"%s\" (got \"%s\")", e->path, shown, e->sentence, err.message);
    }
    mha_tokenizer_free(t);
    json_decref(json);
}

void edits_check(const char *name, const edit *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_edit(name, &list[i]);
}
