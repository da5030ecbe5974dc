/* test_heads_work.c - tests measurements whose steps are divided among several calls: for any division, the last call
 * must return results bitwise identical to those of a single call. Invalid results of a callback must be rejected. */
#include "mha/compare_models.h"
#include "mha/diversity.h"
#include "mha/heads.h"
#include "mha/importance.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 60, MAX = 40, VOCAB = 500, BATCH = 100 };
static const char STATISTICS[] = "statistics of heads";

static int32_t ids[TEXTS * MAX];
static int64_t starts[TEXTS + 1];
static mha_model *model;
static mha_head_data *data; /* data for a single call */

/* Simulates processes that make their calls one after another: process `me` of `count` computes the steps n with n %
 * count == me. */
typedef struct turns {
    int me, count;
    int64_t next, steps, values, added, min; /* the number of steps must be above `min` */
    int64_t *sums;
    char state[32];
    const char *name;  /* must be part of the name of the measurement */
    const char *fails; /* name of the callback that fails, or NULL */
} turns;

static mha_status fail_in(const turns *t, const char *name, mha_error *err)
{
    if (!t->fails || strcmp(t->fails, name) != 0) return MHA_OK;
    err->status = MHA_ERR_IO;
    strcpy(err->message, name);
    return MHA_ERR_IO;
}

static mha_status begin(void *user, const mha_work_info *info, mha_error *err)
{
    turns *t = user;
    assert_true(strstr(info->name, t->name) && strlen(info->model) == 16 && strlen(info->data) == 16);
    assert_true(info->steps > t->min && info->values > 0);
    if (info->state) strcpy(t->state, info->state);
    if (!t->sums) t->sums = calloc((size_t)info->values, sizeof *t->sums);
    assert_non_null(t->sums);
    t->next = t->me;
    t->steps = info->steps;
    t->values = info->values;
    return fail_in(t, "begin", err);
}

static mha_status next(void *user, int64_t *step, mha_error *err)
{
    turns *t = user;
    *step = t->next < t->steps ? t->next : -1;
    t->next += t->count;
    return fail_in(t, "next", err);
}

static mha_status add(void *user, int64_t step, const int64_t *values, mha_error *err)
{
    turns *t = user;
    assert_int_equal(step % t->count, t->me);
    for (int64_t n = 0; n < t->values; n++)
        t->sums[n] += values[n];
    t->added++;
    return fail_in(t, "add", err);
}

static mha_status total(void *user, int64_t *values, mha_error *err)
{
    const turns *t = user;
    memcpy(values, t->sums, (size_t)t->values * sizeof *values);
    return fail_in(t, "total", err);
}

static mha_head_data *data_with(const mha_work *work)
{
    mha_head_data *made;
    mha_error err = {0};
    const mha_head_data_options how = {.size = sizeof how, .batch_tokens = BATCH, .work = work};
    if (mha_head_data_of_ids(model, ids, starts, TEXTS, &how, &made, &err) != MHA_OK) fail_msg("%s", err.message);
    return made;
}

static mha_heads *measure(turns *t, mha_status want, const char *message)
{
    mha_heads *heads;
    mha_error err = {0};
    const mha_work work = {sizeof work, t, begin, next, add, total};
    mha_head_data *shared = t ? data_with(&work) : NULL;
    const mha_heads_options options = {.size = sizeof options, .state = t && t->me == 1 ? "name" : NULL};
    assert_int_equal(mha_heads_measure_data(model, t ? shared : data, &options, &heads, &err), want);
    mha_head_data_free(shared);
    if (message && !strstr(err.message, message)) fail_msg("%s", err.message);
    return heads;
}

