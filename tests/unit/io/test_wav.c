/* test_wav.c - tests WAV files: every supported type of sample, and files that must be refused with a sentence. */
#include "mha/audio.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PCM = 1, FLOAT = 3, MAX = 4096 };

/* A WAV file that is built chunk by chunk. */
typedef struct wav {
    uint8_t bytes[MAX];
    size_t count;
} wav;

static void put(wav *w, uint64_t value, int bytes)
{
    for (int n = 0; n < bytes; n++)
        w->bytes[w->count++] = (uint8_t)(value >> (8 * n));
}

static void put_text(wav *w, const char *text)
{
    memcpy(w->bytes + w->count, text, 4);
    w->count += 4;
}

static void set_size(wav *w, size_t at, uint32_t size)
{
    for (int n = 0; n < 4; n++)
        w->bytes[at + (size_t)n] = (uint8_t)(size >> (8 * n));
}

/* Begins a file with the chunk "fmt " and the head of the chunk "data". */
static wav begin(int encoding, int channels, int rate, int bits, uint32_t data)
{
    wav w = {.count = 0};
    put_text(&w, "RIFF");
    put(&w, 36 + data, 4);
    put_text(&w, "WAVE");
    put_text(&w, "fmt ");
    put(&w, 16, 4);
    put(&w, (uint64_t)encoding, 2);
    put(&w, (uint64_t)channels, 2);
    put(&w, (uint64_t)rate, 4);
    put(&w, (uint64_t)rate * (uint64_t)channels * (uint64_t)bits / 8, 4);
    put(&w, (uint64_t)(channels * bits / 8), 2);
    put(&w, (uint64_t)bits, 2);
    put_text(&w, "data");
    put(&w, data, 4);
    return w;
}

static void put_sample(wav *w, int encoding, int bits, double x)
{
    uint64_t word = 0;
    const float narrow = (float)x;
    if (encoding == FLOAT && bits == 32)
        memcpy(&word, &narrow, sizeof narrow);
    else if (encoding == FLOAT)
        memcpy(&word, &x, sizeof x);
    else
        word = (uint64_t)(int64_t)lround(ldexp(x, bits - 1)) + (bits == 8 ? 128 : 0);
    put(w, word, bits / 8);
}

static void test_types_of_samples(void **state)
{
    (void)state;
    static const struct {
        int encoding, bits;
    } types[] = {{PCM, 8}, {PCM, 16}, {PCM, 24}, {PCM, 32}, {FLOAT, 32}, {FLOAT, 64}};
    static const double x[] = {0, 0.5, -1, 0.25, -0.125, 0.75};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int channels = 1; channels <= 2; channels++) {
            const int count = 6 / channels;
            wav w = begin(types[t].encoding, channels, 16000, types[t].bits, (uint32_t)(6 * types[t].bits / 8));
            for (int n = 0; n < 6; n++)
                put_sample(&w, types[t].encoding, types[t].bits, x[n]);
            float *samples = NULL;
            int64_t got = 0;
            mha_error err = {0};
            if (mha_audio_parse(NULL, w.bytes, w.count, &samples, &got, &err) != MHA_OK) fail_msg("%s", err.message);
            assert_int_equal(got, count);
            for (int n = 0; n < count; n++) {
                const double want = channels == 1 ? x[n] : (x[2 * n] + x[2 * n + 1]) / 2;
                assert_true((double)samples[n] == want);
            }
            mha_audio_free(NULL, samples);
        }
}

/* Returns a mono file of 16 bits with two samples. */
static wav plain(void)
{
    wav w = begin(PCM, 1, 16000, 16, 4);
    put(&w, 0x2000, 2);
    put(&w, 0xE000, 2);
    return w;
}

