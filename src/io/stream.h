/* stream.h - a safetensors file written tensor by tensor, in memory that does not grow with it. */
#ifndef MHA_IO_STREAM_H
#define MHA_IO_STREAM_H

#include "io/folder.h"
#include "mha/io.h"

/* One tensor to be written: `from` as it is stored, or, with `dtype` f32, bf16 or f16, its real numbers rounded to
 * nearest even. */
typedef struct mha__outgoing {
    mha_tensor from;
    mha_dtype dtype; /* MHA_DTYPE_DEFAULT: as stored */
} mha__outgoing;

/* The metadata of the file: pairs of `key`, `value`. */
typedef struct mha__meta_pair {
    const char *key, *value;
    size_t value_bytes;
} mha__meta_pair;

/* Orders the list by falling size of element, then by name, so that all are aligned, and writes it. Reports progress as
 * "save". MHA_ERR_ARG for a name that is there twice. */
mha_status mha__stream_tensors(mha_ctx *ctx, const mha__folder *folder, const char *name, mha__outgoing *list,
                               int64_t count, const mha__meta_pair *meta, int64_t meta_count, mha_error *err);

#endif
