/* test_attn_overlap.c - compares the overlap test of two views with a reference that marks every byte, and tests it on
 * common layouts. */
#include "attn/plan/operand.h"
#include "support/check.h"
#include "support/rng.h"
#include <string.h>

enum { MEMORY = 1 << 14, MIDDLE = MEMORY / 2, CASES = 100000 };

/* Returns how many bytes of a view are already marked in `marks`. If `mark` is true, also marks all of its bytes. */
static int64_t visit(const mha__operand *o, size_t size, const char *memory, char *marks, bool mark)
{
    int64_t met = 0;
    const int64_t *e = o->shape, *s = o->view.stride;
    for (int64_t n = 0; n < e[0] * e[1] * e[2] * e[3]; n++) {
        const int64_t element = n / (e[1] * e[2] * e[3]) * s[0] + n / (e[2] * e[3]) % e[1] * s[1] +
                                n / e[3] % e[2] * s[2] + n % e[3] * s[3];
        char *at = marks + ((const char *)o->view.data - memory) + element * (int64_t)size;
        for (size_t byte = 0; byte < size; byte++) {
            met += at[byte];
            if (mark) at[byte] = 1;
        }
    }
    return met;
}

static mha__operand random_view(rng *r, const char *memory, size_t size, int64_t reach)
{
    mha__operand o = {"view", {0}, {0}, true};
    o.view.data = memory + MIDDLE + rng_range(r, 0, 127) * (int64_t)size;
    for (int i = 0; i < 4; i++) {
        o.shape[i] = rng_range(r, 1, 4);
        o.view.stride[i] = rng_range(r, -reach, reach);
    }
    if (rng_chance(r, 0.02)) o.shape[2] = 0;
    return o;
}

static void test_against_marks(void **state)
{
    (void)state;
    static const char memory[MEMORY];
    static char marks[MEMORY];
    static const size_t sizes[] = {1, 2, 4, 8};
    static const int64_t reaches[] = {3, 12, 60};
    rng r = rng_make(7, 0);
    int64_t overlapping = 0;
    for (int n = 0; n < CASES; n++) {
        const size_t x_size = sizes[n % 4], y_size = sizes[n / 4 % 4];
        const int64_t reach = reaches[n % 3];
        const mha__operand x = random_view(&r, memory, x_size, reach);
        mha__operand y = random_view(&r, memory, y_size, reach);
        if (n % 2) memcpy(y.view.stride, x.view.stride, sizeof y.view.stride);
        memset(marks, 0, sizeof marks);
        visit(&x, x_size, memory, marks, true);
        const bool want = visit(&y, y_size, memory, marks, false) > 0;
        assert_int_equal(mha__operand_overlaps(&x, x_size, &y, y_size), want);
        assert_int_equal(mha__operand_overlaps(&y, y_size, &x, x_size), want);
        overlapping += want;
    }
    print_message("%d pairs, %d of them overlap\n", CASES, (int)overlapping);
    assert_true(overlapping > CASES / 10 && overlapping < CASES * 9 / 10);
}

/* Returns a view [B, H, L, 64] of columns [from, from + heads * 64) of packed rows [2, 1000, 768], with H = `heads` and
 * L = `rows`. */
static mha__operand columns(float *packed, int64_t from, int64_t heads, int64_t rows)
{
    return (mha__operand){"columns", {packed + from, {768000, 64, 768, 1}}, {2, heads, rows, 64}, false};
}

static void test_packed_rows(void **state)
{
    (void)state;
    static float packed[2 * 768000];
    const mha__operand k = columns(packed, 256, 4, 1000);
    const struct {
        int64_t from, heads, rows;
        bool overlaps;
    } cases[] = {{0, 4, 1000, false}, {512, 4, 1000, false}, {512, 4, 7, false}, {0, 5, 1000, true},
                 {193, 1, 1, true},   {192, 1, 1000, false}, {511, 1, 3, true},  {448, 4, 1000, true}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const mha__operand out = columns(packed, cases[n].from, cases[n].heads, cases[n].rows);
        assert_int_equal(mha__operand_overlaps(&out, sizeof(float), &k, sizeof(float)), cases[n].overlaps);
    }
    mha__operand heads_first = {"heads first", {packed + 512, {0, 64000, 64, 1}}, {1, 4, 1000, 64}, false};
    assert_true(mha__operand_overlaps(&heads_first, sizeof(float), &k, sizeof(float)));
}

/* For views whose strides have no common divisor, the result must be exact if few steps decide it; otherwise, the views
 * must be reported as overlapping. */
static void test_unrelated_strides(void **state)
{
    (void)state;
    static float memory[16000000];
    mha__operand x = {"x", {memory, {0, 0, 0, 6}}, {1, 1, 1, 1000}, false};
    /* x occupies even positions and y odd positions, so the views do not overlap */
    mha__operand y = {"y", {memory + 1, {0, 0, 0, 10}}, {1, 1, 1, 1000}, false};
    assert_false(mha__operand_overlaps(&x, sizeof *memory, &y, sizeof *memory));
    x.shape[3] = y.shape[3] = 1000000;
    assert_true(mha__operand_overlaps(&x, sizeof *memory, &y, sizeof *memory));
    y.view.data = memory + 6000000;
    assert_false(mha__operand_overlaps(&x, sizeof *memory, &y, sizeof *memory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_marks), cmocka_unit_test(test_packed_rows),
                                       cmocka_unit_test(test_unrelated_strides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
