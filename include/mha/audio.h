/* audio.h - reads WAV files and computes the features that speech models read.
 *
 *     mha_audio_read(NULL, "speech.wav", &samples, &count, &err);
 *     mha_audio_features(NULL, samples, count, 80, 3000, features, &err);
 *     const mha_model_input source = { .size = sizeof source, .batch = 1, .length = 1500, .features = features };
 *     mha_audio_free(NULL, samples);
 *
 * The model is an encoder-decoder with an encoder that reads features, such as Whisper (seq2seq.h):
 * mha_model_describe(mha_model_encoder(model)) contains its feature_bins (80 or 128 in published models) and its
 * max_positions, which is half the number of frames. A frame begins every 10 ms, so 3000 frames are 30 seconds.
 */
#ifndef MHA_AUDIO_H
#define MHA_AUDIO_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MHA_AUDIO_RATE = 16000, MHA_AUDIO_HOP = 160 }; /* samples per second, and per frame */

/* Reads a WAV file (RIFF/WAVE) with 16,000 samples per second: PCM with 8, 16, 24 or 32 bits, or float with 32 or 64
 * bits, of one or two channels, which are averaged. Sets *samples to `count` samples in -1..1 (float files are not
 * clipped); free it with mha_audio_free. Other chunks are ignored. A data chunk with the size 2^32-1, which streaming
 * programs write, extends to the end of the file. Errors, all of which name the file and the value: MHA_ERR_IO;
 * MHA_ERR_FORMAT for a file that is not WAV or whose sizes contradict each other; MHA_ERR_UNSUPPORTED for another rate,
 * encoding or channel count, and for a file above 2^31-1 bytes; MHA_ERR_NOT_FINITE for a NaN or infinite sample;
 * MHA_ERR_MEMORY. Memory: the file and its samples. */
MHA_API mha_status mha_audio_read(mha_ctx *ctx, const char *file, float **samples, int64_t *count, mha_error *err);

/* Does the same for the content of a WAV file in memory. */
MHA_API mha_status mha_audio_parse(mha_ctx *ctx, const void *wav, size_t bytes, float **samples, int64_t *count,
                                   mha_error *err);

/* Frees the samples; `ctx` is the context that read them. */
MHA_API void mha_audio_free(mha_ctx *ctx, float *samples);

/* Computes the log-mel spectrogram [bins, frames] of Whisper (Radford et al. 2022), as WhisperFeatureExtractor of
 * transformers: the signal is padded with zeros, or truncated, to 160 `frames` samples, and mirrored at both ends;
 * windows of 400 samples (Hann), power spectrum, mel filters from 0 to 8 kHz on the scale of Slaney with unit area;
 * x = log10(max(power, 1e-10)), then max(x, largest x - 8), then (x + 4) / 4. Equal to transformers within 1e-4 where
 * the spectrum is not rounding noise. Errors: MHA_ERR_ARG for bins outside 1..128, frames outside 2..2^24, or samples
 * beyond 1e6 in magnitude; MHA_ERR_NOT_FINITE; MHA_ERR_MEMORY; MHA_ERR_UNSUPPORTED if the library was built without
 * KISS FFT. */
MHA_API mha_status mha_audio_features(mha_ctx *ctx, const float *samples, int64_t count, int64_t bins, int64_t frames,
                                      float *features, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
