/* gguf_tensors.c - validates the tensors of a GGUF file.
 *
 * As in llama.cpp's reader, each tensor begins where the padding of the tensor before it in the file ends, so tensors
 * neither overlap nor leave gaps. */
#include "base/size.h"
#include "io/block_types.h"
#include "io/gguf/gguf_cursor.h"
#include "io/input_limits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the shape; files store the fastest dimension first. */
static mha_status read_shape(mha__gguf_cursor *c, mha_tensor *t, int64_t *shape, const char *name)
{
    uint32_t rank = 0;
    char what[260];
    snprintf(what, sizeof what, "rank of %s", name);
    MHA__TRY(mha__gguf_u32(c, what, &rank));
    if (rank > MHA__GGUF_RANK)
        return MHA__GGUF_FAIL(c, "%s must be at most %d (got %u)", what, (int)MHA__GGUF_RANK, (unsigned)rank);
    t->rank = (int)rank;
    t->shape = shape;
    t->elements = 1;
    snprintf(what, sizeof what, "shape of %s", name);
    for (int n = t->rank - 1; n >= 0; n--) {
        uint64_t dim = 0;
        MHA__TRY(mha__gguf_u64(c, what, &dim));
        if (dim == 0 || dim > (uint64_t)MHA__SEQUENCE)
            return MHA__GGUF_FAIL(c, "%s must have dimensions from 1 to %lld (got %llu)", what,
                                  (long long)MHA__SEQUENCE, (unsigned long long)dim);
        shape[n] = (int64_t)dim;
        if (__builtin_mul_overflow(t->elements, shape[n], &t->elements))
            return MHA__GGUF_FAIL(c, "%s must have at most 2^63 - 1 elements", what);
    }
    return MHA_OK;
}

/* Reads the type, and computes the size of the data. */
static mha_status read_type(mha__gguf_cursor *c, mha_tensor *t, const char *name)
{
    uint32_t number = 0;
    char what[260];
    snprintf(what, sizeof what, "type of %s", name);
    MHA__TRY(mha__gguf_u32(c, what, &number));
    const mha__block_type *type = mha__block_type_numbered(number);
    if (!type) return MHA__GGUF_FAIL(c, "%s must be a known type of ggml (got %u)", what, (unsigned)number);
    const int64_t row = t->rank ? t->shape[t->rank - 1] : 1;
    if (row % type->elements)
        return MHA__GGUF_FAIL(c, "rows of %s must have a multiple of %lld elements, as %s requires (got %lld)", name,
                              (long long)type->elements, type->name, (long long)row);
    t->dtype = type->dtype;
    t->dtype_name = type->name;
    if (!mha__mul((size_t)(t->elements / type->elements), type->bytes, &t->bytes) || t->bytes > c->size)
        return MHA__GGUF_FAIL(c, "%s must fit into the file of %zu bytes (got %lld elements of type %s)", name, c->size,
                              (long long)t->elements, type->name);
    return MHA_OK;
}

/* Returns `at`, rounded up to a multiple of the alignment; `at` is at most the size of the file plus 2^31. */
static size_t padded(size_t at, size_t alignment)
{
    return (at + alignment - 1) & ~(alignment - 1);
}

static mha_status read_tensor(mha__gguf_cursor *c, uint64_t index, size_t alignment, size_t *end)
{
    mha__record *record = &c->file->records[c->file->count];
    char name[240];
    uint64_t offset = 0;
    snprintf(name, sizeof name, "name of tensor %llu", (unsigned long long)index);
    MHA__TRY(mha__gguf_name(c, name, MHA__GGUF_NAME, &record->tensor.name));
    snprintf(name, sizeof name, "tensor \"%s\"",
             mha__quote(&(mha__quoted){0}, record->tensor.name, strlen(record->tensor.name)));
    MHA__TRY(read_shape(c, &record->tensor, c->file->shapes + MHA__GGUF_RANK * c->file->count, name));
    MHA__TRY(read_type(c, &record->tensor, name));
    MHA__TRY(mha__gguf_u64(c, name, &offset));
    if (offset != *end)
        return MHA__GGUF_FAIL(c, "offset of %s must be %zu, the %s (got %llu)", name, *end,
                              index ? "end of the tensor before it, with padding" : "start of the data",
                              (unsigned long long)offset);
    record->begin = *end;
    *end = padded(*end + record->tensor.bytes, alignment);
    if (*end > c->size + alignment)
        return MHA__GGUF_FAIL(c, "%s must end within the file of %zu bytes (got an end at %zu of the data)", name,
                              c->size, record->begin + record->tensor.bytes);
    c->file->count++;
    return MHA_OK;
}

/* Checks that the file ends after the last tensor, with or without its padding, and sets the pointers to the data. */
static mha_status place(mha__gguf_cursor *c, size_t alignment, size_t end)
{
    const mha_file *f = c->file;
    const size_t data = padded(c->at, alignment);
    const mha__record *last = f->count ? &f->records[f->count - 1] : NULL;
    if (last && (data > c->size || last->begin + last->tensor.bytes > c->size - data))
        return MHA__GGUF_FAIL(c, "tensor \"%s\" must end within the file of %zu bytes (got %zu)",
                              mha__quote(&(mha__quoted){0}, last->tensor.name, strlen(last->tensor.name)), c->size,
                              data + last->begin + last->tensor.bytes);
    if (c->size > data && c->size - data > end)
        return MHA__GGUF_FAIL(c, "file must end after the data of the last tensor at %zu (got %zu bytes)", data + end,
                              c->size);
    for (int64_t n = 0; n < f->count; n++)
        f->records[n].tensor.data = c->bytes + data + f->records[n].begin;
    return MHA_OK;
}

mha_status mha__gguf_tensors(mha__gguf_cursor *c, uint64_t count, size_t alignment)
{
    mha_file *f = c->file;
    size_t end = 0;
    for (uint64_t n = 0; n < count; n++)
        MHA__TRY(read_tensor(c, n, alignment, &end));
    MHA__TRY(place(c, alignment, end));
    qsort(f->records, (size_t)f->count, sizeof *f->records, mha__record_by_name);
    for (int64_t n = 1; n < f->count; n++)
        if (mha__record_by_name(&f->records[n - 1], &f->records[n]) == 0)
            return MHA__GGUF_FAIL(
                c, "name of tensor \"%s\" must be unique (got two)",
                mha__quote(&(mha__quoted){0}, f->records[n].tensor.name, strlen(f->records[n].tensor.name)));
    return MHA_OK;
}
