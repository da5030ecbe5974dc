/* test_kernel_softmax.c - tests the kernels between the products Q K^T and P V: masks, online softmax, merging and
 * output. */
#include "kernel/table.h"
#include <sys/mman.h>
#include <unistd.h>

/* Returns a panel of random scores. Some scores are -inf, in some lanes all of them; unused lanes are NaN. */
static array random_scores(const mha__kernels *t, int64_t keys, int64_t lanes, rng *r)
{
    array s = array_make(t, keys * t->nr, 0, INPUT);
    for (int64_t i = 0; i < lanes; i++) {
        const double masked = rng_chance(r, 0.2) ? 1 : 0.3;
        for (int64_t j = 0; j < keys; j++)
            put(&s, j * t->nr + i, rng_chance(r, masked) ? -INFINITY : 6 * rng_normal(r));
    }
    return s;
}

typedef struct state {
    array top, max, sum, alpha;
} state;

/* Returns the state of an online softmax before its first block. Kernels compute whole vectors, so unused lanes may
 * change and are not checked. */
static state state_make(const mha__kernels *t)
{
    state s = {array_make(t, t->nr, 0, 0), array_make(t, t->nr, 0, -INFINITY), array_make(t, t->nr, 0, 0),
               array_make(t, t->nr, 0, 0)};
    return s;
}

static void state_free(state *s)
{
    array_free(&s->top), array_free(&s->max), array_free(&s->sum), array_free(&s->alpha);
}

/* Computes the softmax of two successive blocks and compares its state with the formula over both blocks. */
static void check_softmax(const mha__kernels *t, int64_t lanes, rng *r)
{
    const int64_t keys[2] = {rng_range(r, 1, MHA__KEY_BLOCK), rng_range(r, 1, MHA__KEY_BLOCK)};
    array s[2], before[2];
    state x = state_make(t);
    double alpha[64];
    for (int b = 0; b < 2; b++) {
        s[b] = random_scores(t, keys[b], lanes, r);
        before[b] = array_make(t, s[b].n, 0, INPUT);
        memcpy(before[b].data, s[b].data, (size_t)s[b].n * t->real_size);
        t->top(keys[b], lanes, s[b].data, x.top.data);
        t->softmax(keys[b], lanes, x.top.data, s[b].data, x.max.data, x.sum.data, x.alpha.data);
    }
    for (int64_t i = 0; i < lanes; i++) {
        double max = -INFINITY, first = -INFINITY, sum = 0;
        alpha[i] = get(&x.alpha, i);
        for (int b = 0; b < 2; b++) {
            for (int64_t j = 0; j < keys[b]; j++)
                max = fmax(max, get(&before[b], j * t->nr + i));
            if (b == 0) first = max;
        }
        assert_true(get(&x.max, i) == max);
        if (max == -INFINITY) {
            assert_true(get(&x.sum, i) == 0);
            continue;
        }
        for (int b = 0; b < 2; b++)
            for (int64_t j = 0; j < keys[b]; j++)
                sum += exp(get(&before[b], j * t->nr + i) - max);
        assert_true(fabs(get(&x.sum, i) - sum) <= 200 * rounding(t) * sum);
        const double want = first == -INFINITY ? 0 : exp(first - max);
        assert_true(fabs(alpha[i] - want) <= (6 + (want > 0 ? max - first : 0)) * rounding(t) * want + 1e-37);
        for (int64_t j = 0; j < keys[1]; j++) {
            const double score = get(&before[1], j * t->nr + i), got = get(&s[1], j * t->nr + i);
            assert_true(score == -INFINITY
                            ? got == 0
                            : fabs(got - exp(score - max)) <= (6 + fabs(score - max)) * rounding(t) * got + 1e-37);
        }
    }
    for (int b = 0; b < 2; b++)
        array_free(&s[b]), array_free(&before[b]);
    state_free(&x);
}

