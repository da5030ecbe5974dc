/* block_types.h - the types of tensors in GGUF files, some of which store blocks of quantized elements. */
#ifndef MHA_IO_BLOCK_TYPES_H
#define MHA_IO_BLOCK_TYPES_H

#include "mha/io.h"
#include <stdbool.h>

typedef struct mha__block_type {
    const char *name;
    uint32_t number; /* in files */
    mha_dtype dtype;
    int64_t elements; /* per block; 1 = not quantized */
    size_t bytes;     /* per block */
    /* Converts one block to f32; NULL = the library cannot convert the type, or mha_tensor_read can. */
    void (*to_f32)(const unsigned char *block, float *out);
} mha__block_type;

/* Return the type by its number in files, or by its name, which may be NULL; NULL if unknown. */
const mha__block_type *mha__block_type_numbered(uint32_t number);
const mha__block_type *mha__block_type_named(const char *name);
/* Returns the type of a tensor whose elements can be converted to f32 in blocks; NULL for any other tensor. */
const mha__block_type *mha__block_type_of(const mha_tensor *tensor);
/* Returns true if a tensor's elements are not stored as numbers, but can be converted to f32: it has blocks, or is a
 * derived tensor (tensor_convert.c). */
bool mha__tensor_quantized(const mha_tensor *tensor);
/* Converts elements [first, first + count), which must be whole blocks, to f32 (tensor_convert.c). */
mha_status mha__tensor_read_part(const mha_tensor *tensor, int64_t first, int64_t count, float *out, mha_error *err);
/* Converts `count` elements, whole blocks. */
void mha__blocks_to_f32(const mha__block_type *type, const void *data, int64_t count, float *out);

#endif
