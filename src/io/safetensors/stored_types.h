/* stored_types.h - the types of the safetensors format, including types that mha cannot use in computations. */
#ifndef MHA_IO_SAFETENSORS_STORED_TYPES_H
#define MHA_IO_SAFETENSORS_STORED_TYPES_H

#include "mha/types.h"

typedef struct mha__stored_type {
    const char *name; /* name, as in the file */
    mha_dtype dtype;  /* MHA_DTYPE_OTHER = elements can only be copied */
    size_t bits;      /* bits per element */
} mha__stored_type;

/* Returns the type called `name`, a string of `n` bytes; NULL if unknown. */
const mha__stored_type *mha__stored_named(const char *name, size_t n);
/* Returns the type in which `dtype` is stored; NULL if the format does not support `dtype`. */
const mha__stored_type *mha__stored_as(mha_dtype dtype);

#endif
