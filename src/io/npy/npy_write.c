/* npy_write.c - writes one array as .npy version 1.0: magic, then a header in Python syntax, padded so that the data
 * starts at a multiple of 64 bytes, as numpy does. */
#include "base/size.h"
#include "io/files/output_file.h"
#include "io/input_limits.h"
#include "io/npy/npy.h"
#include <stdio.h>
#include <string.h>

enum { MAGIC = 10, ALIGN = 64, HEADER_MAX = 1024 }; /* HEADER_MAX: enough for MHA__RANK 64-bit dimensions */

static const char *what_of(const mha_tensor *array)
{
    return array->name ? array->name : "";
}

static mha_status check_array(const mha_tensor *array, size_t *bytes, mha_error *err)
{
    mha__quoted q = {0};
    const char *name = mha__quote(&q, what_of(array), strlen(what_of(array)));
    if (!mha__npy_type(array->dtype))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "array \"%s\": dtype must be supported by the .npy format (got %s)",
                         name, mha__quote_dtype(&(mha__quoted){0}, array->dtype));
    if (array->rank < 0 || array->rank > MHA__RANK || (array->rank && !array->shape))
        return mha__fail(err, MHA_ERR_ARG, "array \"%s\": rank must be from 0 to %d, and 0 if shape is NULL (got %d)",
                         name, MHA__RANK, array->rank);
    if (!mha__bytes(array->shape, array->rank, mha_dtype_size(array->dtype), bytes) || (uint64_t)*bytes > INT64_MAX / 2)
        return mha__fail(err, MHA_ERR_ARG, "array \"%s\": shape must not be negative or too large", name);
    if (*bytes && !array->data) return mha__fail(err, MHA_ERR_ARG, "array \"%s\": data must not be NULL", name);
    return MHA_OK;
}

/* Writes the header of a validated array and returns its length. */
static size_t fill_header(const mha_tensor *array, char header[HEADER_MAX])
{
    char *text = header + MAGIC;
    const size_t room = HEADER_MAX - MAGIC;
    size_t n = (size_t)snprintf(text, room, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                                mha_dtype_size(array->dtype) == 1 ? '|' : '<', mha__npy_type(array->dtype));
    for (int i = 0; i < array->rank; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? ", " : "", (long long)array->shape[i]);
    n += (size_t)snprintf(text + n, room - n, "%s), }", array->rank == 1 ? "," : "");
    const size_t whole = (MAGIC + n + 1 + ALIGN - 1) / ALIGN * ALIGN;
    memset(text + n, ' ', whole - MAGIC - n - 1);
    header[whole - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((whole - MAGIC) & 0xff);
    header[9] = (char)((whole - MAGIC) >> 8);
    return whole;
}

mha_status mha_npy_write(const char *path, const mha_tensor *array, int overwrite, mha_error *err)
{
    char header[HEADER_MAX];
    size_t bytes = 0;
    mha__outfile file;
    if (!path || !array)
        return mha__fail(err, MHA_ERR_ARG, "mha_npy_write: %s must not be NULL", path ? "array" : "path");
    MHA__TRY(check_array(array, &bytes, err));
    const size_t begin = fill_header(array, header);
    MHA__TRY(mha__outfile_begin(&file, path, overwrite != 0, err));
    mha_status status = mha__outfile_put(&file, 0, header, begin, err);
    if (status == MHA_OK) status = mha__outfile_put(&file, begin, array->data, bytes, err);
    return mha__outfile_end(&file, status, err);
}
