/* test_model_many_heads.c - tests configs with the maximum number of heads and with more heads than the maximum. */
#include "io/input_limits.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens a llama config with additional `keys` and without weights. Returns the status; *err receives the message. */
static mha_status open_config(const char *keys, mha_error *err)
{
    static const char head[] = "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 8, \"head_dim\": 2, "
                               "\"intermediate_size\": 8, ";
    const char *folder = files_folder();
    const size_t bytes = sizeof head + strlen(keys) + 2;
    char *text = malloc(bytes);
    mha_model *model = NULL;
    assert_non_null(text);
    files_write(files_path(folder, "config.json"), text, (size_t)snprintf(text, bytes, "%s%s}", head, keys));
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    const mha_status status = mha_model_open(NULL, folder, &o, &model, err);
    assert_null(model);
    free(text);
    files_remove(folder);
    return status;
}

/* Appends "mha.heads" of one layer to `text`: the heads count - 1 down to 0, then `last`. Returns the length. */
static size_t write_list(char *text, int count, const char *last)
{
    size_t n = (size_t)sprintf(text, "\"mha.heads\": [[");
    for (int i = 0; i < count; i++)
        n += (size_t)sprintf(text + n, "%d,", count - 1 - i);
    return n + (size_t)sprintf(text + n, "%s]]", last);
}

/* Tests lists of the maximum number of heads in descending order, with a valid or invalid last entry. Checking a list
 * must take linear time, since a quadratic check would take seconds. */
static void test_lists(void **state)
{
    (void)state;
    static const struct {
        const char *last, *says;
    } cases[] = {
        {"65535", "model.safetensors"}, /* a valid config, so that the error is about the missing weights */
        {"0", "mha.heads[0][65535] must be a distinct head number (got 0"},
        {"65536", "mha.heads[0][65535] must be a distinct head number (got 65536"},
        {"[]", "mha.heads[0][65535] must be a distinct head number (got an array"},
        {"65535, 1", "mha.heads[0] must have at most num_attention_heads = 65536 heads (got 65537)"},
    };
    char *keys = malloc((size_t)1 << 20);
    assert_non_null(keys);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_error err = {0};
        size_t n = (size_t)sprintf(keys,
                                   "\"num_hidden_layers\": 1, \"num_attention_heads\": %d, "
                                   "\"mha.kv_heads\": {\"keys\": 1, \"values\": 65536}, ",
                                   MHA__HEADS);
        n += write_list(keys + n, MHA__HEADS - 1, cases[i].last);
        assert_int_equal(open_config(keys, &err), i ? MHA_ERR_FORMAT : MHA_ERR_IO);
        if (!strstr(err.message, cases[i].says))
            fail_msg("message must contain \"%s\" (got \"%s\")", cases[i].says, err.message);
    }
    free(keys);
}

static void test_model_limit(void **state)
{
    (void)state;
    mha_error err = {0};
    assert_int_equal(open_config("\"num_hidden_layers\": 4096, \"num_attention_heads\": 256", &err), MHA_ERR_IO);
    assert_int_equal(open_config("\"num_hidden_layers\": 4096, \"num_attention_heads\": 257", &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "layers times heads must be at most 1048576 (got 4096 times 257)"));
    assert_int_equal(open_config("\"num_hidden_layers\": 4096, \"num_attention_heads\": 256, "
                                 "\"mha.original_heads\": 65536",
                                 &err),
                     MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "(got 4096 times 65536)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists), cmocka_unit_test(test_model_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
