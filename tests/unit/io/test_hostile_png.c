/* test_hostile_png.c - PNG files with one damage each: every file must be refused with a sentence that names it, or
 * decoded if the damage is outside the image. The files are built here, with stored (uncompressed) deflate blocks. */
#include "base/ctx.h"
#include "io/image/image_decode.h"
#include "support/check.h"
#include "support/hostile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAY = 0, RGB = 2, PALETTE = 3, GRAY_ALPHA = 4, RGBA = 6 };
enum { HEADER = 8, DATA = 33, WIDTH = HEADER + 8, DEPTH = WIDTH + 8 }; /* offsets of chunks and fields */

static hostile_corpus corpus = {.kind = "png"};
static uint8_t pixels[64]; /* of the image accepted last */

static mha_status read_png(const char *path, const uint8_t *bytes, size_t n, mha_error *err)
{
    mha_ctx *ctx = NULL;
    mha_image image = {0};
    assert_int_equal(mha__ctx_find(&ctx, err), MHA_OK);
    const mha_status status = mha__image_decode(ctx, path, bytes, n, &image, err);
    if (status == MHA_ERR_UNSUPPORTED && strstr(err->message, "require a build")) skip();
    if (status == MHA_OK) memcpy(pixels, image.rgb, (size_t)(image.height * image.width * 3));
    mha_image_free(&image);
    return status;
}

/* ---- building of files ---- */

static uint32_t crc_of(const uint8_t *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static uint32_t adler_of(const uint8_t *bytes, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static void put_chunk(hostile_bytes *b, const char *kind, const void *data, size_t n)
{
    hostile_big(b, n, 4);
    const size_t at = b->n;
    hostile_text(b, kind);
    hostile_put(b, data, n);
    hostile_big(b, crc_of(b->at + at, b->n - at), 4);
}

/* Computes the CRC of the chunk at `at` again, after a change. */
static void seal(hostile_bytes *b, size_t at)
{
    const size_t n = (size_t)b->at[at + 2] << 8 | b->at[at + 3];
    hostile_set_big(b, at + 8 + n, crc_of(b->at + at + 4, 4 + n), 4);
}

static hostile_bytes begin(uint32_t width, uint32_t height, int depth, int color, int interlace)
{
    hostile_bytes b = {.n = 0}, header = {.n = 0};
    hostile_put(&b, "\x89PNG\r\n\x1a\n", 8);
    hostile_big(&header, width, 4);
    hostile_big(&header, height, 4);
    hostile_big(&header, (uint64_t)depth, 1);
    hostile_big(&header, (uint64_t)color, 1);
    hostile_big(&header, 0, 2);
    hostile_big(&header, (uint64_t)interlace, 1);
    put_chunk(&b, "IHDR", header.at, header.n);
    return b;
}

/* Returns a zlib stream of one stored block. */
static hostile_bytes stored(const uint8_t *rows, size_t n)
{
    hostile_bytes z = {.n = 0};
    hostile_put(&z, "\x78\x01\x01", 3);
    hostile_little(&z, n, 2);
    hostile_little(&z, ~n, 2);
    hostile_put(&z, rows, n);
    hostile_big(&z, adler_of(rows, n), 4);
    return z;
}

static void put_end(hostile_bytes *b, const hostile_bytes *z)
{
    put_chunk(b, "IDAT", z->at, z->n);
    put_chunk(b, "IEND", NULL, 0);
}

/* Two rows of three pixels, each row after its filter byte. */
static const uint8_t rows[20] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 11, 12, 13, 14, 15, 16, 17, 18, 19};

static hostile_bytes plain(void)
{
    hostile_bytes b = begin(3, 2, 8, RGB, 0);
    const hostile_bytes z = stored(rows, sizeof rows);
    put_end(&b, &z);
    return b;
}

/* Inserts a chunk at `at`. */
static hostile_bytes with_chunk(size_t at, const char *kind, const void *data, size_t n)
{
    const hostile_bytes b = plain();
    hostile_bytes chunk = {.n = 0};
    put_chunk(&chunk, kind, data, n);
    return hostile_with(&b, at, chunk.at, chunk.n);
}

static void accept_plain(const char *name, const hostile_bytes *b)
{
    memset(pixels, 0, sizeof pixels);
    hostile_accept(&corpus, name, b);
    assert_memory_equal(pixels, rows + 1, 9);
    assert_memory_equal(pixels + 9, rows + 11, 9);
}

/* ---- damage ---- */

static void truncated_at_every_part(void **state)
{
    (void)state;
    const hostile_bytes b = plain();
    size_t at = 8;
    for (int chunk = 0; chunk < 3; chunk++) {
        const size_t n = (size_t)b.at[at + 2] << 8 | b.at[at + 3], end = at + 12 + n;
        const size_t places[] = {at, at + 2, at + 4, at + 6, at + 8, at + 8 + n / 2, at + 8 + n, end - 2};
        char kind[5] = {0};
        memcpy(kind, b.at + at + 4, 4);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++)
            if (i == 0 || places[i] > places[i - 1])
                hostile_refuse_cut(&corpus, kind, &b, places[i], "invalid PNG file: the file ends early");
        at = end;
    }
    hostile_refuse_cut(&corpus, "the signature", &b, 7, "must be a PNG or JPEG file");
    hostile_refuse_cut(&corpus, "an empty file", &b, 0, "must be a PNG or JPEG file");
    assert_int_equal(at, b.n);
}

