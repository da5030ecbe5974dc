/* safetensors_writer.h - writes a safetensors file into a folder that is being written. */
#ifndef MHA_IO_SAFETENSORS_SAFETENSORS_WRITER_H
#define MHA_IO_SAFETENSORS_SAFETENSORS_WRITER_H

#include "io/files/output_folder.h"
#include "mha/io.h"

/* Runs mha_tensors_writer_create for the new file `name` of the folder. */
mha_status mha__tensors_writer_in(mha_ctx *ctx, const mha__folder *folder, const char *name, const mha_tensor *list,
                                  int64_t count, const mha_tensors_writer_options *options, mha_tensors_writer **out,
                                  mha_error *err);

#endif
