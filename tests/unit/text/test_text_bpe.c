/* test_text_bpe.c - tests BPE and Unigram tokenizer files: rejected and accepted values, worst-case texts and files,
 * the table of token pairs, and failed allocations. tests/golden and tests/live compare tokens with the reference. */
#include "support/alloc.h"
#include "support/text/tokenizer_edits.h"
#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Edits of the tokenizer bpe-first, which is similar to a SentencePiece model and has Replace and Strip steps in its
 * decoder. */
static const edit bpe_edits[] = {
    {"model/merges/0", "\"\\u2581 t\"",
     "model.merges[1] must be two tokens separated by one space, such as \"a b\" (got [\"h\", \"e\"]"},
    {"model/merges/1", "\"\\u2581 t\"", "model.merges[1] must be an array of two tokens (got \""},
    {"model/merges/1", "[\"h\"]", "model.merges[1] must be an array of two tokens (got an array"},
    {"model/merges/1", "[\"h\", 7]", "model.merges[1] must be an array of two tokens"},
    {"model/merges/1", "[\"h\", \"e\\u0000\"]", "model.merges[1] must be two tokens of model.vocab"},
    {"model/merges/1", "[\"h\", \"\\u2581\"]",
     "model.merges[1] must be two tokens whose concatenation is in model.vocab"},
    {"model/merges", "[]", NULL},
    {"model/merges", "null", "model.merges must be an array (got null"},
    {"model/dropout", "0.1", "model.dropout must be null or 0 (got 0.1"},
    {"model/dropout", "0.0", NULL},
    {"model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix must be null or empty (got \"##\""},
    {"model/end_of_word_suffix", "\"</w>\"", "model.byte_fallback must be false with a suffix (got true"},
    {"model/end_of_word_suffix", "\"123456789012345678901234567890123\"",
     "model.end_of_word_suffix must be at most 32 bytes"},
    {"model/end_of_word_suffix", "\"\"", NULL},
    {"model/unk_token", "\"?!\"", "model.unk_token must be a token of model.vocab (got \"?!\""},
    {"model/byte_fallback", "1", "model.byte_fallback must be true or false (got 1"},
    {"model/type", NULL, NULL}, /* files of old versions have no type key */
    {"pre_tokenizer/replacement", "\"ab\"", "pre_tokenizer.replacement must be one character (got \"ab\""},
    {"pre_tokenizer/replacement", "\"\"", "pre_tokenizer.replacement must be one character"},
    {"pre_tokenizer/prepend_scheme", "\"last\"",
     "tokenizer.json: pre_tokenizer.prepend_scheme must be \"always\", \"first\" or \"never\" (got \"last\")"},
    {"pre_tokenizer/add_prefix_space", "false",
     "pre_tokenizer.add_prefix_space must be true unless prepend_scheme is \"never\""},
    {"pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"}]}",
     "pre_tokenizer.pretokenizers[0].individual_digits must be true or false (got nothing"},
    {"pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[7]}",
     "pre_tokenizer.pretokenizers[0] must be an object (got 7"},
    {"pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[]}", NULL},
    {"pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Merged\",\"invert\":false}",
     "pre_tokenizer.behavior must be \"Removed\""},
    {"pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\",\"invert\":false}",
     "pattern.String must be a string of 1 to 256 bytes"},
    {"pre_tokenizer", "{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\",\"invert\":false}",
     "pre_tokenizer.pattern must be an object"},
    {"pre_tokenizer",
     "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s\"},\"behavior\":\"Isolated\",\"invert\":false}",
     "pre_tokenizer.pattern.Regex must be the regular expression of a supported tokenizer (got \"\\s\")"},
    {"decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}",
     "decoder.decoders[1].type must not follow Fuse or ByteLevel (got \"ByteFallback\")"},
    {"decoder/decoders/1/content", "\"ab\"", "decoder.decoders[1].content must be one character (got \"ab\""},
    {"decoder/decoders/1/start", "-1", "decoder.decoders[1].start must be an integer from 0"},
    {"post_processor", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
     "post_processor.trim_offsets must be true or false"},
    {"post_processor",
     "{\"type\":\"RobertaProcessing\",\"sep\":[\"a\",3],\"cls\":[\"a\",99999],\"trim_offsets\":true,"
     "\"add_prefix_space\":true}",
     "post_processor.cls must be [token, id] with an id in the vocabulary"},
};

