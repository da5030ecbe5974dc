/* test_hostile_jpeg.c - JPEG files with one damage each, made from the golden images: every file must be refused with a
 * sentence that names it, or decoded to the same pixels if the damage is outside the image. */
#include "base/ctx.h"
#include "io/image/image_decode.h"
#include "support/check.h"
#include "support/files.h"
#include "support/hostile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOF0 = 0xC0,
    SOF2 = 0xC2,
    DHT = 0xC4,
    SOI = 0xD8,
    EOI = 0xD9,
    SOS = 0xDA,
    DQT = 0xDB,
    APP0 = 0xE0,
    APP14 = 0xEE
};

static hostile_corpus corpus = {.kind = "jpg"};
static uint8_t *pixels; /* of the image accepted last */
static size_t pixel_bytes;

static mha_status read_jpeg(const char *path, const uint8_t *bytes, size_t n, mha_error *err)
{
    mha_ctx *ctx = NULL;
    mha_image image = {0};
    assert_int_equal(mha__ctx_find(&ctx, err), MHA_OK);
    const mha_status status = mha__image_decode(ctx, path, bytes, n, &image, err);
    if (status == MHA_ERR_UNSUPPORTED && strstr(err->message, "require a build")) skip();
    if (status == MHA_OK) {
        pixel_bytes = (size_t)(image.height * image.width * 3);
        pixels = realloc(pixels, pixel_bytes);
        memcpy(pixels, image.rgb, pixel_bytes);
    }
    mha_image_free(&image);
    return status;
}

static hostile_bytes golden(const char *name)
{
    hostile_bytes b = {.n = 0};
    size_t n = 0;
    char *bytes = files_read(files_path(MHA_TEST_DATA "/images", name), &n);
    assert_non_null(bytes);
    hostile_put(&b, bytes, n);
    free(bytes);
    return b;
}

/* Returns the bytes of a segment with its marker; SOI and EOI have no more. */
static size_t segment_bytes(const hostile_bytes *b, size_t at)
{
    const uint8_t marker = b->at[at + 1];
    return marker == SOI || marker == EOI ? 2 : 2 + ((size_t)b->at[at + 2] << 8 | b->at[at + 3]);
}

/* Returns the offset of segment `index` with the marker, up to the first scan. */
static size_t find(const hostile_bytes *b, uint8_t marker, int index)
{
    for (size_t at = 0;; at += segment_bytes(b, at)) {
        assert_true(at + 4 <= b->n && b->at[at] == 0xFF);
        if (b->at[at + 1] == marker && index-- == 0) return at;
        if (b->at[at + 1] == SOS) fail_msg("marker %x must be in the file", marker);
    }
}

/* Accepts the file, whose pixels must be those of `as`. */
static void accept_as(const char *name, const hostile_bytes *b, const hostile_bytes *as)
{
    mha_error err = {0};
    if (read_jpeg("valid", as->at, as->n, &err) != MHA_OK) fail_msg("%s", err.message);
    uint8_t *want = malloc(pixel_bytes);
    const size_t n = pixel_bytes;
    memcpy(want, pixels, n);
    hostile_accept(&corpus, name, b);
    assert_int_equal(pixel_bytes, n);
    assert_memory_equal(pixels, want, n);
    free(want);
}

/* ---- damage ---- */

static void truncate_file(const char *file)
{
    const hostile_bytes b = golden(file);
    for (size_t at = 0, n; at < b.n; at += n) {
        char what[60];
        const bool scan = b.at[at + 1] == SOS;
        n = segment_bytes(&b, at);
        snprintf(what, sizeof what, "%s marker %x", file, b.at[at + 1]);
        const size_t places[] = {at, at + 1, at + 2, at + 3, at + 4, at + n / 2, at + n - 1};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++)
            if (places[i] < at + n && (i == 0 || places[i] > places[i - 1]))
                hostile_refuse_cut(&corpus, what, &b, places[i],
                                   places[i] < 3 ? "must be a PNG or JPEG file" : "invalid JPEG file");
        if (scan) break;
    }
    const size_t ends[] = {find(&b, SOS, 0) + segment_bytes(&b, find(&b, SOS, 0)), b.n / 2 + b.n / 4, b.n - 3, b.n - 2};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        hostile_refuse_cut(&corpus, file, &b, ends[i], "invalid JPEG file");
}

