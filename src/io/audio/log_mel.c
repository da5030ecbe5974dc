/* log_mel.c - the log-mel spectrogram that Whisper reads. */
#include "base/ctx.h"
#include "base/error.h"
#include "math/pi.h"
#include "mha/audio.h"
#include <math.h>
#include <string.h>

#ifdef MHA_KISSFFT
#include <kiss_fftr.h>

enum { WINDOW = 400, BINS = WINDOW / 2 + 1, MELS_MAX = 128, FRAMES_MAX = 1 << 24 };
static const float SAMPLE_MAX = 1e6F; /* the spectrum of larger samples may overflow */

typedef struct spectrum {
    float window[WINDOW], frame[WINDOW];
    kiss_fft_cpx bins[BINS];
    double power[BINS];
    double filter[MELS_MAX][BINS];      /* weights of the frequencies in each mel band */
    int first[MELS_MAX], end[MELS_MAX]; /* range of frequencies with weights */
    kiss_fftr_cfg plan;
} spectrum;

/* ---- mel bands ---- */

/* Converts between hertz and mel on the scale of Slaney: linear up to 1 kHz, then logarithmic. */
static double to_mel(double hertz)
{
    return hertz < 1000 ? 3 * hertz / 200 : 15 + log(hertz / 1000) * 27 / log(6.4);
}

static double to_hertz(double mel)
{
    return mel < 15 ? 200 * mel / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15));
}

/* Computes triangular filters with unit area, whose corners are equidistant in mel. */
static void make_filters(int64_t mels, spectrum *s)
{
    double corner[MELS_MAX + 2];
    const double top = to_mel(MHA_AUDIO_RATE / 2.0);
    for (int64_t m = 0; m < mels + 2; m++)
        corner[m] = to_hertz(top * (double)m / (double)(mels + 1));
    for (int64_t m = 0; m < mels; m++) {
        s->first[m] = BINS;
        for (int k = 0; k < BINS; k++) {
            const double hertz = (double)k * MHA_AUDIO_RATE / WINDOW;
            const double up = (hertz - corner[m]) / (corner[m + 1] - corner[m]);
            const double down = (corner[m + 2] - hertz) / (corner[m + 2] - corner[m + 1]);
            s->filter[m][k] = fmax(0, fmin(up, down)) * 2 / (corner[m + 2] - corner[m]);
            if (s->filter[m][k] > 0 && s->first[m] == BINS) s->first[m] = k;
            if (s->filter[m][k] > 0) s->end[m] = k + 1;
        }
    }
}

/* ---- frames ---- */

/* Returns a sample of the padded signal [length], which is mirrored at both ends. */
static float sample_at(const float *samples, int64_t count, int64_t length, int64_t at)
{
    if (at < 0) at = -at;
    if (at >= length) at = 2 * (length - 1) - at;
    return at < count ? samples[at] : 0;
}

/* Computes the power spectrum of the frame around sample `center`. */
static void transform(spectrum *s, const float *samples, int64_t count, int64_t length, int64_t center)
{
    for (int n = 0; n < WINDOW; n++)
        s->frame[n] = s->window[n] * sample_at(samples, count, length, center + n - WINDOW / 2);
    kiss_fftr(s->plan, s->frame, s->bins);
    for (int k = 0; k < BINS; k++)
        s->power[k] = (double)s->bins[k].r * (double)s->bins[k].r + (double)s->bins[k].i * (double)s->bins[k].i;
}

static void compute(spectrum *s, const float *samples, int64_t count, int64_t mels, int64_t frames, float *out)
{
    double max = -HUGE_VAL;
    for (int64_t t = 0; t < frames; t++) {
        transform(s, samples, count, frames * MHA_AUDIO_HOP, t * MHA_AUDIO_HOP);
        for (int64_t m = 0; m < mels; m++) {
            double sum = 0;
            for (int k = s->first[m]; k < s->end[m]; k++)
                sum += s->filter[m][k] * s->power[k];
            const double level = log10(fmax(sum, 1e-10));
            out[m * frames + t] = (float)level;
            max = fmax(max, level);
        }
    }
    for (int64_t n = 0; n < mels * frames; n++)
        out[n] = (float)((fmax((double)out[n], max - 8) + 4) / 4);
}

/* ---- entry point ---- */

/* Allocates the tables and the plan of the FFT in one block. */
static spectrum *create(mha_ctx *ctx, int64_t mels, mha_error *err)
{
    size_t plan = 0;
    (void)kiss_fftr_alloc(WINDOW, 0, NULL, &plan);
    const size_t start = (sizeof(spectrum) + 63) & ~(size_t)63;
    char *memory = mha__calloc(ctx, 1, start + plan);
    spectrum *s = (spectrum *)memory;
    if (!s) {
        mha__no_memory(err, start + plan, "the features of audio");
        return NULL;
    }
    s->plan = kiss_fftr_alloc(WINDOW, 0, memory + start, &plan);
    for (int n = 0; n < WINDOW; n++)
        s->window[n] = (float)(0.5 - 0.5 * cos(2 * MHA__PI * n / WINDOW));
    make_filters(mels, s);
    return s;
}

static mha_status check(const float *samples, int64_t count, int64_t bins, int64_t frames, const float *features,
                        mha_error *err)
{
    if (!samples || !features)
        return mha__fail(err, MHA_ERR_ARG, "mha_audio_features: samples and features must not be NULL");
    if (count < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_audio_features: count must be at least 1 (got %lld)", (long long)count);
    if (bins < 1 || bins > MELS_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_audio_features: bins must be from 1 to %d (got %lld)", MELS_MAX,
                         (long long)bins);
    if (frames < 2 || frames > FRAMES_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_audio_features: frames must be from 2 to %d (got %lld)", FRAMES_MAX,
                         (long long)frames);
    for (int64_t n = 0; n < count; n++)
        if (!(fabsf(samples[n]) <= SAMPLE_MAX)) /* also refuses NaN */
            return mha__fail(err, isfinite(samples[n]) ? MHA_ERR_ARG : MHA_ERR_NOT_FINITE,
                             "mha_audio_features: samples[%lld] must be from %g to %g (got %g)", (long long)n,
                             (double)-SAMPLE_MAX, (double)SAMPLE_MAX, (double)samples[n]);
    return MHA_OK;
}

mha_status mha_audio_features(mha_ctx *ctx, const float *samples, int64_t count, int64_t bins, int64_t frames,
                              float *features, mha_error *err)
{
    MHA__TRY(check(samples, count, bins, frames, features, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    spectrum *s = create(ctx, bins, err);
    if (!s) return MHA_ERR_MEMORY;
    compute(s, samples, count, bins, frames, features);
    mha__free(ctx, s);
    return MHA_OK;
}

#else

mha_status mha_audio_features(mha_ctx *ctx, const float *samples, int64_t count, int64_t bins, int64_t frames,
                              float *features, mha_error *err)
{
    (void)ctx, (void)samples, (void)count, (void)bins, (void)frames, (void)features;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "mha_audio_features: the library must be built with KISS FFT, package libkissfft-dev (got none)");
}

#endif
