/* wav.c - reads WAV files: RIFF chunks, of which "fmt " describes the samples and "data" contains them. */
#include "base/ctx.h"
#include "base/error.h"
#include "io/files/input_file.h"
#include "mha/audio.h"
#include <math.h>
#include <string.h>

enum { PCM = 1, FLOAT = 3, EXTENSIBLE = 0xFFFE }; /* encodings */
static const uint32_t UNKNOWN_SIZE = UINT32_MAX;  /* of a file that was written as a stream */
static const size_t BYTES_MAX = INT32_MAX;

typedef struct wav {
    const char *name; /* for messages */
    const uint8_t *bytes;
    size_t count;
    int encoding, channels, bits;
    int64_t rate;
    const uint8_t *data; /* [frames, channels] samples */
    size_t data_bytes;
} wav;

/* ---- little-endian integers ---- */

static uint32_t u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const uint8_t *p)
{
    return u16(p) | u16(p + 2) << 16;
}

static uint64_t u64(const uint8_t *p)
{
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

/* ---- chunks ---- */

/* Checks the values of the chunk "fmt ". */
static mha_status check_format(const wav *w, uint32_t frame_bytes, mha_error *err)
{
    const bool known = w->encoding == PCM ? w->bits % 8 == 0 && w->bits >= 8 && w->bits <= 32
                                          : w->encoding == FLOAT && (w->bits == 32 || w->bits == 64);
    if (!known)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: samples must be PCM of 8, 16, 24 or 32 bits, or float of 32 or 64 bits (got encoding %d, "
                         "%d bits)",
                         w->name, w->encoding, w->bits);
    if (w->channels < 1 || w->channels > 2)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: number of channels must be 1 or 2 (got %d)", w->name,
                         w->channels);
    if (w->rate != MHA_AUDIO_RATE)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: sampling rate must be %d; convert the file, for example with sox or ffmpeg (got %lld)",
                         w->name, MHA_AUDIO_RATE, (long long)w->rate);
    if ((int64_t)frame_bytes == (int64_t)w->channels * w->bits / 8) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: block size must be %d, for %d channels of %d bits (got %u)", w->name,
                     w->channels * w->bits / 8, w->channels, w->bits, (unsigned)frame_bytes);
}

/* Reads the chunk "fmt ". An extensible format has the encoding in the first two bytes of a GUID. */
static mha_status read_format(wav *w, const uint8_t *chunk, size_t bytes, mha_error *err)
{
    static const uint8_t guid[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    enum { MIN = 16, EXTENDED = 40, AT = 24 };
    if (w->encoding) return mha__fail(err, MHA_ERR_FORMAT, "%s: chunk \"fmt \" must occur once (got two)", w->name);
    if (bytes < MIN)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: chunk \"fmt \" must have at least %d bytes (got %zu)", w->name, MIN,
                         bytes);
    w->encoding = (int)u16(chunk);
    w->channels = (int)u16(chunk + 2);
    w->rate = (int64_t)u32(chunk + 4);
    w->bits = (int)u16(chunk + 14);
    if (w->encoding == EXTENSIBLE && bytes >= EXTENDED && memcmp(chunk + AT + 2, guid, sizeof guid) == 0)
        w->encoding = (int)u16(chunk + AT);
    if (!w->encoding) w->encoding = -1; /* 0 marks a chunk that has not been read */
    return check_format(w, u16(chunk + 12), err);
}

/* Reads one chunk whose content begins at `at`. Sets *next to the position after it. */
static mha_status read_chunk(wav *w, size_t at, size_t *next, mha_error *err)
{
    const uint8_t *head = w->bytes + at - 8;
    const size_t rest = w->count - at;
    const bool data = memcmp(head, "data", 4) == 0;
    size_t bytes = u32(head + 4);
    if (data && bytes == UNKNOWN_SIZE) bytes = rest;
    if (bytes > rest)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: chunk %s at byte %zu must have at most %zu bytes, the rest of the file (got %zu)",
                         w->name, mha__quote(&(mha__quoted){0}, (const char *)head, 4), at - 8, rest, bytes);
    if (memcmp(head, "fmt ", 4) == 0) MHA__TRY(read_format(w, w->bytes + at, bytes, err));
    if (data) w->data = w->bytes + at, w->data_bytes = bytes;
    *next = bytes + (bytes & 1) > rest ? w->count : at + bytes + (bytes & 1); /* chunks are padded to even sizes */
    return MHA_OK;
}

