/* gguf.h - internals of open GGUF files: typed values by key.
 *
 * GGUF, version 3, all integers little-endian:
 *
 *     "GGUF" | u32 version | u64 tensor count | u64 key count
 *     keys:    string key | u32 type | value         string: u64 length | bytes; array: u32 type | u64 count | elements
 *     tensors: string name | u32 rank | u64 shape[rank], fastest first | u32 type | u64 offset
 *     padding to general.alignment | data of the tensors, each padded to the alignment
 *
 * Values stay in the bytes of the file, which were validated when the file was opened: every string and every array is
 * within the file. */
#ifndef MHA_IO_GGUF_GGUF_H
#define MHA_IO_GGUF_GGUF_H

#include "base/error.h"
#include "io/tensor_file.h"

/* Types of values, as numbered in files. */
typedef enum mha__gguf_type {
    MHA__GGUF_U8 = 0,
    MHA__GGUF_I8,
    MHA__GGUF_U16,
    MHA__GGUF_I16,
    MHA__GGUF_U32,
    MHA__GGUF_I32,
    MHA__GGUF_F32,
    MHA__GGUF_BOOL,
    MHA__GGUF_STRING,
    MHA__GGUF_ARRAY,
    MHA__GGUF_U64,
    MHA__GGUF_I64,
    MHA__GGUF_F64,
    MHA__GGUF_VALUE_TYPES
} mha__gguf_type;

enum { MHA__GGUF_ALIGNMENT = 32, MHA__GGUF_RANK = 4, MHA__GGUF_NAME = 63, MHA__GGUF_KEY = 65535 };

/* A value: one element, or the elements of an array. */
typedef struct mha__gguf_value {
    const char *key; /* NUL-terminated */
    mha__gguf_type type;
    bool array;
    uint64_t count;
    const char *data; /* the first element in the file */
} mha__gguf_value;

typedef struct mha__gguf {
    mha__gguf_value *values; /* sorted by key */
    int64_t count;
} mha__gguf;

/* Returns the size of a value type in bytes; 0 for strings, arrays and unknown types. */
size_t mha__gguf_value_size(uint32_t type);
const char *mha__gguf_value_name(uint32_t type);

/* ---- values by key (gguf_values.c) ---- */

/* Returns the value of a key; NULL if absent. */
const mha__gguf_value *mha__gguf_find(const mha_file *file, const char *key);
/* Read a value that must be a scalar; an absent key leaves *value unchanged. Errors: MHA_ERR_FORMAT, naming file, key
 * and value. An integer may have any integer type, and must be from min to max. */
mha_status mha__gguf_int(const mha_file *file, const char *key, int64_t min, int64_t max, int64_t *value,
                         mha_error *err);
mha_status mha__gguf_real(const mha_file *file, const char *key, double *value, mha_error *err);
mha_status mha__gguf_bool(const mha_file *file, const char *key, bool *value, mha_error *err);
/* Reads a string of UTF-8 without NUL; *bytes receives its length. The string is not NUL-terminated. */
mha_status mha__gguf_text(const mha_file *file, const char *key, const char **value, size_t *bytes, mha_error *err);
/* Finds an array of a type, or fails if the key has another type. *value is NULL if the key is absent. */
mha_status mha__gguf_array(const mha_file *file, const char *key, mha__gguf_type type, const mha__gguf_value **value,
                           mha_error *err);
/* Returns the integer at `index` of an array of integers; false unless its type is an integer type and its value is at
 * most INT64_MAX. */
bool mha__gguf_element(const mha__gguf_value *value, uint64_t index, int64_t *element);
/* Iterates over the strings of an array: returns the string at *at and moves *at to the next one. Begin with *at =
 * value->data, and call at most value->count times. */
const char *mha__gguf_next_text(const char **at, size_t *bytes);
/* Fails with "FILE: KEY must be RULE (got VALUE)". */
mha_status mha__gguf_refuse(const mha_file *file, const char *key, const char *rule, mha_error *err);
/* Likewise, with MHA_ERR_UNSUPPORTED. */
mha_status mha__gguf_unsupported(const mha_file *file, const char *key, const char *rule, mha_error *err);

#endif
