/* test_hostile_wav.c - WAV files with one damage each: every file must be refused with a sentence that names it, or
 * read as the valid file if the damage is outside the samples. */
#include "mha/audio.h"
#include "support/check.h"
#include "support/files.h"
#include "support/hostile.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PCM = 1, FLOAT = 3, EXTENSIBLE = 0xFFFE };
/* Offsets of the valid file: chunk "fmt " and its fields, chunk "data" and its samples. */
enum {
    FORMAT = 12,
    ENCODING = 20,
    CHANNELS = 22,
    RATE = 24,
    BYTE_RATE = 28,
    BLOCK = 32,
    BITS = 34,
    DATA = 36,
    SAMPLES = 44
};

static hostile_corpus corpus = {.kind = "wav"};
static float first[4]; /* samples of the file accepted last */
static int64_t frames;
static const char *folder;

/* Reads the file from memory and from a folder, which must agree. */
static mha_status read_wav(const char *path, const uint8_t *bytes, size_t n, mha_error *err)
{
    float *samples = NULL, *again = NULL;
    int64_t other = 0;
    const char *file = files_path(folder, path);
    files_write(file, bytes, n);
    const mha_status status = mha_audio_read(NULL, file, &samples, &frames, err);
    unlink(file);
    assert_int_equal(mha_audio_parse(NULL, bytes, n, &again, &other, NULL), status);
    assert_int_equal(other, frames);
    if (status == MHA_OK) memcpy(first, samples, (size_t)(frames < 4 ? frames : 4) * sizeof *first);
    mha_audio_free(NULL, samples);
    mha_audio_free(NULL, again);
    return status;
}

static hostile_bytes begin(int encoding, int channels, uint32_t rate, int bits, size_t data)
{
    hostile_bytes b = {.n = 0};
    hostile_text(&b, "RIFF");
    hostile_little(&b, 36 + data, 4);
    hostile_text(&b, "WAVEfmt ");
    hostile_little(&b, 16, 4);
    hostile_little(&b, (uint64_t)encoding, 2);
    hostile_little(&b, (uint64_t)channels, 2);
    hostile_little(&b, rate, 4);
    hostile_little(&b, (uint64_t)rate * (uint64_t)channels * (uint64_t)bits / 8, 4);
    hostile_little(&b, (uint64_t)(channels * bits / 8), 2);
    hostile_little(&b, (uint64_t)bits, 2);
    hostile_text(&b, "data");
    hostile_little(&b, data, 4);
    return b;
}

/* One channel of 16 bits, three samples. */
static hostile_bytes plain(void)
{
    hostile_bytes b = begin(PCM, 1, MHA_AUDIO_RATE, 16, 6);
    hostile_little(&b, 0xC00000002000, 6);
    return b;
}

static void accept_plain(const char *name, const hostile_bytes *b)
{
    hostile_accept(&corpus, name, b);
    assert_int_equal(frames, 3);
    assert_true(first[0] == 0.25F && first[1] == 0 && first[2] == -0.5F);
}