static bool same(const double *a, const double *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

static void compare(const mha_heads *a, const mha_heads *b)
{
    for (int64_t l = 0; l < mha_heads_layers(a); l++)
        for (int64_t h = 0; h < mha_heads_count(a, l); h++) {
            int64_t n;
            for (int m = 0; m < MHA_HEAD_METRICS; m++) {
                const double x = mha_heads_value(a, l, h, (mha_head_metric)m);
                const double y = mha_heads_value(b, l, h, (mha_head_metric)m);
                assert_true(same(&x, &y, 1));
            }
            const double *x = mha_heads_received(a, l, h, &n), *y = mha_heads_received(b, l, h, NULL);
            assert_true(same(x, y, n));
        }
}

static void test_shared(void **state)
{
    (void)state;
    mha_heads *alone = measure(NULL, MHA_OK, NULL);
    for (int count = 1; count <= 4; count++) {
        turns t = {.count = count, .min = 5, .name = STATISTICS};
        mha_heads *last = NULL;
        for (int me = count - 1; me >= 0; me--) { /* in reverse order, so that process 0 makes the last call */
            t.me = me;
            mha_heads_free(last);
            last = measure(&t, MHA_OK, NULL);
        }
        assert_int_equal(t.added, t.steps);
        if (count > 1) assert_string_equal(t.state, "name");
        compare(alone, last);
        mha_heads_free(last);
        free(t.sums);
    }
    mha_heads_free(alone);
}

/* ---- other measurements, with results as lists of doubles ---- */

enum { ELEMENTS = 1 << 16 };

typedef struct numbers {
    double at[ELEMENTS];
    int64_t count;
} numbers;

static void put(numbers *n, double x)
{
    assert_true(n->count < ELEMENTS);
    n->at[n->count++] = x;
}

static void score(const mha_head_data *texts, mha_importance_score by, int64_t batch, numbers *out)
{
    const mha_importance_options options = {
        .size = sizeof options, .by = by, .batch_texts = batch, .loss = batch ? MHA_LOSS_PAIRS : MHA_LOSS_AUTO};
    const mha_model_info *info = mha_model_describe(model);
    mha_importance *i;
    mha_error err = {0};
    if (mha_importance_measure(model, texts, &options, &i, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t l = 0; l < info->layers; l++)
        for (int64_t h = 0; h < info->heads; h++) {
            put(out, mha_importance_value(i, l, h));
            put(out, mha_importance_low(i, l, h));
            put(out, mha_importance_high(i, l, h));
        }
    put(out, mha_importance_halves(i));
    put(out, mha_importance_loss(i));
    put(out, mha_importance_identity(i));
    put(out, (double)mha_importance_texts_used(i));
    mha_importance_free(i);
}

static void by_jacobian_probe(const mha_head_data *texts, numbers *out)
{
    score(texts, MHA_IMPORTANCE_JACOBIAN_PROBE, 0, out);
}

static void by_gate_of_pairs(const mha_head_data *texts, numbers *out)
{
    score(texts, MHA_IMPORTANCE_GATE, 7, out);
}

static void by_gradmag_of_pairs(const mha_head_data *texts, numbers *out)
{
    score(texts, MHA_IMPORTANCE_GRADMAG, 4, out);
}

static void by_loo(const mha_head_data *texts, numbers *out)
{
    score(texts, MHA_IMPORTANCE_LOO, 0, out);
}

/* The loss of all tokens. A single process runs larger steps than several processes. */
static void by_loo_loss(const mha_head_data *texts, numbers *out)
{
    const mha_importance_options options = {
        .size = sizeof options, .by = MHA_IMPORTANCE_LOO_LOSS, .loss = MHA_LOSS_MLM, .labels = ids};
    mha_model *other = case_open(NULL, "models/bert-mlm-tiny");
    mha_importance *i;
    assert_int_equal(mha_importance_measure(other, texts, &options, &i, NULL), MHA_OK);
    const mha_model_info *info = mha_model_describe(other);
    for (int64_t n = 0; n < info->layers * info->heads; n++) {
        put(out, mha_importance_value(i, n / info->heads, n % info->heads));
        put(out, mha_importance_low(i, n / info->heads, n % info->heads));
    }
    put(out, mha_importance_loss(i));
    mha_importance_free(i);
    mha_model_free(other);
}

static void by_pairs_of_heads(const mha_head_data *texts, numbers *out)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t heads = info->layers * info->heads;
    assert_true(out->count + heads * heads <= ELEMENTS);
    assert_int_equal(mha_importance_pairs(model, texts, NULL, out->at + out->count, NULL), MHA_OK);
    out->count += heads * heads;
}

static void by_diversity(const mha_head_data *texts, numbers *out)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t heads = info->layers * info->heads;
    mha_diversity *d;
    assert_int_equal(mha_diversity_measure(model, texts, NULL, &d, NULL), MHA_OK);
    for (int what = 0; what < MHA_DIVERSITIES; what++)
        for (int64_t n = 0; n < heads * heads; n++) {
            const int64_t a = n / heads, b = n % heads, H = info->heads;
            put(out, mha_diversity_value(d, (mha_diversity_kind)what, a / H, a % H, b / H, b % H));
        }
    mha_diversity_free(d);
}

static void by_comparison(const mha_head_data *texts, numbers *out)
{
    mha_comparison c;
    double cosines[TEXTS];
    mha_model *other = case_open(NULL, "models/bert-mlm-tiny");
    assert_int_equal(mha_models_compare(model, other, texts, cosines, NULL, &c, NULL), MHA_OK);
    for (int n = 0; n < TEXTS; n++)
        put(out, cosines[n]);
    put(out, c.mean_cosine);
    put(out, c.min_cosine);
    put(out, (double)c.worst);
    mha_model_free(other);
}

