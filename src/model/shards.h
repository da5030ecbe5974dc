/* shards.h - the weights of a folder: model.safetensors, or several files and the index that says which tensor is
 * where. */
#ifndef MHA_MODEL_SHARDS_H
#define MHA_MODEL_SHARDS_H

#include "mha/io.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct mha__shards {
    mha_ctx *ctx;
    mha_file **file;
    int64_t count;
    json_t *place;       /* tensor name -> number of its file; NULL for a single file */
    char *path;          /* of the single file or of the index, for sentences */
    mha_tensor *instead; /* [instead_count] by name: they hide those of the files */
    int64_t instead_count;
    int64_t (*shapes)[4]; /* [instead_count] */
} mha__shards;

/* A single model.safetensors is preferred, as transformers does. Errors: MHA_ERR_IO, MHA_ERR_FORMAT for an index that
 * leaves the folder, or does not agree with its files; MHA_ERR_MEMORY. */
mha_status mha__shards_open(mha_ctx *ctx, const char *folder, const mha_file_options *options, mha__shards *shards,
                            mha_error *err);
void mha__shards_close(mha__shards *shards);

/* Puts tensors of the caller's before those of the files; their names and data are used in place. MHA_ERR_ARG for one
 * without name or data, of a wrong type, or named twice. */
mha_status mha__shards_replace(mha__shards *shards, const mha_named_tensor *tensors, int64_t count, mha_error *err);

/* NULL if there is none of that name. */
const mha_tensor *mha__shards_find(const mha__shards *shards, const char *name);
/* True if a file has it, hidden or not. */
bool mha__shards_file_has(const mha__shards *shards, const char *name);

#endif
