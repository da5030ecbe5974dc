/* test_kernel_features.c - compares ALiBi, sinks, gates and dropout in every kernel table with formulas in double. */
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

/* ALiBi biases of two blocks must be bitwise identical to those of one block, even at distances that f32 cannot
 * represent exactly. */
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

/* Adding a sink must be bitwise identical to merging a partial result with {max = sink, sum = 1, o = 0}. */
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

/* Compares the first word of Philox4x32-10 with published test vectors (Random123, kat_vectors). The kernel must drop
 * an entry if and only if `dropped` is greater than its word. */
static void test_draw(void **state)
{
    (void)state;
    static const struct {
        mha__draw draw;
        uint32_t word;
    } known[] = {
        {{0, 0, 0, 0, 0, 0}, 0x6627e8d5},
        {{UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0}, 0x408f276d},
        {{UINT64_C(0x299f31d0a4093822), 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0}, 0xd16cfe09},
    };
    const mha__kernels *list[TABLES];
    for (int n = tables(list); n-- > 0;)
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            array mask = array_make(list[n], 3 * list[n]->nr, 0, OUTPUT);
            mha__draw draw = known[k].draw;
            draw.dropped = known[k].word;
            list[n]->draw(1, 1, &draw, mask.data);
            assert_true(get(&mask, 0) == 0);
            draw.dropped++;
            list[n]->draw(1, 1, &draw, mask.data);
            assert_true(get(&mask, 0) == -INFINITY);
            draw.i -= (uint32_t)list[n]->nr - 1; /* now the entry is the last lane of the last key */
            draw.j -= 2;
            list[n]->draw(3, list[n]->nr, &draw, mask.data);
            assert_true(get(&mask, mask.n - 1) == -INFINITY);
            draw.dropped--;
            list[n]->draw(3, list[n]->nr, &draw, mask.data);
            assert_true(get(&mask, mask.n - 1) == 0 && guards_intact(&mask));
            array_free(&mask);
        }
}

/* On every ISA, the dropout mask of a panel must equal the masks that the scalar kernel computes for its entries one by
 * one. */
static void test_drawn_panels(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(5, 4);
    for (int n = tables(list); n-- > 0;)
        for (int round = 0; round < 20; round++) {
            const int64_t nr = list[n]->nr, keys = rng_range(&r, 1, 5), lanes = rng_range(&r, 1, nr);
            mha__draw draw = {rng_next(&r),           (uint32_t)rng_next(&r), (uint32_t)rng_next(&r),
                              (uint32_t)rng_next(&r), (uint32_t)rng_next(&r), 1 + (rng_next(&r) >> 32)};
            array mask = array_make(list[n], keys * nr, 0, OUTPUT), one = array_make(list[0], list[0]->nr, 0, OUTPUT);
            list[n]->draw(keys, lanes, &draw, mask.data);
            for (int64_t at = 0; at < keys * nr; at++) {
                mha__draw alone = draw;
                alone.i += (uint32_t)(at % nr), alone.j += (uint32_t)(at / nr);
                if (at % nr >= lanes) continue;
                list[0]->draw(1, 1, &alone, one.data);
                assert_true(get(&mask, at) == get(&one, 0));
            }
            assert_true(guards_intact(&mask));
            array_free(&mask), array_free(&one);
        }
}

static void test_drop(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(5, 3);
    for (int n = tables(list); n-- > 0;) {
        array s = array_make(list[n], 7 * list[n]->nr, 0, OUTPUT), mask = array_make(list[n], s.n, 0, 0);
        array was = array_make(list[n], s.n, 0, 0);
        fill(&s, &r);
        memcpy(was.data, s.data, (size_t)s.n * s.k->real_size);
        for (int64_t i = 0; i < s.n; i++)
            put(&mask, i, rng_chance(&r, 0.4) ? -INFINITY : 0);
        list[n]->drop(7, list[n]->nr, mask.data, 4, s.data);
        for (int64_t i = 0; i < s.n; i++)
            assert_true(get(&s, i) == (get(&mask, i) == 0 ? 4 * get(&was, i) : 0));
        assert_true(guards_intact(&s));
        array_free(&s), array_free(&mask), array_free(&was);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alibi), cmocka_unit_test(test_sink),         cmocka_unit_test(test_gate),
        cmocka_unit_test(test_draw),  cmocka_unit_test(test_drawn_panels), cmocka_unit_test(test_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
