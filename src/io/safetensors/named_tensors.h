/* named_tensors.h - validates tensors in memory, and reads ranges of tensors in a file. */
#ifndef MHA_IO_SAFETENSORS_NAMED_TENSORS_H
#define MHA_IO_SAFETENSORS_NAMED_TENSORS_H

#include "mha/io.h"

/* Computes the size of the tensor's data [bytes]. Fails with MHA_ERR_ARG for a tensor without name or data, with a
 * dtype that files do not support, or with an invalid shape. */
mha_status mha__named_bytes(const mha_named_tensor *tensor, size_t *bytes, mha_error *err);
/* Describes `tensor` as a tensor of a file; *view points to its name, shape and data. */
mha_status mha__named_view(const mha_named_tensor *tensor, mha_tensor *view, mha_error *err);

/* A range of the elements of a tensor. */
typedef struct mha__element_range {
    int64_t first, count;
} mha__element_range;
/* Like mha_tensors_read, but reads only ranges[n] of tensor n, to the start of the tensor's data. */
mha_status mha__tensors_read_ranges(const mha_file *file, const mha_named_tensor *list,
                                    const mha__element_range *ranges, int64_t count, mha_error *err);

#endif
