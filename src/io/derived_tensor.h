/* derived_tensor.h - tensors whose elements are computed from one or two stored tensors whenever they are read.
 *
 * Some checkpoints store a weight in another form than models read: as codes of 4 or 8 bits with scales, or as
 * transposed matrices. The derived tensor has the name and shape that models expect, but no memory of its own, so
 * float32 elements exist only while a layer is packed. Its `data` and `bytes` are those of its first stored tensor. Its
 * `shape` and `dtype_name` are members of its description, by which it is found. */
#ifndef MHA_IO_DERIVED_TENSOR_H
#define MHA_IO_DERIVED_TENSOR_H

#include "io/tensor_file.h"

/* The dtype of derived tensors, which is not a value of mha_dtype: code that does not support it treats the elements
 * as unreadable. */
enum { MHA__DTYPE_DERIVED = 1 << 16 };

enum {
    MHA__DERIVED_RUN = 256, /* elements of a row that are read at a time: a multiple of all block sizes */
    MHA__DERIVED_NAME = 16  /* bytes of the longest name of a type, with its NUL */
};

typedef struct mha__derived mha__derived;
struct mha__derived {
    /* Reads elements [column, column + count) of a stored row; the rows of all matrices are numbered consecutively. The
     * range does not cross a multiple of MHA__DERIVED_RUN. */
    void (*read)(const mha__derived *d, int64_t row, int64_t column, int64_t count, float *to);
    mha_tensor parts[2]; /* [part_count] the stored tensors */
    int part_count;
    bool transposed;       /* [matrices, columns, rows]; false = [rows, columns] */
    int64_t rows, columns; /* of each stored matrix */
    int64_t shape[3];
    char dtype_name[MHA__DERIVED_NAME];
    /* 8-bit codes: a scale per block; [.., scale_columns] */
    const float *scales;
    int64_t block_rows, block_columns, scale_columns;
};

/* Returns the description of a derived tensor; NULL for any other tensor, even one with the dtype of derived tensors,
 * such as a copy with another shape: shape and dtype_name must be in the same description. */
const mha__derived *mha__derived_of(const mha_tensor *tensor);
/* Reads elements [first, first + count) of a derived tensor. */
void mha__derived_read(const mha__derived *derived, int64_t first, int64_t count, float *out);

/* ---- what files store of tensors of any kind (stored_parts.c) ---- */

/* Returns the type that can store the elements of a tensor without loss: of a derived tensor, the type of its stored
 * tensors if all have the same one of F32, F16, BF16, and otherwise F32. */
mha_dtype mha__tensor_dtype(const mha_tensor *tensor);
/* Returns true if two tensors of one file have the same type, and equal bytes [first, first + bytes); of derived
 * tensors, these bytes are those of the first stored tensor, and the other one is compared as a whole. */
bool mha__tensor_same(const mha_tensor *a, const mha_tensor *b, size_t first, size_t bytes);
/* Returns h, chained to a hash of at most `max` bytes of each stored tensor but the first; h for any other tensor. */
uint64_t mha__derived_hash(uint64_t h, const mha_tensor *tensor, size_t max);

/* ---- creating them (derived_tensor_create.c, derived_matrices.c) ----
 *
 * *out and its shape are freed with the file. `name` and the stored tensors must live as long as the file. Errors:
 * MHA_ERR_FORMAT for shapes that do not match, MHA_ERR_UNSUPPORTED for types that are not supported; both name file,
 * tensor and value. */

/* The MXFP4 experts of gpt-oss: codes U8 [X, rows, groups, 16] with two elements per byte, the first in the low half,
 * and scales U8 [X, rows, groups], become [X, 32 * groups, rows]. */
mha_status mha__derive_mxfp4(mha_file *file, const char *name, const mha_tensor *codes, const mha_tensor *scales,
                             mha_tensor *out, mha_error *err);
/* Codes F8_E4M3 or F8_E5M2 [rows, columns], multiplied by scales: one for all, one per row, or one per block of
 * `block` [rows, columns], which may be NULL. Blocks at the end of a row or column may be smaller. */
mha_status mha__derive_fp8(mha_file *file, const char *name, const mha_tensor *codes, const mha_tensor *scales,
                           const int64_t block[2], mha_tensor *out, mha_error *err);
/* The matrices of experts [X, rows, columns] in GGUF files become [X, columns, rows], and biases [X, rows] remain so.
 * With `second`, of the same shape, the rows of both alternate: [X, columns, 2 * rows] and [X, 2 * rows]. */
mha_status mha__derive_matrices(mha_file *file, const char *name, const mha_tensor *first, const mha_tensor *second,
                                mha_tensor *out, mha_error *err);

/* Steps of these functions. Allocate a description, and set the fields that all kinds have; return the tensor of a
 * description whose shape is set; fail with "FILE: shape (or type) of tensor NAME must be RULE (got VALUE)". */
mha_status mha__derived_describe(mha_file *file, const mha_tensor *first, const mha_tensor *second, mha__derived **out,
                                 mha_error *err);
mha_tensor mha__derived_tensor(mha__derived *derived, const char *name, const char *dtype_name, int rank);
mha_status mha__derived_refuse_shape(const mha_file *file, const mha_tensor *t, const char *rule, mha_error *err);
mha_status mha__derived_refuse_type(const mha_file *file, const mha_tensor *t, const char *rule, mha_error *err);

#endif
