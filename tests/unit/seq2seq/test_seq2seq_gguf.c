/* test_seq2seq_gguf.c - tests GGUF files of T5: files written by gguf-py, and files written by mha_model_save_gguf,
 * must have logits that are bitwise identical to those of the folder, and the same tokens; models that llama.cpp
 * computes differently and damaged files must be refused. */
#include "mha/model_save.h"
#include "mha/prune.h"
#include "mha/text.h"
#include "support/check.h"
#include "support/files.h"
#include "support/gguf/gguf_case.h"
#include "support/gguf/gguf_edit.h"
#include "support/model/seq2seq_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens the folder, whose distances must have the limit that llama.cpp computes with. */
static mha_model *open_folder(int family)
{
    char folder[300], path[320];
    size_t n;
    snprintf(folder, sizeof folder, MHA_TEST_DATA "/seq2seq/%s", seq2seq_names[family]);
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *config = files_read(path, &n), *at = strstr(config, "\"relative_attention_max_distance\": ");
    char *now = malloc(n + 8);
    at += strlen("\"relative_attention_max_distance\": ");
    sprintf(now, "%.*s128%s", (int)(at - config), config, strchr(at, ','));
    const mha_model_options o = {.size = sizeof o, .config_json = now};
    mha_model *model = case_model(NULL, folder, &o);
    free(now);
    free(config);
    return model;
}

static void golden_path(int family, char path[300])
{
    snprintf(path, 300, MHA_TEST_DATA "/gguf/%s.gguf", seq2seq_names[family]);
}

static void same_tokens(const mha_model *a, const mha_model *b)
{
    static const char *const texts[] = {"The  cat sat\ton the mat. ",
                                        "caf\xC3\xA9 \xEF\xAC\x81ne \xE2\x91\xA0 <pad></s>", "", "   "};
    for (int n = 0; n < 8; n++) {
        const char *text = texts[n / 2], *pair = n % 2 ? "a second text" : NULL;
        mha_encoding *x = NULL, *y = NULL;
        const size_t bytes = strlen(text), more = pair ? strlen(pair) : 0;
        assert_int_equal(mha_tokenizer_encode(mha_model_tokenizer(a), text, bytes, pair, more, NULL, &x, NULL), MHA_OK);
        assert_int_equal(mha_tokenizer_encode(mha_model_tokenizer(b), text, bytes, pair, more, NULL, &y, NULL), MHA_OK);
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->ids, y->ids, (size_t)x->count * sizeof *x->ids);
        assert_memory_equal(x->type_ids, y->type_ids, (size_t)x->count * sizeof *x->type_ids);
        mha_encoding_free(x);
        mha_encoding_free(y);
    }
}

static void same_logits(int family, const mha_model *a, const mha_model *b)
{
    mha_file *recorded = seq2seq_recorded(family);
    seq2seq_pair pair;
    seq2seq_read(recorded, "train", &pair);
    const size_t bytes = (size_t)(pair.input.batch * pair.input.length * mha_model_describe(a)->vocab) * sizeof(float);
    float *x = seq2seq_logits(a, &pair.input), *y = seq2seq_logits(b, &pair.input);
    if (memcmp(x, y, bytes) != 0) fail_msg("%s: logits must be those of the folder", seq2seq_names[family]);
    assert_int_equal(mha_model_describe(a)->parameters, mha_model_describe(b)->parameters);
    free(x);
    free(y);
    seq2seq_free(&pair);
    mha_file_free(recorded);
}

static void same_models(int family, const mha_model *a, const mha_model *b)
{
    same_logits(family, a, b);
    same_tokens(a, b);
}

static void files_of_gguf_py(void **state)
{
    (void)state;
    for (int family = SEQ2SEQ_T5; family <= SEQ2SEQ_T5_GATED; family++) {
        char path[300];
        golden_path(family, path);
        mha_model *a = open_folder(family), *b = gguf_open(path, 0);
        same_models(family, a, b);
        mha_model_free(a);
        mha_model_free(b);
    }
}

