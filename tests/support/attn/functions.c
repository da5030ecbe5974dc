/* functions.c - implements functions.h. */
#include "support/attn/functions.h"

#include <math.h>

enum { ROWS = 40, KEYS = 48, SHIFT = 100 * ROWS }; /* size of a cell of the mask; SHIFT makes positions positive */

bool functions_drop(int64_t b, int64_t h, int64_t i, int64_t j)
{
    return (7 * (i + SHIFT) + 3 * j + h + 2 * b) % 13 == 0;
}

/* Returns 0 if all pairs of a cell are masked, 1 if some are, 2 if none is. */
static int64_t cell(int64_t b, int64_t h, int64_t row_cell, int64_t key_cell)
{
    return (row_cell + key_cell + h + b) % 3;
}

bool functions_hide(int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t kind = cell(b, h, (i + SHIFT) / ROWS, j / KEYS);
    return kind == 0 || (kind == 1 && (i + SHIFT + 3 * j + h) % 4 == 0);
}

double functions_term(int64_t b, int64_t h, int64_t i, int64_t j)
{
    return (double)((5 * (i + SHIFT) + 3 * j + 7 * h + 11 * b) % 9 - 4) / 4;
}

static void keep(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, uint8_t *to)
{
    (void)user;
    for (int64_t n = 0; n < count; n++)
        if (functions_hide(b, h, i, j0 + n)) to[n] = 0;
}

static mha_attn_block block(void *user, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j0, int64_t keys)
{
    bool none = true, every = true;
    (void)user;
    for (int64_t r = (i0 + SHIFT) / ROWS; r <= (i0 + SHIFT + rows - 1) / ROWS; r++)
        for (int64_t k = j0 / KEYS; k <= (j0 + keys - 1) / KEYS; k++) {
            none = none && cell(b, h, r, k) == 0;
            every = every && cell(b, h, r, k) == 2;
        }
    return none ? MHA_ATTN_BLOCK_NONE : every ? MHA_ATTN_BLOCK_ALL : MHA_ATTN_BLOCK_SOME;
}

#define DEFINE(REAL)                                                                                               \
    static void score_##REAL(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, void *scores) \
    {                                                                                                              \
        REAL *s = scores;                                                                                          \
        (void)user;                                                                                                \
        for (int64_t n = 0; n < count; n++)                                                                        \
            s[n] = functions_drop(b, h, i, j0 + n)                                                                 \
                       ? -(REAL)INFINITY                                                                           \
                       : s[n] / FUNCTIONS_SCALE(s[n]) + (REAL)functions_term(b, h, i, j0 + n);                     \
    }                                                                                                              \
    static void score_back_##REAL(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count,          \
                                  const void *scores, void *dscores)                                               \
    {                                                                                                              \
        const REAL *s = scores;                                                                                    \
        REAL *ds = dscores;                                                                                        \
        (void)user, (void)b, (void)h, (void)i, (void)j0;                                                           \
        for (int64_t n = 0; n < count; n++)                                                                        \
            ds[n] /= FUNCTIONS_SCALE(s[n]) * FUNCTIONS_SCALE(s[n]);                                                \
    }                                                                                                              \
    enum { END_##REAL }

DEFINE(float);
DEFINE(double);

const mha_attn_functions functions_f32 = {
    .size = sizeof functions_f32, .score = score_float, .score_back = score_back_float, .keep = keep, .block = block};
const mha_attn_functions functions_f64 = {
    .size = sizeof functions_f64, .score = score_double, .score_back = score_back_double, .keep = keep, .block = block};
