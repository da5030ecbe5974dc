/* test_seq2seq_refusals.c - tests what encoder-decoders reject: config keys, tokenizers of other formats, inputs, and
 * calls that do not support these families. A saved model must be the same. */
#include "mha/generate.h"
#include "mha/io.h"
#include "mha/model_create.h"
#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "mha/train.h"
#include "model/model_struct.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/seq2seq_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(mha_status got, mha_status want, const mha_error *err, const char *part)
{
    if (got != want || !strstr(err->message, part))
        fail_msg("got status %d, \"%s\", expected %d, \"%s\"", (int)got, err->message, (int)want, part);
}

/* ---- configs ---- */

/* Replaces `key` in the config by the JSON `value`, or removes it if `value` is NULL, and opens the model. */
static mha_status open_edited(int family, const char *key, const char *value, mha_model **model, mha_error *err)
{
    char folder[64];
    snprintf(folder, sizeof folder, "seq2seq/%s", seq2seq_names[family]);
    const char *copy = case_copy_edited(folder, key, value);
    const mha_status status = mha_model_open(
        NULL, copy, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1}, model, err);
    files_remove(copy);
    return status;
}

static void test_refused_configs(void **state)
{
    (void)state;
    static const struct {
        int family;
        const char *key, *value;
        mha_status status;
        const char *part;
    } cases[] = {
        {SEQ2SEQ_T5, "is_encoder_decoder", "false", MHA_ERR_UNSUPPORTED, "is_encoder_decoder must be true (got false)"},
        {SEQ2SEQ_T5, "d_kv", "0", MHA_ERR_FORMAT, "d_kv must be"},
        {SEQ2SEQ_T5, "d_kv", "7", MHA_ERR_FORMAT, "must be [28, 40], as config.json requires (got [32, 40])"},
        {SEQ2SEQ_T5, "d_kv", NULL, MHA_ERR_FORMAT, "must be [256, 40], as config.json requires (got [32, 40])"},
        {SEQ2SEQ_T5, "d_model", "-40", MHA_ERR_FORMAT, "d_model must be"},
        {SEQ2SEQ_T5, "num_layers", "4", MHA_ERR_FORMAT,
         "tensor \"encoder.block.3.layer.0.SelfAttention.q.weight\" is missing"},
        {SEQ2SEQ_T5, "num_decoder_layers", "3", MHA_ERR_FORMAT,
         "tensor \"decoder.block.2.layer.0.SelfAttention.q.weight\" is missing"},
        {SEQ2SEQ_T5, "num_decoder_layers", "0", MHA_ERR_FORMAT, "num_decoder_layers must be"},
        {SEQ2SEQ_T5, "relative_attention_num_buckets", "3", MHA_ERR_FORMAT,
         "relative_attention_num_buckets must be at least 4 (got 3)"},
        {SEQ2SEQ_T5, "relative_attention_num_buckets", "14", MHA_ERR_FORMAT,
         "must be [14, 4], as config.json requires (got [12, 4])"},
        {SEQ2SEQ_T5, "relative_attention_max_distance", "6", MHA_ERR_FORMAT,
         "relative_attention_max_distance must be above half of relative_attention_num_buckets = 12 (got 6)"},
        {SEQ2SEQ_T5, "feed_forward_proj", "\"gated-relu\"", MHA_ERR_FORMAT, "DenseReluDense.wi_0.weight\" is missing"},
        {SEQ2SEQ_T5, "feed_forward_proj", "\"gated-\"", MHA_ERR_UNSUPPORTED, "feed_forward_proj must be one of gelu"},
        {SEQ2SEQ_T5_GATED, "feed_forward_proj", "\"relu\"", MHA_ERR_FORMAT, "DenseReluDense.wi.weight\" is missing"},
        {SEQ2SEQ_T5, "decoder_start_token_id", "400", MHA_ERR_FORMAT,
         "decoder_start_token_id must be below the vocabulary size 400 (got 400)"},
        {SEQ2SEQ_T5, "vocab_size", "401", MHA_ERR_FORMAT, "must be [401, 40], as config.json requires (got [400, 40])"},
        {SEQ2SEQ_T5, "mha.heads", "[[0], [0], [0]]", MHA_ERR_FORMAT, "mha.heads must be an object (got an array)"},
        {SEQ2SEQ_T5, "mha.heads", "{\"other\": []}", MHA_ERR_FORMAT, "cross, decoder and encoder"},
        {SEQ2SEQ_T5, "mha.heads", "{\"encoder\": [[0]]}", MHA_ERR_FORMAT, "mha.heads.encoder must have"},
        {SEQ2SEQ_T5, "mha.heads", "{\"cross\": [[0], [9]]}", MHA_ERR_FORMAT, "mha.heads.cross[1][0] must be"},
        {SEQ2SEQ_T5, "mha.heads", "{\"decoder\": [[1, 0], [0]]}", MHA_ERR_FORMAT, "mha.heads.decoder[0][1] must be"},
        {SEQ2SEQ_T5, "mha.heads", "{\"decoder\": [[0], []]}", MHA_ERR_FORMAT, "mha.heads.decoder[1] must have"},
        {SEQ2SEQ_T5, "mha.heads", "{\"cross\": [[0, 1, 2, 3, 4], [0]]}", MHA_ERR_FORMAT,
         "mha.heads.cross[0] must have at most num_heads = 4 heads (got 5)"},
        {SEQ2SEQ_T5, "mha.original_heads", "3", MHA_ERR_FORMAT, "mha.original_heads must be at least num_heads (got 3"},
        {SEQ2SEQ_T5, "mha.original_heads", "8", MHA_ERR_FORMAT, "absent without \"mha.heads."},
        {SEQ2SEQ_BART, "mha.original_heads", "8", MHA_ERR_UNSUPPORTED,
         "mha.original_heads must be absent, since the width of a head of bart depends on the head count"},
        {SEQ2SEQ_BART, "mha.heads", "{\"decoder\": [[0, 1, 2, 3, 4, 5, 6, 7, 8], [0]]}", MHA_ERR_FORMAT,
         "mha.heads.decoder[0] must have at most decoder_attention_heads = "},
        {SEQ2SEQ_BART, "mha.kv_heads", "{}", MHA_ERR_UNSUPPORTED,
         "mha.kv_heads must be absent, since bart is an encoder-decoder"},
        {SEQ2SEQ_BART, "mha.attention", "{}", MHA_ERR_UNSUPPORTED, "mha.attention must be absent"},
        {SEQ2SEQ_BART, "encoder_attention_heads", "0", MHA_ERR_FORMAT, "encoder_attention_heads must be"},
        {SEQ2SEQ_BART, "decoder_attention_heads", "7", MHA_ERR_FORMAT, "must divide"},
        {SEQ2SEQ_BART, "decoder_ffn_dim", "1", MHA_ERR_FORMAT, "as config.json requires"},
        {SEQ2SEQ_BART, "encoder_ffn_dim", "1", MHA_ERR_FORMAT, "as config.json requires"},
        {SEQ2SEQ_BART, "max_position_embeddings", "7", MHA_ERR_FORMAT, "as config.json requires"},
        {SEQ2SEQ_BART, "activation_function", "\"x\"", MHA_ERR_UNSUPPORTED, "activation_function must be one of"},
        {SEQ2SEQ_BART, "encoder_layers", "9", MHA_ERR_FORMAT, "\"model.encoder.layers."},
        {SEQ2SEQ_BART, "decoder_layers", "9", MHA_ERR_FORMAT, "\"model.decoder.layers."},
        {SEQ2SEQ_MBART, "quantization_config", "{\"bits\": 4}", MHA_ERR_UNSUPPORTED,
         "quantization_config must be absent"},
        {SEQ2SEQ_MARIAN, "share_encoder_decoder_embeddings", "false", MHA_ERR_FORMAT,
         "\"model.decoder.embed_tokens.weight\" is missing"},
        {SEQ2SEQ_MARIAN, "decoder_vocab_size", "\"x\"", MHA_ERR_FORMAT, "decoder_vocab_size must be"},
        {SEQ2SEQ_MARIAN, "max_position_embeddings", "2000000", MHA_ERR_UNSUPPORTED,
         "max_position_embeddings must be at most 131072 in this family (got 2000000)"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model = NULL;
        mha_error err = {0};
        expect(open_edited(cases[n].family, cases[n].key, cases[n].value, &model, &err), cases[n].status, &err,
               cases[n].part);
        assert_null(model);
    }
}

/* Word embeddings of one side must equal the shared ones, which both sides read. */
static void test_embeddings_of_one_side(void **state)
{
    (void)state;
    static const char *const names[] = {"encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"};
    static const int families[] = {SEQ2SEQ_T5, SEQ2SEQ_BART};
    for (int n = 0; n < 2; n++) {
        char folder[64];
        mha_file *file = NULL;
        mha_error err = {0};
        snprintf(folder, sizeof folder, "seq2seq/%s", seq2seq_names[families[n]]);
        const char *path = case_copy(folder);
        assert_int_equal(mha_file_open(NULL, files_path(path, "model.safetensors"), NULL, &file, &err), MHA_OK);
        const mha_tensor *shared = mha_file_find(file, n ? "model.shared.weight" : "shared.weight");
        float *own = malloc(shared->bytes);
        memcpy(own, shared->data, shared->bytes);
        mha_named_tensor tensor = {
            .name = names[n], .dtype = MHA_F32, .rank = 2, .shape = {shared->shape[0], shared->shape[1]}, .data = own};
        const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .tensors = &tensor, .tensor_count = 1};
        mha_model *model = NULL;
        assert_int_equal(mha_model_open(NULL, path, &o, &model, &err), MHA_OK);
        mha_model_free(model);
        model = NULL;
        own[7] += 1;
        expect(mha_model_open(NULL, path, &o, &model, &err), MHA_ERR_UNSUPPORTED, &err,
               "shared.weight\" (got other values)");
        assert_non_null(strstr(err.message, names[n]));
        free(own);
        mha_file_free(file);
        files_remove(path);
    }
}

