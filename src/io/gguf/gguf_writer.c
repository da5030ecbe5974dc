/* gguf_writer.c - see gguf_writer.h. */
#include "io/gguf/gguf_writer.h"

#include "base/ctx.h"
#include "base/size.h"
#include "io/block_types.h"
#include "io/quantized_blocks.h"
#include "io/tensor_file.h"
#include "math/half.h"
#include "math/types/q8_0.h"
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

void mha__gguf_put(mha__gguf_keys *keys, const void *bytes, size_t n)
{
    size_t need;
    keys->failed |= !mha__add(keys->n, n, &need) || need > SIZE_MAX / 2;
    if (keys->failed || !n) return;
    if (need > keys->room) {
        char *more = mha__alloc(keys->ctx, 2 * need);
        keys->failed = !more;
        if (!more) return;
        if (keys->n) memcpy(more, keys->bytes, keys->n);
        mha__free(keys->ctx, keys->bytes);
        keys->bytes = more;
        keys->room = 2 * need;
    }
    memcpy(keys->bytes + keys->n, bytes, n);
    keys->n = need;
}

void mha__gguf_put_string(mha__gguf_keys *keys, const char *text, size_t n)
{
    const uint64_t length = n;
    mha__gguf_put(keys, &length, sizeof length);
    mha__gguf_put(keys, text, n);
}

static void begin_key(mha__gguf_keys *keys, const char *key, uint32_t type)
{
    mha__gguf_put_string(keys, key, strlen(key));
    mha__gguf_put(keys, &type, sizeof type);
    keys->count++;
}

void mha__gguf_key_u32(mha__gguf_keys *keys, const char *key, uint32_t value)
{
    begin_key(keys, key, MHA__GGUF_U32);
    mha__gguf_put(keys, &value, sizeof value);
}

void mha__gguf_key_f32(mha__gguf_keys *keys, const char *key, float value)
{
    begin_key(keys, key, MHA__GGUF_F32);
    mha__gguf_put(keys, &value, sizeof value);
}

void mha__gguf_key_bool(mha__gguf_keys *keys, const char *key, bool value)
{
    begin_key(keys, key, MHA__GGUF_BOOL);
    mha__gguf_put(keys, &(char){value}, 1);
}

void mha__gguf_key_text(mha__gguf_keys *keys, const char *key, const char *value)
{
    begin_key(keys, key, MHA__GGUF_STRING);
    mha__gguf_put_string(keys, value, strlen(value));
}

void mha__gguf_key_array(mha__gguf_keys *keys, const char *key, mha__gguf_type type, uint64_t count)
{
    const uint32_t element = type;
    begin_key(keys, key, MHA__GGUF_ARRAY);
    mha__gguf_put(keys, &element, sizeof element);
    mha__gguf_put(keys, &count, sizeof count);
}

void mha__gguf_keys_free(mha__gguf_keys *keys)
{
    mha__free(keys->ctx, keys->bytes);
    keys->bytes = NULL;
}

/* ---- the file ---- */

enum { PIECE = 1 << 16 }; /* elements that are converted at a time: a multiple of all block sizes */

typedef struct writing {
    mha__outfile file;
    mha__gguf_keys *keys;
    const mha__gguf_outgoing *list;
    int64_t count;
    size_t at;     /* offset of the next byte */
    char *encoded; /* [4 * PIECE] */
} writing;

static size_t bytes_of(const mha__gguf_outgoing *t)
{
    const mha__block_type *type = mha__block_type_named(t->type);
    return (size_t)(mha__shape_elements(t->rank, t->shape) / type->elements) * type->bytes;
}

static mha_status put(writing *w, const void *bytes, size_t n, mha_error *err)
{
    MHA__TRY(mha__outfile_put(&w->file, w->at, bytes, n, err));
    w->at += n;
    return MHA_OK;
}