/* Refuses the valid file with `bytes` bytes of a chunk changed to `value`, and the CRC of the chunk computed again. */
static void refuse_field(const char *name, size_t chunk, size_t at, uint64_t value, int bytes, const char *part)
{
    hostile_bytes b = plain();
    hostile_set_big(&b, at, value, bytes);
    seal(&b, chunk);
    hostile_refuse(&corpus, name, &b, part);
}

static void wrong_headers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t width, height;
        const char *part;
    } sizes[] = {{"width 0", 0, 2, "invalid PNG file"},
                 {"height 0", 3, 0, "invalid PNG file"},
                 {"both 0", 0, 0, "invalid PNG file"},
                 {"width above 2^31", 0x80000000, 2, "invalid PNG file"},
                 {"largest height", 3, UINT32_MAX, "invalid PNG file"},
                 {"width 2^31-1", INT32_MAX, 1, "pixels (got 2147483647 x 1)"},
                 {"height 2^31-1", 1, INT32_MAX, "pixels (got 1 x 2147483647)"},
                 {"product overflows", INT32_MAX, INT32_MAX, "(got 2147483647 x 2147483647)"},
                 {"product wraps to 0", 65536, 65536, "(got 65536 x 65536)"},
                 {"one pixel above the limit", 33554433, 1, "(got 33554433 x 1)"},
                 {"more pixels than bytes", 4096, 8192, "large enough for 4096 x 8192 pixels"},
                 {"one row more", 3, 3, "invalid PNG file"},
                 {"one column more", 4, 2, "invalid PNG file"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        refuse_field(sizes[i].name, HEADER, WIDTH, (uint64_t)sizes[i].width << 32 | sizes[i].height, 8, sizes[i].part);
    static const uint16_t types[] = {0x0002, 0x0302, 0x0502, 0x0702, 0x2002, 0xFF02, 0x0801, 0x0805, 0x0807,
                                     0x08FF, 0x0102, 0x0402, 0x0104, 0x0406, 0x1003, 0x0000, 0x0500, 0x8000};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[60];
        snprintf(name, sizeof name, "depth %d of color type %d", types[i] >> 8, types[i] & 255);
        refuse_field(name, HEADER, DEPTH, types[i], 2, "invalid PNG file");
    }
    refuse_field("unknown compression", HEADER, DEPTH + 2, 1, 1, "invalid PNG file");
    refuse_field("unknown filter method", HEADER, DEPTH + 3, 1, 1, "invalid PNG file");
    refuse_field("unknown interlacing", HEADER, DEPTH + 4, 2, 1, "invalid PNG file");
    refuse_field("interlaced data of another size", HEADER, DEPTH + 4, 1, 1, "invalid PNG file");
}

