/* npy.h - float32 matrices as .npy bytes (NumPy format 1.0). */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

/* The whole file for data [rows, columns], malloc'ed; NULL when memory is short. */
unsigned char *cli_npy_matrix(const float *data, int64_t rows, int64_t columns, size_t *bytes);

#endif