/* Appends the header after the keys, which are still in memory, and writes everything before the data. */
static mha_status put_header(writing *w, mha_error *err)
{
    const uint64_t tensors = (uint64_t)w->count, keys = w->keys->count;
    const uint32_t version = 3;
    uint64_t offset = 0;
    for (int64_t n = 0; n < w->count; n++) {
        const mha__gguf_outgoing *t = &w->list[n];
        const uint32_t rank = (uint32_t)t->rank;
        mha__gguf_put_string(w->keys, t->name, strlen(t->name));
        mha__gguf_put(w->keys, &rank, sizeof rank);
        for (int i = t->rank - 1; i >= 0; i--)
            mha__gguf_put(w->keys, &t->shape[i], sizeof t->shape[i]);
        mha__gguf_put(w->keys, &mha__block_type_named(t->type)->number, sizeof(uint32_t));
        mha__gguf_put(w->keys, &offset, sizeof offset);
        offset += (uint64_t)mha__round_up((int64_t)bytes_of(t), MHA__GGUF_ALIGNMENT);
    }
    if (w->keys->failed) return mha__no_memory(err, w->keys->n, "the header of a GGUF file");
    MHA__TRY(put(w, "GGUF", 4, err));
    MHA__TRY(put(w, &version, sizeof version, err));
    MHA__TRY(put(w, &tensors, sizeof tensors, err));
    MHA__TRY(put(w, &keys, sizeof keys, err));
    return put(w, w->keys->bytes, w->keys->n, err);
}

/* Pads the file to the alignment. */
static mha_status pad(writing *w, mha_error *err)
{
    static const char zeros[MHA__GGUF_ALIGNMENT];
    return put(w, zeros, (size_t)mha__round_up((int64_t)w->at, MHA__GGUF_ALIGNMENT) - w->at, err);
}

/* Converts elements to the type; returns the size in bytes. */
static size_t encode(const mha__block_type *type, const float *x, int64_t n, void *to)
{
    uint16_t *half = to;
    if (type->dtype == MHA_Q8_0)
        mha__q8_round(x, 1, n, to);
    else if (type->dtype == MHA_DTYPE_OTHER)
        mha__mxfp4_round(x, n, to);
    else if (type->dtype == MHA_F32)
        memcpy(to, x, (size_t)n * sizeof *x);
    else
        for (int64_t i = 0; i < n; i++)
            half[i] = type->dtype == MHA_BF16 ? mha__f32_to_bf16(x[i]) : mha__f32_to_f16(x[i]);
    return (size_t)(n / type->elements) * type->bytes;
}

static mha_status put_tensor(writing *w, const mha__gguf_outgoing *t, const float *x, mha_error *err)
{
    const mha__block_type *type = mha__block_type_named(t->type);
    const int64_t all = mha__shape_elements(t->rank, t->shape);
    for (int64_t first = 0; first < all; first += PIECE) {
        const int64_t n = mha__min64(PIECE, all - first);
        MHA__TRY(put(w, w->encoded, encode(type, x + first, n, w->encoded), err));
    }
    return pad(w, err);
}

static mha_status put_all(writing *w, mha__gguf_read read, void *user, mha_error *err)
{
    size_t total = 0, done = 0;
    for (int64_t n = 0; n < w->count; n++)
        total += bytes_of(&w->list[n]);
    w->encoded = mha__alloc(w->keys->ctx, 4 * (size_t)PIECE);
    if (!w->encoded) return mha__no_memory(err, 4 * (size_t)PIECE, "a piece of a GGUF file");
    MHA__TRY(put_header(w, err));
    MHA__TRY(pad(w, err));
    for (int64_t n = 0; n < w->count; n++) {
        const float *x = NULL;
        MHA__TRY(read(user, n, &x, err));
        MHA__TRY(put_tensor(w, &w->list[n], x, err));
        done += bytes_of(&w->list[n]);
        MHA__TRY(mha__progress(w->keys->ctx, "save", (int64_t)done, (int64_t)total, err));
    }
    return MHA_OK;
}

mha_status mha__gguf_write(const char *path, bool overwrite, mha__gguf_keys *keys, const mha__gguf_outgoing *list,
                           int64_t count, mha__gguf_read read, mha__gguf_check check, void *user, mha_error *err)
{
    writing w = {.keys = keys, .list = list, .count = count};
    char temporary[PATH_MAX + NAME_MAX + 40];
    MHA__TRY(mha__outfile_begin(&w.file, path, overwrite, err));
    const char *slash = strrchr(path, '/');
    snprintf(temporary, sizeof temporary, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, w.file.temporary);
    mha_status status = put_all(&w, read, user, err);
    if (status == MHA_OK) status = check(user, temporary, err);
    mha__free(keys->ctx, w.encoded);
    return mha__outfile_end(&w.file, status, err);
}
