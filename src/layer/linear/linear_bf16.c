/* linear_bf16.c - linear layers whose x and y are bf16 arrays of the caller. Where kernels multiply bf16, x is their
 * left operand in place; otherwise x is converted to f32. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/packed_linear.h"
#include <string.h>

enum { CONVERTED_ROWS = 512 }; /* rows of x that are converted at a time */

/* Computes `rows` rows from copies of x in `left`, with whole tiles of rows. */
static void run_copied(const mha_linear *l, const uint16_t *x, int64_t rows, uint16_t *y, void *left)
{
    memcpy(left, x, (size_t)(rows * l->in) * sizeof *x);
    mha__linear_run(l, &(mha__linear_call){.rows = rows, .y = y, .rounded = MHA_BF16, .left = left});
}

/* Computes y without conversion. Products read whole tiles of rows, so the last rows are copied, as are all rows if x
 * is not aligned: a row of a tile that crosses a cache line takes twice as long to load. */
static mha_status run_in_place(const mha_linear *l, const uint16_t *x, int64_t rows, uint16_t *y, mha_error *err)
{
    const int64_t in_place = (uintptr_t)x % MHA__LINE ? 0 : rows / l->dense->rows * l->dense->rows;
    const size_t bytes = mha__linear_left(l, rows - in_place);
    void *left = bytes ? mha__alloc(l->ctx, bytes) : NULL;
    if (bytes && !left) return mha__no_memory(err, bytes, "the rows of a linear layer");
    /* mha__linear_call is also used for results, but the product only reads `left` */
    mha__linear_run(l,
                    &(mha__linear_call){.rows = in_place, .y = y, .rounded = MHA_BF16, .left = (void *)(uintptr_t)x});
    if (bytes) run_copied(l, x + in_place * l->in, rows - in_place, y + in_place * l->out, left);
    mha__free(l->ctx, left);
    return MHA_OK;
}

/* Computes y with x converted to f32. */
static mha_status run_converted(const mha_linear *l, const uint16_t *x, int64_t rows, uint16_t *y, mha_error *err)
{
    const int64_t most = mha__min64(rows, CONVERTED_ROWS);
    const size_t elements = mha__round_up(most * l->in * (int64_t)sizeof(float), MHA__LINE);
    const size_t bytes = elements + mha__linear_left(l, most);
    float *reals = mha__alloc(l->ctx, bytes);
    if (!reals) return mha__no_memory(err, bytes, "the converted input of a linear layer");
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t count = mha__min64(most, rows - row);
        l->kernels->widen[MHA__BF16](count, l->in, x + row * l->in, l->in, 1, reals, l->in);
        mha__linear_run(l, &(mha__linear_call){.x = reals,
                                               .rows = count,
                                               .y = y + row * l->out,
                                               .rounded = MHA_BF16,
                                               .left = (char *)reals + elements});
    }
    mha__free(l->ctx, reals);
    return MHA_OK;
}

mha_status mha_linear_forward_bf16(const mha_linear *linear, const uint16_t *x, int64_t rows, uint16_t *y,
                                   mha_error *err)
{
    const mha_status status = mha__linear_check(linear, x, rows, y, err);
    if (status != MHA_OK || rows == 0) return status;
    return mha__linear_takes_bf16(linear) ? run_in_place(linear, x, rows, y, err)
                                          : run_converted(linear, x, rows, y, err);
}
