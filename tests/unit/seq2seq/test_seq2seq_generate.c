/* test_seq2seq_generate.c - tests text generation of encoder-decoders: recorded tokens, batches of sources, forced
 * tokens and banned words of generation_config.json. */
#include "mha/generate.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/seq2seq_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 24, PROMPTS = 4 };

typedef struct texts {
    mha_prompt prompts[PROMPTS], sources[PROMPTS];
    int32_t out[PROMPTS * N];
    int64_t lengths[PROMPTS];
} texts;

static void generate(const mha_model *model, texts *t, int64_t count, const mha_generate_options *given)
{
    mha_generate_options o = *given;
    mha_error err = {0};
    o.size = sizeof o;
    o.sources = t->sources;
    if (!o.max_new) o.max_new = N;
    if (mha_model_generate(model, t->prompts, count, &o, t->out, t->lengths, &err) != MHA_OK)
        fail_msg("%s", err.message);
}

/* ---- recorded tokens, and batches ---- */

static void test_recorded_tokens(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++)
        for (int n = 0; n < 4; n++) {
            mha_model *model = seq2seq_open(NULL, f);
            mha_file *file = seq2seq_recorded(f);
            int32_t *ids = case_ints(file, "gen/input_ids"), *want = case_ints(file, "gen/new_ids");
            texts t = {.sources[0] = {ids, case_dimension(file, "gen/input_ids", 0)}};
            int32_t prompt[1 + N] = {(int32_t)mha_model_describe(model)->decoder_start};
            assert_int_equal(case_dimension(file, "gen/new_ids", 0), N);
            memcpy(prompt + 1, want, N * sizeof *want);
            if (n >= 2) t.prompts[0] = (mha_prompt){prompt, n == 2 ? 1 : 9}; /* n == 3: continues the text */
            const int64_t first = n == 3 ? 8 : 0;
            generate(model, &t, 1,
                     &(mha_generate_options){.no_cache = n == 1,
                                             .eos_count = -1,
                                             .no_rules = 1,
                                             .max_new = N - first,
                                             .lookup = n == 2 ? 4 : 0});
            assert_int_equal(t.lengths[0], N - first);
            assert_memory_equal(t.out, want + first, (size_t)(N - first) * sizeof *want);
            free(ids);
            free(want);
            mha_file_free(file);
            mha_model_free(model);
        }
}

/* The text for a source must not depend on the other sources, greedy or sampled. */
static void test_text_depends_on_its_source_only(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++)
        for (int sampled = 0; sampled < 2; sampled++) {
            mha_model *model = seq2seq_open(NULL, f);
            mha_file *file = seq2seq_recorded(f);
            int32_t *ids = case_ints(file, "gen/input_ids");
            const int64_t count = case_dimension(file, "gen/input_ids", 0);
            texts all = {0}, one = {0};
            for (int64_t n = 0; n < PROMPTS; n++)
                all.sources[n] = (mha_prompt){ids + n, count - 2 * n};
            mha_generate_options o = {.sampling = {.temperature = sampled ? 1.5 : 0, .seed = 7}, .at_once = 3};
            generate(model, &all, PROMPTS, &o);
            for (int64_t n = 0; n < PROMPTS; n++) {
                one.sources[0] = all.sources[n];
                o.sampling.seed = 7 + (uint64_t)n;
                generate(model, &one, 1, &o);
                assert_int_equal(one.lengths[0], all.lengths[n]);
                assert_memory_equal(one.out, all.out + n * N, (size_t)one.lengths[0] * sizeof *one.out);
            }
            free(ids);
            mha_file_free(file);
            mha_model_free(model);
        }
}

/* ---- rules of generation_config.json ---- */

/* Opens a copy of BART with this generation_config.json, or without the file if `text` is NULL. */
static mha_status open_with(const char *text, mha_model **model, mha_error *err)
{
    const char *copy = case_copy("seq2seq/bart");
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    if (text) files_write(files_path(copy, "generation_config.json"), text, strlen(text));
    const mha_status status = mha_model_open(NULL, copy, &o, model, err);
    files_remove(copy);
    return status;
}

