/* fuzz_json.c - reads bytes as a JSON file, with the rules for config.json and with those for a safetensors header. An
 * accepted file must be unchanged after writing and reading, and each typed getter must return a value in its range or
 * an error.
 */
#include "fuzz.h"
#include "io/json/json_write.h"
#include "mutate.h"
#include <math.h>

FUZZ_MUTATES_JSON

static void get_everything(const mha__json *root)
{
    const mha__json_obj o = {.json = root, .file = "x.json", .where = "root"};
    for (mha__json_step step = {0}; mha__json_each(root, &step);) {
        const char *key = mha__json_as_text(step.key);
        fuzz_check(mha__json_get(root, key) == step.value, "a member must be found by its key");
        int64_t i = 5;
        double x = 0;
        bool b;
        const char *text;
        const mha__json *list;
        mha__json_obj inner;
        mha_error err;
        fuzz_check(mha__json_int(&o, key, MHA__REQUIRED, 1, 9, &i, &err) != MHA_OK || (i >= 1 && i <= 9),
                   "an accepted integer must be in its range");
        fuzz_check(mha__json_dim(&o, key, MHA__OPTIONAL, 9, &i, &err) != MHA_OK || (i >= 1 && i <= 9),
                   "an accepted dimension must be in its range");
        fuzz_check(mha__json_number(&o, key, MHA__REQUIRED, -1, 9, &x, &err) != MHA_OK || isfinite(x),
                   "an accepted number must be finite");
        mha__json_bool(&o, key, MHA__REQUIRED, &b, &err);
        mha__json_string(&o, key, MHA__REQUIRED, &text, NULL, &err);
        mha__json_array(&o, key, MHA__REQUIRED, &list, &err);
        if (mha__json_object(&o, key, MHA__REQUIRED, &inner, &err) == MHA_OK) get_everything(inner.json);
    }
}

static void try_rules(const uint8_t *bytes, size_t n, unsigned flags)
{
    const mha__json *root = NULL, *again = NULL;
    mha__json_writer w = {.indent = (int)(flags & 1)};
    char *text = NULL;
    size_t length = 0;
    mha_error err = {0};
    mha_status status = mha__json_parse(NULL, "x.json", (const char *)bytes, n, flags, &root, &err);
    fuzz_check((status == MHA_OK) == (root != NULL), "JSON tree must be set only on success");
    fuzz_refusal(status, &err, "x.json");
    if (!root) return;
    get_everything(root);
    mha__json_put(&w, root);
    fuzz_check(mha__json_written(&w, "x.json", &text, &length, &err) == MHA_OK, "accepted input must be writable");
    status = mha__json_parse(NULL, "x.json", text, length, 0, &again, &err);
    fuzz_check(status == MHA_OK && mha__json_equal(root, again),
               "an accepted value must be unchanged after writing and reading");
    mha_free(NULL, text);
    mha__json_free(again);
    mha__json_free(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    try_rules(bytes, n, MHA__JSON_BOM);
    try_rules(bytes, n, MHA__JSON_HEADER);
    return 0;
}
