/* tensor_file.h - internals of mha_file: tables of tensors and metadata, and the mapped or copied bytes.
 *
 * A reader (safetensors.c, npy.c) validates the whole file, read from an mha__source, before it loads the data. gguf.c
 * validates the data that it has loaded. */
#ifndef MHA_IO_TENSOR_FILE_H
#define MHA_IO_TENSOR_FILE_H

#include "io/files/input_file.h"
#include "mha/io.h"
#include <string.h>

typedef struct mha__record {
    mha_tensor tensor;
    size_t begin; /* offset of the tensor in the data */
} mha__record;

/* Compares the names of two mha__record, for qsort. */
static inline int mha__record_by_name(const void *a, const void *b)
{
    return strcmp(((const mha__record *)a)->tensor.name, ((const mha__record *)b)->tensor.name);
}

typedef struct mha__metadata {
    const char *key, *value; /* NUL-terminated strings; the value may contain further NULs */
    size_t value_bytes;
    int64_t shard; /* in a checkpoint: index of the shard that contains this pair */
} mha__metadata;

struct mha_file {
    mha_ctx *ctx;
    char *path;
    const char *format;
    bool no_map;
    mha__record *records; /* sorted by name */
    int64_t count;
    mha__metadata *metadata; /* sorted by key */
    int64_t metadata_count;
    int64_t *shapes; /* shapes of all tensors, concatenated */
    char *strings;   /* names, keys and values, concatenated */
    void *map;       /* the mapped file, or NULL */
    size_t map_bytes;
    void *copy;       /* the bytes in memory, if not mapped */
    mha_file **shard; /* [shard_count] shards of a checkpoint; records and metadata point to data of the shards */
    int64_t shard_count;
    const char *data; /* the whole file, if opened by mha__file_open_bytes */
    size_t bytes;
    struct mha__gguf *gguf;         /* values of a GGUF file (gguf/gguf.h), or NULL */
    struct mha__file_block *blocks; /* of mha__file_memory */
};

/* Allocates an empty mha_file, which a reader then fills. The caller must free *file even if this function or the
 * reader fails. */
mha_status mha__file_create(mha_ctx *ctx, const char *path, mha_file **file, mha_error *err);
/* Sets the tensors of an empty `file` to those of `parts`, whose tables and data must outlive the file. Returns
 * MHA_ERR_FORMAT if two parts have a tensor of the same name. */
mha_status mha__file_join(mha_file *file, const mha_file *const *parts, int64_t count, mha_error *err);
mha_status mha__safetensors_open(mha_file *file, const mha__source *source, mha_error *err);
/* Fills the tables of `file`, unsorted, from a header's text[0 .. n). The text must be followed by a NUL. Each entry is
 * validated against `data_bytes` bytes of data. */
mha_status mha__safetensors_header(mha_file *file, const char *path, const char *text, size_t n, size_t data_bytes,
                                   mha_error *err);
mha_status mha__npy_open(mha_file *file, const mha__source *source, mha_error *err);
mha_status mha__gguf_open(mha_file *file, const mha__source *source, mha_error *err);
void mha__gguf_free(mha_file *file);

/* Allocates memory that is freed with the file; returns NULL if memory is exhausted (file_memory.c). */
void *mha__file_memory(mha_file *file, size_t bytes);
void mha__file_memory_free(mha_file *file);

/* Loads the bytes [offset, offset + n) of the file. The range must be within the file. Maps the bytes, or copies them
 * with `no_map` or if the file system does not support mapping. *data is valid until mha__data_drop. */
mha_status mha__data_load(mha_file *file, const mha__source *source, size_t offset, size_t n, const char **data,
                          mha_error *err);
void mha__data_drop(mha_file *file);

/* Opens a file of any format as a file without tensors. `data` [bytes] is its whole content, mapped or copied, and
 * valid until mha_file_free. */
mha_status mha__file_open_bytes(mha_ctx *ctx, const char *path, bool no_map, mha_file **file, const char **data,
                                size_t *bytes, mha_error *err);

/* Releases the mapped pages of a tensor that will not be read for a while; a later read loads them from the file
 * again. */
void mha__data_rest(const mha_file *file, const mha_tensor *tensor);

/* Returns the metadata value of a key; NULL if the file does not have the key. Sets *bytes to the value's length unless
 * `bytes` is NULL. */
const char *mha__metadata_find(const mha_file *file, const char *key, size_t *bytes);

/* Returns the number of elements of a valid shape, whose product does not overflow. */
int64_t mha__shape_elements(int rank, const int64_t *shape);

/* Formats the first `rank` dimensions as "[2, 3]", like mha__quote. */
const char *mha__quote_shape(mha__quoted *q, int rank, const int64_t *shape);

/* Allocates `n` > 0 bytes for data of the file `name`. If the machine has less memory, fails with "requires N GiB, but
 * this machine has only M GiB"; if the allocation fails, with the message of mha__no_memory. */
mha_status mha__data_memory(mha_ctx *ctx, const char *name, size_t n, void **memory, mha_error *err);

#endif
