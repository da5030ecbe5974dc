/* test_heads_stats.c - tests the scores of one head without a model: for small maps with values calculated by hand, and
 * for the ideal patterns of golden/heads and their known labels. */
#include "heads/measure/head_stats.h"
#include "mha/io.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 24 };

/* ---- maps, passed row by row as the attention operator does ---- */

typedef struct row_numbers {
    double entropy, largest, distance;
    int64_t key;
} row_numbers;

static row_numbers numbers_of(const float *p, int64_t n, int64_t i)
{
    row_numbers r = {.key = -1};
    for (int64_t j = 0; j < n; j++) {
        const double x = (double)p[j];
        r.entropy -= x > 0 ? x * log2(x) : 0;
        r.distance += x * fabs((double)(i - j));
        if (x > r.largest) r.largest = x, r.key = j;
        if (isnan(x)) return (row_numbers){x, x, x, -1};
    }
    return r;
}

/* Passes the rows of a map [n, n] to `show`, `rows` rows per call. */
static void each_rows(int64_t n, int64_t rows, const float *map, void (*show)(void *user, const mha_attn_rows *rows),
                      void *user)
{
    enum { ROWS = 64 };
    double entropy[ROWS], largest[ROWS], distance[ROWS];
    int64_t key[ROWS];
    for (int64_t first = 0; first < n; first += rows) {
        const int64_t count = first + rows < n ? rows : n - first;
        for (int64_t i = 0; i < count; i++) {
            const row_numbers r = numbers_of(map + (first + i) * n, n, first + i);
            entropy[i] = r.entropy, largest[i] = r.largest, distance[i] = r.distance, key[i] = r.key;
        }
        show(user, &(mha_attn_rows){.first = first,
                                    .count = count,
                                    .keys = n,
                                    .stride = n,
                                    .p = map + first * n,
                                    .entropy = entropy,
                                    .largest = largest,
                                    .distance = distance,
                                    .largest_key = key});
    }
}

typedef struct target {
    mha__head_stats *stats;
    mha__head_lines lines;
    mha__head_text text;
    double *received;
} target;

static void show(void *user, const mha_attn_rows *rows)
{
    const target *t = user;
    mha__head_stats_add(t->stats, &t->lines, &t->text, rows, t->received);
}

/* Adds the map of one text to the statistics. `segments` and `received` may be NULL. */
static void add(mha__head_stats *s, int64_t n, const uint8_t *kind, const int32_t *segments, bool causal,
                const float *map, double *received)
{
    double *memory = calloc(mha__head_lines_doubles(n), sizeof *memory), *bits = calloc((size_t)n + 1, sizeof *bits);
    int64_t *content = calloc((size_t)n + 1, sizeof *content);
    int32_t *listed = calloc((size_t)n, 3 * sizeof *listed);
    assert_true(memory && bits && content && listed);
    for (int64_t i = 1; i <= n; i++)
        bits[i] = log2((double)i);
    target t = {.stats = s,
                .lines = mha__head_lines_at(memory, n),
                .text = {.n = n,
                         .causal = causal,
                         .kind = kind,
                         .segments = segments,
                         .bits = bits,
                         .content = content,
                         .listed = listed},
                .received = received};
    mha__head_text_fill(&t.text);
    each_rows(n, 5, map, show, &t);
    for (size_t i = 0; i < mha__head_lines_doubles(n); i++)
        assert_true(memory[i] == 0);
    free(memory), free(bits), free(content), free(listed);
}

static mha__head_stats measure(int64_t n, const uint8_t *kind, bool causal, const float *map)
{
    mha__head_stats s = {.sum = {0}};
    add(&s, n, kind, NULL, causal, map, NULL);
    return s;
}

typedef struct probe {
    mha__head_stats *stats;
    int64_t start, period;
    bool causal;
} probe;

static void show_probe(void *user, const mha_attn_rows *rows)
{
    const probe *p = user;
    mha__head_stats_add_probe(p->stats, p->start, p->period, p->causal, rows);
}

static void add_probe(mha__head_stats *s, int64_t n, int64_t start, int64_t period, bool causal, const float *map)
{
    probe p = {s, start, period, causal};
    each_rows(n, 3, map, show_probe, &p);
}

static mha_head_label label_of(const mha__head_stats *s)
{
    const mha_head_thresholds none = {0};
    mha_head_thresholds limits;
    assert_int_equal(mha__head_thresholds_read(&none, &limits, NULL), MHA_OK);
    return mha__head_stats_label(s, &limits);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6)) fail_msg("got %.9g, expected %.9g", got, want);
}