/* A block whose scores are all -inf must leave the maximum and the sum of each lane bitwise unchanged. */
static void check_masked_block(const mha__kernels *t, rng *r)
{
    state x = state_make(t);
    array s = random_scores(t, 40, t->nr, r), nothing = array_make(t, 40 * t->nr, 0, -INFINITY);
    array max = array_make(t, t->nr, 0, 0), sum = array_make(t, t->nr, 0, 0);
    t->top(40, t->nr, s.data, x.top.data);
    t->softmax(40, t->nr, x.top.data, s.data, x.max.data, x.sum.data, x.alpha.data);
    memcpy(max.data, x.max.data, (size_t)t->nr * t->real_size);
    memcpy(sum.data, x.sum.data, (size_t)t->nr * t->real_size);
    t->top(40, t->nr, nothing.data, x.top.data);
    t->softmax(40, t->nr, x.top.data, nothing.data, x.max.data, x.sum.data, x.alpha.data);
    assert_true(same_bits(&max, &x.max) && same_bits(&sum, &x.sum));
    for (int64_t i = 0; i < t->nr; i++)
        assert_true(get(&x.alpha, i) == (get(&max, i) == -INFINITY ? 0 : 1));
    for (int64_t i = 0; i < nothing.n; i++)
        assert_true(get(&nothing, i) == 0);
    state_free(&x);
    array_free(&s), array_free(&nothing), array_free(&max), array_free(&sum);
}

static void test_softmax(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(4, 1);
    for (int n = tables(list); n-- > 0;) {
        for (int64_t lanes = 1; lanes <= list[n]->nr; lanes++)
            check_softmax(list[n], lanes, &r);
        check_masked_block(list[n], &r);
    }
}

/* NaN and +inf must make the sum of their own lane NaN and must not affect other lanes. */
static void test_softmax_not_finite(void **state_)
{
    (void)state_;
    const mha__kernels *list[TABLES];
    rng r = rng_make(4, 2);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        state x = state_make(t), y = state_make(t);
        array s = array_make(t, 20 * t->nr, 0, INPUT), same = array_make(t, 20 * t->nr, 0, INPUT);
        fill(&s, &r);
        memcpy(same.data, s.data, (size_t)s.n * t->real_size);
        put(&s, 3 * t->nr + 1, NAN);
        put(&s, 7 * t->nr + 2, INFINITY);
        t->top(20, t->nr, s.data, x.top.data);
        t->softmax(20, t->nr, x.top.data, s.data, x.max.data, x.sum.data, x.alpha.data);
        t->top(20, t->nr, same.data, y.top.data);
        t->softmax(20, t->nr, y.top.data, same.data, y.max.data, y.sum.data, y.alpha.data);
        assert_true(isnan(get(&x.sum, 1)) && isnan(get(&x.sum, 2)));
        for (int64_t i = 0; i < t->nr; i++)
            assert_true(i == 1 || i == 2 || get(&x.sum, i) == get(&y.sum, i));
        state_free(&x), state_free(&y), array_free(&s), array_free(&same);
    }
}

