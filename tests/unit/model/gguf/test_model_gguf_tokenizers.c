/* test_model_gguf_tokenizers.c - tests that mha_model_save_gguf writes every option of a tokenizer that GGUF files have
 * a key for, with the same tokens of texts and pairs, and refuses other options by name. */
#include "mha/model_save.h"
#include "mha/text.h"
#include "support/check.h"
#include "support/files.h"
#include "support/text/tokenizer_edits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EDITS = 2 };

static void copy(const char *model, const char *folder, const char *name)
{
    size_t n;
    char *bytes = files_read(files_path(model, name), &n);
    files_write(files_path(folder, name), bytes, n);
    free(bytes);
}

/* Sets the distance that files require in the config of T5. */
static void set_distance(const char *folder)
{
    const char *path = files_path(folder, "config.json");
    json_t *json = json_load_file(path, 0, NULL);
    if (json_object_get(json, "relative_attention_max_distance"))
        json_object_set_new(json, "relative_attention_max_distance", json_integer(128));
    assert_int_equal(json_dump_file(json, path, 0), 0);
    json_decref(json);
}

/* Writes a model with an edited tokenizer.json to a new folder. */
static const char *edited(const char *name, const edit *edits)
{
    const char *folder = files_folder(), *model = files_path(MHA_TEST_DATA, name);
    json_t *json = json_load_file(files_path(model, "tokenizer.json"), 0, NULL);
    for (int i = 0; i < EDITS && edits[i].path; i++)
        edits_put(json, edits[i].path, edits[i].value);
    assert_int_equal(json_dump_file(json, files_path(folder, "tokenizer.json"), 0), 0);
    json_decref(json);
    copy(model, folder, "config.json");
    copy(model, folder, "model.safetensors");
    set_distance(folder);
    return folder;
}

static mha_status save(const char *folder, mha_error *err)
{
    const mha_model_options o = {.size = sizeof o, .no_weights = 1};
    mha_model *m = NULL;
    if (mha_model_open(NULL, folder, &o, &m, err) != MHA_OK) fail_msg("%s", err->message);
    const mha_status status = mha_model_save_gguf(m, files_path(folder, "x.gguf"), NULL, err);
    mha_model_free(m);
    return status;
}

/* Compares the tokens of texts, and of each text as the first of a pair. */
static void same_tokens(const mha_tokenizer *a, const mha_tokenizer *b)
{
    static const char *const texts[] = {"The SMALL house, 12345 cats by the river",
                                        "NA\xC3\x8FVE caf\xC3\xA9 Z\xC3\xBCrich", ""};
    static const char second[] = "Another Text";
    for (int n = 0; n < 6; n++) {
        const char *text = texts[n / 2], *pair = n % 2 ? second : NULL;
        mha_encoding *x = NULL, *y = NULL;
        const size_t bytes = strlen(text), more = pair ? strlen(pair) : 0;
        assert_int_equal(mha_tokenizer_encode(a, text, bytes, pair, more, NULL, &x, NULL), MHA_OK);
        assert_int_equal(mha_tokenizer_encode(b, text, bytes, pair, more, NULL, &y, NULL), MHA_OK);
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->ids, y->ids, (size_t)x->count * sizeof *x->ids);
        assert_memory_equal(x->type_ids, y->type_ids, (size_t)x->count * sizeof *x->type_ids);
        mha_encoding_free(x);
        mha_encoding_free(y);
    }
}

static const char digits[] =
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": true},"
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
    "\"use_regex\": true}]}";
static const char llama3[] =
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"(?i:'s|'t|'re|'ve|'m|'ll|"
    "'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    " \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"
    " \"trim_offsets\": true, \"use_regex\": false}]}";

/* In older files, add_prefix_space takes the place of prepend_scheme. */
static const char old_metaspace[] =
    "{\"type\": \"Metaspace\", \"replacement\": \"\xE2\x96\x81\", \"add_prefix_space\": true}";

