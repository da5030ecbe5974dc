/* fuzz_wav.c - reads bytes as a WAV file. The samples of an accepted file must be finite, and the same whether the file
 * is in memory or on disk; the features of the first of them must be finite.
 */
#include "fuzz.h"
#include "mha/audio.h"
#include <math.h>
#include <string.h>

static void check_features(const float *samples, int64_t count)
{
    enum { BINS = 8, FRAMES = 2 };
    float features[BINS * FRAMES];
    mha_error err = {0};
    const mha_status status = mha_audio_features(fuzz_ctx(), samples, count, BINS, FRAMES, features, &err);
    fuzz_check(status == MHA_OK || status == MHA_ERR_ARG || status == MHA_ERR_UNSUPPORTED, err.message);
    for (int n = 0; status == MHA_OK && n < BINS * FRAMES; n++)
        fuzz_check(isfinite(features[n]), "features of finite samples must be finite");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    float *samples = NULL, *again = NULL;
    int64_t count = 0, other = 0;
    mha_error err = {0};
    const mha_status status = mha_audio_parse(fuzz_ctx(), n ? bytes : (const uint8_t *)"", n, &samples, &count, &err);
    fuzz_check((status == MHA_OK) == (samples != NULL && count > 0), "samples must be set only on success");
    fuzz_refusal(status, &err, "audio");
    fuzz_check(mha_audio_read(fuzz_ctx(), fuzz_file(bytes, n), &again, &other, &err) == status && other == count,
               "a file must have the result of its bytes in memory");
    if (samples) {
        fuzz_check(memcmp(samples, again, (size_t)count * sizeof *samples) == 0, "samples must be the same");
        for (int64_t i = 0; i < count; i++)
            fuzz_check(isfinite(samples[i]), "samples must be finite");
        check_features(samples, count);
    }
    mha_audio_free(fuzz_ctx(), samples);
    mha_audio_free(fuzz_ctx(), again);
    return 0;
}
