/* test_heads_minilm.c - tests properties of the heads of all-MiniLM-L6-v2 that test_verify_heads.sh does not cover:
 * other random texts, words outside the vocabulary, and invalid arguments.
 *
 * Requires the real weights: the folder named by MHA_MINILM, or the cache folder of `./run fetch minilm`. */
#include "mha/heads.h"
#include "support/model/model_case.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

enum { LAYERS = 6, HEADS = 12, TOTAL = LAYERS * HEADS, TEXTS = 24 };

static mha_model *model;
static const char *texts[TEXTS];

static void measure(const char *const *some, int64_t count, mha_heads **heads)
{
    mha_error err = {0};
    const mha_heads_options plain = {.size = sizeof plain, .no_probe = 1};
    if (mha_heads_measure(model, some, count, &plain, heads, &err) != MHA_OK) fail_msg("%s", err.message);
}

/* The induction head must score high in any random text, not only in the reference text. In the reference text, its
 * score is 0.64; the second-best head, 1.1, has 0.40, which is the threshold. */
static void drawn_probe_finds_the_same_head(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        mha_heads *heads;
        mha_error err = {0};
        const mha_heads_options options = {.size = sizeof options, .seed = seed};
        if (mha_heads_measure(model, texts, TEXTS, &options, &heads, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int h = 0; h < TOTAL; h++) {
            bool duplicate = mha_heads_value(heads, h / HEADS, h % HEADS, MHA_HEAD_DUP_PROBE) > 0.5;
            assert_int_equal(duplicate, h == 2 * HEADS + 9);
        }
        mha_heads_free(heads);
    }
}

/* Unknown words must count as content: pattern scores exclude only the tokens that the template adds. */
static void unknown_word_is_content(void **state)
{
    (void)state;
    const char *text = "\xe2\xb5\xa3"; /* a Tifinagh letter: [CLS] [UNK] [SEP] */
    mha_heads *heads;
    measure(&text, 1, &heads);
    assert_false(isnan(mha_heads_value(heads, 0, 0, MHA_HEAD_SELF)));
    mha_heads_free(heads);
}

static void wrong_use(void **state)
{
    (void)state;
    mha_heads *heads = (mha_heads *)1;
    mha_error err = {0};
    const mha_heads_options maps = {.size = sizeof maps, .keep_maps = 1};
    assert_int_equal(mha_heads_measure(model, texts, 0, NULL, &heads, &err), MHA_ERR_ARG);
    assert_null(heads);
    assert_int_equal(mha_heads_measure(model, texts, 2, &maps, &heads, &err), MHA_ERR_ARG);
    const int32_t id = 30522;
    const mha_heads_options probe = {.size = sizeof probe, .probe = {&id, 1, 1}};
    assert_int_equal(mha_heads_measure(model, texts, 1, &probe, &heads, &err), MHA_ERR_ARG);
    const char *bad = "\xff";
    assert_int_equal(mha_heads_measure(model, &bad, 1, NULL, &heads, &err), MHA_ERR_ARG);
    assert_null(heads);
}

/* ---- setup ---- */

static int set_up(void **state)
{
    (void)state;
    mha_error err = {0};
    if (mha_model_open(NULL, case_minilm(), NULL, &model, &err) != MHA_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    json_t *sentences = json_load_file(MHA_TEST_DATA "/heads/sentences.json", 0, NULL);
    for (int i = 0; i < TEXTS; i++)
        texts[i] = json_string_value(json_array_get(json_object_get(sentences, i < 12 ? "a" : "b"), (size_t)i % 12));
    *state = sentences;
    return texts[TEXTS - 1] ? 0 : 1;
}

static int tear_down(void **state)
{
    json_decref(*state);
    mha_model_free(model);
    return 0;
}

int main(void)
{
    if (!case_minilm()) {
        printf("skipped: no all-MiniLM-L6-v2 in $MHA_MINILM or the cache folder; run ./run fetch minilm\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_probe_finds_the_same_head),
        cmocka_unit_test(unknown_word_is_content),
        cmocka_unit_test(wrong_use),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