/* The scores of a map of three tokens must equal values calculated by hand. */
static void by_hand(void **state)
{
    (void)state;
    const uint8_t kind[3] = {MHA_TOKEN_SPECIAL, 0, MHA_TOKEN_SEP | MHA_TOKEN_SPECIAL};
    const float map[9] = {1, 0, 0, 0.5F, 0.25F, 0.25F, 0, 0, 1};
    mha__head_stats s = measure(3, kind, false, map);
    near(mha__head_stats_value(&s, MHA_HEAD_ENTROPY), 1.5 / 3);
    near(mha__head_stats_value(&s, MHA_HEAD_CONFIDENCE), 2.5 / 3);
    near(mha__head_stats_value(&s, MHA_HEAD_DISTANCE), 0.75 / 3);
    near(mha__head_stats_value(&s, MHA_HEAD_OFFSET), -0.25 / 3);
    near(mha__head_stats_value(&s, MHA_HEAD_PREV), 0.5);
    near(mha__head_stats_value(&s, MHA_HEAD_FIRST), 0.5);
    near(mha__head_stats_value(&s, MHA_HEAD_SELF), 0.25);
    near(mha__head_stats_value(&s, MHA_HEAD_NEXT), 0.25);
    near(mha__head_stats_value(&s, MHA_HEAD_SEP), 0.25);
    near(mha__head_stats_value(&s, MHA_HEAD_BROAD), 1.5 / log2(3));
    /* with a single row of a content token, the columns explain all variance */
    near(mha__head_stats_value(&s, MHA_HEAD_VERTICAL), 1);
    assert_true(isnan(mha__head_stats_value(&s, MHA_HEAD_DUP_PROBE)));
    /* the scores for prev and first are equal, so the rule that is checked first must apply */
    assert_int_equal(label_of(&s), MHA_LABEL_PREV);
}

/* A causal head that attends equally to all visible keys must have a normalized entropy of 1. Row 0 has one visible key
 * and must not be counted. */
static void causal_even(void **state)
{
    (void)state;
    uint8_t kind[N] = {0};
    float map[N * N] = {0};
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            map[i * N + j] = 1.0F / (float)(i + 1);
    mha__head_stats s = measure(N, kind, true, map);
    near(mha__head_stats_value(&s, MHA_HEAD_ENTROPY_NORM), 1);
    near(s.over[MHA_HEAD_ENTROPY_NORM], N - 1);
    assert_int_equal(label_of(&s), MHA_LABEL_BROAD);
}

/* Scores of several texts must be means over the rows of all texts, not means of the means per text. */
static void texts_pool_by_rows(void **state)
{
    (void)state;
    uint8_t kind[2] = {0};
    const float one[1] = {1}, two[4] = {0, 1, 1, 0};
    mha__head_stats s = {.sum = {0}};
    add(&s, 1, kind, NULL, false, one, NULL);
    add(&s, 2, kind, NULL, false, two, NULL);
    near(mha__head_stats_value(&s, MHA_HEAD_SELF), 1.0 / 3);
}

/* Tests the probe text "[first] a b a b [last]". The induction score must be 1 for a head that attends to the token
 * after the previous occurrence of the query's token. The duplicate score must be 1 for a head that attends to the
 * previous occurrence itself. */
static void probes(void **state)
{
    (void)state;
    enum { LENGTH = 6, START = 1, PERIOD = 2 };
    for (int induction = 0; induction < 2; induction++) {
        float map[LENGTH * LENGTH] = {0};
        for (int i = START + PERIOD; i < START + 2 * PERIOD; i++)
            map[i * LENGTH + i - PERIOD + induction] = 1;
        mha__head_stats s = {.sum = {0}};
        add_probe(&s, LENGTH, START, PERIOD, true, map);
        near(mha__head_stats_value(&s, MHA_HEAD_INDUCTION_PROBE), induction);
        near(mha__head_stats_value(&s, MHA_HEAD_DUP_PROBE), !induction);
    }
}

static const mha_head_metric golden_order[12] = {MHA_HEAD_PREV,     MHA_HEAD_NEXT,      MHA_HEAD_SELF,
                                                 MHA_HEAD_FIRST,    MHA_HEAD_SEP,       MHA_HEAD_PUNCT,
                                                 MHA_HEAD_WINDOW2,  MHA_HEAD_BROAD,     MHA_HEAD_VERTICAL,
                                                 MHA_HEAD_TOEPLITZ, MHA_HEAD_DUP_PROBE, MHA_HEAD_INDUCTION_PROBE};
static const mha_head_label golden_labels[12] = {
    MHA_LABEL_MIXED, MHA_LABEL_PREV,  MHA_LABEL_NEXT,     MHA_LABEL_SELF,      MHA_LABEL_FIRST,     MHA_LABEL_SEP,
    MHA_LABEL_LOCAL, MHA_LABEL_BROAD, MHA_LABEL_VERTICAL, MHA_LABEL_DUPLICATE, MHA_LABEL_INDUCTION, MHA_LABEL_PUNCT};

