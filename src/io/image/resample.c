/* resample.c - separable convolution with coefficients of 22 fractional bits, like Pillow's Resample.c. */
#include "io/image/resample.h"

#include "base/ctx.h"
#include "base/size.h"
#include "io/image/image_decode.h"
#include "math/pi.h"
#include <math.h>
#include <string.h>

enum { PRECISION = 22 };

/* ---- filters ---- */

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x)
{
    static const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(x * MHA__PI) / (x * MHA__PI);
}

static double lanczos(double x)
{
    return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*value)(double);
    double support;
} filters[] = {[MHA__LANCZOS] = {lanczos, 3}, [MHA__BILINEAR] = {bilinear, 1}, [MHA__BICUBIC] = {bicubic, 2}};

/* ---- coefficients of one dimension ---- */

/* Output sample i is the sum of weights[i size + k] times input sample first[i] + k, for k < count[i]. */
typedef struct taps {
    int64_t size;
    int64_t *first, *count;
    int32_t *weights;
    double *exact; /* [size] weights of one sample */
    void *memory;
} taps;

static void fill_tap(taps *t, mha__filter filter, int64_t in, double scale, int64_t i)
{
    const double stretch = fmax(scale, 1), support = filters[filter].support * stretch;
    const double center = ((double)i + 0.5) * scale;
    const int64_t begin = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
    double sum = 0;
    t->first[i] = mha__max64(begin, 0);
    t->count[i] = mha__min64(end, in) - t->first[i];
    for (int64_t k = 0; k < t->count[i]; k++) {
        t->exact[k] = filters[filter].value(((double)(k + t->first[i]) - center + 0.5) * (1 / stretch));
        sum += t->exact[k];
    }
    for (int64_t k = 0; k < t->count[i]; k++) {
        const double weight = (sum != 0 ? t->exact[k] / sum : t->exact[k]) * (1 << PRECISION);
        t->weights[i * t->size + k] = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
}

static mha_status create_taps(mha_ctx *ctx, mha__filter filter, int64_t in, int64_t out, taps *t, mha_error *err)
{
    const double scale = (double)in / (double)out;
    t->size = (int64_t)ceil(filters[filter].support * fmax(scale, 1)) * 2 + 1;
    const size_t each = 2 * sizeof *t->first + (size_t)t->size * sizeof *t->weights;
    const size_t bytes = (size_t)out * each + (size_t)t->size * sizeof *t->exact;
    t->memory = mha__alloc(ctx, bytes);
    if (!t->memory) return mha__no_memory(err, bytes, "the weights of a filter");
    t->first = t->memory;
    t->count = t->first + out;
    t->exact = (double *)(t->count + out);
    t->weights = (int32_t *)(t->exact + t->size);
    for (int64_t i = 0; i < out; i++)
        fill_tap(t, filter, in, scale, i);
    return MHA_OK;
}

/* ---- passes ---- */

static uint8_t narrow(int64_t sum)
{
    sum >>= PRECISION;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Resamples one line of samples, whose distances are strides in bytes. */
static void resample_line(const taps *t, int64_t out, const uint8_t *from, int64_t from_stride, uint8_t *to,
                          int64_t to_stride)
{
    for (int64_t i = 0; i < out; i++) {
        const int32_t *weights = t->weights + i * t->size;
        const uint8_t *x = from + t->first[i] * from_stride;
        int64_t sum = 1 << (PRECISION - 1);
        for (int64_t k = 0; k < t->count[i]; k++)
            sum += (int64_t)x[k * from_stride] * weights[k];
        to[i * to_stride] = narrow(sum);
    }
}

/* Changes the width of each row. */
static void resample_width(const taps *t, const mha_image *from, const mha_image *to)
{
    for (int64_t y = 0; y < from->height; y++)
        for (int c = 0; c < 3; c++)
            resample_line(t, to->width, from->rgb + y * from->width * 3 + c, 3, to->rgb + y * to->width * 3 + c, 3);
}

/* Changes the height of each column. */
static void resample_height(const taps *t, const mha_image *from, const mha_image *to)
{
    const int64_t stride = from->width * 3;
    for (int64_t x = 0; x < stride; x++)
        resample_line(t, to->height, from->rgb + x, stride, to->rgb + x, stride);
}

static mha_status run(mha_ctx *ctx, const mha_image *from, mha__filter filter, mha_image *to, mha_error *err)
{
    mha_image wide = *from, narrowed = {0};
    taps t = {0};
    mha_status status = MHA_OK;
    if (to->width != from->width) {
        status = mha__image_allocate(ctx, "resized image", from->height, to->width, &narrowed, err);
        if (status == MHA_OK) status = create_taps(ctx, filter, from->width, to->width, &t, err);
        if (status == MHA_OK) resample_width(&t, from, &narrowed);
        mha__free(ctx, t.memory);
        wide = narrowed;
        t = (taps){0};
    }
    if (status == MHA_OK && to->height != from->height) {
        status = create_taps(ctx, filter, from->height, to->height, &t, err);
        if (status == MHA_OK) resample_height(&t, &wide, to);
        mha__free(ctx, t.memory);
    } else if (status == MHA_OK) {
        memcpy(to->rgb, wide.rgb, (size_t)(to->height * to->width) * 3);
    }
    mha_image_free(&narrowed);
    return status;
}

mha_status mha__resample(mha_ctx *ctx, const mha_image *from, mha__filter filter, int64_t height, int64_t width,
                         mha_image *to, mha_error *err)
{
    *to = (mha_image){0};
    MHA__TRY(mha__image_allocate(ctx, "resized image", height, width, to, err));
    const mha_status status = run(ctx, from, filter, to, err);
    if (status != MHA_OK) mha_image_free(to);
    return status;
}
