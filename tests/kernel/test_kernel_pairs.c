/* test_kernel_pairs.c - compares products of bf16 pairs with formulas in double at every edge of keys, lanes and head
 * dimensions, and exp over its range. Results must be bitwise identical for any split of a product. NaN surrounds the
 * inputs, and a canary value surrounds the outputs. */
#include "kernel/pairs.h"

static void check_scores(const block *b, double scale)
{
    const mha__kernels *k = b->k;
    for (int64_t lane = 0; lane < b->lanes; lane++) {
        double top = -INFINITY;
        for (int64_t j = 0; j < b->keys; j++) {
            double want = 0, terms = 0;
            for (int64_t i = 0; i < b->d; i++) {
                const double product = value(&b->key, j, i) * value(&b->q, lane, i);
                want += product;
                terms += fabs(product);
            }
            const double got = get(&b->s, j * k->nr + lane), limit = 4 * (double)(b->d + 4) * rounding(k) * terms;
            if (!(fabs(got - scale * want) <= limit * scale))
                fail_msg("%s: d = %d, score of key %d of %d, lane %d of %d: got %.9g, expected %.9g", k->isa, (int)b->d,
                         (int)j, (int)b->keys, (int)lane, (int)b->lanes, got, scale * want);
            top = fmax(top, got);
        }
        assert_true(get(&b->top, lane) == top);
    }
    assert_true(guards_intact(&b->queries) && guards_intact(&b->s) && guards_intact(&b->top));
}

static const int64_t some_keys[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 100, 127, 128};
static const int64_t some_lanes[] = {1, 3, 15, 16, 17, 31, 32};
static const int64_t some_widths[] = {1, 2, 31, 32, 33, 64, 65, 96, 130};
#define COUNT(list) (sizeof list / sizeof *list)

static void scores_of(const mha__kernels *k)
{
    k->pairs->open();
    for (size_t n = 0; n < COUNT(some_keys) * COUNT(some_lanes) * COUNT(some_widths); n++) {
        block b = block_make(k, some_keys[n % COUNT(some_keys)], some_widths[n / COUNT(some_keys) / COUNT(some_lanes)],
                             some_lanes[n / COUNT(some_keys) % COUNT(some_lanes)]);
        const double scale = n % 2 ? 0.3125 : 1;
        k->pairs->scores(b.keys, b.d, b.packed.data, whole(k, b.d), b.queries.data, b.lanes, scale, b.s.data,
                         b.top.data, NULL);
        check_scores(&b, scale);
        block_free(&b);
    }
    k->pairs->close();
}

/* A score must be bitwise identical for any number of keys and lanes in the call. */
static void bits_of_scores(const mha__kernels *k)
{
    block b = block_make(k, 77, 80, 32), part = block_make(k, 77, 80, 32);
    k->pairs->open();
    k->pairs->scores(77, 80, b.packed.data, 96, b.queries.data, 32, 0.7, b.s.data, b.top.data, NULL);
    for (int64_t keys = 1; keys <= 77; keys += 4)
        for (int64_t lanes = 1; lanes <= 32; lanes += 5) {
            const int64_t first = 77 - keys;
            k->pairs->scores(keys, 80, part.packed.data + first * 96, 96, part.queries.data, lanes, 0.7, part.s.data,
                             part.top.data, NULL);
            for (int64_t j = 0; j < keys; j++)
                assert_memory_equal(at_number(&b.s, (first + j) * k->nr), at_number(&part.s, j * k->nr),
                                    (size_t)lanes * k->real_size);
        }
    k->pairs->close();
    block_free(&b);
    block_free(&part);
}

/* ---- weights and values ---- */

static void check_lane(const mha__kernels *k, const attended *a, const array *s, const rows *v, int64_t lane,
                       int64_t first, int64_t end, int64_t dv)
{
    double max = -INFINITY, sum = 0;
    for (int64_t j = first; j < end; j++)
        max = fmax(max, get(s, j * k->nr + lane));
    for (int64_t j = first; j < end; j++)
        sum += exp(get(s, j * k->nr + lane) - max);
    assert_true(get(&a->max, lane) == max);
    assert_true(fabs(get(&a->sum, lane) - sum) <= 2e-6 * sum);
    for (int64_t c = 0; c < dv; c++) {
        double want = 0, terms = 0;
        for (int64_t j = first; j < end; j++) {
            const double term = exp(get(s, j * k->nr + lane) - max) * value(v, j, c);
            want += term;
            terms += fabs(term);
        }
        const double got = get(&a->o, lane * a->stride + c);
        if (!(fabs(got - want) <= terms * 0x1.1p-8)) /* the kernel rounds weights to bf16 */
            fail_msg("%s: keys [%d, %d), lane %d, column %d of %d: got %.9g, expected %.9g", k->isa, (int)first,
                     (int)end, (int)lane, (int)c, (int)dv, got, want);
    }
}

