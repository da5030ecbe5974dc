/* io.h - reads tensors in safetensors, GGUF and .npy files; writes safetensors and .npy files.
 *
 *     mha_file *file;
 *     mha_error err;
 *     if (mha_file_open(NULL, "model.safetensors", NULL, &file, &err) != MHA_OK) return report(&err);
 *     const mha_tensor *t = mha_file_find(file, "embeddings.word_embeddings.weight");
 *     float *table = t ? malloc((size_t)t->elements * sizeof *table) : NULL;
 *     if (table && mha_tensor_read(t, MHA_F32, table, &err) != MHA_OK) ...
 *     mha_file_free(file);
 *
 * Files are untrusted input. A reader checks every rule of its format before it returns anything, and an error is one
 * sentence with the file, the key and the value. Accepted files are read as the reference reader reads them; a file
 * that readers interpret differently is rejected. The time and memory until an error depend on the number of bytes
 * read, never on a value stored in them. Only regular files are opened (symbolic links may point to them); opening
 * never blocks.
 *
 * Files are mapped. While a file is open it must not be changed or truncated: a changed byte may be read with its old
 * or its new value, and a missing page raises SIGBUS, which ends the process, as the library installs no signal
 * handlers. It is safe to replace a file by renaming another file over it, as all writers in this header do. If others
 * may write to the file in place, set `no_map`, which copies the bytes while opening; a file that shrinks meanwhile is
 * MHA_ERR_IO. Files on a file system without mmap are also copied.
 */
#ifndef MHA_IO_H
#define MHA_IO_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor of an open file: row-major, contiguous, little-endian. All pointers are valid during the life of the file
 * object. `data` may be misaligned for its type: use mha_tensor_read unless mha_tensor_aligned returns 1. Only the
 * library creates this struct; later versions may add fields at the end. */
typedef struct mha_tensor {
    const char *name; /* as in the file: any UTF-8 without NUL, possibly empty; never use it as a path */
    mha_dtype dtype;
    const char *dtype_name; /* as in the file: "F32", "F8_E4M3", "Q4_K" ...; in .npy "<f4" and similar */
    int rank;               /* 0..32; 0 is a scalar */
    const int64_t *shape;   /* [rank], each >= 0 */
    int64_t elements;       /* number of elements, the product of the shape */
    const void *data;       /* never NULL, even if elements is 0; MHA_BOOL: 0 or non-zero bytes */
    size_t bytes;
} mha_tensor;

typedef struct mha_file_options {
    size_t size;
    int no_map; /* 1 = copy the data into memory allocated by the context */
} mha_file_options;

/* An open file. Immutable: any number of threads may read it concurrently. */
typedef struct mha_file mha_file;

/* Opens `path`, a safetensors, GGUF or .npy file, detected by its content, not by its name. `options` may be NULL.
 * `ctx` must outlive the file.
 *
 * safetensors: the rules of the format and of its reference reader, plus stricter ones: the first byte of the header
 * must be '{', names and fields must be unique (after decoding escapes), and names must not contain NUL.
 * "__metadata__": null counts as absent; unknown fields of an entry are ignored. Types in which mha does not compute
 * (all F8, F6, F4, C64) become MHA_DTYPE_OTHER; their sizes are also checked. .npy: versions 1 to 3; types bool, int
 * and float of 1 to 8 bytes. Arrays in column-major order or in big-endian byte order are converted into a copy. Bytes
 * after the array are rejected. GGUF: version 3, by the rules of llama.cpp's reader: unique names and keys, no nested
 * arrays, each tensor directly after the tensor before it; shapes are in row-major order, as everywhere in this header.
 * Type Q8_0 becomes MHA_Q8_0, other quantized types MHA_DTYPE_OTHER. The values of a GGUF file are not metadata;
 * mha_model_open reads them. Limits: header 100,000,000 bytes (.npy: 64 KiB), name 64 KiB, 2^21 dimensions of all
 * tensors together, rank 32, 2^18 - 1 metadata pairs, strings of 16 MiB, JSON nesting depth 64, 1 MiB per entry with
 * unknown fields; a shard index 32 MiB and 2^20 tensors; GGUF: 2^20 tensors of rank 4, names of 63 bytes, 2^18 keys.
 *
 * Errors: MHA_ERR_IO (cannot be opened or read, or is not a regular file); MHA_ERR_FORMAT (violates a rule, or has
 * another format: pickle, zip, HTML and Git LFS pointers are named); MHA_ERR_MEMORY; MHA_ERR_ARG. Cost: parses
 * the header in at most 256 MiB of memory of the context; mapped data are not read. */