static void truncated_at_every_part(void **state)
{
    (void)state;
    truncate_file("gray.jpg");
    truncate_file("progressive.jpg");
    truncate_file("cmyk.jpg");
}

/* A change of bytes within a segment. */
typedef struct change {
    const char *name;
    uint8_t marker;
    size_t at; /* after the marker */
    uint64_t value;
    int bytes;
    const char *part;
} change;

static hostile_bytes changed(const char *file, const change *c)
{
    hostile_bytes b = golden(file);
    hostile_set_big(&b, find(&b, c->marker, 0) + 2 + c->at, c->value, c->bytes);
    return b;
}

static void refuse_changes(const char *file, const change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const hostile_bytes b = changed(file, &changes[i]);
        hostile_refuse(&corpus, changes[i].name, &b, changes[i].part ? changes[i].part : "invalid JPEG file");
    }
}

/* Offsets within a frame header: length 0, precision 2, height 3, width 5, components 7, then id, sampling, table. */
static const change frames[] = {
    {"precision 0", SOF0, 2, 0, 1, NULL},
    {"precision 12", SOF0, 2, 12, 1, NULL},
    {"precision 16", SOF0, 2, 16, 1, NULL},
    {"height 0", SOF0, 3, 0, 2, NULL},
    {"width 0", SOF0, 5, 0, 2, NULL},
    {"65535 x 65535", SOF0, 3, 0xFFFFFFFF, 4, NULL},
    {"65500 x 65500", SOF0, 3, 0xFFDCFFDC, 4, "pixels (got 65500 x 65500)"},
    {"5793 x 5793", SOF0, 3, 0x16A116A1, 4, "pixels (got 5793 x 5793)"},
    {"5792 x 5792", SOF0, 3, 0x16A016A0, 4, "large enough for 5792 x 5792 pixels"},
    {"65500 rows", SOF0, 3, 65500, 2, "large enough for 17 x 65500 pixels"},
    {"twice the rows", SOF0, 3, 26, 2, NULL},
    {"twice the columns", SOF0, 5, 34, 2, NULL},
    {"no component", SOF0, 7, 0, 1, NULL},
    {"2 components", SOF0, 7, 2, 1, NULL},
    {"4 components", SOF0, 7, 4, 1, NULL},
    {"255 components", SOF0, 7, 255, 1, NULL},
    {"sampling 0 x 0", SOF0, 9, 0, 1, NULL},
    {"sampling 0 x 1", SOF0, 9, 0x01, 1, NULL},
    {"sampling 5 x 1", SOF0, 9, 0x51, 1, NULL},
    {"sampling 15 x 15", SOF0, 9, 0xFF, 1, NULL},
    {"quantization table 3, which is missing", SOF0, 10, 3, 1, NULL},
    {"quantization table 255", SOF0, 10, 255, 1, NULL},
    {"length of the frame 0", SOF0, 0, 0, 2, NULL},
    {"length of the frame 2", SOF0, 0, 2, 2, NULL},
    {"length of the frame less by 1", SOF0, 0, 16, 2, NULL},
    {"length of the frame more by 1", SOF0, 0, 18, 2, NULL},
    {"length of the frame 65535", SOF0, 0, 65535, 2, NULL},
};

static const change tables[] = {
    {"length of a quantization table 0", DQT, 0, 0, 2, NULL},
    {"length of a quantization table 2^16-1", DQT, 0, 65535, 2, NULL},
    {"quantization table number 4", DQT, 2, 4, 1, NULL},
    {"quantization table number 15", DQT, 2, 15, 1, NULL},
    {"quantization table of 16 bits", DQT, 2, 0x10, 1, NULL},
    {"length of a Huffman table 0", DHT, 0, 0, 2, NULL},
    {"length of a Huffman table 18", DHT, 0, 18, 2, NULL},
    {"length of a Huffman table 2^16-1", DHT, 0, 65535, 2, NULL},
    {"Huffman table number 4", DHT, 2, 4, 1, NULL},
    {"Huffman table of class 2", DHT, 2, 0x20, 1, NULL},
    {"more than 256 Huffman codes", DHT, 3, 0xFFFFFFFFFFFFFFFF, 8, NULL},
    {"three Huffman codes of 1 bit", DHT, 3, 3, 1, NULL},
    {"Huffman code of all ones", DHT, 3, 2, 1, NULL},
};