static texts with_rules(const char *config, const mha_generate_options *o)
{
    mha_model *model = NULL;
    mha_error err = {0};
    mha_file *file = seq2seq_recorded(SEQ2SEQ_BART);
    int32_t *ids = case_ints(file, "gen/input_ids");
    texts t = {.sources[0] = {ids, case_dimension(file, "gen/input_ids", 0)}};
    if (open_with(config, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    generate(model, &t, 1, o);
    t.sources[0] = (mha_prompt){0};
    free(ids);
    mha_file_free(file);
    mha_model_free(model);
    return t;
}

static void test_forced_tokens(void **state)
{
    (void)state;
    static const char config[] = "{\"decoder_start_token_id\": 2, \"eos_token_id\": 2, \"forced_bos_token_id\": 33, "
                                 "\"forced_eos_token_id\": 2}";
    for (int sampled = 0; sampled < 2; sampled++) {
        const mha_generate_options o = {.max_new = 6, .min_new = 6, .sampling = {.temperature = sampled ? 1 : 0}};
        mha_generate_options without = o;
        without.no_rules = 1;
        const texts forced = with_rules(config, &o), free_text = with_rules(config, &without);
        assert_int_equal(forced.lengths[0], 6);
        assert_int_equal(forced.out[0], 33);
        assert_int_equal(forced.out[5], 2); /* also with min_new, as in transformers */
        assert_int_not_equal(free_text.out[0], 33);
        assert_int_not_equal(free_text.out[5], 2);
    }
}

/* The keys are those of config.json if generation_config.json does not exist: in BART, only forced_eos_token_id. */
static void test_rules_of_config_json(void **state)
{
    (void)state;
    const mha_generate_options o = {.max_new = 6, .eos_count = -1};
    const texts t = with_rules(NULL, &o), none = with_rules("{\"decoder_start_token_id\": 2}", &o);
    assert_int_equal(t.out[5], 2);
    assert_int_not_equal(none.out[5], 2);
}

/* transformers accepts a list: greedy decoding takes the smallest id. */
static void test_list_of_forced_last_tokens(void **state)
{
    (void)state;
    const mha_generate_options o = {.max_new = 6, .eos_count = -1};
    const texts t = with_rules("{\"decoder_start_token_id\": 2, \"forced_eos_token_id\": [6, 5]}", &o);
    const texts none = with_rules("{\"decoder_start_token_id\": 2, \"forced_eos_token_id\": []}", &o);
    assert_int_equal(t.out[5], 5);
    assert_int_not_equal(none.out[5], 5);
}

/* Returns true if `word` occurs in the text. */
static bool occurs(const texts *t, const int32_t *word, int64_t count)
{
    for (int64_t at = 0; at + count <= t->lengths[0]; at++)
        if (memcmp(t->out + at, word, (size_t)count * sizeof *word) == 0) return true;
    return false;
}

static void test_banned_words(void **state)
{
    (void)state;
    const mha_generate_options o = {.eos_count = -1};
    const texts plain = with_rules("{}", &o);
    char config[200];
    snprintf(config, sizeof config, "{\"bad_words_ids\": [[%d, %d], [%d], [2]], \"eos_token_id\": 2}", plain.out[2],
             plain.out[3], plain.out[9]);
    const texts banned = with_rules(config, &o);
    assert_memory_equal(banned.out, plain.out, 2 * sizeof *plain.out);
    assert_true(occurs(&plain, plain.out + 2, 2) && occurs(&plain, plain.out + 9, 1));
    assert_false(occurs(&banned, plain.out + 2, 2) || occurs(&banned, plain.out + 9, 1));
}

static void test_refused_rules(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        mha_status status;
        const char *part;
    } cases[] = {
        {"{\"forced_bos_token_id\": \"x\"}", MHA_ERR_FORMAT, "generation_config.json: forced_bos_token_id must be"},
        {"{\"forced_eos_token_id\": [2, 100000]}", MHA_ERR_FORMAT,
         "forced_eos_token_id[1] must be a token id in the vocabulary (got 100000)"},
        {"{\"forced_eos_token_id\": \"x\"}", MHA_ERR_FORMAT, "forced_eos_token_id must be"},
        {"{\"forced_eos_token_id\": 100000}", MHA_ERR_FORMAT, "forced_eos_token_id must be"},
        {"{\"decoder_start_token_id\": -1}", MHA_ERR_FORMAT, "decoder_start_token_id must be"},
        {"{\"bad_words_ids\": 3}", MHA_ERR_FORMAT, "bad_words_ids must be"},
        {"{\"bad_words_ids\": [3]}", MHA_ERR_FORMAT, "bad_words_ids[0] must be a list of token ids (got 3)"},
        {"{\"bad_words_ids\": [[3], []]}", MHA_ERR_FORMAT, "bad_words_ids[1] must be a list of token ids"},
        {"{\"bad_words_ids\": [[3, 100000]]}", MHA_ERR_FORMAT,
         "bad_words_ids[0] must be a list of token ids in the vocabulary"},
        {"{\"bad_words_ids\": [[null]]}", MHA_ERR_FORMAT, "bad_words_ids[0] must be"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model = NULL;
        mha_error err = {0};
        const mha_status got = open_with(cases[n].config, &model, &err);
        if (got != cases[n].status || !strstr(err.message, cases[n].part))
            fail_msg("%s: got status %d, \"%s\"", cases[n].config, (int)got, err.message);
        assert_null(model);
    }
}

/* Lists of banned words are as long as the file; the last word must be banned too. */
static void test_many_banned_words(void **state)
{
    (void)state;
    const mha_generate_options o = {.eos_count = -1};
    const texts plain = with_rules("{}", &o);
    char config[16000] = "{\"bad_words_ids\": [[3, 3, 3, 3]", last[40];
    for (int n = 0; n < 1000; n++)
        strcat(config, ", [4, 4, 4]");
    snprintf(last, sizeof last, ", [%d]]}", plain.out[9]);
    strcat(config, last);
    const texts banned = with_rules(config, &o);
    assert_true(occurs(&plain, plain.out + 9, 1));
    assert_false(occurs(&banned, plain.out + 9, 1));
}

/* ---- refused calls ---- */

static void test_refused_calls(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7}, wrong[] = {5, 100000};
    const mha_prompt good = {ids, 3}, none = {0}, bad = {wrong, 2};
    mha_model *model = seq2seq_open(NULL, SEQ2SEQ_BART);
    mha_model *gpt2 = case_open(NULL, "models/gpt2-tiny");
    const struct {
        const mha_model *model;
        const mha_prompt *prompt, *source;
        mha_status status;
        const char *part;
    } cases[] = {
        {model, &good, NULL, MHA_ERR_ARG, "sources must not be NULL, since bart is an encoder-decoder"},
        {gpt2, &good, &good, MHA_ERR_ARG, "sources must be NULL, since gpt2 is not an encoder-decoder"},
        {model, &none, &none, MHA_ERR_ARG, "source 1 of 1 must have from 1 to"},
        {model, &none, &bad, MHA_ERR_ARG, "source 1 of 1: ids[1] must be from 0 to"},
        {model, &bad, &good, MHA_ERR_ARG, "prompt 1 of 1: ids[1] must be from 0 to"},
        {mha_model_encoder(model), &good, NULL, MHA_ERR_UNSUPPORTED, "model must be a decoder to generate text"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const mha_generate_options o = {.size = sizeof o, .max_new = 2, .sources = cases[n].source};
        int32_t out[2];
        int64_t lengths[1];
        mha_error err = {0};
        const mha_status got = mha_model_generate(cases[n].model, cases[n].prompt, 1, &o, out, lengths, &err);
        if (got != cases[n].status || !strstr(err.message, cases[n].part))
            fail_msg("case %d: got status %d, \"%s\"", (int)n, (int)got, err.message);
    }
    mha_model_free(gpt2);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_tokens),
        cmocka_unit_test(test_text_depends_on_its_source_only),
        cmocka_unit_test(test_forced_tokens),
        cmocka_unit_test(test_rules_of_config_json),
        cmocka_unit_test(test_list_of_forced_last_tokens),
        cmocka_unit_test(test_banned_words),
        cmocka_unit_test(test_refused_rules),
        cmocka_unit_test(test_many_banned_words),
        cmocka_unit_test(test_refused_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
