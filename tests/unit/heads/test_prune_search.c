/* test_prune_search.c - each point on the curve of a pruning search must equal the result of a separate pruning. */
#include "mha/prune_search.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <string.h>

enum { TEXTS = 4, TOKENS = 30, CELLS = 12, POINTS_MAX = 32 };
static const int64_t starts[TEXTS + 1] = {0, 7, 12, 22, TOKENS};

static mha_head_data *data_of(const mha_model *model, int salt, const int64_t *where)
{
    int32_t ids[TOKENS];
    mha_head_data *data;
    mha_error err = {0};
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * i * 5 + salt * i + 3) % (int32_t)mha_model_describe(model)->vocab;
    if (mha_head_data_of_ids(model, ids, where, TEXTS, NULL, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    return data;
}

typedef struct seen {
    int64_t counts[POINTS_MAX];
    int points, last; /* last: number of the call that ends the search; 0 = none */
} seen;

static int on_point(void *user, const mha_prune_point *point)
{
    seen *s = user;
    s->counts[s->points++] = point->count;
    return s->points == s->last;
}

/* Compares a point with the results of mha_prune and mha_models_compare for the same heads. */
static void expect_point(const mha_model *model, const mha_head_data *held, const mha_prune_point *p, double limit)
{
    mha_model_edit *edit;
    mha_model *pruned;
    mha_comparison c;
    mha_error err = {0};
    if (mha_prune(model, p->keep, NULL, &edit, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(mha_model_edit_open(edit, &pruned, NULL), MHA_OK);
    assert_int_equal(mha_models_compare(model, pruned, held, NULL, NULL, &c, NULL), MHA_OK);
    assert_true(p->increase == 1 - c.mean_cosine);
    assert_int_equal(p->within, p->increase <= limit);
    assert_int_equal(p->evaluation.heads[0] - p->evaluation.heads[1], p->count);
    assert_int_equal(p->evaluation.parameters[1], mha_model_describe(pruned)->parameters);
    assert_true(p->evaluation.tokens_per_second[0] > 0 && p->evaluation.tokens_per_second[1] > 0);
    mha_model_free(pruned);
    mha_model_edit_free(edit);
}

static void expect_curve(const mha_model *model, const mha_prune_search_options *o, const seen *s)
{
    mha_prune_curve *curve;
    mha_error err = {0};
    int64_t count = 0;
    if (mha_prune_search(model, o, &curve, &err) != MHA_OK) fail_msg("%s", err.message);
    const mha_prune_point *p = mha_prune_curve_points(curve, &count), *best = mha_prune_curve_best(curve), *want = NULL;
    assert_int_equal(count, s->points);
    for (int64_t n = 0; n < count; n++) {
        expect_point(model, o->held_out, &p[n], o->max_increase);
        if (n > 0) assert_true(p[n - 1].count < p[n].count);
        if (p[n].within) want = &p[n];
    }
    assert_int_equal(p[0].count, 0);
    assert_int_equal(p[count - 1].count, 9); /* one head must remain in each of the three layers */
    assert_ptr_equal(best, want);
    mha_prune_curve_free(curve);
}

static void test_points_are_prunings(void **state)
{
    (void)state;
    double scores[CELLS];
    mha_model *model = case_open(NULL, "models/bert-tiny");
    mha_head_data *learn = data_of(model, 2, starts), *held = data_of(model, 7, starts);
    for (int n = 0; n < CELLS; n++)
        scores[n] = (n * 5) % CELLS;
    seen s = {0};
    mha_prune_search_options o = {
        .size = sizeof o, .learn = learn, .held_out = held, .max_increase = 0.02, .on_point = on_point, .user = &s};
    expect_curve(model, &o, &s);
    o.scores = scores;
    o.learn = NULL;
    s = (seen){0};
    expect_curve(model, &o, &s);
    o.max_increase = INFINITY;
    s = (seen){0};
    expect_curve(model, &o, &s);
    mha_head_data_free(learn);
    mha_head_data_free(held);
    mha_model_free(model);
}

static void test_refused(void **state)
{
    (void)state;
    static const int64_t single[TEXTS + 1] = {0, 1, 2, 3, 4};
    mha_prune_curve *curve = NULL;
    mha_error err = {0};
    mha_model *model = case_open(NULL, "models/gpt2-tiny");
    double scores[64] = {0};
    mha_head_data *held = data_of(model, 7, starts), *words = data_of(model, 7, single);
    seen s = {.last = 2};
    mha_prune_search_options o = {
        .size = sizeof o, .scores = scores, .held_out = held, .max_increase = 1, .on_point = on_point, .user = &s};
    assert_int_equal(mha_prune_search(model, &o, &curve, &err), MHA_ERR_CANCELED);
    assert_null(curve);
    assert_int_equal(s.points, 2);
    o.held_out = words;
    assert_int_equal(mha_prune_search(model, &o, &curve, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "held_out must have a token to predict"));
    o.held_out = NULL;
    assert_int_equal(mha_prune_search(model, &o, &curve, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "held_out must not be NULL"));
    o.held_out = held;
    o.max_increase = NAN;
    assert_int_equal(mha_prune_search(model, &o, &curve, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "max_increase must be at least 0"));
    o.max_increase = 1;
    o.scores = NULL;
    assert_int_equal(mha_prune_search(model, &o, &curve, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "learn must not be NULL if scores is NULL"));
    assert_int_equal(mha_prune_most(model, NULL), -1);
    assert_int_equal(mha_prune_most(NULL, &(mha_prune_rule){.size = sizeof(mha_prune_rule)}), -1);
    mha_head_data_free(held);
    mha_head_data_free(words);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_points_are_prunings), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
