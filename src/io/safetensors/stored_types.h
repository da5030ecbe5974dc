/* stored_types.h - the types that a safetensors file can hold, those that mha does not compute with among them. */
#ifndef MHA_IO_SAFETENSORS_STORED_TYPES_H
#define MHA_IO_SAFETENSORS_STORED_TYPES_H

#include "mha/types.h"

typedef struct mha__stored {
    const char *name; /* as in the file */
    mha_dtype dtype;  /* MHA_DTYPE_OTHER: only passed through */
    size_t bits;      /* of an element */
} mha__stored;

/* NULL if there is none of that name, of `n` bytes. */
const mha__stored *mha__stored_named(const char *name, size_t n);
/* The type of `dtype`; NULL if files have none. */
const mha__stored *mha__stored_as(mha_dtype dtype);

#endif