/* A saved file, and the folder that it becomes, are the same model. */
static void own_files(void **state)
{
    (void)state;
    const char *work = files_folder();
    char file[300], folder[300];
    snprintf(file, sizeof file, "%s", files_path(work, "own.gguf"));
    snprintf(folder, sizeof folder, "%s", files_path(work, "folder"));
    for (int family = SEQ2SEQ_T5; family <= SEQ2SEQ_T5_GATED; family++) {
        mha_error err = {0};
        mha_model *a = open_folder(family);
        gguf_save(a, file, MHA_DTYPE_DEFAULT);
        mha_model *b = gguf_open(file, 0);
        const mha_model_save_options o = {.size = sizeof o, .overwrite = 1};
        if (mha_model_save(b, folder, &o, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_model *c = gguf_open(folder, 0);
        same_models(family, a, b);
        same_models(family, a, c);
        mha_model_free(a);
        mha_model_free(b);
        mha_model_free(c);
    }
    files_remove(folder);
    files_remove(work);
}

static void models_that_files_cannot_express(void **state)
{
    (void)state;
    static const struct {
        int family;
        const char *says;
    } cases[] = {
        {SEQ2SEQ_T5, "relative_attention_max_distance must be 128 in a GGUF file of architecture t5 (got 20)"},
        {SEQ2SEQ_BART, "model_type must be one of llama, "},
    };
    const char *work = files_folder();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model = seq2seq_open(NULL, cases[n].family);
        mha_error err = {0};
        const mha_status status = mha_model_save_gguf(model, files_path(work, "x.gguf"), NULL, &err);
        if (status != MHA_ERR_UNSUPPORTED || !strstr(err.message, cases[n].says))
            fail_msg("message must contain \"%s\" (got \"%s\")", cases[n].says, err.message);
        assert_int_equal(files_count(work), 0);
        mha_model_free(model);
    }
    files_remove(work);
}

/* A file has one head count and one list of heads for each side, so that only such pruned models can be written. */
static void pruned_models(void **state)
{
    (void)state;
    enum { HEADS = 4, DECODER = 2, ENCODER = 3 };
    static const struct {
        int own, cross, encoder; /* head removed from every layer; -1 = none, HEADS = head l from layer l */
        const char *says;        /* NULL = written */
    } cases[] = {
        {-1, 1, -1,
         "head counts of the cross-attention must be those of the decoder in a GGUF file of architecture t5"},
        {1, 1, -1, "head counts of the encoder must be those of the decoder"},
        {1, 1, HEADS, "heads of a side must be equal in all layers"},
        {HEADS, 1, 2, "heads of a side must be equal in all layers"},
        {1, HEADS, 2, NULL},
    };
    const char *work = files_folder(), *file = files_path(work, "x.gguf");
    mha_model *model = open_folder(SEQ2SEQ_T5);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        uint8_t keep[3][HEADS * ENCODER];
        const int gone[3] = {cases[n].own, cases[n].cross, cases[n].encoder};
        mha_error err = {0};
        mha_model_edit *edit = NULL;
        mha_model *pruned = NULL;
        for (int i = 0; i < 3 * HEADS * ENCODER; i++) {
            const int part = i / (HEADS * ENCODER), layer = i / HEADS % ENCODER;
            keep[part][i % (HEADS * ENCODER)] = i % HEADS != (gone[part] == HEADS ? layer : gone[part]);
        }
        const mha_prune_options o = {.size = sizeof o, .cross_keep = keep[1], .encoder_keep = keep[2]};
        if (mha_prune(model, keep[0], &o, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &pruned, &err) != MHA_OK)
            fail_msg("%s", err.message);
        const mha_status status = mha_model_save_gguf(pruned, file, NULL, &err);
        if (cases[n].says ? status != MHA_ERR_UNSUPPORTED || !strstr(err.message, cases[n].says) : status != MHA_OK)
            fail_msg("case %zu: message must contain \"%s\" (got \"%s\")", n, cases[n].says, err.message);
        assert_int_equal(files_count(work), cases[n].says == NULL);
        if (!cases[n].says) {
            mha_model *written = gguf_open(file, 0);
            same_logits(SEQ2SEQ_T5, pruned, written);
            mha_model_free(written);
        }
        mha_model_free(pruned);
        mha_model_edit_free(edit);
    }
    mha_model_free(model);
    files_remove(work);
}

