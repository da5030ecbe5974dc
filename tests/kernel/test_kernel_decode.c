/* test_kernel_decode.c - tests the decode kernels (few queries). For every stored type, scores, softmax and values must
 * be bitwise identical to those that the tile kernels compute from the same keys and values converted to `real`.
 *
 * Cases have lengths beyond two vectors, strided rows, and pieces of any size; some pieces are dropped. */
#include "base/size.h"
#include "kernel/table.h"
#include "math/half.h"
#include "math/types/e4m3.h"
#include "math/types/q4_0.h"
#include "math/types/q8_0.h"

enum { KEYS_MAX = MHA__KEY_BLOCK, WIDTH_MAX = 150, ROW_GAP = 6 };

/* Rows of keys or values of one stored type, split into pieces, and the same rows as `real`. Gaps between rows are NaN
 * in every type. */
typedef struct stored {
    char *memory;
    array real;
    mha__pieces pieces;
    int64_t keys, width;
} stored;

static float rounded(int type, float x)
{
    return type == MHA__BF16  ? mha__bf16_to_f32(mha__f32_to_bf16(x))
           : type == MHA__F16 ? mha__f16_to_f32(mha__f32_to_f16(x))
                              : x;
}

static void store_row(int type, int64_t width, const float *from, char *to, array *real, int64_t key)
{
    if (type == MHA__Q8) mha__q8_round(from, 1, width, (mha__q8 *)(void *)to);
    if (type == MHA__Q4) mha__q4_round_rotated(from, 1, width, (mha__q4 *)(void *)to);
    for (int64_t i = 0; i < width; i++) {
        const uint16_t half = type == MHA__BF16 ? mha__f32_to_bf16(from[i]) : mha__f32_to_f16(from[i]);
        float x = rounded(type, from[i]);
        if (type == MHA__Q8) {
            mha__q8 block;
            memcpy(&block, to + i / MHA__Q8_BLOCK * (int64_t)sizeof block, sizeof block);
            x = mha__f16_to_f32(block.scale) * (float)block.q[i % MHA__Q8_BLOCK];
        } else if (type == MHA__Q4) {
            mha__q4 block;
            memcpy(&block, to + i / MHA__Q4_BLOCK * (int64_t)sizeof block, sizeof block);
            x = mha__f16_to_f32(block.scale) * (float)mha__q4_at(block.q, (int)(i % MHA__Q4_BLOCK));
        } else if (type == MHA__E4M3) {
            const uint8_t code = mha__f32_to_e4m3(from[i]);
            to[i] = (char)code;
            x = mha__e4m3_to_f32(code);
        } else if (type < 0) {
            memcpy(to + i * (int64_t)sizeof x, &x, sizeof x);
        } else {
            memcpy(to + i * (int64_t)sizeof half, &half, sizeof half);
        }
        put(real, key * width + i, (double)x);
    }
}

/* Returns a width that the type can store: whole blocks for q4_0. */
static int64_t width_of(int type, int64_t width)
{
    return type == MHA__Q4 ? mha__max64(1, width / MHA__Q4_BLOCK) * MHA__Q4_BLOCK : width;
}

/* Makes random rows and splits them at random into pieces. The rows of a dropped piece are 0 in `real`. */
static stored stored_make(const mha__kernels *t, int type, int64_t keys, int64_t width, bool dropped, rng *r)
{
    static const int64_t sizes[] = {4, 2, 2, sizeof(mha__q8), sizeof(mha__q4), 1};
    const int64_t size = sizes[type + 1];
    const int64_t count = type == MHA__Q8 || type == MHA__Q4 ? mha__ceil_div(width, MHA__Q8_BLOCK) : width;
    stored x = {.keys = keys, .width = width, .pieces = {.stride = (count + ROW_GAP) * size, .bytes = count * size}};
    x.memory = malloc((size_t)(keys * x.pieces.stride));
    x.real = array_make(t, keys * width, 0, INPUT);
    assert_non_null(x.memory);
    memset(x.memory, 0xFF, (size_t)(keys * x.pieces.stride));
    for (int64_t key = 0, next; key < keys; key = next) {
        next = x.pieces.count == MHA__PIECES - 1 ? keys : key + rng_range(r, 1, keys - key);
        const bool drop = dropped && rng_chance(r, 0.3);
        char *at = x.memory + key * x.pieces.stride;
        x.pieces.piece[x.pieces.count].at = drop ? NULL : at;
        x.pieces.piece[x.pieces.count++].rows = next - key;
        for (int64_t j = key; j < next; j++) {
            float row[WIDTH_MAX];
            for (int64_t i = 0; i < width; i++)
                row[i] = drop ? 0 : (float)rng_normal(r);
            store_row(type, width, row, x.memory + j * x.pieces.stride, &x.real, j);
        }
    }
    return x;
}

static void stored_free(stored *x)
{
    free(x->memory);
    array_free(&x->real);
}

