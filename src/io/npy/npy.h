/* npy.h - type codes, which the reader and the writer of .npy files share. */
#ifndef MHA_IO_NPY_NPY_H
#define MHA_IO_NPY_NPY_H

#include "mha/io.h"

/* Returns a type code such as "f4", without the byte order; NULL if the format does not support the type. */
const char *mha__npy_type(mha_dtype dtype);

#endif
