/* derived_tensor_create.c - describes derived tensors, after checking the stored ones (derived_tensor.h). */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/derived_tensor.h"
#include "math/half.h"
#include "math/types/e2m1.h"
#include "math/types/e4m3.h"
#include "math/types/e8m0.h"
#include <stdio.h>
#include <string.h>

enum { GROUP = 32 }; /* elements with a scale in MXFP4 */

mha_status mha__derived_refuse_shape(const mha_file *file, const mha_tensor *t, const char *rule, mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, "%s: shape of tensor \"%s\" must be %s (got %s)",
                     mha__quote(&(mha__quoted){0}, file->path, strlen(file->path)),
                     mha__quote(&(mha__quoted){0}, t->name, strlen(t->name)), rule,
                     mha__quote_shape(&(mha__quoted){0}, t->rank, t->shape));
}

mha_status mha__derived_refuse_type(const mha_file *file, const mha_tensor *t, const char *rule, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: type of tensor \"%s\" must be %s (got %s)",
                     mha__quote(&(mha__quoted){0}, file->path, strlen(file->path)),
                     mha__quote(&(mha__quoted){0}, t->name, strlen(t->name)), rule, t->dtype_name);
}

mha_status mha__derived_describe(mha_file *file, const mha_tensor *first, const mha_tensor *second, mha__derived **out,
                                 mha_error *err)
{
    mha__derived *d = *out = mha__file_memory(file, sizeof *d);
    if (!d) return mha__no_memory(err, sizeof *d, first->name);
    *d = (mha__derived){.part_count = second ? 2 : 1};
    d->parts[0] = *first;
    if (second) d->parts[1] = *second;
    return MHA_OK;
}

mha_tensor mha__derived_tensor(mha__derived *d, const char *name, const char *dtype_name, int rank)
{
    const mha_tensor *first = &d->parts[0];
    snprintf(d->dtype_name, sizeof d->dtype_name, "%s", dtype_name);
    mha_tensor t = {.name = name,
                    .dtype = (mha_dtype)MHA__DTYPE_DERIVED,
                    .dtype_name = d->dtype_name,
                    .rank = rank,
                    .shape = d->shape,
                    .elements = 1,
                    .data = first->data,
                    .bytes = first->bytes};
    for (int n = 0; n < rank; n++)
        t.elements *= d->shape[n]; /* at most twice the elements of the stored tensors */
    return t;
}

/* ---- MXFP4 ---- */

static void read_mxfp4(const mha__derived *d, int64_t row, int64_t column, int64_t count, float *to)
{
    const uint8_t *codes = (const uint8_t *)d->parts[0].data + row * (d->columns / 2);
    const uint8_t *scales = (const uint8_t *)d->parts[1].data + row * (d->columns / GROUP);
    for (int64_t i = 0, n; i < count; i += n) { /* group by group */
        const int64_t at = column + i;
        const float half = mha__e8m0_half(scales[at / GROUP]);
        n = mha__min64(count - i, GROUP - at % GROUP);
        for (int64_t k = 0; k < n; k++)
            to[i + k] = mha__e2m1_doubled(codes[(at + k) / 2] >> (at + k) % 2 * 4 & 15) * half;
    }
}

mha_status mha__derive_mxfp4(mha_file *file, const char *name, const mha_tensor *codes, const mha_tensor *scales,
                             mha_tensor *out, mha_error *err)
{
    mha__derived *d = NULL;
    char rule[120];
    mha__quoted q = {0};
    if (codes->dtype != MHA_U8) return mha__derived_refuse_type(file, codes, "U8", err);
    if (scales->dtype != MHA_U8) return mha__derived_refuse_type(file, scales, "U8", err);
    if (codes->rank != 4 || codes->shape[3] != GROUP / 2 || !codes->elements)
        return mha__derived_refuse_shape(file, codes, "[experts, rows, groups, 16]", err);
    snprintf(rule, sizeof rule, "%s, a scale per group", mha__quote_shape(&q, 3, codes->shape));
    if (scales->rank != 3 || memcmp(scales->shape, codes->shape, 3 * sizeof *codes->shape) != 0)
        return mha__derived_refuse_shape(file, scales, rule, err);
    MHA__TRY(mha__derived_describe(file, codes, scales, &d, err));
    d->read = read_mxfp4;
    d->transposed = true;
    d->rows = codes->shape[1];
    d->columns = GROUP * codes->shape[2];
    memcpy(d->shape, (int64_t[]){codes->shape[0], d->columns, d->rows}, sizeof d->shape);
    *out = mha__derived_tensor(d, name, "MXFP4", 3);
    return MHA_OK;
}

/* ---- 8-bit floats ---- */