typedef struct work {
    array q, panel, dense, strip, s, same, top, max, sum, alpha, o;
    int64_t lanes, stride;
} work;

static work work_make(const mha__kernels *t, int64_t lanes, int64_t d, int64_t dv, rng *r)
{
    work w = {.lanes = lanes, .stride = (dv + t->nr - 1) / t->nr * t->nr};
    w.q = array_make(t, lanes * d, 1, INPUT);
    w.panel = array_make(t, d * t->nr, 0, OUTPUT);
    w.dense = array_make(t, d * lanes, 0, OUTPUT);
    w.strip = array_make(t, lanes * MHA__STRIP, 0, OUTPUT);
    w.s = array_make(t, KEYS_MAX * t->nr, 0, 0);
    w.same = array_make(t, KEYS_MAX * t->nr, 0, 0);
    w.top = array_make(t, t->nr, 0, OUTPUT);
    w.max = array_make(t, 2 * t->nr, 0, OUTPUT);
    w.sum = array_make(t, 2 * t->nr, 0, OUTPUT);
    w.alpha = array_make(t, 2 * t->nr, 0, OUTPUT);
    w.o = array_make(t, 2 * lanes * w.stride, 0, OUTPUT);
    fill(&w.q, r);
    t->pack_rows(lanes, d, w.q.data, d, 1, w.panel.data);
    for (int64_t i = 0; i < d * lanes; i++)
        put(&w.dense, i, get(&w.panel, i / lanes * t->nr + i % lanes));
    for (int64_t i = 0; i < 2 * t->nr; i++) {
        put(&w.max, i, i % t->nr % 2 ? -INFINITY : 0.5);
        put(&w.sum, i, i % t->nr % 2 ? 0 : 1.25);
    }
    for (int64_t i = 0; i < lanes * w.stride; i++) {
        put(&w.o, i, i % w.stride < dv ? rng_normal(r) : 0);
        put(&w.o, lanes * w.stride + i, get(&w.o, i));
    }
    return w;
}

static void work_free(work *w)
{
    array *all[] = {&w->q,   &w->panel, &w->dense, &w->strip, &w->s, &w->same,
                    &w->top, &w->max,   &w->sum,   &w->alpha, &w->o};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_true(isnan(all[i]->guard) || guards_intact(all[i]));
        array_free(all[i]);
    }
}

/* Returns true if elements [i, i + n) of a and [j, j + n) of b are bitwise identical. */
static bool same_numbers(const array *a, int64_t i, const array *b, int64_t j, int64_t n)
{
    return memcmp(at_number(a, i), at_number(b, j), (size_t)n * a->k->real_size) == 0;
}

/* Compares scores and softmax weights of the decode kernels (as a strip and as a panel) with those of the tile
 * kernels. */
static void check_scores(const mha__kernels *t, int type, const stored *k, work *w)
{
    const int64_t keys = k->keys, nr = t->nr;
    const mha__upcoming upcoming[] = {{.next = k->memory, .lead = 16, .far = k->pieces},
                                      {.next = k->memory, .lead = 32}};
    t->scores(keys, k->width, k->real.data, k->width, 1, w->panel.data, w->lanes, 0.3, w->s.data, w->top.data, NULL);
    for (size_t n = 0; n < sizeof upcoming / sizeof *upcoming; n++) { /* with and without prefetches into L2 */
        t->decode_scores(type, &k->pieces, k->width, w->dense.data, w->lanes, 0.3, w->strip.data, &upcoming[n]);
        t->decode_panel(keys, w->lanes, w->strip.data, w->same.data);
        for (int64_t key = 0; key < keys; key++)
            assert_true(same_numbers(&w->s, key * nr, &w->same, key * nr, w->lanes));
    }
    t->decode_softmax(keys, w->lanes, w->strip.data, w->max.data, w->alpha.data);
    t->softmax(keys, w->lanes, w->top.data, w->s.data, at_number(&w->max, nr), at_number(&w->sum, nr),
               at_number(&w->alpha, nr));
    assert_true(same_numbers(&w->max, 0, &w->max, nr, w->lanes) && same_numbers(&w->alpha, 0, &w->alpha, nr, w->lanes));
    for (int64_t key = 0; key < keys; key++)
        for (int64_t r = 0; r < w->lanes; r++)
            assert_true(get(&w->s, key * nr + r) == get(&w->strip, r * MHA__STRIP + key));
}

/* Compares O of decode_values with O of the tile kernel: from weights in a strip with row sums, and from a panel
 * without row sums. */