static void check_masks(const mha__kernels *t, int64_t lanes, rng *r)
{
    const int64_t keys = rng_range(r, 1, MHA__KEY_BLOCK), first = rng_range(r, 0, 3) * 1000;
    int64_t lo[64], hi[64];
    array s = array_make(t, keys * t->nr, 0, OUTPUT), bias = array_make(t, keys * t->nr, 0, 0);
    array top = array_make(t, t->nr, 0, OUTPUT);
    for (int64_t i = 0; i < lanes; i++) {
        lo[i] = first + rng_range(r, -20, keys + 5);
        hi[i] = rng_chance(r, 0.1) ? INT64_MAX : first + rng_range(r, -20, keys + 20);
    }
    for (int64_t i = 0; i < keys * t->nr; i++) {
        put(&s, i, rng_chance(r, 0.1) ? NAN : rng_normal(r));
        put(&bias, i, rng_chance(r, 0.3) ? -INFINITY : rng_normal(r));
    }
    array b = array_make(t, s.n, 0, OUTPUT), c = array_make(t, s.n, 0, OUTPUT);
    memcpy(b.data, s.data, (size_t)s.n * t->real_size);
    memcpy(c.data, s.data, (size_t)s.n * t->real_size);
    t->interval(keys, lanes, first, lo, hi, s.data);
    t->bias(keys, lanes, bias.data, b.data);
    t->softcap(keys, lanes, 1.5, c.data);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < lanes; i++) {
            const double was = (get(&c, j * t->nr + i), get(&s, j * t->nr + i)), add = get(&bias, j * t->nr + i);
            const bool seen = first + j >= lo[i] && first + j < hi[i];
            assert_true(seen ? was != -INFINITY : was == -INFINITY);
            const double sum = get(&b, j * t->nr + i);
            assert_true(add == -INFINITY ? sum == -INFINITY : seen ? isnan(sum) == isnan(was) : true);
            if (seen && !isnan(was)) {
                assert_true(add == -INFINITY || fabs(sum - (was + add)) <= rounding(t) * fabs(was + add));
                const double cap = 1.5 * tanh(was / 1.5);
                assert_true(fabs(get(&c, j * t->nr + i) - cap) <= 8 * rounding(t) * fabs(cap));
            }
        }
    t->top(keys, lanes, b.data, top.data);
    for (int64_t i = 0; i < lanes; i++) {
        double max = -INFINITY;
        for (int64_t j = 0; j < keys; j++)
            max = fmax(max, get(&b, j * t->nr + i));
        assert_true(get(&top, i) == max);
    }
    assert_true(guards_intact(&s) && guards_intact(&b) && guards_intact(&c) && guards_intact(&top));
    array_free(&s), array_free(&bias), array_free(&b), array_free(&c), array_free(&top);
}

static void test_masks(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(4, 3);
    for (int n = tables(list); n-- > 0;)
        for (int64_t lanes = 1; lanes <= list[n]->nr; lanes++)
            check_masks(list[n], lanes, &r);
}

static void test_probs(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(4, 4);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        array max = array_make(t, t->nr, 0, 0), inverse = array_make(t, t->nr, 0, 0.25);
        array s = random_scores(t, 30, t->nr, &r), was = array_make(t, s.n, 0, 0);
        memcpy(was.data, s.data, (size_t)s.n * t->real_size);
        for (int64_t i = 0; i < t->nr; i++)
            put(&max, i, 30);
        put(&max, 0, -INFINITY), put(&inverse, 0, 0);
        put(&inverse, 1, NAN);
        t->probs(30, t->nr, max.data, inverse.data, s.data);
        for (int64_t j = 0; j < 30; j++)
            for (int64_t i = 1; i < t->nr; i++) {
                const double score = get(&was, j * t->nr + i), got = get(&s, j * t->nr + i);
                const double want = exp(score - 30) * 0.25;
                if (score == -INFINITY)
                    assert_true(got == 0);
                else if (i == 1)
                    assert_true(isnan(got));
                else
                    assert_true(fabs(got - want) <= 60 * rounding(t) * want);
            }
        array_free(&max), array_free(&inverse), array_free(&s), array_free(&was);
    }
}

typedef struct partial {
    array max, sum, o;
    mha__partial view;
} partial;

static partial partial_make(const mha__kernels *t, int64_t rows, int64_t stride)
{
    partial p = {array_make(t, rows + t->nr, 0, OUTPUT),
                 array_make(t, rows + t->nr, 0, OUTPUT),
                 array_make(t, rows * stride, 0, OUTPUT),
                 {NULL, NULL, NULL}};
    p.view = (mha__partial){p.max.data, p.sum.data, p.o.data};
    t->clear(rows, stride, &p.view);
    assert_true(guards_intact(&p.o));
    return p;
}

static void partial_free(partial *p)
{
    array_free(&p->max), array_free(&p->sum), array_free(&p->o);
}

