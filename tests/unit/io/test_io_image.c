/* test_io_image.c - tests image files: pixels of every color type against Pillow, files that end early or are damaged,
 * dimensions that the file cannot contain, texts in PNG files, and resizing against Pillow. */
#include "base/ctx.h"
#include "io/image/image_decode.h"
#include "io/image/resample.h"
#include "mha/io.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGES MHA_TEST_DATA "/images"

static mha_error err;

static mha_file *golden(void)
{
    mha_file *file = NULL;
    assert_int_equal(mha_file_open(NULL, IMAGES "/images.safetensors", NULL, &file, &err), MHA_OK);
    return file;
}

/* Reads an image; skips the test in a build without the library. */
static mha_status read_image(const char *path, mha_image *image)
{
    const mha_status status = mha_image_read(NULL, path, image, &err);
    if (status == MHA_ERR_UNSUPPORTED && strstr(err.message, "require a build")) skip();
    return status;
}

static void pixels_are_those_of_pillow(void **state)
{
    (void)state;
    static const char *const names[] = {"rgb.png",  "alpha.png",  "palette.png",    "gray.png",  "gray-alpha.png",
                                        "bits.png", "rgb-16.png", "gray-16.png",    "color.jpg", "full.jpg",
                                        "gray.jpg", "cmyk.jpg",   "progressive.jpg"};
    mha_file *file = golden();
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char path[4096];
        mha_image image;
        snprintf(path, sizeof path, "%s/%s", IMAGES, names[n]);
        assert_int_equal(read_image(path, &image), MHA_OK);
        const mha_tensor *want = mha_file_find(file, names[n]);
        assert_int_equal(image.height, want->shape[0]);
        assert_int_equal(image.width, want->shape[1]);
        assert_memory_equal(image.rgb, want->data, want->bytes);
        mha_image_free(&image);
    }
    mha_file_free(file);
}

/* Decodes a copy of exactly `n` bytes. No file is written: 8,000 files would take most of the time of this test. */
static mha_status decode(const char *bytes, size_t n, mha_image *image)
{
    mha_ctx *ctx = NULL;
    uint8_t *exact = malloc(n + !n);
    memcpy(exact, bytes, n);
    *image = (mha_image){0};
    assert_int_equal(mha__ctx_find(&ctx, &err), MHA_OK);
    const mha_status status = mha__image_decode(ctx, "folder/image", exact, n, image, &err);
    if (status == MHA_ERR_UNSUPPORTED && strstr(err.message, "require a build")) skip();
    free(exact);
    return status;
}

/* Every prefix of a file must be rejected with its name, and changed bytes must not crash. */
static void damaged_files_are_rejected(void **state)
{
    (void)state;
    static const char *const names[] = {"rgb.png",   "palette.png",     "rgb-16.png",
                                        "color.jpg", "progressive.jpg", "cmyk.jpg"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        size_t size;
        mha_image image;
        char *bytes = files_read(files_path(IMAGES, names[n]), &size);
        for (size_t cut = 0; cut < size; cut++) {
            assert_int_not_equal(decode(bytes, cut, &image), MHA_OK);
            assert_non_null(strstr(err.message, "folder/image"));
            mha_image_free(&image);
        }
        for (size_t at = 0; at < size; at++) {
            bytes[at] = (char)(bytes[at] ^ (1 << (at % 8)));
            decode(bytes, size, &image);
            mha_image_free(&image);
            bytes[at] = (char)(bytes[at] ^ (1 << (at % 8)));
        }
        free(bytes);
    }
}

/* A file that cannot be decoded leaves no pixels. */
static void no_pixels_after_an_error(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "image");
    size_t size;
    mha_image image;
    char *bytes = files_read(IMAGES "/rgb.png", &size);
    files_write(path, bytes, size - 40); /* within the last rows */
    assert_int_equal(read_image(path, &image), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, path));
    assert_null(image.rgb);
    free(bytes);
    files_remove(folder);
}

/* The pixels of these dimensions do not fit the file, or exceed the limit. */
static void dimensions_are_checked_before_memory_is_allocated(void **state)
{
    (void)state;
    static const unsigned char sizes[][8] = {{0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF},
                                             {0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1},
                                             {0, 0, 0x0F, 0, 0, 0, 0x0F, 0},
                                             {0, 0, 0, 0, 0, 0, 0, 1}};
    const char *folder = files_folder(), *path = files_path(folder, "x.png");
    size_t size;
    char *bytes = files_read(IMAGES "/rgb.png", &size);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        mha_image image;
        memcpy(bytes + 16, sizes[n], 8);
        files_write(path, bytes, size);
        assert_int_not_equal(read_image(path, &image), MHA_OK);
    }
    free(bytes);
    files_remove(folder);
}

