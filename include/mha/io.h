/* io.h - tensors in files: safetensors and npy, in and out.
 *
 *     mha_file *file;
 *     mha_error err;
 *     if (mha_file_open(NULL, "model.safetensors", NULL, &file, &err) != MHA_OK) return report(&err);
 *     const mha_tensor *t = mha_file_find(file, "embeddings.word_embeddings.weight");
 *     float *table = t ? malloc((size_t)t->elements * sizeof *table) : NULL;
 *     if (table && mha_tensor_read(t, MHA_F32, table, &err) != MHA_OK) ...
 *     mha_file_free(file);
 *
 * Files are data from strangers. A reader checks every rule of its format before it hands out anything, and a refusal
 * is one sentence that names the file, the key and the value. What is accepted means what the reference reader takes it
 * to mean; where readers differ, the file is refused. Time and memory to refuse depend on the bytes read, never on a
 * number written in them. Only regular files are opened (symbolic links may lead to them); opening never blocks.
 *
 * Files are mapped. While one is open nobody may change or shorten it: bytes that change may be read as either, and a
 * page that is gone is a SIGBUS, which ends the process: the library installs no signal handlers. Replacing a file by
 * renaming another over it is safe, as all writers here do. Who cannot keep others from writing in place sets `no_map`,
 * which copies the bytes while opening; a file that became shorter is then MHA_ERR_IO. A file system that cannot map is
 * copied from as well.
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
    const char *name; /* as in the file: may be empty and hold any UTF-8 but NUL; never use it as a path */
    mha_dtype dtype;
    const char *dtype_name; /* as in the file: "F32", "F8_E4M3" ...; "<f4" and the like in .npy */
    int rank;               /* 0..32; 0 is a scalar */
    const int64_t *shape;   /* [rank], each >= 0 */
    int64_t elements;       /* product of the shape */
    const void *data;       /* not NULL, also without elements; bytes of MHA_BOOL are 0 or anything else */
    size_t bytes;
} mha_tensor;

typedef struct mha_file_options {
    size_t size;
    int no_map; /* 1 = copy the data into memory of the context */
} mha_file_options;

/* An open file. Immutable: any number of threads may read it at once. */
typedef struct mha_file mha_file;

/* Opens `path`, a safetensors or .npy file, by content and not by name. `options` may be NULL. `ctx` must outlive the
 * file.
 *
 * safetensors: the rules of the format and of its reference reader, and stricter: the first byte of the header is '{',
 * no name or field appears twice (escapes decoded), names hold no NUL. "__metadata__": null is taken as absent, unknown
 * fields of an entry are ignored. The types that mha does not compute with (F8 of all kinds, F6, F4, C64) are
 * MHA_DTYPE_OTHER; their sizes are checked all the same.
 * .npy: versions 1 to 3, types bool, int and float of 1 to 8 bytes. Arrays in column order or of the other byte order
 * are converted into a copy. Bytes behind the array are refused.
 * Limits: header 100,000,000 bytes (.npy: 64 KiB), name 64 KiB, 2^21 dimensions of all tensors together, rank 32,
 * 2^18 - 1 pairs of metadata, strings of 16 MiB, JSON nested 64 deep, 1 MiB for an entry with unknown fields; a shard
 * index 32 MiB and 2^20 tensors.
 *
 * Errors: MHA_ERR_IO (cannot be opened or read, is no regular file), MHA_ERR_FORMAT (breaks a rule, or is something
 * else: a pickle, a zip, GGUF, HTML or a Git LFS pointer is named), MHA_ERR_MEMORY, MHA_ERR_ARG. Cost: the header is
 * read and parsed in memory of the context, at most 256 MiB; the data are not touched when they are mapped as they
 * are. */
MHA_API mha_status mha_file_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **out,
                                 mha_error *err);
MHA_API void mha_file_free(mha_file *file);