static void test_others(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*measure)(const mha_head_data *, numbers *);
    } all[] = {
        {"jacobian_probe, loss ", by_jacobian_probe},
        {"gate, loss pairs", by_gate_of_pairs},
        {"gradmag, loss pairs", by_gradmag_of_pairs},
        {"loo, loss ", by_loo},
        {"loo_loss, loss ", by_loo_loss},
        {"pairs of heads", by_pairs_of_heads},
        {"diversity", by_diversity},
        {"comparison with model", by_comparison},
    };
    static numbers want, got;
    for (size_t m = 0; m < sizeof all / sizeof *all; m++) {
        want.count = 0;
        all[m].measure(data, &want);
        assert_true(want.count > 10);
        for (int count = 1; count <= 3; count++) {
            turns t = {.count = count, .min = 1, .name = all[m].name};
            const mha_work work = {sizeof work, &t, begin, next, add, total};
            mha_head_data *shared = data_with(&work);
            for (int me = count - 1; me >= 0; me--) {
                t.me = me;
                got.count = 0;
                all[m].measure(shared, &got);
            }
            assert_true(t.added == t.steps && got.count == want.count && same(got.at, want.at, got.count));
            mha_head_data_free(shared);
            free(t.sums);
        }
    }
}

static void test_settle(void **state)
{
    (void)state;
    mha_importance *i;
    mha_error err = {0};
    turns t = {.count = 1};
    const mha_work work = {sizeof work, &t, begin, next, add, total};
    mha_head_data *shared = data_with(&work);
    const mha_importance_options options = {.size = sizeof options, .by = MHA_IMPORTANCE_LOO, .settle = 0.5};
    assert_int_equal(mha_importance_measure(model, shared, &options, &i, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "data must be created without mha_work"));
    mha_head_data_free(shared);
}

static void test_failures(void **state)
{
    (void)state;
    static const char *const names[] = {"begin", "next", "add", "total"};
    for (int n = 0; n < 4; n++) {
        turns t = {.count = 1, .name = STATISTICS, .fails = names[n]};
        assert_null(measure(&t, MHA_ERR_IO, names[n]));
        free(t.sums);
    }
}

static mha_status same_step(void *user, int64_t *step, mha_error *err)
{
    (void)user, (void)err;
    *step = 1;
    return MHA_OK;
}

static void test_refusals(void **state)
{
    (void)state;
    mha_heads *heads;
    mha_error err = {0};
    turns t = {.count = 1, .name = STATISTICS};
    mha_work work = {sizeof work, &t, begin, same_step, add, total};
    mha_head_data *shared = data_with(&work), *single;
    assert_int_equal(mha_heads_measure_data(model, shared, NULL, &heads, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "mha_work: next must return a step from 2 to "));
    mha_head_data_free(shared);
    free(t.sums);
    const int64_t one[] = {0, 5};
    const mha_head_data_options how = {.size = sizeof how, .work = &work};
    const mha_heads_options maps = {.size = sizeof maps, .keep_maps = 1};
    assert_int_equal(mha_head_data_of_ids(model, ids, one, 1, &how, &single, &err), MHA_OK);
    assert_int_equal(mha_heads_measure_data(model, single, &maps, &heads, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_heads_options: keep_maps must be 0 for data with work");
    mha_head_data_free(single);
    work.total = NULL;
    assert_int_equal(mha_head_data_of_ids(model, ids, one, 1, &how, &single, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_work: begin, next, add and total must not be NULL");
}

/* A mha_work struct from a newer header must be copied if its additional fields are zero, and rejected otherwise. */
static void test_newer_struct(void **state)
{
    (void)state;
    mha_heads *heads;
    mha_head_data *shared;
    mha_error err = {0};
    turns t = {.count = 1, .name = STATISTICS};
    struct {
        mha_work known;
        int64_t later;
    } work = {.known = {sizeof work, &t, begin, next, add, total}};
    const mha_head_data_options how = {.size = sizeof how, .batch_tokens = BATCH, .work = &work.known};
    assert_int_equal(mha_head_data_of_ids(model, ids, starts, TEXTS, &how, &shared, &err), MHA_OK);
    memset(&work.known.user, 0, sizeof work - sizeof work.known.size); /* the data contain a copy of the callbacks */
    assert_int_equal(mha_heads_measure_data(model, shared, NULL, &heads, &err), MHA_OK);
    assert_true(t.steps > 1 && t.added == t.steps);
    mha_heads_free(heads);
    mha_head_data_free(shared);
    free(t.sums);
    work.later = 1;
    assert_int_equal(mha_head_data_of_ids(model, ids, starts, TEXTS, &how, &shared, &err), MHA_ERR_UNSUPPORTED);
    work.known.size = 0;
    assert_int_equal(mha_head_data_of_ids(model, ids, starts, TEXTS, &how, &shared, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "mha_work.size must be sizeof(mha_work) = "));
}

static int setup(void **state)
{
    (void)state;
    rng r = rng_make(12, 1);
    for (int64_t i = 0; i < TEXTS; i++)
        starts[i + 1] = starts[i] + rng_range(&r, 1, MAX);
    for (int64_t i = 0; i < starts[TEXTS]; i++)
        ids[i] = (int32_t)rng_range(&r, 0, VOCAB - 1);
    model = case_model(NULL, "models/bert-tiny", NULL);
    data = data_with(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mha_head_data_free(data);
    mha_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared),   cmocka_unit_test(test_others),
                                       cmocka_unit_test(test_settle),   cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_newer_struct)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
