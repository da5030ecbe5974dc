/* prompt_noise.c - noise on the word embeddings of a prompt, scaled by the spread of the embedding table. */
#include "base/error.h"
#include "mha/circuits.h"
#include "mha/rng.h"
#include "model/model_struct.h"
#include <math.h>
#include <string.h>

int64_t mha_prompt_noise_width(const mha_model *model)
{
    return model ? model->config.embed_width : -1;
}

/* Returns the standard deviation of all elements, as torch.std computes it. */
static double spread(const float *x, int64_t count)
{
    double mean = 0, sum = 0;
    for (int64_t n = 0; n < count; n++)
        mean += (double)x[n] / (double)count;
    for (int64_t n = 0; n < count; n++)
        sum += ((double)x[n] - mean) * ((double)x[n] - mean);
    return sqrt(sum / (double)(count - 1));
}

static mha_status check_noise(int64_t length, const int64_t *positions, int64_t count, double times_std, mha_error *err)
{
    if (!isfinite(times_std))
        return mha__fail(err, MHA_ERR_ARG, "mha_prompt_noise: times_std must be finite (got %g)", times_std);
    for (int64_t n = 0; n < count; n++)
        if (positions[n] < 0 || positions[n] >= length)
            return mha__fail(err, MHA_ERR_ARG, "mha_prompt_noise: positions[%lld] must be from 0 to %lld (got %lld)",
                             (long long)n, (long long)length - 1, (long long)positions[n]);
    return MHA_OK;
}

mha_status mha_prompt_noise(const mha_model *model, int64_t length, const int64_t *positions, int64_t count,
                            double times_std, uint64_t seed, float *noise, mha_error *err)
{
    if (!model || !noise || length < 1 || count < 0 || (count > 0 && !positions))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_prompt_noise: model, noise and positions must not be NULL, and length must be at least 1 "
                         "(got %lld)",
                         (long long)length);
    MHA__TRY(check_noise(length, positions, count, times_std, err));
    if (!model->packed || !model->words.weight || model->ranks.ranks)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_prompt_noise: model must store all word embeddings as f32");
    const int64_t width = model->config.embed_width;
    const double std = times_std * spread(model->words.weight, model->config.vocab * width);
    mha_rng rng;
    mha_rng_manual_seed(&rng, seed);
    memset(noise, 0, (size_t)(length * width) * sizeof *noise);
    for (int64_t n = 0; n < count; n++) {
        float *row = noise + positions[n] * width;
        MHA__TRY(mha_rng_randn(&rng, row, width, err));
        for (int64_t d = 0; d < width; d++)
            row[d] = (float)(std * (double)row[d]);
    }
    return MHA_OK;
}
