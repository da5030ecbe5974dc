/* test_text_open.c - tests opening of tokenizer.json: the error message of each invalid part, accepted values, and
 * failed allocations. */
#include "support/alloc.h"
#include "support/files.h"
#include "support/text/tokenizer_edits.h"
#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define BASE "small-template"
#define DECODERS "WordPiece, ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence"

static const edit edits[] = {
    /* unsupported types, which the message must name */
    {"model/type", "\"WordLevel\"", "model.type must be one of WordPiece, BPE, Unigram (got \"WordLevel\")"},
    {"normalizer", "{\"type\":\"Nmt\"}",
     "normalizer.type must be one of BertNormalizer, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, StripAccents, "
     "Lowercase, Precompiled, Sequence (got \"Nmt\")"},
    {"pre_tokenizer/type", "\"UnicodeScripts\"",
     "pre_tokenizer.type must be one of BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, "
     "Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit, Sequence (got \"UnicodeScripts\")"},
    {"pre_tokenizer", "{\"type\":\"Punctuation\",\"behavior\":\"Merged\"}",
     "pre_tokenizer.behavior must be \"Removed\""},
    {"pre_tokenizer", "{\"type\":\"CharDelimiterSplit\"}", "pre_tokenizer.delimiter must be a string (got nothing"},
    {"pre_tokenizer", "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\"}",
     "pre_tokenizer.delimiter must be one character (got \"\""},
    {"pre_tokenizer", "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}",
     "pre_tokenizer.delimiter must be one character (got \"ab\""},
    {"pre_tokenizer", "{\"type\":\"FixedLength\",\"length\":0}",
     "pre_tokenizer.length must be an integer from 1 to 9223372036854775807 (got 0"},
    {"pre_tokenizer", "{\"type\":\"FixedLength\",\"length\":9223372036854775807}", NULL},
    {"pre_tokenizer", "{\"type\":\"FixedLength\",\"length\":3.0}", "pre_tokenizer.length must be an integer from 1"},
    {"post_processor", "{\"type\":\"X\"}",
     "post_processor.type must be one of TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence "
     "(got \"X\")"},
    {"decoder/type", "\"CTC\"", "decoder.type must be one of " DECODERS " (got \"CTC\")"},
    {"decoder/type", "\"\\u001b[31m\"", "decoder.type must be one of " DECODERS " (got \"\\x1B[31m\")"},
    {"normalizer/type", NULL, "normalizer.type must be a string"},
    {"normalizer", "[]", "normalizer must be an object (got an array"},
    {"normalizer", "null", NULL},
    {"pre_tokenizer", NULL, NULL},
    {"decoder", NULL, NULL},
    {"model", NULL, "model must be an object (got nothing"},
    {"version", "\"1.0\"", NULL},

    /* values of the normalizer */
    {"normalizer/lowercase", NULL, "normalizer.lowercase must be true or false (got nothing"},
    {"normalizer/strip_accents", "1", "normalizer.strip_accents must be true or false (got 1"},
    {"normalizer/strip_accents", NULL, NULL},
    {"normalizer/unknown", "1", NULL},

    /* values of the model */
    {"model/vocab", "null", "model.vocab must be an object (got null"},
    {"model/vocab/a", "-1", "model.vocab: id of \"a\" must be an integer from 0 to 1111 (got -1"},
    {"model/vocab/a", "1112", "id of \"a\" must be an integer from 0 to 1111 (got 1112"},
    {"model/vocab/a", "1111", NULL},
    {"model/vocab/a", "3000000000", "got 3000000000"},
    {"model/vocab/a", "4.0", "got 4.0"},
    {"model/vocab/a", "\"4\"", "got \"4\""},
    {"model/vocab/a", "5", "id 5 must belong to one token (got \"a\" and \"b\")"},
    {"model/unk_token", "\"?\"", "model.unk_token must be a token of model.vocab (got \"?\""},
    {"model/unk_token", "\"a\\u0000\"", "model.unk_token must be a string without NUL characters"},
    {"model/max_input_chars_per_word", "-1",
     "model.max_input_chars_per_word must be an integer from 0 to 1000 (got -1"},
    {"model/max_input_chars_per_word", "1001", "got 1001"},
    {"model/max_input_chars_per_word", "0", NULL},
    {"model/continuing_subword_prefix", NULL, "model.continuing_subword_prefix must be a string"},
    {"model/continuing_subword_prefix", "\"\"", NULL},

    /* values of added tokens */
    {"added_tokens", NULL, NULL},
    {"added_tokens", "{}", "added_tokens must be an array (got an object"},
    {"added_tokens/0", "7", "added_tokens[0] must be an object"},
    {"added_tokens/0/content", "\"\"", "added_tokens[0].content must be a string of 1 to 1024 bytes (got \"\""},
    {"added_tokens/0/content", "\"a\\u0000b\"", "added_tokens[0].content must be a string without NUL characters"},
    {"added_tokens/0/id", "3", "added_tokens[0].id must be 0, the id that follows from the model's vocabulary (got 3"},
    {"added_tokens/0/id", "2000000000", "added_tokens[0].id must be an integer from 0 to 1111"},
    {"added_tokens/0/content", "\"new\"", "added_tokens[0].id must be 21, the id that"},
    {"added_tokens/0/special", NULL, "added_tokens[0].special must be true or false (got nothing"},

    /* values of the template and of other post-processors */
    {"post_processor", "null", NULL},
    {"post_processor/single/0", "{}", "single.Sequence must be an object"},
    {"post_processor/single/0", "7", "single.Sequence must be an object"},
    {"post_processor/single/0/SpecialToken/id", "\"three\"", "special_tokens.three must be an object (got nothing"},
    {"post_processor/single/0/SpecialToken/type_id", "-1", "SpecialToken.type_id must be an integer from 0"},
    {"post_processor/single/1/Sequence/id", "\"B\"", "Sequence.id must be \"A\" (got \"B\""},
    {"post_processor/pair/0/Sequence/id", "\"A\"",
     "post_processor.pair must be a template that contains Sequences A and B exactly once"},
    {"post_processor/pair/0/Sequence/id", "\"C\"", "Sequence.id must be \"A\" or \"B\" (got \"C\""},
    {"post_processor/single", "[]", "post_processor.single must be a template that contains Sequence A exactly once"},
    {"post_processor/special_tokens/two/ids/1", "123456789",
     "special_tokens: \"two\": ids[1] must be an id in the vocabulary (got 123456789"},
    {"post_processor/special_tokens/two/ids/1", "-1", "got -1"},
    {"post_processor/special_tokens/two/ids", "[]", NULL},
    {"post_processor", "{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",2],\"sep\":[\"[SEP]\",99]}",
     "post_processor.sep must be [token, id] with an id in the vocabulary"},
    {"post_processor", "{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",2]}",
     "post_processor.sep must be [token, id] with an id in the vocabulary (got nothing)"},

    /* values of the stored truncation and padding */
    {"truncation/max_length", "-1", "truncation.max_length must be an integer from 0"},
    {"truncation/strategy", "\"longest_first\"", "truncation.strategy must be \"LongestFirst\", \"OnlyFirst\" or"},
    {"truncation/direction", "\"Up\"", "truncation.direction must be \"Right\" or \"Left\" (got \"Up\""},
    {"truncation/direction", NULL, NULL},
    {"padding/strategy", "{\"Fixed\":1000000000000}", "padding.strategy.Fixed must be an integer from 0 to 1048576"},
    {"padding/strategy", "7", "padding.strategy must be a string without NUL characters (got 7)"},
    {"padding/pad_id", "77", "padding.pad_id must be the id of a token (got 77"},
    {"padding/pad_to_multiple_of", "0", NULL},
    {"padding/pad_to_multiple_of", "-8", "padding.pad_to_multiple_of must be an integer from 0"},
    {"padding/direction", NULL, "padding.direction must be a string without NUL characters (got nothing"},

    {"unknown", "{\"type\":\"anything\"}", "tokenizer.json: unknown key \"unknown\""},
};