static void check_values(const mha__kernels *t, int type, const stored *v, work *w)
{
    const int64_t keys = v->keys, dv = v->width, nr = t->nr;
    void *other = at_number(&w->o, w->lanes * w->stride), *before = malloc((size_t)w->o.n * t->real_size);
    array panels = array_make(t, keys * w->stride, 0, OUTPUT);
    assert_non_null(before);
    memcpy(before, w->o.data, (size_t)w->o.n * t->real_size);
    t->pack_cols(keys, dv, v->real.data, dv, 1, panels.data);
    t->values(w->lanes, dv, keys, w->s.data, panels.data, nr, keys * nr, w->alpha.data, other, w->stride, NULL);
    t->decode_values(type, &v->pieces, dv, w->lanes, w->strip.data, MHA__STRIP, 1, w->alpha.data, w->sum.data,
                     w->o.data, w->stride, NULL);
    assert_true(same_numbers(&w->sum, 0, &w->sum, nr, w->lanes));
    for (int64_t r = 0; r < w->lanes; r++)
        assert_true(same_numbers(&w->o, r * w->stride, &w->o, (w->lanes + r) * w->stride, dv));
    const mha__upcoming upcoming[] = {{.next = v->memory, .lead = 16, .far = v->pieces},
                                      {.next = v->memory, .lead = 32},
                                      {.next = v->memory, .lead = 16, .ascending = true}};
    for (size_t n = 0; n < sizeof upcoming / sizeof *upcoming; n++) {
        memcpy(w->o.data, before, (size_t)w->o.n / 2 * t->real_size);
        t->decode_values(type, &v->pieces, dv, w->lanes, w->s.data, 1, nr, w->alpha.data, NULL, w->o.data, w->stride,
                         &upcoming[n]);
        for (int64_t r = 0; r < w->lanes; r++)
            assert_true(same_numbers(&w->o, r * w->stride, &w->o, (w->lanes + r) * w->stride, dv));
    }
    assert_true(guards_intact(&panels));
    array_free(&panels);
    free(before);
}

static void check(const mha__kernels *t, int type, int64_t lanes, int64_t keys, int64_t d, int64_t dv, rng *r)
{
    d = width_of(type, d), dv = width_of(type, dv);
    work w = work_make(t, lanes, d, dv, r);
    stored k = stored_make(t, type, keys, d, false, r), v = stored_make(t, type, keys, dv, false, r);
    check_scores(t, type, &k, &w);
    check_values(t, type, &v, &w);
    stored_free(&k), stored_free(&v), work_free(&w);
}

static void test_bits_of_the_tile(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(7, 1);
    for (int n = tables(list); n-- > 0;)
        for (int64_t lanes = 1; lanes <= list[n]->decode_lanes; lanes++)
            for (int type = -1; type < MHA__STORED; type++)
                for (int i = 0; i < 25; i++)
                    check(list[n], type, lanes, rng_range(&r, 1, KEYS_MAX), rng_range(&r, 1, WIDTH_MAX),
                          rng_range(&r, 1, WIDTH_MAX), &r);
}

/* Tests every key count and every width up to KEYS_MAX. */
static void test_lengths(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(7, 2);
    for (int n = tables(list); n-- > 0;)
        for (int64_t i = 1; i <= KEYS_MAX && list[n]->decode_lanes > 0; i++)
            check(list[n], (int)(i % (MHA__STORED + 1)) - 1, rng_range(&r, 1, list[n]->decode_lanes), i, i,
                  KEYS_MAX + 1 - i, &r);
}

/* The decode kernel must not read the rows of dropped pieces, whose weights are 0. */
static void test_dropped_pieces(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(7, 3);
    for (int n = tables(list); n-- > 0;)
        for (int i = 0; i < 60 && list[n]->decode_lanes > 0; i++) {
            const mha__kernels *t = list[n];
            const int type = i % (MHA__STORED + 1) - 1;
            const int64_t keys = rng_range(&r, 1, KEYS_MAX), dv = width_of(type, rng_range(&r, 1, WIDTH_MAX));
            work w = work_make(t, rng_range(&r, 1, t->decode_lanes), 5, dv, &r);
            stored v = stored_make(t, type, keys, dv, true, &r);
            for (int64_t lane = 0; lane < w.lanes; lane++)
                for (int64_t key = 0, p = 0, end = v.pieces.piece[0].rows; key < keys; key++) {
                    while (key == end)
                        end += v.pieces.piece[++p].rows;
                    const double weight = v.pieces.piece[p].at ? 0.25 + 0.5 * rng_chance(&r, 0.5) : 0;
                    put(&w.s, key * t->nr + lane, weight);
                    put(&w.strip, lane * MHA__STRIP + key, weight);
                }
            for (int64_t lane = 0; lane < w.lanes; lane++)
                put(&w.alpha, lane, 0.5), put(&w.alpha, t->nr + lane, 0.5);
            double sum[64];
            /* sums are exact, because all terms are multiples of 1/4 */
            for (int64_t lane = 0; lane < w.lanes; lane++) {
                sum[lane] = 0.5 * get(&w.sum, lane);
                for (int64_t key = 0; key < keys; key++)
                    sum[lane] += get(&w.s, key * t->nr + lane);
                put(&w.sum, t->nr + lane, sum[lane]);
            }
            check_values(t, type, &v, &w);
            stored_free(&v), work_free(&w);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits_of_the_tile), cmocka_unit_test(test_lengths),
                                              cmocka_unit_test(test_dropped_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
