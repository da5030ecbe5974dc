/* tensor.c - implements the guarded tensors of tensor.h. */
#include "support/attn/tensor.h"

#include "support/reference/half.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 64 }; /* number of guard elements before and after the data, unless the layout is tight */

static size_t element_size(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 ? Q8_BYTES : dtype == MHA_Q4_0 ? Q4_BYTES : mha_dtype_size(dtype);
}

static void put(const tensor *t, size_t at, double value)
{
    switch (t->dtype) {
    case MHA_F64:
        ((double *)t->memory)[at] = value;
        break;
    case MHA_F32:
        ((float *)t->memory)[at] = (float)value;
        break;
    case MHA_BF16:
        ((uint16_t *)t->memory)[at] = half_bits(value, BF16_FRACTION);
        break;
    case MHA_F16:
        ((uint16_t *)t->memory)[at] = half_bits(value, F16_FRACTION);
        break;
    case MHA_I64:
        ((int64_t *)t->memory)[at] = (int64_t)value;
        break;
    case MHA_Q8_0:
        q8_make((char *)t->memory + at * Q8_BYTES, value);
        break;
    case MHA_Q4_0:
        q4_make((char *)t->memory + at * Q4_BYTES, value);
        break;
    case MHA_F8_E4M3:
        ((uint8_t *)t->memory)[at] = e4m3_bits(value);
        break;
    default:
        ((uint8_t *)t->memory)[at] = isnan(value) ? 0xA5 : (uint8_t)value;
    }
}

static double take(const tensor *t, size_t at)
{
    switch (t->dtype) {
    case MHA_F64:
        return ((const double *)t->memory)[at];
    case MHA_F32:
        return (double)((const float *)t->memory)[at];
    case MHA_BF16:
        return half_value(((const uint16_t *)t->memory)[at], BF16_FRACTION);
    case MHA_F16:
        return half_value(((const uint16_t *)t->memory)[at], F16_FRACTION);
    case MHA_Q8_0:
        return q8_made_of((const char *)t->memory + at * Q8_BYTES);
    case MHA_Q4_0:
        return q4_made_of((const char *)t->memory + at * Q4_BYTES);
    case MHA_F8_E4M3:
        return e4m3_value(((const uint8_t *)t->memory)[at]);
    case MHA_I64:
        return (double)((const int64_t *)t->memory)[at];
    default:
        return ((const uint8_t *)t->memory)[at];
    }
}

/* Sets the strides and `start`, the index of element (0, 0, 0, 0). Returns the number of elements that the tensor
 * spans. */
static size_t lay_out(tensor *t, const tensor_layout *layout)
{
    static const int plain[4] = {0, 1, 2, 3};
    bool named = layout->order[0] || layout->order[1] || layout->order[2] || layout->order[3];
    const int *order = named ? layout->order : plain;
    int64_t step = 1, first = 0;
    for (int n = 3; n >= 0; n--) {
        int axis = order[n];
        int64_t stored = layout->repeat[axis] ? 1 : t->dim[axis];
        t->stride[axis] = layout->repeat[axis] ? 0 : layout->flip[axis] ? -step : step;
        if (layout->flip[axis] && stored > 0) first += (stored - 1) * step;
        step *= stored + layout->pad[axis];
    }
    t->start = (size_t)((layout->tight ? 0 : MARGIN) + layout->shift + first);
    return (size_t)step;
}

static size_t offset(const tensor *t, int64_t b, int64_t h, int64_t l, int64_t d)
{
    return t->start + (size_t)(b * t->stride[0] + h * t->stride[1] + l * t->stride[2] + d * t->stride[3]);
}

/* Visits every element in index order. */
#define FOR_EACH(t, b, h, l, d)                       \
    for (int64_t b = 0; b < (t)->dim[0]; b++)         \
        for (int64_t h = 0; h < (t)->dim[1]; h++)     \
            for (int64_t l = 0; l < (t)->dim[2]; l++) \
                for (int64_t d = 0; d < (t)->dim[3]; d++)

