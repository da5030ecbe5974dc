/* operand.c - checks one view of a call at a time. */
#include "attn/plan/operand.h"

#include "base/error.h"
#include "base/size.h"
#include <inttypes.h>
#include <stdlib.h>

/* Maximum byte range of a view. This limit prevents overflow in differences and sums of two addresses. */
static const uintptr_t REACH_MAX = UINTPTR_MAX / 8 + 1;

static bool all_zero(const int64_t stride[4])
{
    return stride[0] == 0 && stride[1] == 0 && stride[2] == 0 && stride[3] == 0;
}

static void contiguous(const int64_t shape[4], int64_t stride[4])
{
    stride[3] = 1;
    for (int i = 3; i > 0; i--)
        stride[i - 1] = stride[i] * mha__max64(shape[i], 1);
}

static bool is_empty(const int64_t *shape, int dims)
{
    for (int i = 0; i < dims; i++)
        if (shape[i] == 0) return true;
    return false;
}

/* Lists the axes with more than one element, sorted by stride, and returns their number. */
static int sorted_axes(const mha_view *view, const int64_t *shape, int dims, int axes[4])
{
    int count = 0;
    for (int i = dims - 1; i >= 0; i--) {
        if (shape[i] == 1) continue;
        int at = count++;
        for (; at > 0 && llabs(view->stride[axes[at - 1]]) > llabs(view->stride[i]); at--)
            axes[at] = axes[at - 1];
        axes[at] = i;
    }
    return count;
}

/* Checks that elements of an output do not share an address: each stride must exceed the distance between the first
 * and the last element of all axes with smaller strides. This rule also rejects rows that are interleaved without
 * overlapping. An empty output has no elements, so any strides are valid. */
static mha_status check_output(const char *name, const mha_view *view, const int64_t shape[4], int dims, mha_error *err)
{
    if (is_empty(shape, dims)) return MHA_OK;
    int axes[4];
    int64_t span = 0;
    for (int n = 0, count = sorted_axes(view, shape, dims, axes); n < count; n++) {
        const int64_t stride = llabs(view->stride[axes[n]]), length = shape[axes[n]];
        if (stride <= span)
            return mha__fail(err, MHA_ERR_ARG,
                             "%s.stride[%d] must be at least %" PRId64
                             " in magnitude, so that elements do not overlap (got %" PRId64 ")",
                             name, axes[n], span + 1, view->stride[axes[n]]);
        span += stride * (length - 1);
    }
    return MHA_OK;
}

bool mha__operand_is_empty(const mha__operand *o)
{
    return is_empty(o->shape, 4);
}

mha__operand mha__operand_of(const char *name, const mha_view *view, const int64_t shape[4])
{
    return (mha__operand){name,
                          {view->data, {view->stride[0], view->stride[1], view->stride[2], view->stride[3]}},
                          {shape[0], shape[1], shape[2], shape[3]},
                          false};
}

mha_status mha__operand_bind(mha__operand *o, mha_error *err)
{
    if (!o->view.data && !is_empty(o->shape, 4)) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", o->name);
    if (!o->broadcasts && all_zero(o->view.stride)) contiguous(o->shape, o->view.stride);
    return MHA_OK;
}

bool mha__operand_bytes(const mha__operand *o, size_t size, uintptr_t *begin, uintptr_t *end)
{
    const uintptr_t data = (uintptr_t)o->view.data;
    int64_t low = 0, high = 0, reach, bytes_low, bytes_high;
    for (int i = 0; i < 4; i++) {
        if (__builtin_mul_overflow(o->shape[i] - 1, o->view.stride[i], &reach)) return false;
        if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
    }
    if (__builtin_add_overflow(high, 1, &high)) return false;
    if (__builtin_mul_overflow(low, (int64_t)size, &bytes_low) ||
        __builtin_mul_overflow(high, (int64_t)size, &bytes_high))
        return false;
    *begin = data + (uintptr_t)bytes_low;
    *end = data + (uintptr_t)bytes_high;
    return *begin <= data && data < *end && *end - *begin <= REACH_MAX;
}

/* Checks that each element has an aligned address, and that its byte distance from the first element does not overflow.
 * (An element of q8_0 or q4_0 is a block of 34 or 18 bytes that begins with a 16-bit element, so the lowest set bit of
 * a size is its alignment.) */
mha_status mha__operand_check_addresses(const mha__operand *o, size_t size, mha_error *err)
{
    uintptr_t begin, end;
    if (is_empty(o->shape, 4)) return MHA_OK;
    if ((uintptr_t)o->view.data % (size & -size) != 0)
        return mha__fail(err, MHA_ERR_ARG, "%s.data must be aligned to %zu bytes, like its elements (got %p)", o->name,
                         size & -size, o->view.data);
    if (mha__operand_bytes(o, size, &begin, &end)) return MHA_OK;
    const int64_t *s = o->view.stride;
    return mha__fail(err, MHA_ERR_ARG,
                     "%s.stride must stay within the address space (got {%" PRId64 ", %" PRId64 ", %" PRId64
                     ", %" PRId64 "})",
                     o->name, s[0], s[1], s[2], s[3]);
}

bool mha__operand_same(const mha__operand *x, const mha__operand *y)
{
    bool same = x->view.data == y->view.data;
    for (int i = 0; i < 4; i++)
        same = same && x->shape[i] == y->shape[i] && (x->view.stride[i] == y->view.stride[i] || x->shape[i] == 1);
    return same;
}

mha_status mha__bind_input(const char *name, mha_cview *view, const int64_t shape[4], size_t size, mha_error *err)
{
    mha__operand o = {name, *view, {shape[0], shape[1], shape[2], shape[3]}, false};
    MHA__TRY(mha__operand_bind(&o, err));
    MHA__TRY(mha__operand_check_addresses(&o, size, err));
    *view = o.view;
    return MHA_OK;
}

mha_status mha__bind_output(const char *name, mha_view *view, const int64_t shape[4], int dims, size_t size,
                            mha_error *err)
{
    mha__operand o = mha__operand_of(name, view, shape);
    MHA__TRY(mha__operand_bind(&o, err));
    for (int i = 0; i < 4; i++)
        view->stride[i] = o.view.stride[i];
    if (dims < 4) o.view.stride[3] = 0; /* the fourth axis is not used */
    MHA__TRY(mha__operand_check_addresses(&o, size, err));
    return check_output(name, view, shape, dims, err);
}