static void wrong_chunks(void **state)
{
    (void)state;
    hostile_bytes b = plain(), header;
    static const struct {
        const char *name;
        size_t at;
        uint32_t value;
        int bytes;
    } changes[] = {{"length of IHDR 12", HEADER, 12, 4},
                   {"length of IHDR 14", HEADER, 14, 4},
                   {"length of IHDR 2^31", HEADER, 0x80000000, 4},
                   {"length of IDAT 0", DATA, 0, 4},
                   {"length of IDAT less by 1", DATA, 30, 4},
                   {"length of IDAT more by 1", DATA, 32, 4},
                   {"length of IDAT 2^31-1", DATA, INT32_MAX, 4},
                   {"length of IDAT 2^32-1", DATA, UINT32_MAX, 4},
                   {"critical chunk ABCD", DATA + 4, 0x41424344, 4},
                   {"name of a chunk with NUL", DATA + 4, 0x49440054, 4},
                   {"name of a chunk with controls", DATA + 4, 0x1B5B326D, 4},
                   {"name of IHDR in lower case", HEADER + 4, 0x69686472, 4},
                   {"CRC of IHDR", HEADER + 21, 0, 4},
                   {"CRC of IDAT", DATA + 39, 0, 4},
                   {"CRC of IEND", DATA + 51, 0, 4},
                   {"line feeds converted", 4, 0x0A1A0A0A, 4},
                   {"bit 7 cleared", 0, 9, 1}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        b = plain();
        hostile_set_big(&b, changes[i].at, changes[i].value, changes[i].bytes);
        hostile_refuse(&corpus, changes[i].name, &b, changes[i].at < 8 ? "must be a PNG or JPEG" : "invalid PNG file");
    }
    b = plain();
    header = hostile_without(&b, HEADER, DATA - HEADER);
    hostile_refuse(&corpus, "without IHDR", &header, "invalid PNG file");
    header = hostile_with(&b, DATA, b.at + HEADER, DATA - HEADER);
    hostile_refuse(&corpus, "IHDR twice", &header, "invalid PNG file");
    b = hostile_without(&b, DATA, 43);
    hostile_refuse(&corpus, "without IDAT", &b, "invalid PNG file");
}

/* A palette image of 4 x 1 pixels with `bits` bits each, and a palette of `n` bytes. */
static hostile_bytes palette(int bits, size_t n, uint8_t row)
{
    static const uint8_t colors[1024] = {9, 8, 7, 6, 5, 4, 3, 2, 1};
    const uint8_t packed[] = {0, row};
    hostile_bytes b = begin((uint32_t)(8 / bits), 1, bits, PALETTE, 0);
    const hostile_bytes z = stored(packed, 2);
    if (n) put_chunk(&b, "PLTE", colors, n);
    put_end(&b, &z);
    return b;
}

static void palettes(void **state)
{
    (void)state;
    static const size_t wrong[] = {0, 1, 4, 10, 769, 771, 1023};
    hostile_bytes b;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char name[60];
        b = palette(2, wrong[i], 0);
        snprintf(name, sizeof name, "palette of %zu bytes", wrong[i]);
        hostile_refuse(&corpus, name, &b, "invalid PNG file");
    }
    b = palette(2, 9, 0x1B);                                /* 0, 1, 2, 3 of three colors */
    hostile_accept(&corpus, "index after the palette", &b); /* is black, as the PNG standard recommends */
    assert_memory_equal(pixels, "\x9\x8\x7\x6\x5\x4\x3\x2\x1\0\0", 12);
    b = palette(2, 12, 0x1B);
    hostile_accept(&corpus, "palette of four colors", &b);
    assert_memory_equal(pixels, "\x9\x8\x7\x6\x5\x4\x3\x2\x1\0\0", 12);
}

/* The image with this zlib stream. */
static hostile_bytes with_stream(const hostile_bytes *z)
{
    hostile_bytes b = begin(3, 2, 8, RGB, 0);
    put_end(&b, z);
    return b;
}

static void refuse_stream(const char *name, size_t at, uint8_t value)
{
    hostile_bytes z = stored(rows, sizeof rows);
    assert_int_not_equal(z.at[at], value);
    z.at[at] = value;
    const hostile_bytes b = with_stream(&z);
    hostile_refuse(&corpus, name, &b, "invalid PNG file");
}