static void damaged_files(void **state)
{
    (void)state;
    static const struct {
        gguf_edit edit;
        const char *says; /* NULL = accepted */
    } cases[] = {
        {{.tensor = "dec.blk.0.cross_attn_rel_b.weight", .rank = 2, .shape = {32, 4}}, NULL},
        {{.tensor = "enc.blk.1.attn_rel_b.weight", .rank = 2, .shape = {32, 4}}, "\"enc.blk.1.attn_rel_b.weight\""},
        {{.tensor = "dec.blk.0.cross_attn_q.weight"}, "\"dec.blk.0.cross_attn_q.weight\" is missing"},
        {{.tensor = "enc.blk.0.attn_rel_b.weight"}, "\"enc.blk.0.attn_rel_b.weight\" is missing"},
        {{.tensor = "enc.blk.1.ffn_gate.weight"}, "\"enc.blk.1.ffn_gate.weight\" is missing"},
        {{.tensor = "enc.blk.0.ffn_gate.weight"}, "must be a tensor of the architecture t5"},
        {{.tensor = "enc.blk.9.attn_q.weight", .rank = 2, .shape = {48, 40}},
         "\"enc.blk.9.attn_q.weight\" must be absent"},
        {{.tensor = "mid.blk.0.attn_q.weight", .rank = 2, .shape = {4, 4}}, "must be a tensor of the architecture t5"},
        {{.key = "t5.decoder_block_count", .type = MHA__GGUF_U32, .number = 9}, "is missing"},
        {{.key = "t5.decoder_block_count", .type = MHA__GGUF_U32, .number = 0}, "t5.decoder_block_count must be"},
        {{.key = "t5.attention.relative_buckets_count", .type = MHA__GGUF_U32, .number = 31}, "must be [31, 4]"},
        {{.key = "t5.attention.value_length", .type = MHA__GGUF_U32, .number = 3},
         "t5.attention.value_length must be 12"},
        {{.key = "t5.attention.head_count_kv", .type = MHA__GGUF_U32, .number = 4}, NULL},
        {{.key = "t5.attention.head_count_kv", .type = MHA__GGUF_U32, .number = 2},
         "t5.attention.head_count_kv must be 4, the number of heads (got u32 2)"},
        {{.key = "t5.attention.layer_norm_epsilon", .type = MHA__GGUF_F32, .number = 0.5},
         "t5.attention.layer_norm_epsilon must be 1e-06, as attention.layer_norm_rms_epsilon (got "},
        {{.key = "t5.decoder_start_token_id", .type = MHA__GGUF_U32, .number = 4000}, "decoder_start_token_id must be"},
        {{.key = "t5.rope.freq_base", .type = MHA__GGUF_F32, .number = 1}, "t5.rope.freq_base must be absent"},
        {{.key = "tokenizer.ggml.precompiled_charsmap", .type = MHA__GGUF_STRING, .text = "x"},
         "tokenizer.ggml.precompiled_charsmap must be an array of u8 or i8"},
        {{.key = "tokenizer.ggml.scores", .type = MHA__GGUF_F32, .number = 1},
         "tokenizer.ggml.scores must be an array of"},
        {{.key = "tokenizer.ggml.unknown_token_id", .type = MHA__GGUF_U32, .number = 400}, "unknown_token_id must be"},
    };
    char from[300];
    const char *work = files_folder(), *to = files_path(work, "damaged.gguf");
    golden_path(SEQ2SEQ_T5_GATED, from);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model = NULL;
        mha_error err = {0};
        gguf_edited(from, &cases[n].edit, 1, to);
        const mha_status status = mha_model_open(NULL, to, NULL, &model, &err);
        if (cases[n].says
                ? status == MHA_OK || !strstr(err.message, cases[n].says) || !strstr(err.message, "damaged.gguf")
                : status != MHA_OK)
            fail_msg("case %zu: message must contain \"%s\" (got \"%s\")", n, cases[n].says, err.message);
        mha_model_free(model);
    }
    files_remove(work);
}