/* Checks attention to keys [first, end) of a block. The scores of all other keys are NaN and must not be read. */
static void attend_of(const mha__kernels *k, int64_t first, int64_t end, int64_t lanes, int64_t dv)
{
    rng r = rng_make(3, (uint64_t)(first + 1000 * end + 7 * lanes));
    const int64_t panel = MHA__KEY_BLOCK / 2 * k->nr;
    rows v = rows_make(end, dv, PAD, 5);
    attended a = attended_make(k, lanes, dv);
    array s = array_make(k, MHA__KEY_BLOCK * k->nr, 0, OUTPUT), top = array_make(k, k->nr, 0, INPUT);
    array packed = array_make(k, (dv + k->nr - 1) / k->nr * panel, 0, OUTPUT);
    for (int64_t i = 0; i < s.n; i++)
        put(&s, i, i / k->nr < first || i / k->nr >= end ? (double)NAN : 3 * rng_normal(&r));
    k->top(end - first, lanes, at_number(&s, first * k->nr), top.data);
    k->pairs->pack_values(end, dv, v.data, v.stride, 1, false, panel, packed.data);
    k->pairs->open();
    k->pairs->attend(first, end, lanes, dv, 1, top.data, s.data, packed.data, panel,
                     &(mha__partial){a.max.data, a.sum.data, a.o.data}, a.stride);
    k->pairs->close();
    for (int64_t lane = 0; lane < lanes; lane++)
        check_lane(k, &a, &s, &v, lane, first, end, dv);
    assert_true(guards_intact(&a.o) && guards_intact(&a.max) && guards_intact(&a.sum) && guards_intact(&s) &&
                guards_intact(&packed));
    free(v.memory);
    attended_free(&a);
    array_free(&s);
    array_free(&top);
    array_free(&packed);
}

/* Fills a panel of scores: NaN outside keys [first, end), and -infinity at masked keys, which are all keys of the
 * second lane if `first` is not 0. Differences of the other scores exceed those at which weights become 0. */
static void fill_scores(const mha__kernels *k, int64_t first, int64_t end, array *s)
{
    rng r = rng_make(4, (uint64_t)(first + 1000 * end));
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t key = i / k->nr, lane = i % k->nr;
        const double score = 30 * rng_normal(&r);
        const bool masked = lane == 1 && (first > 0 || key % 7 == 3);
        put(s, i, key < first || key >= end ? (double)NAN : masked ? -INFINITY : score);
    }
}

static void same_attended(const attended *want, const attended *got, int64_t lanes, int64_t dv)
{
    assert_memory_equal(want->max.data, got->max.data, (size_t)lanes * sizeof(float));
    assert_memory_equal(want->sum.data, got->sum.data, (size_t)lanes * sizeof(float));
    for (int64_t lane = 0; lane < lanes; lane++)
        assert_memory_equal(at_number(&want->o, lane * want->stride), at_number(&got->o, lane * got->stride),
                            (size_t)dv * sizeof(float));
    assert_true(guards_intact(&got->o) && guards_intact(&got->max) && guards_intact(&got->sum));
}

/* attend_rows must give partial results bitwise identical to those of attend, also for denormal values and products. */
static void attend_rows_of(const mha__kernels *k, int64_t first, int64_t end, int64_t lanes, int64_t dv)
{
    const int64_t panel = MHA__KEY_BLOCK / 2 * k->nr;
    rows v = rows_make(end, dv, PAD, 5);
    attended want = attended_make(k, lanes, dv), got = attended_make(k, lanes, dv);
    array s = array_make(k, MHA__KEY_BLOCK * k->nr, 0, OUTPUT), own = array_make(k, s.n, 0, OUTPUT);
    array top = array_make(k, k->nr, 0, INPUT), packed = array_make(k, dv / k->nr * panel, 0, OUTPUT);
    for (int64_t j = 0; j < end; j++)
        for (int64_t c = 0; c < dv / 2; c++) /* the other columns stay near 1 */
            v.data[j * v.stride + c] &= c % 3 ? 0x80ff : 0x807f;
    fill_scores(k, first, end, &s);
    k->top(end - first, lanes, at_number(&s, first * k->nr), top.data);
    k->pairs->pack_values(end, dv, v.data, v.stride, 1, false, panel, packed.data);
    k->pairs->open();
    for (double scale = 1; scale >= 0.125; scale /= 8) {
        fill_scores(k, first, end, &s);
        fill_scores(k, first, end, &own);
        k->pairs->attend(first, end, lanes, dv, scale, top.data, s.data, packed.data, panel,
                         &(mha__partial){want.max.data, want.sum.data, want.o.data}, want.stride);
        k->pairs->attend_rows(first, end, lanes, dv, scale, top.data, own.data, v.data, v.stride,
                              &(mha__partial){got.max.data, got.sum.data, got.o.data}, got.stride);
        same_attended(&want, &got, lanes, dv);
    }
    k->pairs->close();
    assert_true(guards_intact(&own));
    free(v.memory);
    attended_free(&want), attended_free(&got);
    array_free(&s), array_free(&own), array_free(&top), array_free(&packed);
}