/* Labels are shifted with decoder_start_token_id of config.json, not with that of generation_config.json, which
 * generation uses. */
static void test_start_of_labels(void **state)
{
    (void)state;
    static const char generation[] = "{\"decoder_start_token_id\": 5}";
    const int32_t labels[] = {11, 12};
    int32_t ids[2];
    const char *copy = case_copy("seq2seq/bart");
    mha_model *model = NULL;
    files_write(files_path(copy, "generation_config.json"), generation, sizeof generation - 1);
    assert_int_equal(mha_model_open(NULL, copy, NULL, &model, NULL), MHA_OK);
    assert_int_equal(mha_model_describe(model)->decoder_start, 5);
    assert_int_equal(mha_model_shift_labels(model, labels, 1, 2, ids, NULL), MHA_OK);
    assert_int_equal(ids[0], 2);
    mha_model_free(model);
    files_remove(copy);
}

/* Without eos_token_id, the end of a text is the default of the family in transformers: 0 in Marian. */
static void test_default_end_of_text(void **state)
{
    (void)state;
    static const int32_t ends[SEQ2SEQ_FAMILIES] = {1, 1, 2, 2, 0};
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = NULL;
        mha_error err = {0};
        if (open_edited(f, "eos_token_id", NULL, &model, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(model->config.eos_count, 1);
        assert_int_equal(model->config.eos[0], ends[f]);
        mha_model_free(model);
    }
}

static void test_labels_outside_the_vocabulary(void **state)
{
    (void)state;
    const int32_t labels[][2] = {{3, 1000000}, {-1, 3}, {3, -99}};
    int32_t ids[2];
    mha_error err = {0};
    mha_model *model = seq2seq_open(NULL, SEQ2SEQ_T5);
    for (int n = 0; n < 3; n++)
        expect(mha_model_shift_labels(model, labels[n], 1, 2, ids, &err), MHA_ERR_ARG, &err,
               n == 1 ? "labels[0] must be from 0 to" : "labels[1] must be from 0 to");
    mha_model_free(model);
}

/* A folder with files of SentencePiece instead of tokenizer.json is refused by the name of the file. */
static void test_tokenizers_of_other_formats(void **state)
{
    (void)state;
    static const char *const names[] = {"source.spm", "spiece.model"};
    for (int n = 0; n < 2; n++) {
        const char *copy = case_copy("seq2seq/marian");
        mha_model *model = NULL;
        mha_error err = {0};
        remove(files_path(copy, "tokenizer.json"));
        files_write(files_path(copy, names[n]), "", 0);
        expect(mha_model_open(NULL, copy, NULL, &model, &err), MHA_ERR_UNSUPPORTED, &err,
               "tokenizer.json must exist, since files of SentencePiece are not supported");
        assert_non_null(strstr(err.message, names[n]));
        files_remove(copy);
    }
}

/* ---- inputs ---- */

static int see(void *user, int64_t layer, int64_t heads, const float *probs)
{
    (void)user, (void)layer, (void)heads, (void)probs;
    return 0;
}

static void test_refused_inputs(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7, 8};
    static const uint8_t masked[] = {0, 0, 0, 0};
    static const int64_t starts[] = {0, 4};
    mha_model *model = seq2seq_open(NULL, SEQ2SEQ_T5);
    mha_model *gpt2 = case_open(NULL, "models/gpt2-tiny");
    mha_model_cache *cache = NULL;
    const mha_model_cache_options o = {.size = sizeof o, .tokens = 8, .source_tokens = 3};
    assert_int_equal(mha_model_cache_create(model, &o, &cache, NULL), MHA_OK);
#define INPUT .size = sizeof(mha_model_input), .batch = 1, .length = 4, .ids = ids
    const mha_model_input good = {INPUT}, two = {.size = sizeof two, .batch = 2, .length = 2, .ids = ids},
                          hidden = {INPUT, .mask = masked}, nested = {INPUT, .source = &good},
                          longest = {.size = sizeof longest, .batch = 1, .length = (int64_t)1 << 40, .ids = ids};
    const mha_model_output encoder = {.size = sizeof encoder}, sides = {.size = sizeof sides, .encoder = &encoder},
                           maps = {.size = sizeof maps, .on_cross_attention = see};
    const struct {
        const mha_model *model;
        mha_model_input input;
        const mha_model_output *output;
        mha_status status;
        const char *part;
    } cases[] = {
        {model, {INPUT}, NULL, MHA_ERR_ARG, "source must not be NULL, since t5 is an encoder-decoder"},
        {model, {INPUT, .cache = cache}, NULL, MHA_ERR_ARG, "source must not be NULL, since t5 is an encoder-decoder"},
        {gpt2,
         {INPUT, .source = &good},
         NULL,
         MHA_ERR_ARG,
         "source must be NULL, since gpt2 is not an encoder-decoder"},
        {mha_model_encoder(model), {INPUT, .source = &good}, NULL, MHA_ERR_ARG, "source must be NULL"},
        {model, {INPUT, .source = &two}, NULL, MHA_ERR_ARG, "batch of source must be 1 (got 2)"},
        {model, {INPUT, .source = &longest}, NULL, MHA_ERR_ARG, "length of source must be from 1 to 2147483647"},
        {model, {INPUT, .source = &hidden}, NULL, MHA_ERR_ARG, "sequence 0 of source must have a real token"},
        {model, {INPUT, .source = &nested}, NULL, MHA_ERR_ARG, "source must not have cache, source or shard"},
        {model, {INPUT, .source = &good, .cache = cache}, NULL, MHA_ERR_ARG, "length of source must be from 1 to 3"},
        {model,
         {INPUT, .source = &good, .starts = starts},
         NULL,
         MHA_ERR_ARG,
         "starts of source must be given with starts of the input"},
        {model, {INPUT}, &sides, MHA_ERR_ARG, "encoder must be NULL without source"},
        {gpt2, {INPUT}, &sides, MHA_ERR_ARG, "encoder must be NULL unless the model is an encoder-decoder"},
        {gpt2, {INPUT}, &maps, MHA_ERR_ARG, "on_cross_attention must be NULL unless the model is an encoder-decoder"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_error err = {0};
        expect(mha_model_forward(cases[n].model, &cases[n].input, cases[n].output, &err), cases[n].status, &err,
               cases[n].part);
    }
    mha_model_cache_free(cache);
    mha_model_free(gpt2);
    mha_model_free(model);
}

/* A source must be given with the first tokens only. */
static void test_source_after_the_first_tokens(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7, 8};
    mha_model *model = seq2seq_open(NULL, SEQ2SEQ_BART);
    mha_model_cache *cache = NULL;
    mha_error err = {0};
    const mha_model_input source = {INPUT}, input = {INPUT, .cache = NULL, .source = &source};
    mha_model_input cached = input;
    assert_int_equal(mha_model_cache_create(model, NULL, &cache, NULL), MHA_OK);
    cached.cache = cache;
    assert_int_equal(mha_model_forward(model, &cached, NULL, NULL), MHA_OK);
    expect(mha_model_forward(model, &cached, NULL, &err), MHA_ERR_ARG, &err,
           "source must be NULL after the first tokens of a sequence (got 4 cached tokens)");
    mha_model_cache_free(cache);
    mha_model_free(model);
}