/* Multiplies elements of a row by their scales, block by block. */
static void scale_row(const mha__derived *d, int64_t row, int64_t column, int64_t count, float *to)
{
    const float *scales = d->scales + row / d->block_rows * d->scale_columns;
    for (int64_t i = 0, n; i < count; i += n) {
        const int64_t at = column + i;
        const float scale = scales[at / d->block_columns];
        n = mha__min64(count - i, d->block_columns - at % d->block_columns);
        for (int64_t k = 0; k < n; k++)
            to[i + k] *= scale;
    }
}

static void read_e4m3(const mha__derived *d, int64_t row, int64_t column, int64_t count, float *to)
{
    const uint8_t *codes = (const uint8_t *)d->parts[0].data + row * d->columns + column;
    for (int64_t i = 0; i < count; i++)
        to[i] = mha__e4m3_to_f32(codes[i]);
    scale_row(d, row, column, count, to);
}

/* E5M2 is the high byte of an f16. */
static void read_e5m2(const mha__derived *d, int64_t row, int64_t column, int64_t count, float *to)
{
    const uint8_t *codes = (const uint8_t *)d->parts[0].data + row * d->columns + column;
    for (int64_t i = 0; i < count; i++)
        to[i] = mha__f16_to_f32((uint16_t)(codes[i] << 8));
    scale_row(d, row, column, count, to);
}

/* Returns count / size, rounded up. */
static int64_t blocks_in(int64_t count, int64_t size)
{
    return count / size + (count % size != 0);
}

static bool has_shape(const mha_tensor *t, int64_t rows, int64_t columns)
{
    return t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns;
}

/* Finds what a scale belongs to. */
static mha_status set_blocks(const mha_file *file, mha__derived *d, const int64_t block[2], mha_error *err)
{
    const mha_tensor *s = &d->parts[1];
    const bool per_row = has_shape(s, d->rows, 1) || (s->rank == 1 && s->shape[0] == d->rows);
    char rule[160];
    d->scale_columns = 1;
    d->block_rows = s->elements == 1 ? d->rows : 1;
    d->block_columns = d->columns;
    if (s->elements == 1) return MHA_OK;
    if (block && has_shape(s, blocks_in(d->rows, block[0]), blocks_in(d->columns, block[1]))) {
        d->scale_columns = s->shape[1];
        d->block_rows = block[0];
        d->block_columns = block[1];
        return MHA_OK;
    }
    if (per_row) return MHA_OK;
    if (block)
        snprintf(rule, sizeof rule, "[], [%lld, 1] or [%lld, %lld], a scale per %lld x %lld elements",
                 (long long)d->rows, (long long)blocks_in(d->rows, block[0]),
                 (long long)blocks_in(d->columns, block[1]), (long long)block[0], (long long)block[1]);
    else
        snprintf(rule, sizeof rule, "[] or [%lld, 1], a scale per row", (long long)d->rows);
    return mha__derived_refuse_shape(file, s, rule, err);
}

/* Converts the scales to f32. */
static mha_status read_scales(mha_file *file, mha__derived *d, mha_error *err)
{
    const mha_tensor *s = &d->parts[1];
    const size_t bytes = (size_t)s->elements * sizeof(float); /* at most twice the bytes in the file */
    float *scales = mha__file_memory(file, bytes);
    if (s->dtype != MHA_F32 && s->dtype != MHA_F16 && s->dtype != MHA_BF16)
        return mha__derived_refuse_type(file, s, "one of F32, F16, BF16", err);
    if (!scales) return mha__no_memory(err, bytes, s->name);
    d->scales = scales;
    return mha_tensor_read(s, MHA_F32, scales, err);
}

mha_status mha__derive_fp8(mha_file *file, const char *name, const mha_tensor *codes, const mha_tensor *scales,
                           const int64_t block[2], mha_tensor *out, mha_error *err)
{
    mha__derived *d = NULL;
    const bool e4m3 = strcmp(codes->dtype_name, "F8_E4M3") == 0;
    if (!e4m3 && strcmp(codes->dtype_name, "F8_E5M2") != 0)
        return mha__derived_refuse_type(file, codes, "F8_E4M3 or F8_E5M2, since it has scales", err);
    if (codes->rank != 2 || !codes->elements) return mha__derived_refuse_shape(file, codes, "[rows, columns]", err);
    MHA__TRY(mha__derived_describe(file, codes, scales, &d, err));
    d->read = e4m3 ? read_e4m3 : read_e5m2;
    d->rows = d->shape[0] = codes->shape[0];
    d->columns = d->shape[1] = codes->shape[1];
    MHA__TRY(set_blocks(file, d, block, err));
    MHA__TRY(read_scales(file, d, err));
    *out = mha__derived_tensor(d, name, codes->dtype_name, 2);
    return MHA_OK;
}