/* Opens the weights of a checkpoint as one file, however many there are. `path` is a folder, of which it is
 * model.safetensors or, without that, the shards that model.safetensors.index.json names; or an index, of which the
 * name ends in .json; or any file, as for mha_file_open.
 *
 * An index names files of its own folder and nothing else, and must agree with them in both directions: every tensor
 * that it lists is in the file that it says, and every tensor of the files is listed (MHA_ERR_FORMAT otherwise). The
 * metadata are those of all shards; where they differ, those of the shard that the index names last. Limits: index 128
 * MiB, 65536 files. Errors and options as for mha_file_open. */
MHA_API mha_status mha_checkpoint_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **out,
                                       mha_error *err);

/* The path of the file, or of the index, that was opened. */
MHA_API const char *mha_file_path(const mha_file *file);
/* "safetensors" or "npy". */
MHA_API const char *mha_file_format(const mha_file *file);
/* Tensors in the order of their names (bytes compared). An .npy file holds one, called "". */
MHA_API int64_t mha_file_count(const mha_file *file);
MHA_API const mha_tensor *mha_file_tensor(const mha_file *file, int64_t index);  /* NULL out of range */
MHA_API const mha_tensor *mha_file_find(const mha_file *file, const char *name); /* NULL if absent; O(log count) */
/* The "__metadata__" strings in the order of their keys. Values may hold NUL (one more follows the end); `value_bytes`
 * may be NULL. MHA_ERR_ARG when `index` is out of range. */
MHA_API int64_t mha_file_metadata_count(const mha_file *file);
MHA_API mha_status mha_file_metadata(const mha_file *file, int64_t index, const char **key, const char **value,
                                     size_t *value_bytes);

/* 1 if `data` can be used in place as its type; 0 for MHA_DTYPE_OTHER. */
MHA_API int mha_tensor_aligned(const mha_tensor *tensor);
/* Copies all elements into `out` (room for tensor->elements of `dtype`), converting:
 *
 *   F16, BF16        to f32, f64: exact
 *   F32, F64         to f32, f64: F64 to f32 is rounded to nearest
 *   BOOL, integers   to f32, f64: rounded to nearest; to i64: exact, BOOL 0 or 1
 *   each             to its own type: as the bytes are
 *
 * Errors: MHA_ERR_UNSUPPORTED for every other pair; MHA_ERR_FORMAT for a U64 beyond i64, naming the element. */
MHA_API mha_status mha_tensor_read(const mha_tensor *tensor, mha_dtype dtype, void *out, mha_error *err);

/* Fills the tensors of `list` (a layer's parameters, say) from the file, by name, converting to their dtype as above.
 * All names and shapes are checked first: where one is missing or of another shape (MHA_ERR_FORMAT, naming tensor and
 * extent), or of a type that does not convert (MHA_ERR_UNSUPPORTED), those before it may have been filled in the
 * latter case alone. What else the file holds is not looked at. */
MHA_API mha_status mha_tensors_read(const mha_file *file, const mha_named_tensor *list, int64_t count, mha_error *err);

/* ---- writing ---- */

/* A safetensors file written in pieces, in memory that does not grow with it. What its tensors are is said first; their
 * data follow in pieces of any size, in any order.
 *
 *     const mha_tensor list[] = {{.name = "w", .dtype = MHA_F16, .rank = 2, .shape = (int64_t[]){rows, columns}}};
 *     mha_tensors_writer *writer;
 *     mha_status status = mha_tensors_writer_create(NULL, "out.safetensors", list, 1, NULL, &writer, &err);
 *     for (int64_t row = 0; status == MHA_OK && row < rows; row++)
 *         status = mha_tensors_writer_put(writer, 0, row_of(row), row_bytes, &err);
 *     if (status == MHA_OK) status = mha_tensors_writer_finish(writer, &err);
 *     mha_tensors_writer_free(writer);
 *
 * The file appears whole when it is finished, as mha_file_write says: before that, and if that never comes, what was at
 * the path is as it was. Its bytes depend on neither the order of the list nor that of the pieces: tensors lie by
 * falling size of their elements, then by name, so all are aligned, and the header ends on a multiple of 8.
 * One thread at a time. */
