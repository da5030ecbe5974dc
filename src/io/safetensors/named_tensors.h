/* named_tensors.h - tensors in memory, checked. */
#ifndef MHA_IO_SAFETENSORS_NAMED_TENSORS_H
#define MHA_IO_SAFETENSORS_NAMED_TENSORS_H

#include "mha/io.h"

/* Bytes of its data. MHA_ERR_ARG for a tensor without name or data, of a dtype that files do not hold, or of a shape
 * that cannot be. */
mha_status mha__named_bytes(const mha_named_tensor *tensor, size_t *bytes, mha_error *err);
/* The same tensor as one of a file; it points to name, shape and data of `tensor`. */
mha_status mha__named_view(const mha_named_tensor *tensor, mha_tensor *view, mha_error *err);

#endif
