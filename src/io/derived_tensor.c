/* derived_tensor.c - reads derived tensors (derived_tensor.h). Transposed matrices are read in tiles, so that both the
 * stored rows and the elements that are written are accessed in runs. */
#include "io/derived_tensor.h"

#include "base/size.h"

enum { TILE = 16 }; /* rows of a tile: 64 bytes of float32 */

const mha__derived *mha__derived_of(const mha_tensor *tensor)
{
    /* Compares addresses as integers, so that memory of a tensor of another kind is not read. */
    const uintptr_t from = (uintptr_t)tensor->shape - offsetof(mha__derived, shape);
    const bool whole = (uintptr_t)tensor->dtype_name - offsetof(mha__derived, dtype_name) == from;
    if ((int)tensor->dtype != MHA__DTYPE_DERIVED || !whole) return NULL;
    return (const mha__derived *)((const char *)tensor->shape - offsetof(mha__derived, shape));
}

/* Returns how many of `count` elements from `column` on form one run. */
static int64_t run_of(int64_t column, int64_t count)
{
    return mha__min64(count, MHA__DERIVED_RUN - column % MHA__DERIVED_RUN);
}

/* Reads a run of `columns` elements of `rows` <= TILE rows, and writes element (i, j) to to[j * step + i]. */
static void read_tile(const mha__derived *d, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t step,
                      float *to)
{
    float tile[TILE][MHA__DERIVED_RUN];
    for (int64_t i = 0; i < rows; i++)
        d->read(d, row + i, column, columns, tile[i]);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            to[j * step + i] = tile[i][j];
}

/* Reads `columns` columns of the rows [row, row + rows), column by column. */
static void read_columns(const mha__derived *d, int64_t row, int64_t rows, int64_t column, int64_t columns, float *to)
{
    for (int64_t j = 0, n; j < columns; j += n) {
        n = run_of(column + j, columns - j);
        for (int64_t i = 0; i < rows; i += TILE)
            read_tile(d, row + i, mha__min64(TILE, rows - i), column + j, n, rows, to + j * rows + i);
    }
}

/* Reads whole columns, as many as there are, or the part of a column. Returns the number of elements. */
static int64_t read_transposed(const mha__derived *d, int64_t first, int64_t count, float *out)
{
    const int64_t matrix = first / (d->rows * d->columns), at = first % (d->rows * d->columns);
    const int64_t column = at / d->rows, row = at % d->rows;
    const bool whole = row == 0 && count >= d->rows;
    const int64_t columns = whole ? mha__min64(count / d->rows, d->columns - column) : 1;
    const int64_t rows = whole ? d->rows : mha__min64(count, d->rows - row);
    read_columns(d, matrix * d->rows + row, rows, column, columns, out);
    return rows * columns;
}

/* Reads a run of a row. Returns the number of elements. */
static int64_t read_row(const mha__derived *d, int64_t first, int64_t count, float *out)
{
    const int64_t column = first % d->columns;
    const int64_t n = run_of(column, mha__min64(count, d->columns - column));
    d->read(d, first / d->columns, column, n, out);
    return n;
}

void mha__derived_read(const mha__derived *d, int64_t first, int64_t count, float *out)
{
    for (int64_t done = 0; done < count;)
        done += (d->transposed ? read_transposed : read_row)(d, first + done, count - done, out + done);
}