/* ---- calls without support ---- */

static void check_side(const mha_model *model, const char *family)
{
    char want[128];
    mha_error err = {0};
    mha_model_edit *edit = NULL;
    mha_trainer *trainer = NULL;
    const mha_regroup_options one = {.size = sizeof one, .method = MHA_REGROUP_MEAN, .key_heads = 1, .value_heads = 1};
    snprintf(want, sizeof want, "key and value heads of %s must not be regrouped, since it is an encoder-decoder",
             family);
    expect(mha_regroup(model, &one, &edit, &err), MHA_ERR_UNSUPPORTED, &err, want);
    assert_null(edit);
    snprintf(want, sizeof want, "mha_trainer_create: model must not be an encoder-decoder (got %s)", family);
    expect(mha_trainer_create(model, NULL, &trainer, &err), MHA_ERR_UNSUPPORTED, &err, want);
    assert_null(trainer);
}

static void test_refused_calls(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7}, negative[] = {5, -1};
    static const char *const families[SEQ2SEQ_FAMILIES] = {"t5", "t5", "bart", "mbart", "marian"};
    const mha_model_dropout dropout = {.residual = 0.1};
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = seq2seq_open(NULL, f), *made = NULL;
        mha_model_grads *grads = NULL;
        mha_error err = {0};
        float logprob[2];
        check_side(model, families[f]);
        check_side(mha_model_encoder(model), families[f]);
        expect(mha_model_score(model, ids, 3, logprob, &err), MHA_ERR_UNSUPPORTED, &err,
               "mha_model_score: model must not be an encoder-decoder");
        expect(mha_model_score_target(model, ids, 3, negative, 2, logprob, &err), MHA_ERR_ARG, &err,
               "mha_model_score_target: ids[1] must be from 0 to");
        expect(mha_model_score_target(model, ids, 3, ids, -1, logprob, &err), MHA_ERR_ARG, &err,
               "mha_model_score_target: count must be from 0 to 2^31-2 (got -1)");
        expect(mha_model_score_target(model, NULL, 3, ids, 3, logprob, &err), MHA_ERR_ARG, &err,
               "mha_model_score_target: source must not be NULL");
        expect(mha_model_create(NULL, mha_model_config_json(model), NULL, &made, &err), MHA_ERR_UNSUPPORTED, &err,
               "mha_model_create: config must not be an encoder-decoder");
        assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
        expect(mha_model_grads_dropout(grads, &dropout, &err), MHA_ERR_UNSUPPORTED, &err,
               "mha_model_grads_dropout: model must not be an encoder-decoder");
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
}

