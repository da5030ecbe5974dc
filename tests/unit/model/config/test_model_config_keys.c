/* test_model_config_keys.c - config keys that must be accepted when a model is opened: keys with several names, lists
 * of eos tokens, default and ignored values, and a config with a byte order mark. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY "models/bert-tiny"

/* GPT-2 must accept four keys by its own names and by those of other families. If a config contains both names, their
 * values must be equal. */
static void test_names_of_gpt2(void **state)
{
    (void)state;
    const char *folder = case_copy("models/gpt2-tiny");
    mha_model *model = case_open(NULL, folder);
    const int64_t heads = mha_model_describe(model)->heads;
    mha_model_free(model);
    json_t *config = json_load_file(files_path(folder, "config.json"), 0, NULL);
    json_object_set(config, "num_attention_heads", json_object_get(config, "n_head"));
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    mha_model_free(case_open(NULL, folder));
    json_object_del(config, "n_head");
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    model = case_open(NULL, folder);
    assert_int_equal(mha_model_describe(model)->heads, heads);
    mha_model_free(model);
    json_object_set_new(config, "n_head", json_integer(2 * heads));
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    case_refused(folder, MHA_ERR_FORMAT, "n_head and num_attention_heads, names of the same key, must be equal");
    json_decref(config);
    files_remove(folder);
}

/* A list of 64 eos tokens must be accepted; a longer list must be rejected, not truncated. */
static void test_many_eos_tokens(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    char list[512] = "[1";
    for (size_t used = 2, i = 1; i < 64; i++)
        used += (size_t)sprintf(list + used, ",%zu", i);
    const size_t end = strlen(list);
    strcpy(list + end, "]");
    case_write_config(folder, TINY, "eos_token_id", list);
    mha_model_free(case_open(NULL, folder));
    strcpy(list + end, ",7]");
    case_write_config(folder, TINY, "eos_token_id", list);
    case_refused(folder, MHA_ERR_UNSUPPORTED, "config.json: eos_token_id must have at most 64 token ids (got 65)");
    files_remove(folder);
}

static void test_accepted_configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"hidden_act", "null"},
        {"layer_norm_eps", "1"},
        {"type_vocab_size", NULL},
        {"position_embedding_type", "\"absolute\""},
        {"quantization_config", "null"},
        {"pruned_heads", "{}"},
        {"auto_map", "{\"AutoModel\": \"evil.Model\"}"},
        {"_attn_implementation", "\"somebody/kernels\""},
        {"torch_dtype", "\"bfloat16\""},
        {"head_dim", "-7"}, /* a key of another family, which BERT ignores */
    };
    const char *folder = case_copy(TINY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_write_config(folder, TINY, cases[i][0], cases[i][1]);
        mha_model_free(case_open(NULL, folder));
    }
    files_remove(folder);
}

static void test_config_text(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    size_t n = 0;
    char *config = files_read(files_path(folder, "config.json"), &n);
    char *with_mark = malloc(n + 3);
    memcpy(with_mark, "\xEF\xBB\xBF", 3);
    memcpy(with_mark + 3, config, n);
    files_write(files_path(folder, "config.json"), with_mark, n + 3);
    mha_model *model = case_open(NULL, folder);
    assert_string_equal(mha_model_config_json(model), config);
    mha_model_free(model);
    files_write(files_path(folder, "config.json"), config, n / 2);
    char want[512];
    snprintf(want, sizeof want, "%s/config.json: line ", folder);
    case_refused(folder, MHA_ERR_FORMAT, want);
    files_remove(folder);
    free(config);
    free(with_mark);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_gpt2),
        cmocka_unit_test(test_many_eos_tokens),
        cmocka_unit_test(test_accepted_configs),
        cmocka_unit_test(test_config_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