/* The format of 40 bytes, with an encoding in a GUID. */
static hostile_bytes extensible(int encoding)
{
    static const uint8_t rest[] = {22, 0, 16, 0, 4,    0, 0, 0,    1, 0,    0,    0,
                                   0,  0, 16, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    const hostile_bytes valid = plain();
    hostile_bytes b = hostile_with(&valid, DATA, rest, sizeof rest);
    hostile_set_little(&b, 16, 40, 4);
    hostile_set_little(&b, ENCODING, EXTENSIBLE, 2);
    hostile_set_little(&b, DATA + 8, (uint64_t)encoding, 2);
    return b;
}

/* ---- damage ---- */

static void truncated_at_every_part(void **state)
{
    (void)state;
    const hostile_bytes b = plain(), long_format = extensible(PCM);
    for (size_t at = 0; at < b.n; at += 2)
        hostile_refuse_cut(&corpus, "a file", &b, at, at < 12 ? "must be a WAV file" : "chunk");
    for (size_t at = FORMAT; at < long_format.n; at += 3)
        hostile_refuse_cut(&corpus, "an extensible file", &long_format, at, "chunk");
}

typedef struct change {
    const char *name;
    size_t at;
    uint64_t value; /* little-endian */
    int bytes;
    const char *part;
} change;

static const change changes[] = {
    {"RF64", 0, 0x34364652, 4, "(got \"RF64\")"},
    {"BW64", 0, 0x34365742, 4, "(got \"BW64\")"},
    {"big-endian RIFX", 0, 0x58464952, 4, "(got \"RIFX\")"},
    {"AIFF", 0, 0x4D524F46, 4, "(got \"FORM\")"},
    {"Sony Wave64", 0, 0x66666972, 4, "(got \"riff\")"},
    {"Ogg", 0, 0x5367674F, 4, "(got \"OggS\")"},
    {"FLAC", 0, 0x43614C66, 4, "(got \"fLaC\")"},
    {"escape sequence for a terminal", 0, 0x6D31331B, 4, "must be a WAV file"},
    {"RIFF of another kind", 8, 0x20495641, 4, "must be a WAV file"},
    {"format chunk named FMT", FORMAT, 0x20544D46, 4, "chunk \"fmt \" is missing"},
    {"data chunk named DATA", DATA, 0x41544144, 4, "chunk \"data\" is missing"},
    {"size of the format 0", FORMAT + 4, 0, 4, "at least 16 bytes (got 0)"},
    {"size of the format 14", FORMAT + 4, 14, 4, "at least 16 bytes (got 14)"},
    {"size of the format 15", FORMAT + 4, 15, 4, "at least 16 bytes (got 15)"},
    {"size of the format 17", FORMAT + 4, 17, 4, "chunk ta"},
    {"size of the format 2^31", FORMAT + 4, 0x80000000, 4, "the rest of the file (got 2147483648)"},
    {"size of the format 2^32-1", FORMAT + 4, UINT32_MAX, 4, "the rest of the file (got 4294967295)"},
    {"size of the format overflows with its offset", FORMAT + 4, UINT32_MAX - 19, 4, "the rest of the file"},
    {"0 channels", CHANNELS, 0, 2, "number of channels must be 1 or 2 (got 0)"},
    {"3 channels", CHANNELS, 3, 2, "number of channels must be 1 or 2 (got 3)"},
    {"65535 channels", CHANNELS, 65535, 2, "number of channels must be 1 or 2 (got 65535)"},
    {"2 channels in a block of one", CHANNELS, 2, 2, "block size must be 4, for 2 channels of 16 bits (got 2)"},
    {"rate 0", RATE, 0, 4, "sampling rate must be 16000"},
    {"rate 8000", RATE, 8000, 4, "(got 8000)"},
    {"rate 15999", RATE, 15999, 4, "(got 15999)"},
    {"rate 44100", RATE, 44100, 4, "(got 44100)"},
    {"rate 2^31", RATE, 0x80000000, 4, "(got 2147483648)"},
    {"rate 2^32-1", RATE, UINT32_MAX, 4, "(got 4294967295)"},
    {"block of 0 bytes", BLOCK, 0, 2, "block size must be 2, for 1 channels of 16 bits (got 0)"},
    {"block of 1 byte", BLOCK, 1, 2, "(got 1)"},
    {"block of 65535 bytes", BLOCK, 65535, 2, "(got 65535)"},
    {"0 bits", BITS, 0, 2, "encoding 1, 0 bits"},
    {"4 bits", BITS, 4, 2, "encoding 1, 4 bits"},
    {"12 bits", BITS, 12, 2, "encoding 1, 12 bits"},
    {"20 bits", BITS, 20, 2, "encoding 1, 20 bits"},
    {"64 bits", BITS, 64, 2, "encoding 1, 64 bits"},
    {"65535 bits", BITS, 65535, 2, "encoding 1, 65535 bits"},
    {"8 bits in a block of 2 bytes", BITS, 8, 2, "block size must be 1"},
    {"24 bits in a block of 2 bytes", BITS, 24, 2, "block size must be 3"},
    {"encoding 0", ENCODING, 0, 2, "samples must be PCM"},
    {"Microsoft ADPCM", ENCODING, 2, 2, "encoding 2"},
    {"float of 16 bits", ENCODING, 3, 2, "encoding 3, 16 bits"},
    {"A-law", ENCODING, 6, 2, "encoding 6"},
    {"mu-law", ENCODING, 7, 2, "encoding 7"},
    {"IMA ADPCM", ENCODING, 0x11, 2, "encoding 17"},
    {"MP3", ENCODING, 0x55, 2, "encoding 85"},
    {"encoding 65535", ENCODING, 65535, 2, "encoding 65535"},
    {"extensible format of 16 bytes", ENCODING, EXTENSIBLE, 2, "encoding 65534"},
    {"size of the data 0", DATA + 4, 0, 4, "at least one whole block of 2 bytes (got 0)"},
    {"size of the data 1", DATA + 4, 1, 4, "at least one whole block of 2 bytes (got 1)"},
    {"size of the data 5", DATA + 4, 5, 4, "at least one whole block of 2 bytes (got 5)"},
    {"size of the data 7", DATA + 4, 7, 4, "at most 6 bytes, the rest of the file (got 7)"},
    {"size of the data 2^31", DATA + 4, 0x80000000, 4, "the rest of the file (got 2147483648)"},
    {"size of the data 2^32-2", DATA + 4, UINT32_MAX - 1, 4, "the rest of the file (got 4294967294)"},
};

static void wrong_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        hostile_bytes b = plain();
        hostile_set_little(&b, changes[i].at, changes[i].value, changes[i].bytes);
        hostile_refuse(&corpus, changes[i].name, &b, changes[i].part);
    }
}

