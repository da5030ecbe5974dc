/* jpeg_decode.c - decodes JPEG files with libjpeg: YCbCr, RGB, grayscale, and CMYK and YCCK as Adobe stores them
 * (inverted), which become RGB without a color profile. */
#include "io/image/image_decode.h"
#include <string.h>

#ifdef MHA_JPEG
#include "base/ctx.h"
#include "io/input_limits.h"
#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h, which requires it */
#include <jpeglib.h>
#include <jerror.h> /* after jpeglib.h, which it requires */

/* Extends the error manager of libjpeg, which must be its first member. */
typedef struct jpeg_problem {
    struct jpeg_error_mgr manager;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
} jpeg_problem;

/* The most pixels that one byte can contain: a block of 8 x 8 samples takes at least one bit, and the sampling factors
 * 4 x 1 and 1 x 4 of two components leave 8 blocks for 32 x 32 pixels. Only arithmetic coding can exceed this. */
enum { RATIO_MAX = 1024 };

/* Progressive files have about 10 scans. Each scan takes time proportional to the image, whatever its size. */
enum { SCANS_MAX = 200 };

static void on_error(j_common_ptr jpeg)
{
    jpeg_problem *p = (jpeg_problem *)jpeg->err;
    p->manager.format_message(jpeg, p->message);
    longjmp(p->jump, 1);
}

/* A warning (level -1) means corrupt data, such as a file that ends early, except for an unknown version of JFIF. Other
 * levels are trace messages. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && jpeg->err->msg_code != JWRN_JFIF_MAJOR) on_error(jpeg);
}

static void on_progress(j_common_ptr common)
{
    const struct jpeg_decompress_struct *jpeg = (const struct jpeg_decompress_struct *)common;
    jpeg_problem *p = (jpeg_problem *)common->err;
    if (jpeg->input_scan_number <= SCANS_MAX) return;
    snprintf(p->message, sizeof p->message, "more than %d scans", SCANS_MAX);
    longjmp(p->jump, 1);
}

static uint8_t product(unsigned a, unsigned b)
{
    const unsigned both = a * b + 128;
    return (uint8_t)(((both >> 8) + both) >> 8);
}

/* Converts a row of inverted CMYK to RGB. */
static void convert_cmyk(const uint8_t *cmyk, int64_t width, uint8_t *rgb)
{
    for (int64_t x = 0; x < width; x++)
        for (int c = 0; c < 3; c++)
            rgb[3 * x + c] = (uint8_t)(cmyk[4 * x + 3] - product(255u - cmyk[4 * x + c], cmyk[4 * x + 3]));
}

/* Allocates the image; the dimensions must agree with the size of the file. */
static mha_status begin(const struct jpeg_decompress_struct *jpeg, mha_ctx *ctx, const char *path, size_t n,
                        mha_image *image, mha_error *err)
{
    const int64_t height = jpeg->image_height, width = jpeg->image_width;
    if (height * width <= MHA__IMAGE_PIXELS && height * width / RATIO_MAX > (int64_t)n)
        return mha__image_short(path, n, height, width, err);
    return mha__image_allocate(ctx, path, height, width, image, err);
}

static mha_status decode(struct jpeg_decompress_struct *jpeg, jpeg_problem *p, mha_ctx *ctx, const char *path,
                         const uint8_t *bytes, size_t n, mha_image *image, mha_error *err)
{
    struct jpeg_progress_mgr progress = {.progress_monitor = on_progress};
    if (setjmp(p->jump)) return mha__image_broken(path, "JPEG", p->message, err);
    jpeg_create_decompress(jpeg);
    jpeg->progress = &progress;
    jpeg_mem_src(jpeg, bytes, (unsigned long)n);
    jpeg_read_header(jpeg, TRUE);
    const bool cmyk = jpeg->num_components == 4;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    MHA__TRY(begin(jpeg, ctx, path, n, image, err));
    jpeg_start_decompress(jpeg);
    JSAMPARRAY row = jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE, jpeg->output_width * 4, 1);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = image->rgb + (int64_t)jpeg->output_scanline * image->width * 3;
        jpeg_read_scanlines(jpeg, row, 1);
        if (cmyk)
            convert_cmyk(row[0], image->width, to);
        else
            memcpy(to, row[0], (size_t)image->width * 3);
    }
    jpeg_finish_decompress(jpeg);
    return MHA_OK;
}

mha_status mha__jpeg_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                            mha_error *err)
{
    struct jpeg_decompress_struct jpeg = {0};
    jpeg_problem problem = {.message = ""};
    jpeg.err = jpeg_std_error(&problem.manager);
    problem.manager.error_exit = on_error;
    problem.manager.emit_message = on_message;
    const mha_status status = decode(&jpeg, &problem, ctx, path, bytes, n, image, err);
    jpeg_destroy_decompress(&jpeg);
    return status;
}

#else

mha_status mha__jpeg_decode(mha_ctx *ctx, const char *path, const uint8_t *bytes, size_t n, mha_image *image,
                            mha_error *err)
{
    (void)ctx, (void)bytes, (void)n, (void)image;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: JPEG files require a build with libjpeg",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)));
}

#endif