static void options_with_a_key(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        edit edits[EDITS];
    } cases[] = {
        {"models/bert-tiny", {{"normalizer/lowercase", "false", NULL}}},
        {"models/bert-tiny", {{"normalizer/strip_accents", "false", NULL}}},
        {"models/bert-tiny", {{"normalizer/strip_accents", "true", NULL}}},
        {"models/bert-tiny", {{"normalizer/lowercase", "false", NULL}, {"normalizer/strip_accents", "true", NULL}}},
        {"models/gpt2-tiny", {{"pre_tokenizer", digits, NULL}}},
        {"models/gpt2-tiny", {{"pre_tokenizer", llama3, NULL}}},
        {"models/gpt2-tiny", {{"pre_tokenizer", llama3, NULL}, {"model/ignore_merges", "true", NULL}}},
        {"seq2seq/t5", {{"pre_tokenizer", old_metaspace, NULL}}},
        {"seq2seq/t5", {{"pre_tokenizer/pretokenizers/1/prepend_scheme", "\"never\"", NULL}}},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const char *folder = edited(cases[n].model, cases[n].edits);
        mha_tokenizer *a = NULL, *b = NULL;
        mha_error err = {0};
        if (save(folder, &err) != MHA_OK || mha_tokenizer_open(NULL, folder, &a, &err) != MHA_OK ||
            mha_tokenizer_open(NULL, files_path(folder, "x.gguf"), &b, &err) != MHA_OK)
            fail_msg("%s", err.message);
        same_tokens(a, b);
        mha_tokenizer_free(a);
        mha_tokenizer_free(b);
        files_remove(folder);
    }
}

static void options_without_a_key(void **state)
{
    (void)state;
    static const char bare[] = "[{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},"
                               " {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}]";
    static const struct {
        const char *model;
        edit edit;
    } cases[] = {
        {"models/bert-tiny",
         {"post_processor/pair/3/Sequence/type_id", "0", "post_processor.pair must be the tokens of a single text"}},
        {"models/bert-tiny", {"post_processor/pair/2/SpecialToken/type_id", "1", "post_processor.pair must be"}},
        {"models/bert-tiny", {"post_processor/pair/0/SpecialToken/id", "\"[SEP]\"", "post_processor.pair must be"}},
        {"models/bert-tiny", {"post_processor/pair", bare, "post_processor.pair must be"}},
        {"models/bert-tiny", {"normalizer/clean_text", "false", "normalizer must be BertNormalizer with clean_text"}},
        {"models/bert-tiny",
         {"normalizer/handle_chinese_chars", "false", "normalizer must be BertNormalizer with clean_text"}},
        {"seq2seq/t5",
         {"pre_tokenizer/pretokenizers/1/prepend_scheme", "\"first\"",
          "pre_tokenizer.pretokenizers[1].prepend_scheme must be \"always\" or \"never\" in a GGUF file (got "
          "\"first\")"}},
        {"seq2seq/t5-gated",
         {"pre_tokenizer/split", "false", "pre_tokenizer.split must be true in a GGUF file (got false)"}},
        {"seq2seq/t5-gated", {"pre_tokenizer/replacement", "\"_\"", "pre_tokenizer.replacement must be"}},
        {"seq2seq/t5", {"pre_tokenizer/pretokenizers/1", "{\"type\": \"WhitespaceSplit\"}", "pre_tokenizer must be"}},
        {"seq2seq/t5-gated",
         {"normalizer/normalizers/1/strip_left", "true",
          "normalizer must be Precompiled, optionally with Strip and Replace of \" {2,}\" after it in a Sequence"}},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const char *folder = edited(cases[n].model, (const edit[EDITS]){cases[n].edit});
        mha_error err = {0};
        assert_int_equal(save(folder, &err), MHA_ERR_UNSUPPORTED);
        if (!strstr(err.message, cases[n].edit.sentence) || !strstr(err.message, "in a GGUF file"))
            fail_msg("message must contain \"%s\" (got \"%s\")", cases[n].edit.sentence, err.message);
        assert_int_equal(files_count(folder), 3);
        files_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_with_a_key),
        cmocka_unit_test(options_without_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
