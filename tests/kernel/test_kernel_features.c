/* test_kernel_features.c - ALiBi, sinks and gates on every table: each number against the formula in double. */
#include "kernel/table.h"

static void check_alibi(const mha__kernels *t, int64_t lanes, rng *r)
{
    const int64_t keys = rng_range(r, 1, MHA__KEY_BLOCK), first = rng_range(r, 0, 20);
    const int64_t position = rng_range(r, -300, 5000);
    const double slope = (double)(float)rng_normal(r);
    array s = array_make(t, keys * t->nr, 1, OUTPUT), was = array_make(t, keys * t->nr, 0, 0);
    fill(&s, r);
    memcpy(was.data, s.data, (size_t)s.n * t->real_size);
    t->alibi(keys, lanes, slope, position, first, s.data);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < lanes; i++) {
            const double far = fabs((double)(position + i - first - j)), from = get(&was, j * t->nr + i);
            const double error = get(&s, j * t->nr + i) - (from - slope * far);
            assert_true(fabs(error) <= 2 * rounding(t) * (fabs(from) + fabs(slope) * far));
        }
    assert_true(guards_intact(&s));
    array_free(&s), array_free(&was);
}

/* Where a block begins does not change a bit, also at distances that are not exact in f32. */
static void check_alibi_cut(const mha__kernels *t, rng *r)
{
    const int64_t keys = 100, position = INT64_C(40000001) + rng_range(r, 0, 99);
    array whole = array_make(t, keys * t->nr, 0, OUTPUT), parts = array_make(t, keys * t->nr, 0, OUTPUT);
    fill(&whole, r);
    memcpy(parts.data, whole.data, (size_t)whole.n * t->real_size);
    t->alibi(keys, t->nr, 0.125, position, 0, whole.data);
    t->alibi(37, t->nr, 0.125, position, 0, parts.data);
    t->alibi(63, t->nr, 0.125, position, 37, at_number(&parts, 37 * t->nr));
    assert_true(same_bits(&whole, &parts));
    array_free(&whole), array_free(&parts);
}

static void test_alibi(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(5, 1);
    for (int n = tables(list); n-- > 0;) {
        for (int64_t lanes = 1; lanes <= list[n]->nr; lanes++)
            check_alibi(list[n], lanes, &r);
        check_alibi_cut(list[n], &r);
    }
}

/* A sink is a merge with {max = sink, sum = 1, o = 0}, to the bit. */
static void check_sink(const mha__kernels *t, int64_t rows, double sink, rng *r)
{
    const int64_t dv = 2 * t->vl - 1, stride = t->nr, numbers = 2 * t->nr;
    array o[3], max[3], sum[3];
    mha__partial p[3];
    for (int n = 0; n < 3; n++) {
        o[n] = array_make(t, rows * stride, 0, OUTPUT);
        max[n] = array_make(t, numbers, 0, OUTPUT);
        sum[n] = array_make(t, numbers, 0, OUTPUT);
        p[n] = (mha__partial){max[n].data, sum[n].data, o[n].data};
        t->clear(rows, stride, &p[n]);
    }
    for (int64_t i = 0; i < rows; i++) {
        const bool empty = rng_chance(r, 0.2);
        const double top = empty ? -INFINITY : rng_normal(r), total = empty ? 0 : 1 + rng_uniform(r);
        for (int n = 0; n < 2; n++)
            put(&max[n], i, top), put(&sum[n], i, total);
        put(&max[2], i, sink), put(&sum[2], i, sink == -INFINITY ? 0 : 1);
        for (int64_t c = 0; c < dv && !empty; c++) {
            put(&o[0], i * stride + c, rng_normal(r));
            put(&o[1], i * stride + c, get(&o[0], i * stride + c));
        }
    }
    t->sink(rows, dv, stride, sink, &p[0]);
    t->merge(rows, dv, stride, &p[2], &p[1]);
    for (int64_t i = 0; i < rows; i++) {
        assert_true(get(&max[0], i) == get(&max[1], i) && get(&sum[0], i) == get(&sum[1], i));
        for (int64_t c = 0; c < dv; c++)
            assert_true(get(&o[0], i * stride + c) == get(&o[1], i * stride + c));
    }
    for (int n = 0; n < 3; n++) {
        assert_true(guards_intact(&o[n]) && guards_intact(&max[n]) && guards_intact(&sum[n]));
        array_free(&o[n]), array_free(&max[n]), array_free(&sum[n]);
    }
}

static void test_sink(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(5, 2);
    for (int n = tables(list); n-- > 0;)
        for (int64_t rows = 1; rows <= list[n]->nr; rows++) {
            check_sink(list[n], rows, rng_normal(&r), &r);
            check_sink(list[n], rows, 40, &r);
            check_sink(list[n], rows, -INFINITY, &r);
        }
}

static void test_gate(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    for (int n = tables(list); n-- > 0;) {
        array inverse = array_make(list[n], 5, 0, INPUT), scale = array_make(list[n], 5, 0, OUTPUT);
        for (int64_t i = 0; i < 5; i++)
            put(&inverse, i, (double)i / 4);
        list[n]->gate(5, -1.5, inverse.data, scale.data);
        for (int64_t i = 0; i < 5; i++)
            assert_true(get(&scale, i) == -1.5 * (double)i / 4);
        assert_true(guards_intact(&scale));
        array_free(&inverse), array_free(&scale);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alibi),
        cmocka_unit_test(test_sink),
        cmocka_unit_test(test_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