MHA_API mha_status mha_file_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **out,
                                 mha_error *err);
MHA_API void mha_file_free(mha_file *file);

/* Opens the content of a safetensors, GGUF or .npy file in memory, under the rules of mha_file_open. `name` stands in
 * messages, and is the path of the file. `data` [bytes] is used in place: it must not change and must outlive the file.
 * Errors: those of mha_file_open. Cost: parses the header. */
MHA_API mha_status mha_file_open_memory(mha_ctx *ctx, const char *name, const void *data, size_t bytes, mha_file **out,
                                        mha_error *err);

/* Opens the weights of a checkpoint as one file, whether sharded or not. `path` is a folder with model.safetensors or,
 * without it, the shards in model.safetensors.index.json; or an index, whose name ends in .json; or any file that
 * mha_file_open accepts.
 *
 * An index may only name files in its own folder, and must match these files: every listed tensor must be in the named
 * file, and every tensor of the files must be listed (otherwise MHA_ERR_FORMAT). The metadata are the union of the
 * metadata of all shards; if values differ, the shard that the index names last takes precedence. Limits: index 128
 * MiB, 65536 files. Errors and options are the same as for mha_file_open. */
MHA_API mha_status mha_checkpoint_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **out,
                                       mha_error *err);

/* Returns the path of the file or index that was opened. */
MHA_API const char *mha_file_path(const mha_file *file);
/* Returns "safetensors", "gguf" or "npy". */
MHA_API const char *mha_file_format(const mha_file *file);
/* Access the tensors, which are sorted by name, bytewise. An .npy file contains one tensor, named "". */
MHA_API int64_t mha_file_count(const mha_file *file);
MHA_API const mha_tensor *mha_file_tensor(const mha_file *file, int64_t index);  /* NULL if out of range */
MHA_API const mha_tensor *mha_file_find(const mha_file *file, const char *name); /* NULL if absent; O(log count) */
/* Access the "__metadata__" strings, which are sorted by key. Values may contain NUL and have an additional NUL at the
 * end; `value_bytes` may be NULL. MHA_ERR_ARG if `index` is out of range. */
MHA_API int64_t mha_file_metadata_count(const mha_file *file);
MHA_API mha_status mha_file_metadata(const mha_file *file, int64_t index, const char **key, const char **value,
                                     size_t *value_bytes);

/* Returns 1 if `data` can be used in place as its type; 0 for quantized types and MHA_DTYPE_OTHER. */
MHA_API int mha_tensor_aligned(const mha_tensor *tensor);
/* Copies all elements into `out` (tensor->elements of `dtype`), converting:
 *
 *   F16, BF16        to f32, f64: exact
 *   F32, F64         to f32, f64: F64 to f32 is rounded to nearest
 *   BOOL, integers   to f32, f64: rounded to nearest; to i64: exact, BOOL 0 or 1
 *   any type         to the same type: bytewise
 *   Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4 of GGUF files to f32: the values of ggml's
 *   reference, bitwise identical
 *
 * Errors: MHA_ERR_UNSUPPORTED for all other pairs of types; MHA_ERR_FORMAT for a U64 beyond i64, naming the element. */
MHA_API mha_status mha_tensor_read(const mha_tensor *tensor, mha_dtype dtype, void *out, mha_error *err);

/* Reads the tensors of `list`, such as the parameters of a layer, by name from the file, and converts them to the
 * dtypes in the list like mha_tensor_read. All names and shapes are checked first: a missing tensor or a different
 * shape is MHA_ERR_FORMAT, naming the tensor and the dimension, and nothing is written. A type that cannot be converted
 * is MHA_ERR_UNSUPPORTED; earlier tensors of the list may then have been written. Other tensors of the file are
 * ignored. */
MHA_API mha_status mha_tensors_read(const mha_file *file, const mha_named_tensor *list, int64_t count, mha_error *err);

/* ---- writing ---- */

/* Writes a safetensors file in pieces, with memory that does not grow with the file. The tensors are declared first;
 * their data follow in pieces of any size. Tensors may be written in any order.
 *
 *     const mha_tensor list[] = {{.name = "w", .dtype = MHA_F16, .rank = 2, .shape = (int64_t[]){rows, columns}}};
 *     mha_tensors_writer *writer;
 *     mha_status status = mha_tensors_writer_create(NULL, "out.safetensors", list, 1, NULL, &writer, &err);
 *     for (int64_t row = 0; status == MHA_OK && row < rows; row++)
 *         status = mha_tensors_writer_put(writer, 0, row_of(row), row_bytes, &err);
 *     if (status == MHA_OK) status = mha_tensors_writer_finish(writer, &err);
 *     mha_tensors_writer_free(writer);
 *
 * The file appears atomically when it is finished, as with mha_file_write; until then the path is unchanged. The bytes
 * of the file depend on neither the order of the list nor the order of the pieces: tensors are sorted by descending
 * element size, then by name, so that all are aligned, and the header ends at a multiple of 8. Not thread-safe. */