static const edit unigram_edits[] = {
    {"model/unk_id", "null", "model.unk_id must be an integer from 0 to 299 (got null"},
    {"model/unk_id", "300", "model.unk_id must be an integer from 0 to 299 (got 300"},
    {"model/vocab", "{}", "model.vocab must be an array (got an object"},
    {"model/vocab", "[]", "model.unk_id must be an integer"},
    {"model/vocab/9", "[\"i\"]", "model.vocab[9] must be [piece, score] (got an array"},
    {"model/vocab/9", "[\"i\", \"0\"]", "model.vocab[9] must be [piece, score]"},
    {"model/vocab/9", "[\"a\\u0000\", -1]", "must be a piece of at most 512 bytes without NUL characters"},
    {"model/vocab/9", "[\"s\", -1]", "model.vocab[9] must be a unique piece (got \"s\""},
    {"model/vocab/9", "[\"\", -1]", NULL},
    {"model/type", NULL, NULL},
    {"normalizer/normalizers/0/precompiled_charsmap", "\"AAA\"", "precompiled_charsmap must be base64 (got \"AAA\""},
    {"normalizer/normalizers/0/precompiled_charsmap", "\"AA=A\"", "precompiled_charsmap must be base64"},
    {"normalizer/normalizers/0/precompiled_charsmap", "\"\"", "precompiled_charsmap must be at least 4 bytes (got 0"},
    {"normalizer/normalizers/0/precompiled_charsmap", "\"AQAAAAA=\"",
     "tokenizer.json: normalizer.normalizers[0].precompiled_charsmap must contain a trie of whole 4-byte units within "
     "its 1 "
     "bytes (got 1)"},
    {"normalizer/normalizers/0/precompiled_charsmap", "\"AAAAAP8=\"",
     "precompiled_charsmap must be UTF-8 (got an invalid byte at 4)"},
    {"normalizer/normalizers/0/precompiled_charsmap", "\"AAAAAA==\"", NULL},
    {"normalizer/normalizers/2/pattern", "{\"Regex\":\" {3,}\"}",
     "normalizer.normalizers[2].pattern.Regex must be the regular expression of a supported tokenizer (got \" {3,}\")"},
};

static void test_edits(void **state)
{
    (void)state;
    edits_check("bpe-first", bpe_edits, sizeof bpe_edits / sizeof bpe_edits[0]);
    edits_check("unigram", unigram_edits, sizeof unigram_edits / sizeof unigram_edits[0]);
}

/* A sequence of more than 32 steps must be rejected, and so must a second template. */
static void test_sequences(void **state)
{
    (void)state;
    json_t *step = json_pack("{s:s, s:s}", "type", "Prepend", "prepend", "x");
    json_t *list = json_array();
    for (int i = 0; i < 33; i++)
        json_array_append(list, step);
    json_t *json = json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
    char *text = json_dumps(json, 0);
    edits_check("bpe-first", &(edit){"normalizer", text, "must have at most 32 steps"}, 1);
    free(text);
    json_decref(json);
    json_decref(step);
    static const char two[] =
        "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"BertProcessing\",\"sep\":[\"a\",1],\"cls\":[\"b\",2]},"
        "{\"type\":\"BertProcessing\",\"sep\":[\"a\",1],\"cls\":[\"b\",2]}]}";
    edits_check("bpe-first", &(edit){"post_processor", two, "post_processor.processors[1] must be the only template"},
                1);
}

/* ---- worst-case texts for steps that must take linear time ---- */

static mha_tokenizer *open_folder(mha_ctx *ctx, const char *name)
{
    char folder[512];
    mha_tokenizer *t;
    mha_error err = {0};
    snprintf(folder, sizeof folder, MHA_TEST_DATA "/tokenizer/%s", name);
    if (mha_tokenizer_open(ctx, folder, &t, &err)) fail_msg("%s", err.message);
    return t;
}

static const char *const kinds[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny", "llama-yarn-tiny", "gemma2-tiny",
                                    "unigram",   "bpe-fused",  "bpe-trim",   "unigram-bytes"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void check_places(const mha_encoding *e, const mha_tokenizer *t, size_t n)
{
    for (int64_t i = 0; i < e->count; i++) {
        assert_non_null(mha_tokenizer_token(t, e->ids[i]));
        assert_true(e->begin[i] >= 0 && e->begin[i] <= e->end[i] && (size_t)e->end[i] <= n);
    }
}

static void test_hostile_texts(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "x",
        "the",
        " ",
        "\n",
        " \n",
        "a ",
        "'s",
        "1",
        "!",
        "e\xCC\x81",
        "\xE1\x84\x80\xE1\x85\xA1",
        "\xF0\x9F\x98\x80",
        "\xC2\xA0 ",
        "\xEF\xAC\x81",
        "<s>",
        "\xE2\x96\x81",
        "\xCC\x96\xCC\x81",
    };
    enum { BYTES = 1 << 18 };
    char *text = malloc(BYTES + 16);
    assert_non_null(text);
    for (int k = 0; k < KINDS; k++) {
        mha_tokenizer *t = open_folder(NULL, kinds[k]);
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            size_t n = 0;
            for (; n < BYTES; n += strlen(pieces[i]))
                memcpy(text + n, pieces[i], strlen(pieces[i]));
            mha_encoding *e;
            mha_error err = {0};
            if (mha_tokenizer_encode(t, text, n, NULL, 0, NULL, &e, &err)) fail_msg("%s: %s", kinds[k], err.message);
            check_places(e, t, n);
            mha_encoding_free(e);
        }
        mha_tokenizer_free(t);
    }
    free(text);
}