static void wrong_streams(void **state)
{
    (void)state;
    refuse_stream("zlib method 7", 0, 0x77);
    refuse_stream("zlib window of 2^16", 0, 0x88);
    refuse_stream("zlib header without its check", 1, 2);
    refuse_stream("zlib preset dictionary", 1, 0x20);
    refuse_stream("deflate block of type 3", 2, 7);
    refuse_stream("deflate block of fixed codes", 2, 3);
    refuse_stream("deflate block of dynamic codes", 2, 5);
    refuse_stream("deflate block that is not the last", 2, 0);
    refuse_stream("length of a stored block", 3, 19);
    refuse_stream("complement of the length", 5, 0);
    refuse_stream("filter of the first row", 7, 5);
    refuse_stream("filter of the second row", 17, 255);
    hostile_bytes z = stored(rows, sizeof rows - 1), b = with_stream(&z);
    hostile_refuse(&corpus, "one sample too few", &b, "invalid PNG file");
    z = stored(rows, 0), b = with_stream(&z);
    hostile_refuse(&corpus, "no sample", &b, "invalid PNG file");
    z.n = 1, b = with_stream(&z);
    hostile_refuse(&corpus, "stream of one byte", &b, "invalid PNG file");
    z.n = 0, b = with_stream(&z);
    hostile_refuse(&corpus, "empty stream", &b, "invalid PNG file");
}

/* Damage outside the image does not affect the pixels. */
static void unusual_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *kind, *data;
        size_t n;
    } chunks[] = {{"text without a keyword", "tEXt", "", 0},
                  {"text that is not deflate", "zTXt", "Comment\0\0xxxx", 13},
                  {"color profile that is not deflate", "iCCP", "name\0\0xxxx", 10},
                  {"gamma 0", "gAMA", "\0\0\0\0", 4},
                  {"resolution of one byte", "pHYs", "x", 1},
                  {"time in month 99", "tIME", "\7\xE9\x63\x63\x63\x63\x63", 7},
                  {"transparent color of one byte", "tRNS", "x", 1},
                  {"background of one byte", "bKGD", "x", 1},
                  {"palette of an RGB image", "PLTE", "abc", 3},
                  {"unknown chunk", "abCd", "text", 4},
                  {"orientation that is not TIFF", "eXIf", "xxxx", 4}};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        const hostile_bytes b = with_chunk(DATA, chunks[i].kind, chunks[i].data, chunks[i].n);
        accept_plain(chunks[i].name, &b);
    }
    hostile_bytes b = with_chunk(DATA, "tEXt", "a\0b", 3);
    hostile_set_big(&b, DATA + 11, 0, 4);
    accept_plain("CRC of a text", &b);
    b = plain();
    hostile_text(&b, "bytes after IEND");
    accept_plain("bytes after IEND", &b);
    b = with_chunk(DATA, "IDAT", NULL, 0);
    accept_plain("empty IDAT before the data", &b);
    const hostile_bytes z = stored(rows, sizeof rows);
    b = begin(3, 2, 8, RGB, 0);
    for (size_t i = 0; i < z.n; i++)
        put_chunk(&b, "IDAT", z.at + i, 1);
    put_chunk(&b, "IEND", NULL, 0);
    accept_plain("IDAT of one byte each", &b);
}

static void every_type_and_depth(void **state)
{
    (void)state;
    static const uint8_t types[][3] = {{GRAY, 1, 1},        {GRAY, 2, 1}, {GRAY, 4, 1}, {GRAY, 8, 1},
                                       {GRAY, 16, 2},       {RGB, 8, 3},  {RGB, 16, 6}, {GRAY_ALPHA, 8, 2},
                                       {GRAY_ALPHA, 16, 4}, {RGBA, 8, 4}, {RGBA, 16, 8}};
    static const uint8_t row[9] = {0, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int interlace = 0; interlace < 2; interlace++) { /* one pixel is in the first pass */
            char name[60];
            hostile_bytes b = begin(1, 1, types[i][1], types[i][0], interlace), z = stored(row, 1 + types[i][2]);
            put_end(&b, &z);
            snprintf(name, sizeof name, "type %d depth %d interlace %d", types[i][0], types[i][1], interlace);
            hostile_accept(&corpus, name, &b);
            z = stored(row, types[i][2]);
            b = begin(1, 1, types[i][1], types[i][0], interlace);
            put_end(&b, &z);
            snprintf(name, sizeof name, "type %d depth %d interlace %d short", types[i][0], types[i][1], interlace);
            hostile_refuse(&corpus, name, &b, "invalid PNG file");
        }
}

static void at_least_100_files(void **state)
{
    (void)state;
    hostile_end(&corpus, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_at_every_part),
        cmocka_unit_test(wrong_headers),
        cmocka_unit_test(wrong_chunks),
        cmocka_unit_test(palettes),
        cmocka_unit_test(wrong_streams),
        cmocka_unit_test(unusual_files),
        cmocka_unit_test(every_type_and_depth),
        cmocka_unit_test(at_least_100_files),
    };
    corpus.read = read_png;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
