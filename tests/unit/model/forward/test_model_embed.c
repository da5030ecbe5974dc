/* test_model_embed.c - tests embeddings of texts: independence of other texts, pooling, truncation, progress, and
 * invalid arguments. Other tests compare the values with references. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include "support/stopper.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TINY "models/bert-tiny"
enum { E = 48 };

enum { TEXTS = 300 }; /* enough texts for several batches */

static void make_texts(char texts[TEXTS][200], const char *list[TEXTS])
{
    rng r = rng_make(12, 1);
    for (int i = 0; i < TEXTS; i++) {
        char *end = texts[i];
        for (int64_t words = rng_range(&r, 0, i % 7 == 0 ? 30 : 6); words > 0; words--)
            end += sprintf(end, "%s ", (const char *[]){"bread", "the", "train", "ferry", "x"}[rng_range(&r, 0, 4)]);
        *end = '\0';
        list[i] = texts[i];
    }
}

static void test_embed_ignores_neighbours(void **state)
{
    (void)state;
    static char texts[TEXTS][200];
    static const char *list[TEXTS];
    static float all[TEXTS * E], reversed[TEXTS * E];
    make_texts(texts, list);
    mha_model *model = case_model(NULL, TINY, NULL);
    assert_int_equal(mha_model_embed(model, list, TEXTS, NULL, all, NULL), MHA_OK);
    for (int i = 0; i < TEXTS; i++) {
        float alone[E];
        double square = 0;
        if (i % 9 == 0) {
            assert_int_equal(mha_model_embed(model, &list[i], 1, NULL, alone, NULL), MHA_OK);
            assert_memory_equal(alone, all + i * E, sizeof alone);
        }
        for (int e = 0; e < E; e++)
            square += (double)all[i * E + e] * (double)all[i * E + e];
        assert_true(fabs(square - 1) < 1e-6);
    }
    for (int i = 0; i < TEXTS; i++)
        list[i] = texts[TEXTS - 1 - i];
    assert_int_equal(mha_model_embed(model, list, TEXTS, NULL, reversed, NULL), MHA_OK);
    for (int i = 0; i < TEXTS; i++)
        assert_memory_equal(reversed + i * E, all + (TEXTS - 1 - i) * E, E * sizeof(float));
    mha_model_free(model);
}

/* The embedding of a text must equal the pooled hidden states of its tokens. */
static void test_pooling(void **state)
{
    (void)state;
    const char *text = "The train to the coast leaves at noon";
    mha_model *model = case_model(NULL, TINY, NULL);
    mha_encoding *tokens = NULL;
    assert_int_equal(mha_tokenizer_encode(mha_model_tokenizer(model), text, strlen(text), NULL, 0, NULL, &tokens, NULL),
                     MHA_OK);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = tokens->count, .ids = tokens->ids};
    case_run run;
    case_forward(model, &input, 0, &run);
    float mean[E], cls[E];
    const mha_embed_options raw = {.size = sizeof raw, .no_normalize = 1},
                            first = {.size = sizeof first, .pool = MHA_POOL_CLS, .no_normalize = 1};
    assert_int_equal(mha_model_embed(model, &text, 1, &raw, mean, NULL), MHA_OK);
    assert_int_equal(mha_model_embed(model, &text, 1, &first, cls, NULL), MHA_OK);
    assert_memory_equal(cls, run.last_hidden, sizeof cls);
    for (int e = 0; e < E; e++) {
        double sum = 0;
        for (int64_t t = 0; t < tokens->count; t++)
            sum += (double)run.last_hidden[t * E + e];
        assert_true(fabs(sum / (double)tokens->count - (double)mean[e]) < 1e-6);
    }
    case_run_free(&run);
    mha_encoding_free(tokens);
    mha_model_free(model);
}

/* The number of warnings of a context, and the last warning. */
typedef struct listener {
    int warnings;
    char last[1024];
} listener;

static void on_log(void *user, int level, const char *message)
{
    listener *l = user;
    if (level != 0) return;
    l->warnings++;
    snprintf(l->last, sizeof l->last, "%s", message);
}

/* A text of 200 words must be truncated to the model's maximum of 96 tokens, with a warning. */
static void test_embed_cuts_long_texts(void **state)
{
    (void)state;
    char text[200 * 4 + 1] = "";
    for (int i = 0; i < 200; i++)
        memcpy(text + 4 * i, "the ", 5);
    const char *list = text, *both[] = {"the", text};
    float vector[E], vectors[2 * E];
    listener heard = {0};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .log = on_log, .log_user = &heard};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, TINY, NULL);
    assert_int_equal(mha_model_embed(model, both, 1, NULL, vectors, NULL), MHA_OK);
    assert_int_equal(heard.warnings, 0);
    assert_int_equal(mha_model_embed(model, both, 2, NULL, vectors, NULL), MHA_OK);
    assert_int_equal(heard.warnings, 1);
    assert_string_equal(heard.last, "text 2 of 2: 202 tokens, 106 were truncated; the model accepts 96");
    assert_int_equal(mha_model_embed(model, &list, 1, NULL, vector, NULL), MHA_OK);
    assert_int_equal(mha_model_embed(model, NULL, 0, NULL, NULL, NULL), MHA_OK);
    mha_error err = {0};
    assert_int_equal(mha_model_embed(model, &list, -1, NULL, vector, &err), MHA_ERR_ARG);
    assert_int_equal(mha_model_embed(model, (const char *[]){NULL}, 1, NULL, vector, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 1 of 1 must not be NULL");
    both[1] = "ab\xFF";
    assert_int_equal(mha_model_embed(model, both, 2, NULL, vectors, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "text 2 of 2: text must be UTF-8 (got 0xFF at byte 2)");
    const mha_embed_options odd = {.size = sizeof odd, .pool = (mha_pool)9};
    assert_int_equal(mha_model_embed(model, &list, 1, &odd, vector, &err), MHA_ERR_ARG);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static int count_progress(void *user, const char *what, int64_t done, int64_t total)
{
    stopper *s = user;
    assert_string_equal(what, "embed");
    assert_true(done > 0 && done <= total && total == 3);
    return s->calls++ == s->stop_at;
}

static void test_embed_progress(void **state)
{
    (void)state;
    const char *list[3] = {"the train", "bread bread bread bread bread bread bread bread bread bread bread bread bread",
                           ""};
    float vectors[3 * E];
    stopper s = {0, -1};
    const mha_ctx_options options = {
        .size = sizeof options, .threads = 1, .progress = count_progress, .progress_user = &s};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, TINY, NULL);
    assert_int_equal(mha_model_embed(model, list, 3, NULL, vectors, NULL), MHA_OK);
    assert_true(s.calls >= 1);
    s = (stopper){0, 0};
    assert_int_equal(mha_model_embed(model, list, 3, NULL, vectors, NULL), MHA_ERR_CANCELED);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed_ignores_neighbours),
        cmocka_unit_test(test_pooling),
        cmocka_unit_test(test_embed_cuts_long_texts),
        cmocka_unit_test(test_embed_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