/* Offsets within a scan header: length 0, components 2, then id, tables; spectral selection and approximation last. */
static const change scans[] = {
    {"no component in a scan", SOS, 2, 0, 1, NULL},         {"2 components in a scan", SOS, 2, 2, 1, NULL},
    {"5 components in a scan", SOS, 2, 5, 1, NULL},         {"unknown component in a scan", SOS, 3, 77, 1, NULL},
    {"component twice in a scan", SOS, 5, 1, 1, NULL},      {"missing Huffman tables in a scan", SOS, 4, 0x33, 1, NULL},
    {"Huffman tables 15 in a scan", SOS, 4, 0xFF, 1, NULL}, {"length of a scan 0", SOS, 0, 0, 2, NULL},
    {"length of a scan 65535", SOS, 0, 65535, 2, NULL},
};

static void wrong_segments(void **state)
{
    (void)state;
    refuse_changes("color.jpg", frames, sizeof frames / sizeof *frames);
    refuse_changes("color.jpg", tables, sizeof tables / sizeof *tables);
    refuse_changes("color.jpg", scans, sizeof scans / sizeof *scans);
}

/* Kinds of frames that no 8-bit sequential or progressive decoder reads, and kinds that contradict the data. */
static void other_frames(void **state)
{
    (void)state;
    static const uint8_t kinds[] = {SOF2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[60];
        hostile_bytes b = golden("color.jpg");
        b.at[find(&b, SOF0, 0) + 1] = kinds[i];
        snprintf(name, sizeof name, "sequential data in a frame %x", kinds[i]);
        hostile_refuse(&corpus, name, &b, "invalid JPEG file");
    }
    hostile_bytes b = golden("progressive.jpg");
    b.at[find(&b, SOF2, 0) + 1] = SOF0;
    hostile_refuse(&corpus, "progressive data in a sequential frame", &b, "invalid JPEG file");
}

static const change progressions[] = {
    {"spectral selection from 64", SOS, 9, 0x4040, 2, NULL},
    {"spectral selection from 5 to 2", SOS, 9, 0x0502, 2, NULL},
    {"spectral selection with DC and AC", SOS, 9, 0x003F, 2, NULL},
    {"successive approximation 14", SOS, 11, 0x0E, 1, NULL},
    {"refinement before the first scan", SOS, 11, 0x10, 1, NULL},
    {"refinement by two bits", SOS, 11, 0x31, 1, NULL},
};

static void refuse_without(const char *file, uint8_t marker, const char *name)
{
    hostile_bytes b = golden(file);
    const size_t at = find(&b, marker, 0);
    b = hostile_without(&b, at, segment_bytes(&b, at));
    hostile_refuse(&corpus, name, &b, "invalid JPEG file");
}

static void refuse_twice(const char *file, uint8_t marker, const char *name)
{
    hostile_bytes b = golden(file);
    const size_t at = find(&b, marker, 0);
    b = hostile_with(&b, at, b.at + at, segment_bytes(&b, at));
    hostile_refuse(&corpus, name, &b, "invalid JPEG file");
}

static void wrong_order(void **state)
{
    (void)state;
    refuse_changes("progressive.jpg", progressions, sizeof progressions / sizeof *progressions);
    refuse_without("color.jpg", SOF0, "without a frame");
    refuse_without("color.jpg", DQT, "without a quantization table");
    refuse_without("progressive.jpg", DHT, "without a Huffman table"); /* sequential files may have default tables */
    refuse_without("color.jpg", SOS, "without a scan header");
    refuse_without("progressive.jpg", SOF2, "progressive without a frame");
    refuse_twice("color.jpg", SOF0, "two frames");
    refuse_twice("color.jpg", SOS, "two scan headers");
    hostile_bytes b = golden("color.jpg");
    hostile_bytes twice = hostile_with(&b, 2, "\xFF\xD8", 2);
    hostile_refuse(&corpus, "two starts", &twice, "invalid JPEG file");
    b = hostile_cut(&b, 2);
    hostile_text(&b, "\xFF\xD9");
    hostile_refuse(&corpus, "start and end", &b, "invalid JPEG file");
    b.n = 2;
    hostile_text(&b, "\xFF\xFF\xFF\xFF");
    hostile_refuse(&corpus, "padding without a marker", &b, "invalid JPEG file");
}