/* ---- the lists of the tokenizer ---- */

/* Returns the value of a key in the bytes of a file, after its type, and after the type and count of an array. */
static char *value_of(char *bytes, size_t n, const char *key, bool array)
{
    const size_t k = strlen(key);
    for (size_t i = 0; i + k + 16 < n; i++)
        if (memcmp(bytes + i, key, k) == 0) return bytes + i + k + (array ? 16 : 4);
    fail_msg("the file must contain %s", key);
    return NULL;
}

/* Opens the tokenizer of a file, one or two of whose 32-bit values differ. */
static void refused_value(const char *key, int64_t at, uint32_t value, uint32_t unknown, const char *says)
{
    char from[300];
    size_t n;
    const char *work = files_folder(), *to = files_path(work, "damaged.gguf");
    golden_path(SEQ2SEQ_T5, from);
    char *bytes = files_read(from, &n);
    memcpy(value_of(bytes, n, key, true) + at * 4, &value, sizeof value);
    memcpy(value_of(bytes, n, "tokenizer.ggml.unknown_token_id", false), &unknown, sizeof unknown);
    files_write(to, bytes, n);
    free(bytes);
    mha_tokenizer *tokenizer = NULL;
    mha_error err = {0};
    const mha_status status = mha_tokenizer_open(NULL, to, &tokenizer, &err);
    if (status != MHA_ERR_FORMAT || !strstr(err.message, says) || !strstr(err.message, "damaged.gguf"))
        fail_msg("message must contain \"%s\" (got status %d, \"%s\")", says, (int)status, err.message);
    files_remove(work);
}

static void damaged_tokens(void **state)
{
    (void)state;
    refused_value("tokenizer.ggml.scores", 7, 0x7f800000, 2, "tokenizer.ggml.scores[7] must be finite (got inf)");
    refused_value("tokenizer.ggml.token_type", 399, 5, 399,
                  "tokenizer.ggml.unknown_token_id must be the id of a token that is used (got u32 399)");
}

/* As in llama.cpp, no space precedes a text unless the file has the key. */
static void default_of_the_prefix(void **state)
{
    (void)state;
    static const gguf_edit removed = {.key = "tokenizer.ggml.add_space_prefix", .type = MHA__GGUF_BOOL};
    static const char text[] = "cat", mark[] = "\xE2\x96\x81";
    const char *work = files_folder(), *path = files_path(work, "x.gguf");
    char from[300];
    golden_path(SEQ2SEQ_T5_GATED, from);
    for (int n = 0; n < 2; n++) {
        mha_tokenizer *t = NULL;
        mha_encoding *e = NULL;
        mha_error err = {0};
        gguf_edited(from, &removed, n, path);
        if (mha_tokenizer_open(NULL, path, &t, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_tokenizer_encode(t, text, strlen(text), NULL, 0, NULL, &e, &err), MHA_OK);
        assert_int_equal(strncmp(mha_tokenizer_token(t, e->ids[0]), mark, strlen(mark)) == 0, n == 0);
        mha_encoding_free(e);
        mha_tokenizer_free(t);
    }
    files_remove(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_gguf_py),
        cmocka_unit_test(own_files),
        cmocka_unit_test(models_that_files_cannot_express),
        cmocka_unit_test(pruned_models),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(damaged_tokens),
        cmocka_unit_test(default_of_the_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