static void wrong_order(void **state)
{
    (void)state;
    const hostile_bytes valid = plain();
    hostile_bytes b = hostile_with(&valid, DATA, valid.at + FORMAT, DATA - FORMAT);
    hostile_refuse(&corpus, "two formats", &b, "chunk \"fmt \" must occur once (got two)");
    b = hostile_without(&valid, FORMAT, DATA - FORMAT);
    hostile_refuse(&corpus, "without a format", &b, "chunk \"fmt \" is missing");
    hostile_put(&b, valid.at + FORMAT, DATA - FORMAT);
    hostile_refuse(&corpus, "data before the format", &b, "chunk \"fmt \" is missing before the chunk \"data\"");
    b = hostile_cut(&valid, DATA);
    hostile_refuse(&corpus, "without data", &b, "chunk \"data\" is missing");
    b = hostile_cut(&valid, FORMAT);
    hostile_refuse(&corpus, "without chunks", &b, "chunk \"fmt \" is missing");
    b = hostile_with(&valid, DATA, "LIST\xFF\xFF\xFF\xFF", 8);
    hostile_refuse(&corpus, "list of unknown size", &b, "chunk LIST at byte 36");
    b = hostile_with(&valid, DATA, "LIST\3\0\0\0abc", 11);
    hostile_refuse(&corpus, "odd chunk without padding", &b, "chunk");
    b = hostile_with(&valid, DATA, "\x1B[2J\x0A\0\0\0", 8);
    hostile_refuse(&corpus, "chunk named by an escape sequence", &b, "chunk");
}

static void wrong_extensible_formats(void **state)
{
    (void)state;
    static const int encodings[] = {0, 2, FLOAT, 6, 0x55, EXTENSIBLE};
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        char name[60];
        const hostile_bytes b = extensible(encodings[i]);
        snprintf(name, sizeof name, "extensible format of encoding %d", encodings[i]);
        hostile_refuse(&corpus, name, &b, "samples must be PCM");
    }
    hostile_bytes b = extensible(PCM);
    b.at[DATA + 10] ^= 1;
    hostile_refuse(&corpus, "extensible format of another GUID", &b, "encoding 65534, 16 bits");
    b = extensible(PCM);
    accept_plain("extensible format", &b);
}

/* Samples of 32 or 64 bits, of which the second is not finite. */
static void samples_that_are_not_finite(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int bits;
        uint64_t sample;
    } cases[] = {{"NaN of 32 bits", 32, 0x7FC00000},          {"signaling NaN of 32 bits", 32, 0x7F800001},
                 {"infinity of 32 bits", 32, 0x7F800000},     {"-infinity of 32 bits", 32, 0xFF800000},
                 {"NaN of 64 bits", 64, 0x7FF8000000000000},  {"infinity of 64 bits", 64, 0x7FF0000000000000},
                 {"1e300 of 64 bits", 64, 0x7E37E43C8800759C}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hostile_bytes b = begin(FLOAT, 1, MHA_AUDIO_RATE, cases[i].bits, (size_t)cases[i].bits / 4);
        hostile_little(&b, 0, cases[i].bits / 8);
        hostile_little(&b, cases[i].sample, cases[i].bits / 8);
        hostile_refuse(&corpus, cases[i].name, &b, "sample 1 must be finite");
    }
    hostile_bytes b = begin(FLOAT, 1, MHA_AUDIO_RATE, 32, 8);
    hostile_little(&b, 0x0000000100000001, 8);
    hostile_accept(&corpus, "denormal samples", &b);
    assert_true(first[1] > 0);
}

static void unusual_files(void **state)
{
    (void)state;
    const hostile_bytes valid = plain();
    static const change fields[] = {{"size of the file 0", 4, 0, 4, NULL},
                                    {"size of the file 2^32-1", 4, UINT32_MAX, 4, NULL},
                                    {"byte rate 0", BYTE_RATE, 0, 4, NULL},
                                    {"size of the data as a stream", DATA + 4, UINT32_MAX, 4, NULL}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        hostile_bytes b = valid;
        hostile_set_little(&b, fields[i].at, fields[i].value, fields[i].bytes);
        accept_plain(fields[i].name, &b);
    }
    hostile_bytes b = hostile_with(&valid, DATA, "LIST\3\0\0\0abc\0", 12);
    accept_plain("odd chunk with padding", &b);
    b = hostile_with(&valid, FORMAT, "JUNK\0\0\0\0", 8);
    accept_plain("empty chunk before the format", &b);
    b = valid;
    hostile_text(&b, "data\1");
    accept_plain("second data chunk, cut off", &b);
}

static void at_least_50_files(void **state)
{
    (void)state;
    files_remove(folder);
    hostile_end(&corpus, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_at_every_part),
        cmocka_unit_test(wrong_fields),
        cmocka_unit_test(wrong_order),
        cmocka_unit_test(wrong_extensible_formats),
        cmocka_unit_test(samples_that_are_not_finite),
        cmocka_unit_test(unusual_files),
        cmocka_unit_test(at_least_50_files),
    };
    corpus.read = read_wav;
    folder = files_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