/* Checks the first `bytes` bytes. RF64 and other containers with their own sizes are refused by name. */
static mha_status check_head(const wav *w, size_t bytes, mha_error *err)
{
    static const char rule[] = "must be a WAV file: \"RIFF\", a size, and \"WAVE\"";
    if (w->count < bytes) return mha__fail(err, MHA_ERR_FORMAT, "%s: %s (got %zu bytes)", w->name, rule, w->count);
    const bool riff = memcmp(w->bytes, "RIFF", 4) == 0;
    if (riff && memcmp(w->bytes + 8, "WAVE", 4) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s (got \"%s\")", w->name, rule,
                     mha__quote(&(mha__quoted){0}, (const char *)w->bytes + (riff ? 8 : 0), 4));
}

/* Reads the chunks up to the samples. */
static mha_status read_chunks(wav *w, mha_error *err)
{
    enum { HEAD = 12, CHUNK = 8 };
    if (w->count > BYTES_MAX)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: must have at most %zu bytes (got %zu)", w->name, BYTES_MAX,
                         w->count);
    MHA__TRY(check_head(w, HEAD, err));
    for (size_t at = HEAD; !w->data && w->count - at >= CHUNK;)
        MHA__TRY(read_chunk(w, at + CHUNK, &at, err));
    if (!w->data || !w->encoding)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: chunk \"%s\" is missing%s", w->name, w->encoding ? "data" : "fmt ",
                         w->data ? " before the chunk \"data\"" : "");
    const size_t frame = (size_t)w->channels * (size_t)w->bits / 8;
    if (w->data_bytes >= frame && w->data_bytes % frame == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT,
                     "%s: chunk \"data\" must have at least one whole block of %zu bytes (got %zu)", w->name, frame,
                     w->data_bytes);
}

/* ---- samples ---- */

/* Returns a sample as a number in -1..1; samples of 8 bits are unsigned. */
static double sample_at(const wav *w, const uint8_t *p)
{
    float narrow;
    double wide;
    const uint32_t word = w->bits == 32 ? u32(p) : 0;
    if (w->encoding == FLOAT && w->bits == 64) {
        const uint64_t both = u64(p);
        memcpy(&wide, &both, sizeof wide);
        return wide;
    }
    if (w->encoding == FLOAT) {
        memcpy(&narrow, &word, sizeof narrow);
        return (double)narrow;
    }
    if (w->bits == 8) return ((double)p[0] - 128) / 128;
    if (w->bits == 16) return (double)(int16_t)u16(p) / 32768;
    if (w->bits == 24) return (double)(int32_t)((u16(p) << 8) | (uint32_t)p[2] << 24) / 2147483648.0;
    return (double)(int32_t)word / 2147483648.0;
}

/* Converts all samples, and averages two channels. */
static mha_status convert(const wav *w, float *samples, int64_t count, mha_error *err)
{
    const size_t bytes = (size_t)w->bits / 8;
    const uint8_t *p = w->data;
    for (int64_t n = 0; n < count; n++) {
        double sum = 0;
        for (int c = 0; c < w->channels; c++, p += bytes)
            sum += sample_at(w, p);
        samples[n] = (float)(sum / w->channels);
        if (!isfinite(samples[n]))
            return mha__fail(err, MHA_ERR_NOT_FINITE, "%s: sample %lld must be finite (got %g)", w->name, (long long)n,
                             sum / w->channels);
    }
    return MHA_OK;
}

static mha_status parse(mha_ctx *ctx, wav *w, float **samples, int64_t *count, mha_error *err)
{
    MHA__TRY(read_chunks(w, err));
    const size_t frames = w->data_bytes / ((size_t)w->channels * (size_t)w->bits / 8);
    float *out = mha__alloc(ctx, frames * sizeof *out);
    if (!out) return mha__no_memory(err, frames * sizeof *out, "the samples of an audio file");
    const mha_status status = convert(w, out, (int64_t)frames, err);
    if (status != MHA_OK) {
        mha__free(ctx, out);
        return status;
    }
    *samples = out;
    *count = (int64_t)frames;
    return MHA_OK;
}

/* ---- entry points ---- */

static mha_status check_out(float **samples, int64_t *count, bool given, const char *what, mha_error *err)
{
    if (!given || !samples || !count)
        return mha__fail(err, MHA_ERR_ARG, "%s: %s, samples and count must not be NULL",
                         strcmp(what, "file") == 0 ? "mha_audio_read" : "mha_audio_parse", what);
    *samples = NULL;
    *count = 0;
    return MHA_OK;
}

mha_status mha_audio_parse(mha_ctx *ctx, const void *bytes, size_t size, float **samples, int64_t *count,
                           mha_error *err)
{
    wav w = {.name = "audio", .bytes = bytes, .count = size};
    MHA__TRY(check_out(samples, count, bytes != NULL, "wav", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    return parse(ctx, &w, samples, count, err);
}

mha_status mha_audio_read(mha_ctx *ctx, const char *file, float **samples, int64_t *count, mha_error *err)
{
    mha__quoted name = {0};
    char *bytes = NULL;
    size_t size = 0;
    MHA__TRY(check_out(samples, count, file != NULL, "file", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__read_whole(ctx, NULL, file, BYTES_MAX, &bytes, &size, err));
    wav w = {.name = mha__quote(&name, file, strlen(file)), .bytes = (const uint8_t *)bytes, .count = size};
    const mha_status status = parse(ctx, &w, samples, count, err);
    mha__free(ctx, bytes);
    return status;
}

void mha_audio_free(mha_ctx *ctx, float *samples)
{
    if (samples && mha__ctx_find(&ctx, NULL) == MHA_OK) mha__free(ctx, samples);
}
