/* fuzz_json.c - any bytes as a JSON file, under the rules of a config and of a safetensors header. What is accepted
 * survives being written and read again, and every getter takes or refuses every value of it.
 */
#include "fuzz.h"
#include "io/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void get_everything(const json_t *root)
{
    const mha__json_obj o = {.json = root, .file = "x.json", .where = "root"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        int64_t i = 5;
        double x = 0;
        bool b;
        const char *text;
        const json_t *list;
        mha__json_obj inner;
        mha_error err;
        fuzz_check(mha__json_int(&o, key, MHA__REQUIRED, 1, 9, &i, &err) != MHA_OK || (i >= 1 && i <= 9), "int: range");
        fuzz_check(mha__json_dim(&o, key, MHA__OPTIONAL, 9, &i, &err) != MHA_OK || (i >= 1 && i <= 9), "dim: range");
        fuzz_check(mha__json_number(&o, key, MHA__REQUIRED, -1, 9, &x, &err) != MHA_OK || isfinite(x),
                   "number: finite");
        mha__json_bool(&o, key, MHA__REQUIRED, &b, &err);
        mha__json_string(&o, key, MHA__REQUIRED, &text, NULL, &err);
        mha__json_array(&o, key, MHA__REQUIRED, &list, &err);
        if (mha__json_object(&o, key, MHA__REQUIRED, &inner, &err) == MHA_OK) get_everything(inner.json);
    }
}

static void try_rules(const uint8_t *bytes, size_t n, unsigned flags)
{
    json_t *root = NULL, *again = NULL;
    mha_error err = {0};
    mha_status status = mha__json_parse("x.json", (const char *)bytes, n, flags, &root, &err);
    fuzz_check((status == MHA_OK) == (root != NULL), "a tree comes with success, and only then");
    if (!root) return;
    get_everything(root);
    char *text = json_dumps(root, JSON_COMPACT);
    fuzz_check(text != NULL, "what was accepted can be written");
    status = mha__json_parse("x.json", text, strlen(text), 0, &again, &err);
    fuzz_check(status == MHA_OK && json_equal(root, again), "what was accepted is read again as the same");
    free(text);
    json_decref(again);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    try_rules(bytes, n, MHA__JSON_BOM);
    try_rules(bytes, n, MHA__JSON_HEADER);
    return 0;
}