static void test_edits(void **state)
{
    (void)state;
    edits_check(BASE, edits, sizeof edits / sizeof edits[0]);
}

static void test_long_and_double_added_tokens(void **state)
{
    (void)state;
    char content[1100] = "\"";
    memset(content + 1, 'x', 1025);
    strcpy(content + 1026, "\"");
    edits_check(BASE, &(edit){"added_tokens/0/content", content, "content must be a string of 1 to 1024 bytes"}, 1);
    json_t *json = edits_load(BASE);
    json_t *added = json_object_get(json, "added_tokens");
    json_array_append(added, json_array_get(added, 0));
    mha_tokenizer *t;
    mha_error err = {0};
    assert_int_equal(edits_open(json, &t, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "added_tokens[1].content must be unique among the added tokens"));
    json_decref(json);
}

/* Opening a file with 100,000 added tokens and encoding a long text must take linear time. One of the tokens is a space
 * that strips adjacent spaces. */
static void test_many_added_tokens(void **state)
{
    (void)state;
    enum { TOKENS = 100000, SPACES = 1 << 18 };
    json_t *json = edits_load(BASE);
    json_t *added = json_object_get(json, "added_tokens");
    for (int i = 0; i < TOKENS; i++) {
        char content[16];
        snprintf(content, sizeof content, i ? "<%d>" : " ", i);
        json_t *token = json_deep_copy(json_array_get(added, 0));
        json_object_set_new(token, "id", json_integer(21 + i));
        json_object_set_new(token, "content", json_string(content));
        json_object_set_new(token, "rstrip", json_true());
        json_array_append_new(added, token);
    }
    mha_tokenizer *t;
    mha_encoding *e;
    mha_error err = {0};
    if (edits_open(json, &t, &err)) fail_msg("%s", err.message);
    char *text = malloc(SPACES);
    assert_non_null(text);
    memset(text, ' ', SPACES);
    mha_encode_options o = {.size = sizeof o, .no_special = 1};
    assert_int_equal(mha_tokenizer_encode(t, text, SPACES, NULL, 0, &o, &e, NULL), MHA_OK);
    /* every space must be a token, as in the reference, even if it was stripped by the token before it */
    assert_int_equal(e->count, SPACES);
    assert_int_equal(e->end[0], SPACES);
    assert_int_equal(e->end[SPACES - 1], SPACES);
    mha_encoding_free(e);
    mha_tokenizer_free(t);
    free(text);
    json_decref(json);
}

