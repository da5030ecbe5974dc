/* safetensors_header_write.h - writes the header of a safetensors file as text. */
#ifndef MHA_IO_SAFETENSORS_SAFETENSORS_HEADER_WRITE_H
#define MHA_IO_SAFETENSORS_SAFETENSORS_HEADER_WRITE_H

#include "io/safetensors/stored_types.h"
#include "mha/io.h"

/* One tensor of the file to write. */
typedef struct mha__file_tensor {
    const char *name; /* borrowed from the caller until the header is written, then the writer's copy */
    const mha_tensor *tensor;
    const mha__stored_type *type;
    size_t begin, bytes, written; /* begin: offset in the data */
} mha__file_tensor;

/* Checks that all names and keys are unique and UTF-8. Errors: MHA_ERR_ARG. Changes the order of `slots`. */
mha_status mha__tensors_check(mha_ctx *ctx, mha__file_tensor **slots, int64_t count,
                              const mha_tensors_writer_options *options, mha_error *err);
/* Writes the header of `slots` in file order; *text is freed with mha__free. */
mha_status mha__tensors_header(mha_ctx *ctx, mha__file_tensor *const *slots, int64_t count,
                               const mha_tensors_writer_options *options, char **text, size_t *n, mha_error *err);

#endif
