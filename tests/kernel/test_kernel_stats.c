/* test_kernel_stats.c - compares each statistic of every kernel table with its formula in double. Probabilities must be
 * bitwise identical to those of the `probs` kernel. */
#include "kernel/table.h"

enum { MOMENTS = 5 };

/* Fills `s` with random scores, some masked and some equal, and stores the maximum and 1 / sum of each lane. */
static void fill_scores(const mha__kernels *t, int64_t keys, array *s, array *max, array *inverse, rng *r)
{
    for (int64_t i = 0; i < t->nr; i++) {
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < keys; j++) {
            const double x = rng_chance(r, 0.2) ? -INFINITY : (double)rng_range(r, -20, 20) / 4;
            put(s, j * t->nr + i, x);
            top = x > top ? x : top;
        }
        for (int64_t j = 0; j < keys; j++)
            sum += top == -INFINITY ? 0 : exp(get(s, j * t->nr + i) - top);
        put(max, i, top);
        put(inverse, i, sum > 0 ? 1 / sum : 0);
    }
}

/* Compares the moments of lane i with sums over the probabilities that the same kernel wrote to `p`. */
static void check_lane(const mha__kernels *t, int64_t keys, int64_t i, int64_t position, int64_t first,
                       const array *scores, const array *p, double max, const array *m)
{
    double total = 0, depth = 0, reach = 0, peak = 0, where = -1;
    for (int64_t j = 0; j < keys; j++) {
        const double x = get(p, j * t->nr + i), s = get(scores, j * t->nr + i);
        total += x;
        depth += x > 0 ? x * (max - s) : 0;
        reach += x * fabs((double)(position + i - first - j));
        if (x > peak) peak = x, where = (double)(first + j);
    }
    const double few = 20 * rounding(t);
    assert_true(fabs(get(&m[0], i) - total) <= few * total);
    assert_true(fabs(get(&m[1], i) - depth) <= few * depth);
    assert_true(fabs(get(&m[2], i) - reach) <= few * reach);
    assert_true(get(&m[3], i) == peak && get(&m[4], i) == where);
}

static void check_moments(const mha__kernels *t, int64_t lanes, rng *r)
{
    const int64_t keys = rng_range(r, 1, MHA__KEY_BLOCK), first = rng_range(r, 0, 20);
    const int64_t position = rng_range(r, -300, 5000);
    array s = array_make(t, keys * t->nr, 1, OUTPUT), p = array_make(t, keys * t->nr, 1, OUTPUT);
    array want = array_make(t, keys * t->nr, 1, OUTPUT), max = array_make(t, t->nr, 0, INPUT);
    array inverse = array_make(t, t->nr, 0, INPUT), m[MOMENTS];
    fill_scores(t, keys, &s, &max, &inverse, r);
    memcpy(p.data, s.data, (size_t)s.n * t->real_size);
    memcpy(want.data, s.data, (size_t)s.n * t->real_size);
    for (int n = 0; n < MOMENTS; n++)
        m[n] = array_make(t, t->nr, 0, OUTPUT);
    const mha__row_stat_sums moments = {m[0].data, m[1].data, m[2].data, m[3].data, m[4].data};
    t->moments(keys, lanes, max.data, inverse.data, position, first, p.data, &moments);
    t->probs(keys, lanes, max.data, inverse.data, want.data);
    assert_true(same_bits(&p, &want));
    for (int64_t i = 0; i < lanes; i++)
        check_lane(t, keys, i, position, first, &s, &p, get(&max, i), m);
    assert_true(guards_intact(&p));
    for (int n = 0; n < MOMENTS; n++) {
        assert_true(guards_intact(&m[n]));
        array_free(&m[n]);
    }
    array_free(&s), array_free(&p), array_free(&want), array_free(&max), array_free(&inverse);
}

static void test_moments(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(6, 1);
    for (int n = tables(list); n-- > 0;)
        for (int64_t lanes = 1; lanes <= list[n]->nr; lanes++)
            check_moments(list[n], lanes, &r);
}

/* The probabilities of all lanes in use must be added to mass[key]. Unused lanes are NaN and must not be added. */
static void check_mass(const mha__kernels *t, int64_t lanes, rng *r)
{
    enum { KEYS = 9 };
    array s = array_make(t, KEYS * t->nr, 0, INPUT);
    double mass[KEYS], want[KEYS];
    for (int64_t j = 0; j < KEYS; j++) {
        mass[j] = want[j] = (double)j;
        for (int64_t i = 0; i < t->nr; i++) {
            put(&s, j * t->nr + i, i < lanes ? rng_uniform(r) : (double)NAN);
            if (i < lanes) want[j] += get(&s, j * t->nr + i);
        }
    }
    t->mass(KEYS, lanes, s.data, mass);
    for (int64_t j = 0; j < KEYS; j++)
        assert_true(fabs(mass[j] - want[j]) <= 8 * rounding(t) * want[j]);
    array_free(&s);
}

static void test_mass(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(6, 2);
    for (int n = tables(list); n-- > 0;)
        for (int64_t lanes = 1; lanes <= list[n]->nr; lanes++)
            check_mass(list[n], lanes, &r);
}

static void test_next_above(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    static const double column[] = {0, 0.5, (double)NAN, 0.25, 0.75};
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        const int64_t lane = t->nr - 1;
        array s = array_make(t, 5 * t->nr, 0, INPUT);
        for (int64_t j = 0; j < 5; j++)
            for (int64_t i = 0; i < t->nr; i++)
                put(&s, j * t->nr + i, i == lane ? column[j] : 9);
        assert_int_equal(t->next_above(0, 5, s.data, lane, 0), 1);
        assert_int_equal(t->next_above(2, 5, s.data, lane, 0), 3);
        assert_int_equal(t->next_above(2, 5, s.data, lane, 0.25), 4);
        assert_int_equal(t->next_above(0, 5, s.data, lane, 0.75), 5);
        assert_int_equal(t->next_above(5, 5, s.data, lane, 0), 5);
        array_free(&s);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_mass),
        cmocka_unit_test(test_next_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
