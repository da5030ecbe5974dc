/* pairs.h - helpers for tests of products of bf16 pairs: rows of bf16, a block of keys with a panel of queries, and
 * partial results. */
#ifndef TEST_KERNEL_PAIRS_H
#define TEST_KERNEL_PAIRS_H

#include "kernel/table.h"
#include "math/half.h"
#include <stdio.h>

enum { AROUND = 64, NAN16 = 0x7FC0, PAD = 3 };

/* A bf16 matrix with unused columns between its rows. The unused columns and the margins before and after the matrix
 * are NaN. */
typedef struct rows {
    uint16_t *memory, *data;
    int64_t stride;
} rows;

static inline double value(const rows *r, int64_t row, int64_t column)
{
    return (double)mha__bf16_to_f32(r->data[row * r->stride + column]);
}

static inline rows rows_make(int64_t count, int64_t width, int64_t pad, uint64_t seed)
{
    rng r = rng_make(seed, 1);
    const int64_t stride = width + pad, all = count * stride + 2 * AROUND;
    rows x = {malloc((size_t)all * sizeof *x.memory), NULL, stride};
    assert_non_null(x.memory);
    for (int64_t i = 0; i < all; i++)
        x.memory[i] = NAN16;
    x.data = x.memory + AROUND;
    for (int64_t row = 0; row < count; row++)
        for (int64_t c = 0; c < width; c++)
            x.data[row * stride + c] = mha__f32_to_bf16((float)rng_normal(&r));
    return x;
}

static inline int64_t whole(const mha__kernels *k, int64_t d)
{
    return (d + k->pairs->step - 1) / k->pairs->step * k->pairs->step;
}

/* The operands of the score kernels: one block of keys and one panel of queries. */
typedef struct block {
    const mha__kernels *k;
    int64_t keys, d, lanes;
    rows q, key, packed; /* packed: keys padded to whole steps; the score kernels may read the padding */
    array queries, s, top;
} block;

static inline block block_make(const mha__kernels *k, int64_t keys, int64_t d, int64_t lanes)
{
    const int64_t depth = whole(k, d);
    block b = {k, keys, d, lanes, .q = rows_make(lanes, d, PAD, 7), .key = rows_make(keys, d, PAD, 8)};
    b.packed = rows_make(keys, depth, 0, 9);
    b.queries = array_make(k, depth / 2 * k->nr, 0, OUTPUT);
    b.s = array_make(k, keys * k->nr, 0, OUTPUT);
    b.top = array_make(k, k->nr, 0, OUTPUT);
    k->pairs->pack_queries(lanes, d, b.q.data, b.q.stride, 1, b.queries.data);
    k->pairs->pack_keys(keys, d, b.key.data, b.key.stride, 1, b.packed.data);
    return b;
}

static inline void block_free(block *b)
{
    free(b->q.memory);
    free(b->key.memory);
    free(b->packed.memory);
    array_free(&b->queries);
    array_free(&b->s);
    array_free(&b->top);
}

typedef struct attended {
    array max, sum, o;
    int64_t stride;
} attended;

static inline attended attended_make(const mha__kernels *k, int64_t rows, int64_t dv)
{
    const int64_t stride = (dv + k->nr - 1) / k->nr * k->nr;
    attended a = {array_make(k, k->nr, 0, OUTPUT), array_make(k, k->nr, 0, OUTPUT),
                  array_make(k, rows * stride, 0, OUTPUT), stride};
    k->clear(rows, stride, &(mha__partial){a.max.data, a.sum.data, a.o.data});
    return a;
}

static inline void attended_free(attended *a)
{
    array_free(&a->max);
    array_free(&a->sum);
    array_free(&a->o);
}

/* Runs `test` on every kernel table with pair products and returns the number of such tables; `test` may be NULL. */
static inline int each(void (*test)(const mha__kernels *))
{
    const mha__kernels *list[TABLES];
    int found = 0;
    for (int n = tables(list); --n > 0;) {
        found += list[n]->pairs != NULL;
        if (test && list[n]->pairs) test(list[n]);
    }
    return found;
}

#endif