static void values_of(const mha__kernels *k)
{
    static const int64_t cuts[][2] = {{0, 1},    {0, 31}, {0, 32},   {0, 33}, {31, 32},
                                      {33, 128}, {5, 77}, {96, 128}, {0, 128}};
    for (size_t n = 0; n < COUNT(cuts) * COUNT(some_lanes) * COUNT(some_widths); n++)
        attend_of(k, cuts[n % COUNT(cuts)][0], cuts[n % COUNT(cuts)][1],
                  some_lanes[n / COUNT(cuts) % COUNT(some_lanes)], some_widths[n / COUNT(cuts) / COUNT(some_lanes)]);
    for (size_t n = 0; n < COUNT(cuts); n++)
        for (int64_t lanes = 1; lanes <= k->pairs->in_place_lanes; lanes++)
            for (int64_t dv = 32; dv <= 160; dv += 32)
                attend_rows_of(k, cuts[n][0], cuts[n][1], lanes, dv);
}

/* Measures the error of exp over [-87, 0]: with one key and a given maximum of 0, the row sum is exp(score). */
static void exp_of(const mha__kernels *k)
{
    const int64_t panel = MHA__KEY_BLOCK / 2 * k->nr, lanes = k->nr;
    array s = array_make(k, MHA__KEY_BLOCK * k->nr, 0, OUTPUT), top = array_make(k, k->nr, 0, 0);
    array packed = array_make(k, panel, 0, 0);
    double worst = 0;
    k->pairs->open();
    for (int step = 0; step < 4096; step++) {
        attended a = attended_make(k, lanes, 1);
        for (int64_t lane = 0; lane < lanes; lane++)
            put(&s, lane, step == 0 ? -(double)lane : -87.0 * (step * lanes + lane) / (4096.0 * (double)lanes));
        k->pairs->attend(0, 1, lanes, 1, 1, top.data, s.data, packed.data, panel,
                         &(mha__partial){a.max.data, a.sum.data, a.o.data}, a.stride);
        for (int64_t lane = 0; lane < lanes; lane++) {
            const double x = get(&s, lane), error = fabs(get(&a.sum, lane) / exp(x) - 1);
            /* subtracts the rounding error of the exponent, which is permitted in addition */
            worst = fmax(worst, error - fabs(x) * 0x1p-23);
        }
        attended_free(&a);
    }
    k->pairs->close();
    printf("%s: largest error of exp: %.2g\n", k->isa, worst);
    assert_true(worst < 2e-7);
    array_free(&s);
    array_free(&top);
    array_free(&packed);
}

/* The weight of a score of -inf must be 0. NaN and +inf must make the result of their own lane NaN. The result of a
 * lane without keys must be 0. */
static void special_scores(const mha__kernels *k)
{
    const int64_t panel = MHA__KEY_BLOCK / 2 * k->nr;
    rows v = rows_make(32, 4, 0, 5);
    array s = array_make(k, MHA__KEY_BLOCK * k->nr, 0, -INFINITY), top = array_make(k, k->nr, 0, -INFINITY);
    array packed = array_make(k, panel, 0, OUTPUT);
    attended a = attended_make(k, 4, 4);
    /* lane 0 attends to key 3 and lane 1 to no key; lane 2 has a NaN score, lane 3 a score of +inf */
    put(&s, 3 * k->nr, 2.5);
    put(&s, 5 * k->nr + 2, (double)NAN);
    put(&s, 6 * k->nr + 3, INFINITY);
    put(&top, 0, 2.5);
    put(&top, 3, INFINITY);
    k->pairs->pack_values(32, 4, v.data, v.stride, 1, false, panel, packed.data);
    k->pairs->open();
    k->pairs->attend(0, 32, 4, 4, 1, top.data, s.data, packed.data, panel,
                     &(mha__partial){a.max.data, a.sum.data, a.o.data}, a.stride);
    k->pairs->close();
    for (int64_t c = 0; c < 4; c++) {
        assert_true(get(&a.o, c) == value(&v, 3, c));
        assert_true(get(&a.o, a.stride + c) == 0);
        assert_true(isnan(get(&a.o, 2 * a.stride + c)) && isnan(get(&a.o, 3 * a.stride + c)));
    }
    assert_true(fabs(get(&a.sum, 0) - 1) < 3e-7 && get(&a.sum, 1) == 0 && isnan(get(&a.sum, 2)) &&
                isnan(get(&a.sum, 3)));
    assert_true(get(&a.max, 0) == 2.5 && get(&a.max, 1) == -INFINITY);
    free(v.memory);
    attended_free(&a);
    array_free(&s);
    array_free(&top);
    array_free(&packed);
}

