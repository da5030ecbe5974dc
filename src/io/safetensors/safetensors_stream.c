/* safetensors_stream.c - writes tensors to a file in pieces, converted if requested. */
#include "io/safetensors/safetensors_stream.h"

#include "base/ctx.h"
#include "base/size.h"
#include "io/block_types.h"
#include "math/half.h"
#include <string.h>

typedef struct stream {
    mha_ctx *ctx;
    mha_tensors_writer *writer;
    float *wide;      /* [MHA__OUTGOING_PIECE] */
    uint16_t *narrow; /* [MHA__OUTGOING_PIECE] */
    int64_t done, total;
} stream;

/* Describes the tensor as it will be stored in the file. */
static mha_tensor described(const mha__outgoing *t)
{
    mha_tensor to = t->from;
    if (t->dtype == MHA_DTYPE_DEFAULT) return to;
    to.dtype = t->dtype;
    to.bytes = (size_t)to.elements * mha_dtype_size(to.dtype);
    return to;
}

static mha_status put(stream *s, int64_t index, const void *data, size_t bytes, mha_error *err)
{
    MHA__TRY(mha_tensors_writer_put(s->writer, index, data, bytes, err));
    s->done += (int64_t)bytes;
    return mha__progress(s->ctx, "save", s->done, s->total, err);
}

/* Converts elements [first, first + count) of a tensor. */
static mha_status convert(stream *s, const mha__outgoing *t, int64_t index, int64_t first, int64_t count,
                          mha_error *err)
{
    MHA__TRY(mha__tensor_read_part(&t->from, first, count, s->wide, err));
    if (t->dtype == MHA_F32) return put(s, index, s->wide, (size_t)count * sizeof *s->wide, err);
    for (int64_t i = 0; i < count; i++)
        s->narrow[i] = t->dtype == MHA_BF16 ? mha__f32_to_bf16(s->wide[i]) : mha__f32_to_f16(s->wide[i]);
    return put(s, index, s->narrow, (size_t)count * sizeof *s->narrow, err);
}

static mha_status put_read(stream *s, const mha__outgoing *t, int64_t index, mha_error *err)
{
    for (int64_t first = 0; first < t->from.elements; first += MHA__OUTGOING_PIECE) {
        const int64_t count = mha__min64(MHA__OUTGOING_PIECE, t->from.elements - first);
        MHA__TRY(t->read(t->user, index, first, count, s->wide, err));
        MHA__TRY(put(s, index, s->wide, (size_t)count * mha_dtype_size(t->from.dtype), err));
    }
    return MHA_OK;
}

static mha_status put_tensor(stream *s, const mha__outgoing *t, int64_t index, mha_error *err)
{
    if (t->read) return put_read(s, t, index, err);
    const bool as_it_is = t->dtype == MHA_DTYPE_DEFAULT;
    const int64_t total = as_it_is ? (int64_t)t->from.bytes : t->from.elements,
                  max = as_it_is ? 8 * MHA__OUTGOING_PIECE : MHA__OUTGOING_PIECE;
    for (int64_t first = 0; first < total; first += max) {
        const int64_t count = mha__min64(max, total - first);
        MHA__TRY(as_it_is ? put(s, index, (const char *)t->from.data + first, (size_t)count, err)
                          : convert(s, t, index, first, count, err));
    }
    return MHA_OK;
}

static mha_status write_all(stream *s, const mha__folder *folder, const char *name, const mha__outgoing *list,
                            const mha_tensor *files, int64_t count, const mha_tensors_writer_options *options,
                            mha_error *err)
{
    MHA__TRY(mha__tensors_writer_in(s->ctx, folder, name, files, count, options, &s->writer, err));
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(put_tensor(s, &list[n], n, err));
    return mha_tensors_writer_finish(s->writer, err);
}

mha_status mha__stream_tensors(mha_ctx *ctx, const mha__folder *folder, const char *name, const mha__outgoing *list,
                               int64_t count, const mha_tensors_writer_options *options, mha_error *err)
{
    stream s = {.ctx = ctx};
    const size_t bytes = (size_t)MHA__OUTGOING_PIECE * (sizeof *s.wide + sizeof *s.narrow);
    mha_tensor *files = mha__calloc(ctx, (size_t)count + 1, sizeof *files);
    s.wide = mha__alloc(ctx, bytes);
    mha_status status = files && s.wide ? MHA_OK : mha__no_memory(err, bytes, "a piece of a safetensors file");
    if (status == MHA_OK) {
        s.narrow = (uint16_t *)(s.wide + MHA__OUTGOING_PIECE);
        for (int64_t n = 0; n < count; n++) {
            files[n] = described(&list[n]);
            s.total += (int64_t)files[n].bytes;
        }
        status = write_all(&s, folder, name, list, files, count, options, err);
    }
    mha_tensors_writer_free(s.writer);
    mha__free(ctx, s.wide);
    mha__free(ctx, files);
    return status;
}