void tensor_make(tensor *t, mha_dtype dtype, const int64_t dim[4], const tensor_layout *layout, double guard)
{
    *t = (tensor){.dtype = dtype, .unspecified = layout->unspecified};
    memcpy(t->dim, dim, sizeof t->dim);
    t->count = lay_out(t, layout) + (layout->tight ? 0 : 2 * MARGIN) + (size_t)layout->shift;
    t->inside = calloc(t->count + 1, sizeof *t->inside);
    if (!t->inside || posix_memalign(&t->memory, 64, t->count * element_size(dtype)) != 0) abort();
    t->data = (char *)t->memory + t->start * element_size(dtype);
    for (size_t i = 0; i < t->count; i++)
        put(t, i, guard);
    FOR_EACH(t, b, h, l, d) t->inside[offset(t, b, h, l, d)] = true;
}

void tensor_free(tensor *t)
{
    free(t->memory);
    free(t->inside);
    *t = (tensor){0};
}

void *tensor_at(const tensor *t, int64_t b, int64_t h, int64_t l, int64_t d)
{
    return (char *)t->memory + offset(t, b, h, l, d) * element_size(t->dtype);
}

double tensor_get(const tensor *t, int64_t b, int64_t h, int64_t l, int64_t d)
{
    return take(t, offset(t, b, h, l, d));
}

void tensor_set(tensor *t, int64_t b, int64_t h, int64_t l, int64_t d, double value)
{
    put(t, offset(t, b, h, l, d), value);
}

mha_cview tensor_cview(const tensor *t)
{
    mha_cview view = {.data = t->data};
    if (!t->unspecified) memcpy(view.stride, t->stride, sizeof view.stride);
    return view;
}

mha_view tensor_view(const tensor *t)
{
    mha_view view = {.data = t->data};
    if (!t->unspecified) memcpy(view.stride, t->stride, sizeof view.stride);
    return view;
}

void tensor_fill(tensor *t, double (*next)(void *arg), void *arg)
{
    FOR_EACH(t, b, h, l, d) tensor_set(t, b, h, l, d, next(arg));
}

void tensor_copy(tensor *to, const tensor *from)
{
    FOR_EACH(to, b, h, l, d) tensor_set(to, b, h, l, d, tensor_get(from, b, h, l, d));
}

void tensor_copy_part(tensor *to, const tensor *from, int64_t b, int64_t l)
{
    const int64_t group = to->dim[1] / from->dim[1];
    FOR_EACH(to, n, h, i, d) tensor_set(to, n, h, i, d, tensor_get(from, b + n, h / group, l + i, d));
}

static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

bool tensor_same_bits(const tensor *a, const tensor *b)
{
    if (memcmp(a->dim, b->dim, sizeof a->dim) != 0) return false;
    FOR_EACH(a, n, h, l, d)
    if (!same(tensor_get(a, n, h, l, d), tensor_get(b, n, h, l, d))) return false;
    return true;
}

/* Returns a value after conversion to the tensor's type and back. */
static double as_stored(mha_dtype dtype, double value)
{
    uint64_t element[Q8_BYTES / sizeof(uint64_t) + 1] = {0};
    const tensor one = {.dtype = dtype, .memory = element};
    put(&one, 0, value);
    return take(&one, 0);
}

bool tensor_guards_intact(const tensor *t, double guard)
{
    double want = as_stored(t->dtype, guard);
    for (size_t i = 0; i < t->count; i++)
        if (!t->inside[i] && !same(take(t, i), want)) return false;
    return true;
}

static void shuffle(rng *r, int order[4])
{
    for (int n = 3; n > 0; n--) {
        int other = (int)rng_range(r, 0, n), kept = order[n];
        order[n] = order[other];
        order[other] = kept;
    }
}

tensor_layout tensor_layout_random(rng *r, bool repeat)
{
    tensor_layout layout = {.order = {0, 1, 2, 3}, .shift = (int)rng_range(r, 0, 16)};
    layout.tight = rng_chance(r, 0.3);
    if (rng_chance(r, 0.2)) return (tensor_layout){.unspecified = true, .tight = layout.tight};
    if (rng_chance(r, 0.3)) shuffle(r, layout.order);
    for (int axis = 0; axis < 4; axis++) {
        if (rng_chance(r, 0.3)) layout.pad[axis] = (int)rng_range(r, 1, 5);
        layout.flip[axis] = rng_chance(r, 0.1);
        layout.repeat[axis] = repeat && axis < 3 && rng_chance(r, 0.1);
    }
    return layout;
}