static void check_plain(const wav *w)
{
    float *samples = NULL;
    int64_t count = 0;
    mha_error err = {0};
    if (mha_audio_parse(NULL, w->bytes, w->count, &samples, &count, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(count, 2);
    assert_true(samples[0] == 0.25F && samples[1] == -0.25F);
    mha_audio_free(NULL, samples);
}

/* Inserts a chunk of an odd size, with its padding, after the chunk "fmt ". */
static wav with_chunk(void)
{
    const wav w = plain();
    wav longer = w;
    longer.count = 36;
    put_text(&longer, "LIST");
    put(&longer, 3, 4);
    put(&longer, 0xABCDEF, 4);
    memcpy(longer.bytes + longer.count, w.bytes + 36, w.count - 36);
    longer.count += w.count - 36;
    return longer;
}

/* Replaces the chunk "fmt " by one of 40 bytes with a GUID. */
static wav extensible(void)
{
    static const uint8_t rest[] = {22, 0, 16, 0, 4,    0, 0, 0,    1, 0,    0,    0,
                                   0,  0, 16, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    const wav w = plain();
    wav longer = w;
    set_size(&longer, 16, 40);
    longer.bytes[20] = 0xFE, longer.bytes[21] = 0xFF;
    memcpy(longer.bytes + 36, rest, sizeof rest);
    memcpy(longer.bytes + 60, w.bytes + 36, w.count - 36);
    longer.count = w.count + 24;
    return longer;
}

static void test_other_chunks(void **state)
{
    (void)state;
    wav w = with_chunk();
    check_plain(&w);
    w = extensible();
    check_plain(&w);
    w = plain();
    set_size(&w, 40, UINT32_MAX); /* written as a stream */
    check_plain(&w);
    w = plain();
    set_size(&w, 4, 7); /* the size of the whole is not needed */
    check_plain(&w);
    w = plain();
    put_text(&w, "JUNK"); /* bytes after the samples are not read */
    check_plain(&w);
}

/* ---- refused files ---- */

static void refused(const wav *w, mha_status status, const char *part)
{
    float *samples = (float *)(uintptr_t)8;
    int64_t count = 1;
    mha_error err = {0};
    uint8_t *exact = malloc(w->count + 1); /* a copy, so that a sanitizer sees reads after its end */
    memcpy(exact, w->bytes, w->count);
    const mha_status got = mha_audio_parse(NULL, exact, w->count, &samples, &count, &err);
    free(exact);
    if (got != status || !strstr(err.message, part))
        fail_msg("want \"%s\", got %d, \"%s\"", part, (int)got, err.message);
    assert_null(samples);
    assert_int_equal(count, 0);
}

static void test_refused_formats(void **state)
{
    (void)state;
    static const struct {
        int encoding, channels, rate, bits;
        const char *part;
    } cases[] = {
        {PCM, 0, 16000, 16, "number of channels must be 1 or 2 (got 0)"},
        {PCM, 3, 16000, 16, "number of channels must be 1 or 2 (got 3)"},
        {PCM, 65535, 16000, 16, "number of channels must be 1 or 2 (got 65535)"},
        {PCM, 1, 44100, 16, "sampling rate must be 16000"},
        {PCM, 1, 0, 16, "(got 0)"},
        {PCM, 1, 16000, 0, "encoding 1, 0 bits"},
        {PCM, 1, 16000, 12, "encoding 1, 12 bits"},
        {PCM, 1, 16000, 64, "encoding 1, 64 bits"},
        {FLOAT, 1, 16000, 16, "encoding 3, 16 bits"},
        {2, 1, 16000, 4, "encoding 2, 4 bits"},
        {6, 1, 16000, 8, "encoding 6, 8 bits"},
        {0, 1, 16000, 16, "16 bits"},
        {0xFFFE, 1, 16000, 16, "encoding 65534, 16 bits"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        wav w = begin(cases[n].encoding, cases[n].channels, cases[n].rate, cases[n].bits, 4);
        put(&w, 0, 4);
        refused(&w, MHA_ERR_UNSUPPORTED, cases[n].part);
    }
}

static void test_refused_sizes(void **state)
{
    (void)state;
    wav w = plain();
    set_size(&w, 40, 5);
    refused(&w, MHA_ERR_FORMAT, "must have at most 4 bytes, the rest of the file (got 5)");
    set_size(&w, 40, 0x7FFFFFFF);
    refused(&w, MHA_ERR_FORMAT, "(got 2147483647)");
    set_size(&w, 40, 3);
    refused(&w, MHA_ERR_FORMAT, "at least one whole block of 2 bytes (got 3)");
    set_size(&w, 40, 0);
    refused(&w, MHA_ERR_FORMAT, "at least one whole block of 2 bytes (got 0)");
    w = plain();
    set_size(&w, 16, 0xFFFFFFF0);
    refused(&w, MHA_ERR_FORMAT, "the rest of the file (got 4294967280)");
    set_size(&w, 16, 15);
    refused(&w, MHA_ERR_FORMAT, "at least 16 bytes (got 15)");
    w = plain();
    w.bytes[32] = 3; /* block size */
    refused(&w, MHA_ERR_FORMAT, "block size must be 2, for 1 channels of 16 bits (got 3)");
    w = plain();
    w.bytes[36] = 'D';
    refused(&w, MHA_ERR_FORMAT, "chunk \"data\" is missing");
    w = plain();
    w.bytes[12] = 'F';
    refused(&w, MHA_ERR_FORMAT, "chunk \"fmt \" is missing before the chunk \"data\"");
    w = plain();
    w.bytes[8] = 'X';
    refused(&w, MHA_ERR_FORMAT, "must be a WAV file");
}

/* Every file that is cut off must be refused. */
static void test_truncated_files(void **state)
{
    (void)state;
    const wav all[] = {plain(), with_chunk(), extensible()};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        for (size_t count = 0; count < all[n].count; count++) {
            wav w = all[n];
            w.count = count;
            refused(&w, MHA_ERR_FORMAT, "audio: ");
        }
}

static void test_samples_that_are_not_finite(void **state)
{
    (void)state;
    wav w = begin(FLOAT, 1, 16000, 32, 8);
    put(&w, 0, 4);
    put(&w, 0x7FC00000, 4);
    refused(&w, MHA_ERR_NOT_FINITE, "sample 1 must be finite (got nan)");
    w = begin(FLOAT, 1, 16000, 64, 8);
    put(&w, 0x7FEFFFFFFFFFFFFFULL, 8); /* the largest double */
    refused(&w, MHA_ERR_NOT_FINITE, "sample 0 must be finite");
}

/* Random changes of a file must never be read outside its bytes; sanitizers check this. */
static void test_random_changes(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int trial = 0; trial < 20000; trial++) {
        wav w = trial % 2 ? with_chunk() : extensible();
        for (int change = 0; change < 3; change++) {
            seed = seed * 1664525 + 1013904223;
            w.bytes[(seed >> 8) % w.count] = (uint8_t)(seed >> 24);
        }
        float *samples = NULL;
        int64_t count = 0;
        mha_error err = {0};
        uint8_t *exact = malloc(w.count);
        memcpy(exact, w.bytes, w.count);
        const mha_status status = mha_audio_parse(NULL, exact, w.count, &samples, &count, &err);
        assert_true((status == MHA_OK) == (samples != NULL));
        assert_true(status == MHA_OK || err.message[0]);
        mha_audio_free(NULL, samples);
        free(exact);
    }
}

/* ---- files, arguments, memory ---- */

static void test_files(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "speech.wav");
    const wav w = plain();
    float *samples = NULL;
    int64_t count = 0;
    mha_error err = {0};
    files_write(path, w.bytes, w.count);
    assert_int_equal(mha_audio_read(NULL, path, &samples, &count, &err), MHA_OK);
    assert_int_equal(count, 2);
    mha_audio_free(NULL, samples);
    files_write(path, w.bytes, 20);
    assert_int_equal(mha_audio_read(NULL, path, &samples, &count, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "speech.wav: chunk"));
    assert_int_equal(mha_audio_read(NULL, folder, &samples, &count, &err), MHA_ERR_IO);
    assert_int_equal(mha_audio_read(NULL, files_path(folder, "absent"), &samples, &count, &err), MHA_ERR_IO);
    files_remove(folder);
}

static void test_arguments(void **state)
{
    (void)state;
    float samples[400] = {0}, *out = NULL, features[80 * 2] = {0};
    int64_t count = 0;
    assert_int_equal(mha_audio_read(NULL, NULL, &out, &count, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_parse(NULL, NULL, 4, &out, &count, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_parse(NULL, samples, 4, NULL, &count, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_features(NULL, NULL, 4, 80, 2, features, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_features(NULL, samples, 0, 80, 2, features, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_features(NULL, samples, 4, 0, 2, features, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_features(NULL, samples, 4, 129, 2, features, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_features(NULL, samples, 4, 80, 1, features, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_audio_features(NULL, samples, 400, 80, 2, features, NULL), MHA_OK);
    samples[399] = 2e6F; /* its power would overflow */
    assert_int_equal(mha_audio_features(NULL, samples, 400, 80, 2, features, NULL), MHA_ERR_ARG);
    samples[399] = INFINITY;
    assert_int_equal(mha_audio_features(NULL, samples, 400, 80, 2, features, NULL), MHA_ERR_NOT_FINITE);
    mha_audio_free(NULL, NULL);
}

static void test_failed_allocations(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    const mha_allocator allocator = counting_allocator(&c);
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = allocator};
    mha_ctx *ctx = NULL;
    float *samples = NULL, features[80 * 2] = {0};
    int64_t count = 0;
    const wav w = plain();
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    const long live = c.live;
    c.budget = c.calls;
    assert_int_equal(mha_audio_parse(ctx, w.bytes, w.count, &samples, &count, NULL), MHA_ERR_MEMORY);
    assert_int_equal(mha_audio_features(ctx, features, 1, 80, 2, features, NULL), MHA_ERR_MEMORY);
    c.budget = -1;
    assert_int_equal(c.live, live);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_of_samples), cmocka_unit_test(test_other_chunks),
        cmocka_unit_test(test_refused_formats),  cmocka_unit_test(test_refused_sizes),
        cmocka_unit_test(test_truncated_files),  cmocka_unit_test(test_samples_that_are_not_finite),
        cmocka_unit_test(test_random_changes),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_arguments),        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
