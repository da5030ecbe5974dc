/* tensor_file.h - what is behind an mha_file: tensors and metadata in tables, the bytes mapped or copied.
 *
 * A reader (safetensors.c, npy.c) checks the whole file through its mha__source first, and only then asks for the
 * bytes.
 */
#ifndef MHA_IO_TENSOR_FILE_H
#define MHA_IO_TENSOR_FILE_H

#include "io/files/input_file.h"
#include "mha/io.h"

typedef struct mha__record {
    mha_tensor tensor;
    size_t begin; /* of the tensor's bytes, from the start of the data */
} mha__record;

typedef struct mha__metadata {
    const char *key, *value; /* NUL-terminated; the value may hold others */
    size_t value_bytes;
    int64_t shard; /* of a checkpoint: where it comes from */
} mha__metadata;

struct mha_file {
    mha_ctx *ctx;
    char *path;
    const char *format;
    bool no_map;
    mha__record *records; /* by name */
    int64_t count;
    mha__metadata *metadata; /* by key */
    int64_t metadata_count;
    int64_t *shapes; /* of all tensors, one after another */
    char *strings;   /* names, keys and values, one after another */
    void *map;       /* the mapped file, or NULL */
    size_t map_bytes;
    void *copy;       /* the bytes in memory, when they are not mapped */
    mha_file **shard; /* [shard_count] of a checkpoint: what records and metadata point into */
    int64_t shard_count;
    const char *data; /* of mha__file_open_bytes: all of the file */
    size_t bytes;
};

/* A file that holds nothing yet, for the reader to fill. What failed is to be freed all the same. */
mha_status mha__file_create(mha_ctx *ctx, const char *path, mha_file **file, mha_error *err);
mha_status mha__safetensors_open(mha_file *file, const mha__source *source, mha_error *err);
/* Fills the tables of `file`, unsorted, from a header's text[0 .. n), which a NUL follows and `data_bytes` of data do:
 * each entry is sound then. */
mha_status mha__safetensors_header(mha_file *file, const char *path, const char *text, size_t n, size_t data_bytes,
                                   mha_error *err);
mha_status mha__npy_open(mha_file *file, const mha__source *source, mha_error *err);

/* The bytes [offset, offset + n) of the file, which lie inside it: mapped, or copied with `no_map` or where the file
 * system cannot map. Kept until mha__data_drop. */
mha_status mha__data_load(mha_file *file, const mha__source *source, size_t offset, size_t n, const char **data,
                          mha_error *err);
void mha__data_drop(mha_file *file);

/* Opens a file of any content: data [bytes] is all of it, mapped or copied, until mha_file_free. It has no tensors. */
mha_status mha__file_open_bytes(mha_ctx *ctx, const char *path, bool no_map, mha_file **file, const char **data,
                                size_t *bytes, mha_error *err);

/* The pages of a tensor that is mapped leave the memory of the process, for one that is not read for long; whoever
 * reads it all the same has them from the file again. */
void mha__data_rest(const mha_file *file, const mha_tensor *tensor);

/* The metadata string of a key, and its length (NULL: not wanted); NULL if the file has no such key. */
const char *mha__metadata_find(const mha_file *file, const char *key, size_t *bytes);

/* Memory for `n` > 0 bytes that the size of a file justifies; "needs N GiB, this machine has M" when it cannot be. */
mha_status mha__data_memory(mha_ctx *ctx, const char *name, size_t n, void **memory, mha_error *err);

#endif