/* A row with a score of NaN or +inf must become NaN, also with V in place. */
static void special_rows(const mha__kernels *k)
{
    enum { KEYS = 32, DV = 32 };
    if (k->pairs->in_place_lanes < 2) return;
    rows v = rows_make(KEYS, DV, 0, 5);
    array s = array_make(k, MHA__KEY_BLOCK * k->nr, 0, -INFINITY), top = array_make(k, k->nr, 0, -INFINITY);
    attended a = attended_make(k, 2, DV);
    put(&s, 5 * k->nr, (double)NAN);
    put(&s, 6 * k->nr + 1, INFINITY);
    put(&top, 1, INFINITY);
    k->pairs->open();
    k->pairs->attend_rows(0, KEYS, 2, DV, 1, top.data, s.data, v.data, v.stride,
                          &(mha__partial){a.max.data, a.sum.data, a.o.data}, a.stride);
    k->pairs->close();
    for (int64_t lane = 0; lane < 2; lane++) {
        assert_true(isnan(get(&a.sum, lane)));
        for (int64_t c = 0; c < DV; c++)
            assert_true(isnan(get(&a.o, lane * a.stride + c)));
    }
    free(v.memory);
    attended_free(&a);
    array_free(&s), array_free(&top);
}

/* pack_values must give the same panels for row-major and column-major values; with `clean`, it must replace NaN and
 * Inf by 0. */
static void packing_of(const mha__kernels *k)
{
    enum { KEYS = 45, DV = 70 };
    const int64_t panel = MHA__KEY_BLOCK / 2 * k->nr, panels = (DV + k->nr - 1) / k->nr;
    rows v = rows_make(KEYS, DV, PAD, 5), turned = rows_make(DV, KEYS, PAD, 6);
    array a = array_make(k, panels * panel, 0, OUTPUT), b = array_make(k, panels * panel, 0, OUTPUT);
    for (int64_t j = 0; j < KEYS; j++)
        for (int64_t c = 0; c < DV; c++)
            turned.data[c * turned.stride + j] = v.data[j * v.stride + c];
    k->pairs->pack_values(KEYS, DV, v.data, v.stride, 1, false, panel, a.data);
    k->pairs->pack_values(KEYS, DV, turned.data, 1, turned.stride, true, panel, b.data);
    assert_true(same_bits(&a, &b));
    v.data[3 * v.stride + 7] = NAN16;
    v.data[4 * v.stride + 7] = 0xFF80;
    turned.data[7 * turned.stride + 3] = turned.data[7 * turned.stride + 4] = 0;
    k->pairs->pack_values(KEYS, DV, v.data, v.stride, 1, true, panel, a.data);
    k->pairs->pack_values(KEYS, DV, turned.data, 1, turned.stride, false, panel, b.data);
    assert_true(same_bits(&a, &b));
    free(v.memory);
    free(turned.memory);
    array_free(&a);
    array_free(&b);
}

static void test_scores(void **state)
{
    (void)state;
    each(scores_of);
    each(bits_of_scores);
}

static void test_values(void **state)
{
    (void)state;
    each(values_of);
    each(special_scores);
    each(special_rows);
}

static void test_exp(void **state)
{
    (void)state;
    each(exp_of);
}

static void test_packing(void **state)
{
    (void)state;
    each(packing_of);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores), cmocka_unit_test(test_values),
                                              cmocka_unit_test(test_exp), cmocka_unit_test(test_packing)};
    if (each(NULL) > 0) return cmocka_run_group_tests(tests, NULL, NULL);
    printf("skipped: no ISA of this CPU supports products of bf16 pairs\n");
    return 77;
}
