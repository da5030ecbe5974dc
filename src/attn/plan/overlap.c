/* overlap.c - decides whether two views share a byte.
 *
 * A view is a box: its elements begin at begin + sum of n_i * stride_i, 0 <= n_i < count_i. The longest stride of the
 * two boxes is selected, and each box with this stride is split along it into copies of a smaller box. Only pairs of
 * copies whose byte ranges overlap matter, and such pairs differ only in the number of strides between the copies. The
 * problem for two boxes thus reduces to a few pairs of smaller boxes, one per distance, and finally to two elements.
 * Views with equal strides, such as packed rows, need one or two distances per axis, for any lengths. */
#include "attn/plan/operand.h"
#include "base/size.h"
#include <stdlib.h>

/* STEPS: after this many pairs of boxes, views whose strides have no common pattern are reported as overlapping. */
enum { AXES = 4, STEPS = 1 << 14 };

/* Axes in bytes, in order of descending stride. span[n] is the length of axes n and later, from the first to the last
 * byte. */
typedef struct box {
    int axes;
    int64_t stride[AXES], count[AXES], span[AXES + 1];
} box;

static box box_of(const mha__operand *o, size_t size)
{
    box b = {0};
    for (int i = 0; i < 4; i++) {
        const int64_t count = o->shape[i];
        if (count == 1 || o->view.stride[i] == 0) continue;
        const int64_t stride = llabs(o->view.stride[i]) * (int64_t)size;
        int at = b.axes++;
        for (; at > 0 && b.stride[at - 1] < stride; at--) {
            b.stride[at] = b.stride[at - 1];
            b.count[at] = b.count[at - 1];
        }
        b.stride[at] = stride;
        b.count[at] = count;
    }
    b.span[b.axes] = (int64_t)size;
    for (int n = b.axes - 1; n >= 0; n--)
        b.span[n] = b.span[n + 1] + b.stride[n] * (b.count[n] - 1);
    return b;
}

/* Returns floor(x / by) for a positive `by`. */
static int64_t floor_div(int64_t x, int64_t by)
{
    return x / by - (x % by < 0);
}

/* Returns true if axes m and later of x overlap axes n and later of y, where y begins `distance` bytes after x. */
static bool boxes_overlap(const box *x, int m, const box *y, int n, int64_t distance, int *steps)
{
    if (distance >= x->span[m] || distance + y->span[n] <= 0) return false;
    if ((m == x->axes && n == y->axes) || ++*steps > STEPS) return true;
    const int64_t x_stride = m < x->axes ? x->stride[m] : 0, y_stride = n < y->axes ? y->stride[n] : 0;
    const int64_t stride = mha__max64(x_stride, y_stride);
    const int of_x = x_stride == stride, of_y = y_stride == stride;
    /* `k` is the number of strides from the copy of y to the copy of x */
    const int64_t min = of_y ? 1 - y->count[n] : 0, max = of_x ? x->count[m] - 1 : 0;
    const int64_t first = mha__max64(min, floor_div(distance - x->span[m + of_x], stride) + 1);
    const int64_t last = mha__min64(max, -floor_div(-(distance + y->span[n + of_y]), stride) - 1);
    for (int64_t k = first; k <= last; k++)
        if (boxes_overlap(x, m + of_x, y, n + of_y, distance - k * stride, steps)) return true;
    return false;
}

bool mha__operand_overlaps(const mha__operand *x, size_t x_size, const mha__operand *y, size_t y_size)
{
    uintptr_t x_begin, x_end, y_begin, y_end;
    int steps = 0;
    if (mha__operand_is_empty(x) || mha__operand_is_empty(y)) return false;
    if (!mha__operand_bytes(x, x_size, &x_begin, &x_end) || !mha__operand_bytes(y, y_size, &y_begin, &y_end))
        return true; /* mha__operand_check_addresses rejects such operands */
    if (x_begin >= y_end || y_begin >= x_end) return false;
    const box a = box_of(x, x_size), b = box_of(y, y_size);
    return boxes_overlap(&a, 0, &b, 0, (int64_t)y_begin - (int64_t)x_begin, &steps);
}