static void partial_fill(const mha__kernels *t, partial *p, int64_t rows, int64_t dv, int64_t stride, rng *r)
{
    (void)t;
    for (int64_t i = 0; i < rows; i++) {
        if (rng_chance(r, 0.2)) continue; /* leaves the row without keys */
        put(&p->max, i, 5 * rng_normal(r));
        put(&p->sum, i, 1 + 10 * rng_uniform(r));
        for (int64_t c = 0; c < dv; c++)
            put(&p->o, i * stride + c, rng_normal(r));
    }
}

static void copy(const partial *from, partial *to)
{
    memcpy(to->max.data, from->max.data, (size_t)from->max.n * from->max.k->real_size);
    memcpy(to->sum.data, from->sum.data, (size_t)from->sum.n * from->sum.k->real_size);
    memcpy(to->o.data, from->o.data, (size_t)from->o.n * from->o.k->real_size);
}

/* Compares the merged maximum, sum and output with formulas in double. Merging with an empty state, in either order,
 * must change nothing. */
static void check_merge(const mha__kernels *t, int64_t rows, rng *r)
{
    const int64_t dv = rng_range(r, 1, 40), stride = (dv + t->nr - 1) / t->nr * t->nr;
    partial a = partial_make(t, rows, stride), b = partial_make(t, rows, stride), m = partial_make(t, rows, stride);
    partial empty = partial_make(t, rows, stride), same = partial_make(t, rows, stride);
    partial_fill(t, &a, rows, dv, stride, r);
    partial_fill(t, &b, rows, dv, stride, r);
    copy(&a, &m);
    t->merge(rows, dv, stride, &b.view, &m.view);
    for (int64_t i = 0; i < rows; i++) {
        const double max = fmax(get(&a.max, i), get(&b.max, i));
        assert_true(get(&m.max, i) == max);
        if (max == -INFINITY) {
            assert_true(get(&m.sum, i) == 0);
            continue;
        }
        const double wa = exp(get(&a.max, i) - max), wb = exp(get(&b.max, i) - max);
        const double sum = wa * get(&a.sum, i) + wb * get(&b.sum, i);
        assert_true(fabs(get(&m.sum, i) - sum) <= 40 * rounding(t) * sum);
        for (int64_t c = 0; c < dv; c++) {
            const double x = wa * get(&a.o, i * stride + c), y = wb * get(&b.o, i * stride + c);
            assert_true(fabs(get(&m.o, i * stride + c) - (x + y)) <= 40 * rounding(t) * (fabs(x) + fabs(y)));
        }
    }
    copy(&a, &same);
    t->merge(rows, dv, stride, &empty.view, &same.view); /* merges an empty state into a */
    t->merge(rows, dv, stride, &a.view, &empty.view);    /* merges a into an empty state */
    for (int64_t i = 0; i < rows; i++) {
        assert_true(get(&same.sum, i) == get(&a.sum, i) && get(&empty.sum, i) == get(&a.sum, i));
        assert_true(get(&same.max, i) == get(&a.max, i) && get(&empty.max, i) == get(&a.max, i));
        for (int64_t c = 0; c < dv; c++) {
            assert_true(get(&same.o, i * stride + c) == get(&a.o, i * stride + c));
            assert_true(get(&empty.o, i * stride + c) == get(&a.o, i * stride + c));
        }
    }
    partial_free(&a), partial_free(&b), partial_free(&m), partial_free(&empty), partial_free(&same);
}

static void test_merge(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(4, 5);
    for (int n = tables(list); n-- > 0;)
        for (int64_t rows = 1; rows <= 2 * list[n]->vl + 1; rows++)
            check_merge(list[n], rows, &r);
}

/* Checks the output and lse of random rows, some without keys, for every tail of dv, with contiguous or strided
 * columns. The kernel must return false if and only if an element is not finite. */