/* Counts the allocations of reading an image. */
static long allocations_of(const char *name)
{
    counting c = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .allocator = counting_allocator(&c)};
    mha_ctx *ctx = NULL;
    mha_image image;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    const mha_status status = mha_image_read(ctx, files_path(IMAGES, name), &image, &err);
    if (status == MHA_ERR_UNSUPPORTED) skip();
    assert_int_equal(status, MHA_OK);
    mha_image_free(&image);
    mha_ctx_free(ctx);
    assert_int_equal(c.live, 0);
    return c.calls;
}

/* The text in this copy of the file takes 4 MiB, and a file could contain thousands of such texts. */
static void compressed_texts_are_not_read(void **state)
{
    (void)state;
    assert_int_equal(allocations_of("text.png"), allocations_of("rgb.png"));
}

static void lying_jpeg_headers_are_rejected(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x.jpg");
    size_t size, at = 2;
    mha_image image;
    char *bytes = files_read(IMAGES "/progressive.jpg", &size);
    while ((unsigned char)bytes[at + 1] != 0xC2) /* segments up to the frame header */
        at += 2 + 256 * (size_t)(unsigned char)bytes[at + 2] + (size_t)(unsigned char)bytes[at + 3];
    memcpy(bytes + at + 5, "\x10\0\x10\0", 4);
    files_write(path, bytes, size);
    assert_int_equal(read_image(path, &image), MHA_ERR_FORMAT);
    if (!strstr(err.message, "large enough for 4096 x 4096 pixels")) fail_msg("%s", err.message);
    free(bytes);
    files_remove(folder);
}

static void other_files_are_named(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"GIF89a", "other data"}, {"PK\003\004abcd", "zip archive"}, {"<!DOCTYPE html>", "HTML"}, {"", "other data"}};
    const char *folder = files_folder(), *path = files_path(folder, "x.png");
    mha_image image;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        files_write(path, texts[n][0], strlen(texts[n][0]));
        assert_int_equal(mha_image_read(NULL, path, &image, &err), MHA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, texts[n][1]));
    }
    assert_int_equal(mha_image_read(NULL, folder, &image, &err), MHA_ERR_IO);
    assert_int_equal(mha_image_read(NULL, NULL, &image, &err), MHA_ERR_ARG);
    files_remove(folder);
}

static void resizing_is_that_of_pillow(void **state)
{
    (void)state;
    static const int sizes[][2] = {{9, 6}, {34, 6}, {9, 40}, {25, 31}, {17, 5}};
    mha_file *file = golden();
    const mha_tensor *rgb = mha_file_find(file, "rgb.png");
    uint8_t *copy = malloc(rgb->bytes);
    memcpy(copy, rgb->data, rgb->bytes);
    const mha_image image = {.height = rgb->shape[0], .width = rgb->shape[1], .rgb = copy};
    for (int filter = MHA__LANCZOS; filter <= MHA__BICUBIC; filter++)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
            char name[64];
            mha_image small;
            mha_ctx *ctx = NULL;
            assert_int_equal(mha_ctx_create(NULL, &ctx, &err), MHA_OK);
            snprintf(name, sizeof name, "resized/%d/%dx%d", filter, sizes[n][0], sizes[n][1]);
            const mha_tensor *want = mha_file_find(file, name);
            assert_int_equal(mha__resample(ctx, &image, (mha__filter)filter, sizes[n][1], sizes[n][0], &small, &err),
                             MHA_OK);
            assert_memory_equal(small.rgb, want->data, want->bytes);
            mha_image_free(&small);
            mha_ctx_free(ctx);
        }
    free(copy);
    mha_file_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_of_pillow),
        cmocka_unit_test(damaged_files_are_rejected),
        cmocka_unit_test(no_pixels_after_an_error),
        cmocka_unit_test(dimensions_are_checked_before_memory_is_allocated),
        cmocka_unit_test(compressed_texts_are_not_read),
        cmocka_unit_test(lying_jpeg_headers_are_rejected),
        cmocka_unit_test(other_files_are_named),
        cmocka_unit_test(resizing_is_that_of_pillow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
