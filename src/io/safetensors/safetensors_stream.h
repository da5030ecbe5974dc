/* safetensors_stream.h - a safetensors file written tensor by tensor, in memory that does not grow with it. */
#ifndef MHA_IO_SAFETENSORS_SAFETENSORS_STREAM_H
#define MHA_IO_SAFETENSORS_SAFETENSORS_STREAM_H

#include "io/safetensors/safetensors_writer.h"

/* One tensor to be written: `from` as it is stored, or, with `dtype` f32, bf16 or f16, its real numbers rounded to
 * nearest even. */
typedef struct mha__outgoing {
    mha_tensor from;
    mha_dtype dtype; /* MHA_DTYPE_DEFAULT: as stored */
} mha__outgoing;

/* Writes the new file `name` of the folder. Reports progress as "save". Errors as mha_tensors_writer_create. */
mha_status mha__stream_tensors(mha_ctx *ctx, const mha__folder *folder, const char *name, const mha__outgoing *list,
                               int64_t count, const mha_tensors_writer_options *options, mha_error *err);

#endif
