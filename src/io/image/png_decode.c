/* png_decode.c - decodes PNG files with libpng: every color type becomes 8-bit RGB. Transparency is discarded, and of
 * 16-bit samples the high byte is kept. */
#include "io/image/image_decode.h"
#include <string.h>

#ifdef MHA_PNG
#include "base/ctx.h"
#include "base/size.h"
#include "io/input_limits.h"
#include <png.h>
#include <setjmp.h>
#include <stdio.h>

/* The most bytes of pixels that one byte of deflate data can contain. */
enum { RATIO_MAX = 1032 };

typedef struct png_source {
    const uint8_t *bytes;
    size_t n, at;
    char message[128]; /* that of libpng */
} png_source;

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    png_source *s = png_get_io_ptr(png);
    if (n > s->n - s->at) png_error(png, "the file ends early");
    memcpy(to, s->bytes + s->at, n);
    s->at += n;
}

static void on_error(png_structp png, png_const_charp message)
{
    png_source *s = png_get_error_ptr(png);
    snprintf(s->message, sizeof s->message, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png; /* libpng warns about ancillary chunks, which do not affect the pixels */
    (void)message;
}

static png_voidp allocate(png_structp png, png_alloc_size_t bytes)
{
    return mha__alloc(png_get_mem_ptr(png), bytes);
}

static void release(png_structp png, png_voidp memory)
{
    mha__free(png_get_mem_ptr(png), memory);
}

/* Converts every color type to RGB with 8 bits per sample. */
static void set_conversions(png_structp png, png_infop info)
{
    const int type = png_get_color_type(png, info);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
    if (png_get_bit_depth(png, info) == 16) png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

/* Reads the header and allocates the image; the dimensions must agree with the size of the file. */
static mha_status begin(png_structp png, png_infop info, mha_ctx *ctx, const char *path, const png_source *s,
                        mha_image *image, mha_error *err)
{
    png_read_info(png, info);
    const int64_t height = png_get_image_height(png, info), width = png_get_image_width(png, info);
    const int64_t bits = png_get_bit_depth(png, info) * png_get_channels(png, info);
    const bool fits = height <= MHA__IMAGE_PIXELS / width; /* else mha__image_allocate rejects the image */
    if (fits && mha__ceil_div(width * bits, 8) * height / RATIO_MAX > (int64_t)s->n)
        return mha__image_short(path, s->n, height, width, err);
    MHA__TRY(mha__image_allocate(ctx, path, height, width, image, err));
    set_conversions(png, info);
    return MHA_OK;
}

static mha_status decode(png_structp png, png_infop info, mha_ctx *ctx, const char *path, png_source *s,
                         mha_image *image, mha_error *err)
{
    if (setjmp(png_jmpbuf(png))) return mha__image_broken(path, "PNG", s->message, err);
    png_set_read_fn(png, s, read_bytes);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* limited by mha__image_allocate */
    png_set_chunk_malloc_max(png, 1 << 22);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* texts and profiles may expand to gigabytes */
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
    MHA__TRY(begin(png, info, ctx, path, s, image, err));
    const int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < image->height; y++)
            png_read_row(png, image->rgb + y * image->width * 3, NULL);
    png_read_end(png, NULL);
    return MHA_OK;
}

mha_status mha__png_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                           mha_error *err)
{
    png_source s = {.bytes = bytes, .n = n};
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning, ctx, allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const mha_status status =
        info ? decode(png, info, ctx, path, &s, image, err) : mha__no_memory(err, 0, "a PNG decoder");
    if (png) png_destroy_read_struct(&png, info ? &info : NULL, NULL);
    return status;
}

#else

mha_status mha__png_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                           mha_error *err)
{
    (void)ctx, (void)bytes, (void)n, (void)image;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: PNG files require a build with libpng",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)));
}

#endif
