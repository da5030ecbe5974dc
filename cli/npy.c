/* npy.c - writes what numpy.load reads: magic, version 1.0, a padded header in Python's spelling, little-endian
 * numbers. */
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 128 }; /* a multiple of 64, as the format asks; holds any two 64-bit extents */

/* The header without its magic, padded with spaces, ended by a newline. */
static void write_header(unsigned char *out, int64_t rows, int64_t columns)
{
    enum { MAGIC = 10 };
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = HEADER - MAGIC;
    out[9] = 0;
    char text[HEADER - MAGIC + 1];
    int n = snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                     (long long)rows, (long long)columns);
    memset(text + n, ' ', sizeof text - (size_t)n);
    text[HEADER - MAGIC - 1] = '\n';
    memcpy(out + MAGIC, text, HEADER - MAGIC);
}

static void write_float(unsigned char *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(bits >> (8 * i));
}

unsigned char *cli_npy_matrix(const float *data, int64_t rows, int64_t columns, size_t *bytes)
{
    size_t count;
    if (__builtin_mul_overflow((size_t)rows, (size_t)columns, &count) || count > (SIZE_MAX - HEADER) / 4) return NULL;
    *bytes = HEADER + count * 4;
    unsigned char *file = malloc(*bytes);
    if (!file) return NULL;
    write_header(file, rows, columns);
    for (size_t i = 0; i < count; i++)
        write_float(file + HEADER + i * 4, data[i]);
    return file;
}
