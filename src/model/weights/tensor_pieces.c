/* tensor_pieces.c - see tensor_pieces.h. */
#include "model/weights/tensor_pieces.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/block_types.h"

/* Converts `count` elements from element `first` on. */
static mha_status read_run(const mha_tensor *tensor, int64_t first, int64_t count, float *out, mha_error *err)
{
    const size_t size = mha_dtype_size(tensor->dtype);
    mha_tensor run = *tensor;
    run.rank = 1;
    run.shape = &count;
    run.elements = count;
    run.data = (const char *)tensor->data + (size_t)first * size;
    run.bytes = (size_t)count * size;
    return mha_tensor_read(&run, MHA_F32, out, err);
}

/* Returns the number of pieces, from `piece` on, that form one contiguous range of indices. */
static int64_t joined(const mha__tensor_pieces *p, int64_t piece)
{
    int64_t count = 1;
    while (piece + count < p->count && p->start[piece + count] == p->start[piece] + count * p->length)
        count++;
    return count;
}

/* Reads the pieces. Index 0 begins at element `at`, and each index has `inner` elements. */
static mha_status read_pieces(const mha_tensor *tensor, const mha__tensor_pieces *p, int64_t at, int64_t inner,
                              float **out, mha_error *err)
{
    for (int64_t n = 0, count; n < p->count; n += count) {
        count = joined(p, n);
        const int64_t elements = count * p->length * inner;
        MHA__TRY(read_run(tensor, at + p->start[n] * inner, elements, *out, err));
        *out += elements;
    }
    return MHA_OK;
}

/* Converts a tensor of a quantized type, whose blocks the pieces may divide. */
static mha_status widen(mha__weights *weights, const mha_tensor *tensor, mha_tensor *wide, mha_error *err)
{
    const size_t bytes = (size_t)tensor->elements * sizeof(float);
    float *copy = mha__weights_keep(weights, bytes);
    if (!copy) return mha__no_memory(err, bytes, tensor->name);
    *wide = *tensor;
    wide->dtype = MHA_F32;
    wide->data = copy;
    wide->bytes = bytes;
    return mha_tensor_read(tensor, MHA_F32, copy, err);
}

mha_status mha__tensor_read_pieces(mha__weights *weights, const mha_tensor *tensor, const mha__tensor_pieces *pieces,
                                   const float **out, mha_error *err)
{
    const int64_t columns = tensor->rank > 1 ? tensor->shape[1] : 1, rows = tensor->shape[0];
    const bool by_row = pieces->dimension == 0;
    size_t bytes = 0;
    mha_tensor wide;
    if (mha__tensor_quantized(tensor)) {
        MHA__TRY(widen(weights, tensor, &wide, err));
        tensor = &wide;
    }
    if (by_row && joined(pieces, 0) == pieces->count && tensor->dtype == MHA_F32 && mha_tensor_aligned(tensor)) {
        *out = (const float *)tensor->data + pieces->start[0] * columns;
        return MHA_OK;
    }
    mha__bytes((int64_t[]){pieces->count, pieces->length, by_row ? columns : rows}, 3, sizeof(float), &bytes);
    float *copy = mha__weights_keep(weights, bytes);
    if (!copy) return mha__no_memory(err, bytes, tensor->name);
    *out = copy;
    if (by_row) return read_pieces(tensor, pieces, 0, columns, &copy, err);
    for (int64_t row = 0; row < rows; row++)
        MHA__TRY(read_pieces(tensor, pieces, row * columns, 1, &copy, err));
    return MHA_OK;
}