static void golden_patterns(void **state)
{
    (void)state;
    enum { MAPS = 10, SCORES = 12 };
    mha_file *file;
    mha_error err = {0};
    uint8_t kind[N] = {[0] = MHA_TOKEN_SPECIAL, [11] = MHA_TOKEN_PUNCT, [N - 1] = MHA_TOKEN_SPECIAL | MHA_TOKEN_SEP};
    static float maps[MAPS * N * N], scores[SCORES * MAPS];
    int64_t labels[MAPS];
    if (mha_file_open(NULL, MHA_TEST_DATA "/heads/synthetic-patterns.safetensors", NULL, &file, &err))
        fail_msg("%s", err.message);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "maps"), MHA_F32, maps, &err), MHA_OK);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "pattern_scores"), MHA_F32, scores, &err), MHA_OK);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "labels"), MHA_I64, labels, &err), MHA_OK);
    for (int m = 0; m < MAPS; m++) {
        mha__head_stats s = measure(N, kind, false, maps + m * N * N);
        for (int k = 0; k < SCORES - 2; k++) /* except the two probe scores, which require a probe text */
            near(mha__head_stats_value(&s, golden_order[k]), (double)scores[k * MAPS + m]);
        assert_int_equal(label_of(&s), golden_labels[labels[m]]);
    }
    mha_file_free(file);
}

/* Compares the statistics of the maps of a small causal model with the reference. Each text is token 0, followed by 15
 * random tokens twice, so it is also the probe text of the induction scores. The tolerances are abs_tolerance in the
 * reference's index.json: ten times the error of an f32 run. */
static void golden_causal_model(void **state)
{
    (void)state;
    enum { TEXTS = 4, HEADS = 8, LENGTH = 31, PERIOD = 15, SCORES = 12 };
    mha_file *file;
    mha_error err = {0};
    const uint8_t kind[LENGTH] = {[0] = MHA_TOKEN_SPECIAL};
    static float maps[TEXTS * HEADS * LENGTH * LENGTH];
    double scores[SCORES * HEADS], entropy[HEADS];
    int64_t labels[HEADS];
    if (mha_file_open(NULL, MHA_TEST_DATA "/heads/tinylm-golden.safetensors", NULL, &file, &err))
        fail_msg("%s", err.message);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "attention"), MHA_F32, maps, &err), MHA_OK);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "pattern_scores"), MHA_F64, scores, &err), MHA_OK);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "entropy"), MHA_F64, entropy, &err), MHA_OK);
    assert_int_equal(mha_tensor_read(mha_file_find(file, "labels"), MHA_I64, labels, &err), MHA_OK);
    for (int h = 0; h < HEADS; h++) {
        mha__head_stats s = {.sum = {0}};
        for (int b = 0; b < TEXTS; b++) {
            const float *map = maps + (b * HEADS + h) * LENGTH * LENGTH;
            add(&s, LENGTH, kind, NULL, true, map, NULL);
            add_probe(&s, LENGTH, 1, PERIOD, true, map);
        }
        for (int k = 0; k < SCORES; k++)
            assert_true(fabs(mha__head_stats_value(&s, golden_order[k]) - scores[k * HEADS + h]) <= 1.1e-6);
        assert_true(fabs(mha__head_stats_value(&s, MHA_HEAD_ENTROPY) - entropy[h]) <= 2.7e-6);
        assert_int_equal(label_of(&s), golden_labels[labels[h]]);
    }
    mha_file_free(file);
}

/* A NaN in one row must make only the scores that depend on this row NaN. */
static void not_a_number(void **state)
{
    (void)state;
    const uint8_t kind[2] = {0};
    const float map[4] = {0.5F, 0.5F, NAN, 1};
    mha__head_stats s = measure(2, kind, false, map);
    assert_true(isnan(mha__head_stats_value(&s, MHA_HEAD_ENTROPY)));
    assert_true(isnan(mha__head_stats_value(&s, MHA_HEAD_CONFIDENCE)));
    assert_true(isnan(mha__head_stats_value(&s, MHA_HEAD_VERTICAL)));
    near(mha__head_stats_value(&s, MHA_HEAD_NEXT), 0.5); /* depends only on row 0, the only row with a next token */
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(mha_head_metric_key(MHA_HEAD_ENTROPY), "entropy");
    assert_string_equal(mha_head_label_key(MHA_LABEL_MIXED), "mixed");
    assert_null(mha_head_metric_key(MHA_HEAD_METRICS));
    assert_null(mha_head_label_help((mha_head_label)-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),      cmocka_unit_test(causal_even),     cmocka_unit_test(texts_pool_by_rows),
        cmocka_unit_test(probes),       cmocka_unit_test(golden_patterns), cmocka_unit_test(golden_causal_model),
        cmocka_unit_test(not_a_number), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