/* A vocabulary may have gaps between ids. mha_tokenizer_token must return NULL for an id in a gap. */
static void test_look_up(void **state)
{
    (void)state;
    json_t *json = edits_load(BASE);
    mha_tokenizer *t;
    edits_put(json, "model/vocab/a", "100");
    assert_int_equal(edits_open(json, &t, NULL), MHA_OK);
    assert_int_equal(mha_tokenizer_size(t), 101);
    assert_string_equal(mha_tokenizer_token(t, 100), "a");
    assert_string_equal(mha_tokenizer_token(t, 0), "[PAD]");
    assert_null(mha_tokenizer_token(t, 4));
    assert_null(mha_tokenizer_token(t, -1));
    assert_null(mha_tokenizer_token(t, 101));
    assert_int_equal(mha_tokenizer_id(t, "a"), 100);
    assert_int_equal(mha_tokenizer_id(t, "[PAD]"), 0);
    assert_int_equal(mha_tokenizer_id(t, "nothing"), -1);
    assert_int_equal(mha_tokenizer_is_special(t, 0), 1);
    assert_int_equal(mha_tokenizer_is_special(t, 100), 0);
    assert_int_equal(mha_tokenizer_is_special(t, 4), 0);
    mha_tokenizer_free(t);
    mha_tokenizer_free(NULL);
    json_decref(json);
}

static mha_status open_file(const char *folder, const char *from, mha_tokenizer **t, mha_error *err)
{
    size_t n;
    char *bytes = files_read(from, &n);
    assert_non_null(bytes);
    files_write(files_path(folder, "tokenizer.json"), bytes, n);
    free(bytes);
    return mha_tokenizer_open(NULL, folder, t, err);
}

