/* derived_matrices.c - derived tensors of GGUF files (derived_tensor.h): the matrices of experts, transposed, and two
 * tensors of which every second row of one is from the other. */
#include "base/error.h"
#include "io/block_types.h"
#include "io/derived_tensor.h"
#include "math/half.h"

static void read_halves(const mha_tensor *t, int64_t first, int64_t count, float *to)
{
    const char *from = (const char *)t->data + (size_t)first * sizeof(uint16_t);
    for (int64_t i = 0; i < count; i++) {
        uint16_t half; /* may be unaligned */
        memcpy(&half, from + (size_t)i * sizeof half, sizeof half);
        to[i] = t->dtype == MHA_BF16 ? mha__bf16_to_f32(half) : mha__f16_to_f32(half);
    }
}

/* Reads elements within one run of a row: the blocks that contain them are within the run too. */
static void read_stored(const mha_tensor *t, int64_t row, int64_t column, int64_t count, float *to)
{
    const mha__block_type *type = mha__block_type_of(t);
    float blocks[MHA__DERIVED_RUN];
    if (!type && t->dtype == MHA_F32) {
        memcpy(to, (const char *)t->data + (size_t)(row + column) * sizeof *to, (size_t)count * sizeof *to);
    } else if (!type) {
        read_halves(t, row + column, count, to);
    } else {
        const int64_t skip = column % type->elements, whole = skip + count + type->elements - 1;
        const char *from = (const char *)t->data + (size_t)((row + column - skip) / type->elements) * type->bytes;
        mha__blocks_to_f32(type, from, whole / type->elements * type->elements, blocks);
        memcpy(to, blocks + skip, (size_t)count * sizeof *to);
    }
}

static void read_one(const mha__derived *d, int64_t row, int64_t column, int64_t count, float *to)
{
    read_stored(&d->parts[0], row * d->columns, column, count, to);
}

static void read_alternating(const mha__derived *d, int64_t row, int64_t column, int64_t count, float *to)
{
    read_stored(&d->parts[row % 2], row / 2 * d->columns, column, count, to); /* rows of a matrix are even in number */
}

static bool is_readable(const mha_tensor *t)
{
    if (t->dtype == MHA_F32 || t->dtype == MHA_F16 || t->dtype == MHA_BF16) return true;
    return t->rank == 3 && mha__block_type_of(t) != NULL;
}

/* Checks a stored tensor, and that it is like the other one, if there is one. */
static mha_status check(const mha_file *file, const mha_tensor *t, const mha_tensor *other, mha_error *err)
{
    if ((t->rank != 2 && t->rank != 3) || !t->elements)
        return mha__derived_refuse_shape(file, t, "[experts, rows] or [experts, rows, columns]", err);
    if (other && (t->rank != other->rank || memcmp(t->shape, other->shape, (size_t)t->rank * sizeof *t->shape) != 0))
        return mha__derived_refuse_shape(file, t, mha__quote_shape(&(mha__quoted){0}, other->rank, other->shape), err);
    if (is_readable(t)) return MHA_OK;
    return mha__derived_refuse_type(
        file, t, t->rank == 2 ? "one of F32, F16, BF16" : "a type that can be converted to f32", err);
}

mha_status mha__derive_matrices(mha_file *file, const char *name, const mha_tensor *first, const mha_tensor *second,
                                mha_tensor *out, mha_error *err)
{
    mha__derived *d = NULL;
    MHA__TRY(check(file, first, NULL, err));
    if (second) MHA__TRY(check(file, second, first, err));
    MHA__TRY(mha__derived_describe(file, first, second, &d, err));
    d->read = second ? read_alternating : read_one;
    d->transposed = true;
    d->rows = first->shape[1] * (second ? 2 : 1);
    d->columns = first->rank == 3 ? first->shape[2] : 1;
    d->shape[0] = first->shape[0];
    d->shape[1] = first->rank == 3 ? d->columns : d->rows;
    d->shape[2] = d->rows;
    const bool same = !second || strcmp(first->dtype_name, second->dtype_name) == 0;
    *out = mha__derived_tensor(d, name, same ? first->dtype_name : "F32", first->rank);
    return MHA_OK;
}