/* The scan of the image, with bytes replaced or markers inserted. */
static void wrong_scans(void **state)
{
    (void)state;
    const hostile_bytes b = golden("color.jpg");
    const size_t at = find(&b, SOS, 0) + segment_bytes(&b, find(&b, SOS, 0));
    hostile_bytes bad = hostile_cut(&b, at);
    hostile_text(&bad, "\xFF\xD9");
    hostile_refuse(&corpus, "scan without data", &bad, "invalid JPEG file");
    bad = hostile_with(&b, at + 20, "\xFF\xD9", 2);
    hostile_refuse(&corpus, "end within the data", &bad, "invalid JPEG file");
    bad = hostile_with(&b, at + 20, "\xFF\xD8", 2);
    hostile_refuse(&corpus, "start within the data", &bad, "invalid JPEG file");
    bad = hostile_with(&b, at + 20, "\xFF\xD0", 2);
    hostile_refuse(&corpus, "restart that was not declared", &bad, "invalid JPEG file");
    bad = b;
    memset(bad.at + at, 0xFF, bad.n - at - 2);
    hostile_refuse(&corpus, "data of ones", &bad, "invalid JPEG file");
    bad = hostile_with(&b, find(&b, SOS, 0), "\xFF\xDD\0\4\0\1", 6);
    hostile_refuse(&corpus, "restarts that are missing", &bad, "invalid JPEG file");
    bad = hostile_with(&b, find(&b, SOS, 0), "\xFF\xDD\0\3\0", 5);
    hostile_refuse(&corpus, "restart interval of 1 byte", &bad, "invalid JPEG file");
}

/* Damage outside the image does not affect the pixels. */
static void unusual_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bytes;
        size_t n;
    } inserts[] = {{"empty comment", "\xFF\xFE\0\2", 4},
                   {"comment with markers", "\xFF\xFE\0\6\xFF\xD9\xFF\xD8", 8},
                   {"padding before a marker", "\xFF\xFF\xFF", 3},
                   {"EXIF that is not TIFF",
                    "\xFF\xE1\0\x0A"
                    "Exif\0\0xx",
                    12},
                   {"color profile without its parts",
                    "\xFF\xE2\0\x10"
                    "ICC_PROFILE\0\1\2",
                    18},
                   {"short Photoshop segment", "\xFF\xED\0\3x", 5},
                   {"short JFIF extension", "\xFF\xE0\0\7JFXX\0", 9},
                   {"restart interval 0", "\xFF\xDD\0\4\0\0", 6}};
    const hostile_bytes valid = golden("color.jpg");
    for (size_t i = 0; i < sizeof inserts / sizeof *inserts; i++) {
        const hostile_bytes b = hostile_with(&valid, find(&valid, DQT, 0), inserts[i].bytes, inserts[i].n);
        accept_as(inserts[i].name, &b, &valid);
    }
    hostile_bytes b = valid;
    hostile_text(&b, "bytes after the end");
    accept_as("bytes after the end", &b, &valid);
    const size_t jfif = find(&valid, APP0, 0);
    b = hostile_without(&valid, jfif, segment_bytes(&valid, jfif));
    accept_as("without JFIF", &b, &valid);
    b = valid;
    b.at[jfif + 9] = 9;
    accept_as("JFIF version 9", &b, &valid);
}

/* Adobe's segment says how components are stored. */
static void components_of_adobe(void **state)
{
    (void)state;
    const hostile_bytes valid = golden("cmyk.jpg");
    const size_t at = find(&valid, APP14, 0);
    hostile_bytes b = valid;
    b.at[at + 15] = 2;
    hostile_accept(&corpus, "CMYK marked as YCCK", &b);
    b = hostile_without(&valid, at, segment_bytes(&valid, at));
    accept_as("CMYK without the segment of Adobe", &b, &valid);
    b = valid;
    hostile_set_big(&b, at + 2, 13, 2);
    hostile_refuse(&corpus, "segment of Adobe less by 1", &b, "invalid JPEG file");
    hostile_set_big(&b, at + 2, 1, 2);
    hostile_refuse(&corpus, "segment of Adobe of 1 byte", &b, "invalid JPEG file");
}

static void at_least_100_files(void **state)
{
    (void)state;
    free(pixels);
    hostile_end(&corpus, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_at_every_part),
        cmocka_unit_test(wrong_segments),
        cmocka_unit_test(other_frames),
        cmocka_unit_test(wrong_order),
        cmocka_unit_test(wrong_scans),
        cmocka_unit_test(unusual_files),
        cmocka_unit_test(components_of_adobe),
        cmocka_unit_test(at_least_100_files),
    };
    corpus.read = read_jpeg;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
