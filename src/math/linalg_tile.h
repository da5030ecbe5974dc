/* linalg_tile.h - the register tile that computes matrix products in double.
 *
 * Both operands are panels [k][TILE] of TILE columns, padded with zeros. The code is compiled for baseline instructions
 * only and therefore runs on every CPU. */
#ifndef MHA_MATH_LINALG_TILE_H
#define MHA_MATH_LINALG_TILE_H

#include <stdint.h>

enum { MHA__TILE = 4 };

/* Adds A^T B to the top left rows x columns of c. The terms of each element are added in ascending order of k. */
static inline void mha__tile_add(int64_t k, const double *a, const double *b, int64_t rows, int64_t columns, double *c,
                                 int64_t c_row)
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