static void check_output(const mha__kernels *t, int64_t rows, int64_t dv, rng *r)
{
    const int64_t stride = (dv + t->nr - 1) / t->nr * t->nr, col = rng_chance(r, 0.5) ? 1 : 2, row = dv * col + 1;
    array o = array_make(t, rows * stride, 0, 0), max = array_make(t, rows, 0, INPUT),
          sum = array_make(t, rows, 0, INPUT);
    array inverse = array_make(t, rows, 0, OUTPUT), lse = array_make(t, 3 * rows - 2, 0, OUTPUT);
    array out = array_make(t, (rows - 1) * row + (dv - 1) * col + 1, 1, OUTPUT);
    const int64_t bad = rng_chance(r, 0.5) ? rng_range(r, 0, rows - 1) * stride + rng_range(r, 0, dv - 1) : -1;
    int64_t written = 0;
    for (int64_t i = 0; i < rows; i++) {
        const bool empty = rng_chance(r, 0.2) && bad / stride != i;
        put(&max, i, empty ? -INFINITY : rng_normal(r));
        put(&sum, i, empty ? 0 : 1 + rng_uniform(r));
        for (int64_t c = 0; c < dv; c++)
            put(&o, i * stride + c, empty ? 0 : c % 3 ? rng_normal(r) : -0.0);
    }
    if (bad >= 0) put(&o, bad, rng_chance(r, 0.5) ? NAN : INFINITY);
    t->totals(rows, max.data, sum.data, inverse.data, NULL, 0);
    t->totals(rows, max.data, sum.data, inverse.data, lse.data, 3);
    assert_true(t->output(rows, dv, o.data, stride, inverse.data, out.data, row, col) == (bad < 0));
    for (int64_t i = 0; i < rows; i++) {
        const double total = get(&sum, i), log_sum = total == 0 ? -INFINITY : get(&max, i) + log(total);
        assert_true(total == 0 ? get(&lse, 3 * i) == log_sum
                               : fabs(get(&lse, 3 * i) - log_sum) <= 4 * rounding(t) * (1 + fabs(log_sum)));
        for (int64_t c = 0; c < dv; c++) {
            const double got = get(&out, i * row + c * col), want = total == 0 ? 0 : get(&o, i * stride + c) / total;
            assert_true(isfinite(want) ? fabs(got - want) <= 3 * rounding(t) * fabs(want) : !isfinite(got));
            assert_false(got == 0 && signbit(got));
        }
    }
    for (int64_t i = 0; i < out.n; i++)
        written += !(get(&out, i) == OUTPUT);
    assert_true(written == rows * dv && guards_intact(&out) && guards_intact(&lse) && guards_intact(&inverse));
    array_free(&o), array_free(&max), array_free(&sum), array_free(&inverse), array_free(&lse), array_free(&out);
}

static void test_output(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(4, 6);
    for (int n = tables(list); n-- > 0;)
        for (int64_t dv = 1; dv <= 2 * list[n]->vl + 1; dv++)
            for (int64_t rows = 1; rows <= 5; rows += 2)
                check_output(list[n], rows, dv, &r);
}

/* Tests rows without padding after their dv elements. The memory ends at the end of the last row, as it may in a
 * caller's gradient. */
static void test_output_at_the_end(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        for (int64_t dv = 1; dv <= 2 * t->vl + 1; dv++) {
            void *o = memory + page - (size_t)(3 * dv) * t->real_size;
            array inverse = array_make(t, 3, 0, INPUT), out = array_make(t, 3 * dv, 1, OUTPUT);
            for (int64_t i = 0; i < 3 * dv; i++)
                put_at(t, o, i, (double)i);
            for (int64_t i = 0; i < 3; i++)
                put(&inverse, i, 2);
            assert_true(t->output(3, dv, o, dv, inverse.data, out.data, dv, 1));
            for (int64_t i = 0; i < 3 * dv; i++)
                assert_true(get(&out, i) == 2 * (double)i);
            assert_true(guards_intact(&out));
            array_free(&inverse), array_free(&out);
        }
    }
    munmap(memory, 2 * page);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_not_finite),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_probs),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_output_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
