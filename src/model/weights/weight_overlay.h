/* weight_overlay.h - the weights of a folder, and the tensors in memory that replace some of them. */
#ifndef MHA_MODEL_WEIGHTS_WEIGHT_OVERLAY_H
#define MHA_MODEL_WEIGHTS_WEIGHT_OVERLAY_H

#include "mha/io.h"

typedef struct mha__shards {
    mha_ctx *ctx;
    mha_file *file;      /* one handle for all shards */
    mha_tensor *instead; /* [instead_count] tensors that replace tensors of the file, sorted by name */
    int64_t instead_count;
    int64_t (*shapes)[4]; /* [instead_count] memory of the shapes of `instead` */
} mha__shards;

/* Opens the weights of a folder. Errors: those of mha_checkpoint_open. */
mha_status mha__shards_open(mha_ctx *ctx, const char *folder, const mha_file_options *options, mha__shards *shards,
                            mha_error *err);
/* Opens a folder whose weights are all in memory, represented by one file with the tensors of `files`, which must
 * outlive the shards. Returns MHA_ERR_FORMAT if two files have a tensor of the same name. */
mha_status mha__shards_memory(mha_ctx *ctx, const char *folder, const mha_file *const *files, int64_t count,
                              mha__shards *shards, mha_error *err);
void mha__shards_close(mha__shards *shards);

/* Adds the caller's tensors, which take precedence over the tensors of the file. Their names and data are used in
 * place. Returns MHA_ERR_ARG for a tensor without name or data, with a wrong type, or with the name of another
 * tensor. */
mha_status mha__shards_replace(mha__shards *shards, const mha_named_tensor *tensors, int64_t count, mha_error *err);

/* Writes the path of the folder from which the weights were opened, without a trailing slash, or of the GGUF file; ""
 * if there is no folder. Returns MHA_ERR_IO if the name exceeds `capacity`. */
mha_status mha__shards_folder(const mha__shards *shards, char *folder, size_t capacity, mha_error *err);

/* Returns the tensor called `name`; NULL if absent. */
const mha_tensor *mha__shards_find(const mha__shards *shards, const char *name);

/* Returns the number of bytes that mha_model_save writes for a tensor: a tensor in memory is stored in the type of the
 * tensor that it replaces. */
size_t mha__shards_saved_bytes(const mha__shards *shards, const mha_tensor *tensor);

#endif