static void test_refused_models(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7};
    int32_t shifted[3];
    float logprob[3];
    mha_error err = {0};
    mha_model *gpt2 = case_open(NULL, "models/gpt2-tiny");
    assert_null(mha_model_encoder(gpt2));
    assert_null(mha_model_encoder(NULL));
    assert_null(mha_model_describe(NULL));
    expect(mha_model_shift_labels(gpt2, ids, 1, 3, shifted, &err), MHA_ERR_UNSUPPORTED, &err,
           "model must be an encoder-decoder");
    expect(mha_model_score_target(gpt2, ids, 3, ids, 3, logprob, &err), MHA_ERR_UNSUPPORTED, &err,
           "model must be an encoder-decoder (got gpt2)");
    mha_model_free(gpt2);
}

/* ---- saving ---- */

static void test_saved_model_is_the_same(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        mha_error err = {0};
        mha_model *model = seq2seq_open(NULL, f);
        mha_file *file = seq2seq_recorded(f);
        const char *folder = files_folder();
        seq2seq_read(file, "seq2seq", &pair);
        if (mha_model_save(model, folder, &(mha_model_save_options){.size = sizeof(mha_model_save_options)}, &err) !=
            MHA_OK)
            fail_msg("%s", err.message);
        mha_model *again = case_open(NULL, folder);
        float *want = seq2seq_logits(model, &pair.input), *got = seq2seq_logits(again, &pair.input);
        assert_memory_equal(got, want, (size_t)(pair.input.length * mha_model_describe(model)->vocab) * sizeof *got);
        free(want);
        free(got);
        files_remove(folder);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(again);
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_embeddings_of_one_side),
        cmocka_unit_test(test_start_of_labels),
        cmocka_unit_test(test_default_end_of_text),
        cmocka_unit_test(test_labels_outside_the_vocabulary),
        cmocka_unit_test(test_tokenizers_of_other_formats),
        cmocka_unit_test(test_refused_inputs),
        cmocka_unit_test(test_source_after_the_first_tokens),
        cmocka_unit_test(test_refused_calls),
        cmocka_unit_test(test_refused_models),
        cmocka_unit_test(test_saved_model_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
