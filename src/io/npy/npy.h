/* npy.h - what reading and writing of .npy share. */
#ifndef MHA_IO_NPY_NPY_H
#define MHA_IO_NPY_NPY_H

#include "mha/io.h"

/* "f4" and the like, without the byte order; NULL for what the format does not have. */
const char *mha__npy_type(mha_dtype dtype);

#endif