static void test_no_file(void **state)
{
    (void)state;
    mha_tokenizer *t;
    mha_error err = {0};
    const char *folder = files_folder();
    assert_int_equal(mha_tokenizer_open(NULL, folder, &t, &err), MHA_ERR_IO);
    assert_null(t);
    char want[512];
    snprintf(want, sizeof want, "%s/tokenizer.json: cannot open: No such file or directory", folder);
    assert_string_equal(err.message, want);
    files_write(files_path(folder, "tokenizer.json"), "{\"model\": 1}", 12);
    assert_int_equal(mha_tokenizer_open(NULL, folder, &t, &err), MHA_ERR_FORMAT);
    snprintf(want, sizeof want, "%s/tokenizer.json: model must be an object (got 1)", folder);
    assert_string_equal(err.message, want);
    files_remove(folder);
    assert_int_equal(mha_tokenizer_open(NULL, NULL, &t, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_tokenizer_open(NULL, folder, NULL, NULL), MHA_ERR_ARG);
}

#define FIRST_REGEX \
    "pre_tokenizer.pretokenizers[0].pattern.Regex must be the regular expression of a supported tokenizer"

/* The files of data/hostile/tokenizer must be rejected, except the controls and tok-09. In tok-09, an id is beyond the
 * embedding rows of the model, which only opening the model can detect. */
static void test_hostile(void **state)
{
    (void)state;
    static const struct {
        const char *name, *sentence; /* sentence: words of the error message; NULL = the file must be accepted */
    } cases[] = {
        {"tok-01-control", NULL},
        {"tok-02-control-markup", NULL},
        {"tok-03-empty", "tokenizer.json: "},
        {"tok-04-model-text", "model must be an object (got \"BPE\""},
        {"tok-05-model-type", "model.type must be one of WordPiece, BPE, Unigram (got \"bpe \")"},
        {"tok-06-vocab-null", "model.vocab must be an object (got null"},
        {"tok-07-id-minus", "model.vocab: id of \"e\" must be an integer from 0 to 2151 (got -7"},
        {"tok-08-id-3e9", "model.vocab: id of \"e\" must be an integer from 0 to 2151 (got 3000000000"},
        {"tok-09-id-past-model", NULL},
        {"tok-10-merge-unknown", "model.merges[0] must be two tokens of model.vocab (got [\"zq\", \"x\"]"},
        {"tok-11-merge-two-spaces",
         "model.merges[0] must be two tokens separated by one space, such as \"a b\" (got \"i  n\""},
        {"tok-12-byte-token-plus", "id 270 must belong to one token (got \"<unused270>\" and \"<0x+F>\""},
        {"tok-13-added-empty", "added_tokens[0].content must be a string of 1 to 1024 bytes (got \"\""},
        {"tok-14-regex-backtrack", FIRST_REGEX " (got \"(x+x+)+y\")"},
        {"tok-15-regex-repeat", FIRST_REGEX " (got \"(x{999}){999}\")"},
        {"tok-16-regex-open", FIRST_REGEX " (got \"[[:alpha:\")"},
        {"tok-17-split-empty", FIRST_REGEX " (got \"(?=a)\")"},
        {"tok-18-replace-empty",
         "normalizer.pattern.Regex must be the regular expression of a supported tokenizer (got \"\")"},
        {"tok-19-replace-grows", NULL},
        {"tok-20-charsmap", "normalizer.precompiled_charsmap must contain a trie of whole 4-byte units within its 0 "
                            "bytes (got 4294967040"},
        {"tok-21-template-id", "ids[0] must be an id in the vocabulary (got 123456789"},
        {"tok-22-padding-zero", NULL},
    };
    const char *folder = files_folder();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        mha_tokenizer *t;
        mha_error err = {0};
        snprintf(path, sizeof path, MHA_TEST_DATA "/hostile/tokenizer/%s.json", cases[i].name);
        mha_status status = open_file(folder, path, &t, &err);
        const char *sentence = cases[i].sentence;
        if (!sentence && status) fail_msg("%s must be accepted (got %s)", cases[i].name, err.message);
        if (sentence && status != MHA_ERR_FORMAT && status != MHA_ERR_UNSUPPORTED)
            fail_msg("%s must be rejected as malformed or unsupported (got status %d)", cases[i].name, (int)status);
        if (sentence && !strstr(err.message, sentence))
            fail_msg("%s: message must contain \"%s\" (got %s)", cases[i].name, sentence, err.message);
        for (const char *p = err.message; *p; p++)
            assert_true((unsigned char)*p >= 32 && *p != 127);
        assert_true((t != NULL) == (status == MHA_OK));
        mha_tokenizer_free(t);
    }
    files_remove(folder);
}

/* If each step of a normalizer triples the text, normalization must fail at a size limit, before memory is
 * exhausted. */
static void test_growth(void **state)
{
    (void)state;
    mha_tokenizer *t;
    mha_encoding *e;
    mha_error err = {0};
    const char *folder = files_folder();
    assert_int_equal(open_file(folder, MHA_TEST_DATA "/hostile/tokenizer/tok-19-replace-grows.json", &t, &err), MHA_OK);
    assert_int_equal(mha_tokenizer_encode(t, "and", 3, NULL, 0, NULL, &e, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "text: normalized form must be at most 4144 bytes (16 times the text plus 4096)");
    mha_tokenizer_free(t);
    files_remove(folder);
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory. */
static void test_starvation(void **state)
{
    (void)state;
    static const char *const names[] = {"small-added", "small-template", "small-bertprocessing", "small-plain",
                                        "gpt2-tiny",   "llama-tiny",     "llama-yarn-tiny",      "qwen3-tiny-v4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[512];
        mha_status status = MHA_ERR_MEMORY;
        snprintf(folder, sizeof folder, MHA_TEST_DATA "/tokenizer/%s", names[i]);
        counting c = {.budget = -1};
        mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
        mha_ctx *ctx;
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        long before = c.live;
        long budget = 0;
        for (; status == MHA_ERR_MEMORY; budget++) {
            mha_tokenizer *t;
            mha_error err = {0};
            c.calls = 0;
            c.budget = budget;
            status = mha_tokenizer_open(ctx, folder, &t, &err);
            if (status == MHA_ERR_MEMORY) assert_non_null(strstr(err.message, "memory"));
            assert_true((t != NULL) == (status == MHA_OK));
            mha_tokenizer_free(t);
            assert_int_equal(c.live, before);
        }
        assert_int_equal(status, MHA_OK);
        assert_true(budget > 15);
        c.budget = -1;
        mha_ctx_free(ctx);
        assert_int_equal(c.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_long_and_double_added_tokens),
        cmocka_unit_test(test_many_added_tokens),
        cmocka_unit_test(test_look_up),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_starvation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
