/* io.h - tensors in files: safetensors and npy in, whole files out.
 *
 * Files are data from strangers. A reader checks every rule of its format before it hands out anything, and a refusal is
 * one sentence that names the file, the key and the value. What it accepts means what the reference reader takes it
 * to mean. Time and memory to refuse depend on the bytes read, never on a number written in them.
 *
 * Files are mapped; the caller must not change or shorten them while they are open (`no_map` copies instead).
 */
#ifndef MHA_IO_H
#define MHA_IO_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor of an open file: row-major, contiguous, little-endian. All pointers live as long as the file object.
 * `data` may be misaligned for its type: read it with mha_tensor_read unless mha_tensor_aligned says 1. */
typedef struct mha_tensor {
    const char *name; /* as in the file: may hold any UTF-8; never a path */
    mha_dtype dtype;
    const char *dtype_name; /* as in the file: "F32", "F8_E4M3" ... */
    int rank;               /* 0..32; 0 is a scalar */
    const int64_t *shape;   /* [rank] */
    int64_t elements;       /* product of the shape */
    const void *data;
    size_t bytes;
} mha_tensor;

typedef struct mha_file_options {
    size_t size;
    int no_map; /* 1 = copy the data into memory */
} mha_file_options;

/* An open .safetensors or .npy file. */
typedef struct mha_file mha_file;

/* Opens by content (not by name). Errors: MHA_ERR_IO, MHA_ERR_FORMAT, MHA_ERR_MEMORY. `options` may be NULL. */
MHA_API mha_status mha_file_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **out,
                                 mha_error *err);
MHA_API void mha_file_free(mha_file *file);

/* "safetensors" or "npy". */
MHA_API const char *mha_file_format(const mha_file *file);
/* Tensors in the order of their names. An .npy file holds one, called "". */
MHA_API int64_t mha_file_count(const mha_file *file);
MHA_API const mha_tensor *mha_file_tensor(const mha_file *file, int64_t index);  /* NULL out of range */
MHA_API const mha_tensor *mha_file_find(const mha_file *file, const char *name); /* NULL if absent */
/* The "__metadata__" strings. Values may hold NUL; `value_bytes` may be NULL. */
MHA_API int64_t mha_file_metadata_count(const mha_file *file);
MHA_API mha_status mha_file_metadata(const mha_file *file, int64_t index, const char **key, const char **value,
                                     size_t *value_bytes);

/* 1 if `data` can be used in place as its type. */
MHA_API int mha_tensor_aligned(const mha_tensor *tensor);
/* Copies all elements into `out` (room for tensor->elements of `dtype`, f32, f64 or i64), converting. Half types become
 * exact floats; integers become floats or i64 (out of range: MHA_ERR_FORMAT); other pairs are MHA_ERR_UNSUPPORTED. */
MHA_API mha_status mha_tensor_read(const mha_tensor *tensor, mha_dtype dtype, void *out, mha_error *err);

/* Writes `bytes` bytes as the whole content of `path`, atomically: a temporary file in the same folder, fsync, rename.
 * At every instant the path holds the whole old file, the whole new one, or nothing. An existing file is replaced
 * only with `overwrite`; a symbolic link never. */
MHA_API mha_status mha_file_write(const char *path, const void *data, size_t bytes, int overwrite, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
