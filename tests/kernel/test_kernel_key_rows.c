/* test_kernel_key_rows.c - the score kernels read keys in place, in rows that may be longer than a head. The elements
 * between two keys, which belong to another head or to nothing, are NaN and must not affect a score: scores must be
 * bitwise identical for any row stride. test_kernel_decode.c tests the same of the decode kernels for every stored
 * type.
 */
#include "kernel/pairs.h"

#define COUNT(list) (sizeof list / sizeof *list)

static const int64_t some_keys[] = {1, 2, 15, 16, 17, 33, 128};
static const int64_t some_widths[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 96, 130};
static const int64_t some_gaps[] = {1, 2, 5, 16, 30, 64};

/* Runs `scores` on keys that are `gap` elements apart. The gaps and the memory around the keys are NaN. */
static void scores_with_gap(const mha__kernels *t, const array *keys, int64_t count, int64_t d, int64_t gap,
                            const array *panel, int64_t lanes, array *s, array *top)
{
    array k = array_make(t, count * (d + gap) - gap, 1, INPUT);
    for (int64_t i = 0; i < count * d; i++)
        put(&k, i / d * (d + gap) + i % d, get(keys, i));
    for (int64_t i = d; i < k.n; i++)
        assert_true(i % (d + gap) < d || isnan(get(&k, i)));
    t->scores(count, d, k.data, d + gap, 1, panel->data, lanes, 0.3, s->data, top->data, NULL);
    array_free(&k);
}

static void check_table(const mha__kernels *t, int64_t count, int64_t d, int64_t lanes, rng *r)
{
    array q = array_make(t, lanes * d, 1, INPUT), keys = array_make(t, count * d, 0, INPUT);
    array panel = array_make(t, d * t->nr, 0, OUTPUT), top = array_make(t, t->nr, 0, OUTPUT);
    array want = array_make(t, count * t->nr, 0, OUTPUT), got = array_make(t, count * t->nr, 0, OUTPUT);
    fill(&q, r), fill(&keys, r);
    t->pack_rows(lanes, d, q.data, d, 1, panel.data);
    scores_with_gap(t, &keys, count, d, 0, &panel, lanes, &want, &top);
    for (size_t n = 0; n < COUNT(some_gaps); n++) {
        scores_with_gap(t, &keys, count, d, some_gaps[n], &panel, lanes, &got, &top);
        for (int64_t i = 0; i < count * lanes; i++) {
            const int64_t at = i / lanes * t->nr + i % lanes;
            if (!(get(&got, at) == get(&want, at)))
                fail_msg("%s %s: %d keys of %d elements, gap %d: score of key %d, lane %d: got %g, expected %g", t->isa,
                         type_of(t), (int)count, (int)d, (int)some_gaps[n], (int)(i / lanes), (int)(i % lanes),
                         get(&got, at), get(&want, at));
        }
        assert_true(guards_intact(&got) && guards_intact(&top));
    }
    array *all[] = {&q, &keys, &panel, &top, &want, &got};
    for (size_t n = 0; n < COUNT(all); n++)
        array_free(all[n]);
}

static void test_reals(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(11, 1);
    for (int n = tables(list); n-- > 0;)
        for (size_t i = 0; i < COUNT(some_keys) * COUNT(some_widths); i++)
            check_table(list[n], some_keys[i % COUNT(some_keys)], some_widths[i / COUNT(some_keys)],
                        rng_range(&r, 1, list[n]->nr), &r);
}

/* Keys of bf16 are read in place if their width is a multiple of `whole`; they begin on pairs. */
static void pairs_of(const mha__kernels *k)
{
    rng r = rng_make(11, 2);
    for (size_t n = 0; n < COUNT(some_keys) * COUNT(some_widths) * COUNT(some_gaps); n++) {
        const int64_t d = some_widths[n / COUNT(some_keys) % COUNT(some_widths)];
        const int64_t gap = some_gaps[n / COUNT(some_keys) / COUNT(some_widths)];
        if (d % k->pairs->whole || (d + gap) % 2) continue;
        block b = block_make(k, some_keys[n % COUNT(some_keys)], d, rng_range(&r, 1, k->nr));
        array got = array_make(k, b.keys * k->nr, 0, OUTPUT);
        rows keys = rows_make(b.keys, d, gap, 8); /* the seed of block_make gives the same keys */
        k->pairs->open();
        k->pairs->scores(b.keys, d, b.packed.data, whole(k, d), b.queries.data, b.lanes, 0.3, b.s.data, b.top.data,
                         NULL);
        k->pairs->scores(b.keys, d, keys.data, keys.stride, b.queries.data, b.lanes, 0.3, got.data, b.top.data, NULL);
        k->pairs->close();
        for (int64_t i = 0; i < b.keys * b.lanes; i++) {
            const int64_t at = i / b.lanes * k->nr + i % b.lanes;
            if (!(get(&got, at) == get(&b.s, at)))
                fail_msg("%s: %d keys of %d elements, gap %d: got %g, expected %g", k->isa, (int)b.keys, (int)d,
                         (int)gap, get(&got, at), get(&b.s, at));
        }
        assert_true(guards_intact(&got));
        array_free(&got);
        free(keys.memory);
        block_free(&b);
    }
}

static void test_pairs(void **state)
{
    (void)state;
    each(pairs_of);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_reals), cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
