/* gguf_writer.h - writes a GGUF file: keys first, in memory, then tensors in order, in pieces. */
#ifndef MHA_IO_GGUF_GGUF_WRITER_H
#define MHA_IO_GGUF_GGUF_WRITER_H

#include "io/files/output_file.h"
#include "io/gguf/gguf.h"

/* A tensor to write. mha__gguf_read returns its elements in f32. */
typedef struct mha__gguf_outgoing {
    const char *name;
    int rank;
    const int64_t *shape; /* row-major */
    const char *type;     /* F32, F16, BF16, or Q8_0 and MXFP4, whose rows are a multiple of 32 */
} mha__gguf_outgoing;

/* The keys written so far. A failed allocation is stored, and reported by mha__gguf_write. */
typedef struct mha__gguf_keys {
    mha_ctx *ctx;
    char *bytes;
    size_t n, room;
    uint64_t count;
    bool failed;
} mha__gguf_keys;

void mha__gguf_key_u32(mha__gguf_keys *keys, const char *key, uint32_t value);
void mha__gguf_key_f32(mha__gguf_keys *keys, const char *key, float value);
void mha__gguf_key_bool(mha__gguf_keys *keys, const char *key, bool value);
void mha__gguf_key_text(mha__gguf_keys *keys, const char *key, const char *value);
/* Begins an array of `count` elements; these follow by mha__gguf_put or mha__gguf_put_string. */
void mha__gguf_key_array(mha__gguf_keys *keys, const char *key, mha__gguf_type type, uint64_t count);
void mha__gguf_put(mha__gguf_keys *keys, const void *bytes, size_t n);
void mha__gguf_put_string(mha__gguf_keys *keys, const char *text, size_t n);
void mha__gguf_keys_free(mha__gguf_keys *keys);

/* Reads all elements of tensor `index` of the list as f32. The result is valid until the next call. */
typedef mha_status (*mha__gguf_read)(void *user, int64_t index, const float **elements, mha_error *err);

/* Checks the complete file at `path`, before it gets its final name. */
typedef mha_status (*mha__gguf_check)(void *user, const char *path, mha_error *err);

/* Writes the file, by the rules of mha_file_write. Reports progress as "save". */
mha_status mha__gguf_write(const char *path, bool overwrite, mha__gguf_keys *keys, const mha__gguf_outgoing *list,
                           int64_t count, mha__gguf_read read, mha__gguf_check check, void *user, mha_error *err);

#endif