/* ---- empty vocabulary, and the table of token pairs ---- */

/* A file with an empty vocabulary must open, as in the reference. Encoding a text must fail, since all of the text
 * would be lost. */
static void test_empty_vocabulary(void **state)
{
    (void)state;
    static const char file[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}";
    mha_tokenizer *t = NULL;
    mha_encoding *e = NULL;
    mha_error err = {0};
    assert_int_equal(mha__tokenizer_read(NULL, file, strlen(file), &t, &err), MHA_OK);
    assert_int_equal(mha_tokenizer_encode(t, "text", 4, NULL, 0, NULL, &e, &err), MHA_ERR_FORMAT);
    assert_null(e);
    assert_string_equal(err.message,
                        "tokenizer.json: model.vocab must have at least one token to encode text (got none)");
    mha_tokenizer_free(t);
}

static void test_pairs(void **state)
{
    (void)state;
    mha__pair_table pairs = {0};
    assert_int_equal(mha__pairs_get(&pairs, 0, 0), -1);
    for (uint32_t i = 0; i < 20000; i++)
        assert_int_equal(mha__pairs_put(&pairs, i % 100, i / 100, i, NULL), MHA_OK);
    /* replaces the value 307 of the pair (7, 3) */
    assert_int_equal(mha__pairs_put(&pairs, 7, 3, 9, NULL), MHA_OK);
    for (uint32_t i = 0; i < 20000; i++)
        assert_int_equal(mha__pairs_get(&pairs, i % 100, i / 100), i == 307 ? 9 : i);
    assert_int_equal(mha__pairs_get(&pairs, 100, 0), -1);
    assert_int_equal(pairs.count, 20000);
    mha__pairs_free(&pairs);
}

/* After many keys with the same hash, adding a pair must fail. Each key is the inverse of the hash's multiplier times a
 * value whose two halves are equal, which gives the same hash bits for all keys. */
static void test_colliding_pairs(void **state)
{
    (void)state;
    uint64_t inverse = 1;
    for (int i = 0; i < 6; i++)
        inverse *= 2 - 0x9E3779B97F4A7C15u * inverse;
    mha__pair_table pairs = {0};
    mha_error err = {0};
    mha_status status = MHA_OK;
    uint32_t i = 1;
    for (; status == MHA_OK && i < 100000; i++) {
        uint64_t key = inverse * ((uint64_t)i << 32 | i); /* the two equal halves cancel in the hash */
        status = mha__pairs_put(&pairs, (uint32_t)(key >> 32), (uint32_t)key, i, &err);
    }
    assert_int_equal(status, MHA_ERR_FORMAT);
    assert_true(i < 1000);
    assert_non_null(strstr(err.message, "too many pairs of tokens with the same hash"));
    mha__pairs_free(&pairs);
}

/* ---- failed allocations ---- */

static mha_status use_all(mha_ctx *ctx, const char *name, const char *text)
{
    char folder[512];
    mha_tokenizer *t = NULL;
    mha_encoding *e = NULL;
    char *decoded = NULL;
    mha_error err = {0};
    snprintf(folder, sizeof folder, MHA_TEST_DATA "/tokenizer/%s", name);
    mha_status status = mha_tokenizer_open(ctx, folder, &t, &err);
    if (status == MHA_OK) status = mha_tokenizer_encode(t, text, strlen(text), NULL, 0, NULL, &e, &err);
    if (status == MHA_OK) status = mha_tokenizer_decode(t, e->ids, e->count, 0, &decoded, NULL, &err);
    if (status == MHA_ERR_MEMORY) assert_non_null(strstr(err.message, "memory"));
    mha_encoding_free(e);
    mha_tokenizer_text_free(t, decoded);
    mha_tokenizer_free(t);
    return status;
}

static void test_starvation(void **state)
{
    (void)state;
    static const char *const names[] = {"bpe-trim", "bpe-first", "bpe-roberta", "unigram", "unigram-bytes"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        counting c = {.budget = -1};
        mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
        mha_ctx *ctx;
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        long before = c.live;
        mha_status status = MHA_ERR_MEMORY;
        long budget = 0;
        for (; status == MHA_ERR_MEMORY; budget++) {
            c.calls = 0;
            c.budget = budget;
            status = use_all(ctx, names[i], "the e\xCC\x96\xCC\x81 12 \xEF\xAC\x81  \xE6\xBC\xA2");
            assert_int_equal(c.live, before);
        }
        assert_int_equal(status, MHA_OK);
        assert_true(budget > 20);
        c.budget = -1;
        mha_ctx_free(ctx);
        assert_int_equal(c.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_colliding_pairs),
        cmocka_unit_test(test_starvation),
        cmocka_unit_test(test_empty_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
