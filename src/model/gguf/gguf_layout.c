/* gguf_layout.c - see gguf_layout.h. */
#include "model/gguf/gguf_layout.h"

#include <string.h>

/* Makes the two elements of each rotated pair neighbors. */
static void pair_rows(const float *from, int64_t rows, int64_t columns, int64_t heads, float *to)
{
    const int64_t half = rows / heads / 2;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < 2 * half; i++)
            memcpy(to + (2 * half * h + i % half * 2 + i / half) * columns, from + (2 * half * h + i) * columns,
                   (size_t)columns * sizeof *to);
}

/* Transposes the matrices of all experts, or every second column of them; a bias is a matrix of one row. */
static void transpose_stack(const mha_tensor *t, mha__gguf_change change, const float *from, float *to)
{
    const int64_t columns = t->shape[t->rank - 1], rows = t->rank == 3 ? t->shape[1] : 1;
    const int64_t step = mha__gguf_is_half(change) ? 2 : 1, first = change == MHA__GGUF_UP;
    for (int64_t e = 0; e < t->shape[0]; e++, from += rows * columns)
        for (int64_t j = first; j < columns; j += step)
            for (int64_t i = 0; i < rows; i++)
                *to++ = from[i * columns + j];
}

bool mha__gguf_lay_out(const mha_tensor *t, mha__gguf_change change, int64_t heads, const float *from, float *to)
{
    const int64_t rows = t->rank ? t->shape[0] : 1, columns = t->rank ? t->elements / rows : 1;
    if (change == MHA__GGUF_SAME || change == MHA__GGUF_BARE) return false;
    if (change == MHA__GGUF_TRANSPOSED)
        for (int64_t i = 0; i < t->elements; i++)
            to[i % columns * rows + i / columns] = from[i];
    else if (change == MHA__GGUF_PLUS_ONE)
        for (int64_t i = 0; i < t->elements; i++)
            to[i] = from[i] + 1;
    else if (mha__gguf_is_stack(change))
        transpose_stack(t, change, from, to);
    else
        pair_rows(from, rows, columns, heads, to);
    return true;
}
