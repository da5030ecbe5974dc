/* safetensors_stream.h - writes a safetensors file tensor by tensor, in constant memory. */
#ifndef MHA_IO_SAFETENSORS_SAFETENSORS_STREAM_H
#define MHA_IO_SAFETENSORS_SAFETENSORS_STREAM_H

#include "io/safetensors/safetensors_writer.h"

enum { MHA__OUTGOING_PIECE = 1 << 20 }; /* maximum number of elements that are converted or requested at a time */

/* Reads `count` elements of tensor `index` of the list, from element `first`. */
typedef mha_status (*mha__outgoing_read)(void *user, int64_t index, int64_t first, int64_t count, void *to,
                                         mha_error *err);

/* A tensor to write: `from` in its stored type or, if `dtype` is f32, bf16 or f16, with its floating-point elements
 * rounded to nearest even. */
typedef struct mha__outgoing {
    mha_tensor from;
    mha_dtype dtype; /* MHA_DTYPE_DEFAULT = stored type */
    /* For elements of at most 4 bytes in their stored type: reads the elements instead of from.data; NULL = use
     * from.data. */
    mha__outgoing_read read;
    void *user;
} mha__outgoing;

/* Writes the new file `name` of the folder. Reports progress as "save". Errors: those of mha_tensors_writer_create. */
mha_status mha__stream_tensors(mha_ctx *ctx, const mha__folder *folder, const char *name, const mha__outgoing *list,
                               int64_t count, const mha_tensors_writer_options *options, mha_error *err);

#endif