typedef struct mha_tensors_writer mha_tensors_writer;

typedef struct mha_metadata {
    const char *key, *value;
    size_t value_bytes; /* 0 = up to the NUL */
} mha_metadata;

typedef struct mha_tensors_writer_options {
    size_t size;
    int overwrite;                /* 1 = an existing file is replaced */
    const mha_metadata *metadata; /* strings for "__metadata__", which says "format": "pt" besides, as other tools want
                                   * to see it, unless it has a format of its own */
    int64_t metadata_count;
} mha_tensors_writer_options;

/* Of the tensors, `name`, `dtype`, `rank` and `shape` are read, and for MHA_DTYPE_OTHER `dtype_name`: the tensors of an
 * open file can be listed as they are. Nothing of the list, the metadata or the path is kept. `options` may be NULL.
 * `ctx` must outlive the writer. Errors: MHA_ERR_ARG for a name or key that is NULL, there twice, no UTF-8 or
 * "__metadata__", a dtype that files have not, a negative extent, or more than the limits of mha_file_open; MHA_ERR_IO
 * as for mha_file_write; MHA_ERR_MEMORY. */
MHA_API mha_status mha_tensors_writer_create(mha_ctx *ctx, const char *path, const mha_tensor *list, int64_t count,
                                             const mha_tensors_writer_options *options, mha_tensors_writer **out,
                                             mha_error *err);
/* The next bytes of the tensor `index` of the list. MHA_ERR_ARG for more than it has; MHA_ERR_IO, after which the same
 * bytes may be tried again. Allocates nothing. */
MHA_API mha_status mha_tensors_writer_put(mha_tensors_writer *writer, int64_t index, const void *data, size_t bytes,
                                          mha_error *err);
/* Makes the file last and gives it its name. MHA_ERR_ARG if a tensor is not complete, which may then still be put, and
 * for a writer that is finished; MHA_ERR_IO, after which there is no file to finish. */
MHA_API mha_status mha_tensors_writer_finish(mha_tensors_writer *writer, mha_error *err);
/* A writer that is not finished leaves nothing behind. */
MHA_API void mha_tensors_writer_free(mha_tensors_writer *writer);

/* Writes the list as such a file, in one call. Errors: as above, and MHA_ERR_ARG for a tensor without data. */
MHA_API mha_status mha_tensors_write(mha_ctx *ctx, const char *path, const mha_named_tensor *list, int64_t count,
                                     int overwrite, mha_error *err);

/* Writes one array as .npy (version 1.0, row-major, little-endian), whole and atomically as below. Of `array` the dtype
 * (bool, integers, f16, f32, f64), rank, shape and data are read, and the name for sentences, if there is one. Errors:
 * MHA_ERR_UNSUPPORTED for a type that the format does not have (bf16), MHA_ERR_ARG, MHA_ERR_IO. Allocates nothing. */
MHA_API mha_status mha_npy_write(const char *path, const mha_tensor *array, int overwrite, mha_error *err);

/* Writes `bytes` bytes as the whole content of `path`, atomically: PATH.tmp.PID in the same folder, fsync, rename,
 * fsync of the folder. At every instant, also under kill -9, the path holds the whole old file, the whole new one, or
 * nothing. An existing file is replaced only with `overwrite`, and keeps its permissions; a new one gets 0666 & ~umask.
 * A symbolic link, a directory or a device is never written to. On failure the temporary file is gone; only a killed
 * process leaves it, and a later write from a process with the same number then asks to remove it. Two processes may
 * write the same path: one wins. A caller that wants EFBIG or EPIPE as errors must ignore SIGXFSZ and SIGPIPE.
 * Errors: MHA_ERR_IO with the reason, MHA_ERR_ARG. Allocates nothing. */
MHA_API mha_status mha_file_write(const char *path, const void *data, size_t bytes, int overwrite, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