typedef struct mha_tensors_writer mha_tensors_writer;

typedef struct mha_metadata {
    const char *key, *value;
    size_t value_bytes; /* length of `value`; 0 = up to the NUL */
} mha_metadata;

typedef struct mha_tensors_writer_options {
    size_t size;
    int overwrite;                /* 1 = replace an existing file */
    const mha_metadata *metadata; /* for "__metadata__"; "format": "pt", which other tools expect, is added if absent */
    int64_t metadata_count;
} mha_tensors_writer_options;

/* Reads `name`, `dtype`, `rank` and `shape` of the tensors, and for MHA_DTYPE_OTHER `dtype_name`; the tensors of an
 * open file can be passed unchanged. List, metadata and path are not used after the call. `options` may be NULL. `ctx`
 * must outlive the writer. Errors: MHA_ERR_ARG for a name or key that is NULL, a duplicate, not UTF-8 or
 * "__metadata__", a dtype that files cannot store, a negative dimension, or a limit of mha_file_open; MHA_ERR_IO as for
 * mha_file_write; MHA_ERR_MEMORY. */
MHA_API mha_status mha_tensors_writer_create(mha_ctx *ctx, const char *path, const mha_tensor *list, int64_t count,
                                             const mha_tensors_writer_options *options, mha_tensors_writer **out,
                                             mha_error *err);
/* Appends bytes to tensor `index` of the list. Errors: MHA_ERR_ARG for more bytes than the tensor has; after MHA_ERR_IO
 * the same bytes may be written again. Allocates nothing. */
MHA_API mha_status mha_tensors_writer_put(mha_tensors_writer *writer, int64_t index, const void *data, size_t bytes,
                                          mha_error *err);
/* Syncs the file and renames it to its path. MHA_ERR_ARG if a tensor is incomplete (it can still be completed) or if
 * the writer is already finished; after MHA_ERR_IO the writer can only be freed. */
MHA_API mha_status mha_tensors_writer_finish(mha_tensors_writer *writer, mha_error *err);
/* Frees the writer and, unless it is finished, removes its temporary file. */
MHA_API void mha_tensors_writer_free(mha_tensors_writer *writer);

/* Writes the list as a safetensors file in one call. Errors: those of mha_tensors_writer_create, and MHA_ERR_ARG for a
 * tensor without data. */
MHA_API mha_status mha_tensors_write(mha_ctx *ctx, const char *path, const mha_named_tensor *list, int64_t count,
                                     int overwrite, mha_error *err);

/* Writes one array as .npy (version 1.0, row-major, little-endian), atomically, like mha_file_write. Reads dtype (bool,
 * integers, f16, f32, f64), rank, shape and data of `array`, and its name, if not NULL, for error messages. Errors:
 * MHA_ERR_UNSUPPORTED for a type that the format lacks (bf16), MHA_ERR_ARG, MHA_ERR_IO. Allocates memory like
 * mha_file_write. */
MHA_API mha_status mha_npy_write(const char *path, const mha_tensor *array, int overwrite, mha_error *err);

/* Writes `bytes` bytes as the whole content of `path`, atomically: writes .NAME.tmp.PID in the same folder, then fsync,
 * rename, and fsync of the folder. At any time, even under kill -9, the path is the complete old file, the complete new
 * file, or absent. An existing file is replaced only with `overwrite`, and keeps its permissions; a new file gets
 * 0666 & ~umask. Symbolic links, directories and devices are never written to. On failure the temporary file is
 * removed. Only a killed process leaves its temporary file, which the next write of the same path removes; on a file
 * system without locks it remains. If two processes write the same path, one of them wins. A caller that requires EFBIG
 * or EPIPE as errors must ignore SIGXFSZ and SIGPIPE. Errors: MHA_ERR_IO with the reason, MHA_ERR_ARG. Allocates only
 * the memory that opendir requires; without it, temporary files of killed processes remain. */
MHA_API mha_status mha_file_write(const char *path, const void *data, size_t bytes, int overwrite, mha_error *err);

/* Checks whether mha_file_write can write `path`, without changing anything: before long work whose result is written
 * at its end. Errors: as of mha_file_write. */
MHA_API mha_status mha_file_write_check(const char *path, int overwrite, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
