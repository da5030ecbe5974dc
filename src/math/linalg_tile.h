/* linalg_tile.h - the register tile that computes matrix products in double.
 *
 * Both operands are panels [k][TILE] of TILE columns, padded with zeros. A caller may be compiled a second time for
 * AVX2. The results are bitwise identical, because products and sums are rounded separately in both versions. */
#ifndef MHA_MATH_LINALG_TILE_H
#define MHA_MATH_LINALG_TILE_H

#include <stdint.h>

enum { MHA__TILE = 4 };

#define MHA__TILE_INLINE static inline __attribute__((always_inline))
#ifdef __x86_64__
#define MHA__TILE_AVX2 __attribute__((target("avx2")))
#else
#define MHA__TILE_AVX2
#endif

/* Adds A^T B to the top left rows x columns of c. The terms of each element are added in ascending order of k. */
MHA__TILE_INLINE void mha__tile_add(int64_t k, const double *a, const double *b, int64_t rows, int64_t columns,
                                    double *c, int64_t c_row)
{
    double acc[MHA__TILE][MHA__TILE] = {{0}};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++)
            acc[r][j] = c[r * c_row + j];
    for (int64_t i = 0; i < k; i++, a += MHA__TILE, b += MHA__TILE)
        for (int r = 0; r < MHA__TILE; r++)
            for (int j = 0; j < MHA__TILE; j++)
                acc[r][j] += a[r] * b[j];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++)
            c[r * c_row + j] = acc[r][j];
}

#endif
