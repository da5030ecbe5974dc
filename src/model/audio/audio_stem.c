/* audio_stem.c - runs the convolutions of an encoder that reads audio features, one sequence at a time. */
#include "model/audio/audio_stem.h"

#include "base/ctx.h"
#include "base/error.h"

mha_status mha__stem_check(const mha_model *m, const mha_model_input *in, mha_error *err)
{
    const bool reads = m->convolution[0] || m->config.mel_bins;
    const int64_t length = m->config.max_positions;
    if (reads == (in->features != NULL) && !reads) return MHA_OK;
    if (!reads || in->ids)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: %s must be NULL, since %s reads %s",
                         reads ? "ids" : "features", m->info.family, reads ? "audio features" : "tokens");
    if (in->hidden) return MHA_OK;
    if (!in->features)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: features must not be NULL, since the encoder of %s reads "
                         "audio features",
                         m->info.family);
    if (in->starts || in->shard || in->mask)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_model_input: %s must be NULL with features",
                         in->starts  ? "starts"
                         : in->shard ? "shard"
                                     : "mask");
    if (in->length == length) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "mha_model_input: length must be max_source_positions = %lld with features "
                     "(got %lld)",
                     (long long)length, (long long)in->length);
}

static void lay_out(mha__arena *arena, const mha_model *m, bool gradients, mha__stem *s)
{
    const int64_t E = m->config.hidden, bins = m->config.mel_bins, length = m->config.max_positions;
    s->features = (mha__signal){2 * length, bins, 1, 2 * length, MHA__TAPS, NULL};
    s->middle = (mha__signal){2 * length, E, E, 1, MHA__TAPS, NULL};
    s->first = mha__take(arena, 2 * (size_t)length, (size_t)(MHA__TAPS * bins) * sizeof *s->first);
    s->second = mha__take(arena, (size_t)length, (size_t)(MHA__TAPS * E) * sizeof *s->second);
    s->wide = mha__take(arena, 2 * (size_t)length, (size_t)E * sizeof *s->wide);
    if (!gradients) return;
    s->before = mha__take(arena, 2 * (size_t)length, (size_t)E * sizeof *s->before);
    s->after = mha__take(arena, (size_t)length, (size_t)E * sizeof *s->after);
    s->dsecond = mha__take(arena, (size_t)length, (size_t)(MHA__TAPS * E) * sizeof *s->dsecond);
    s->dwide = mha__take(arena, 2 * (size_t)length, (size_t)E * sizeof *s->dwide);
}

mha_status mha__stem_create(const mha_model *m, bool gradients, mha__stem *s, mha_error *err)
{
    mha__arena arena = {0};
    *s = (mha__stem){0};
    lay_out(&arena, m, gradients, s);
    arena.base = s->memory = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the convolutions of features");
    arena.used = 0;
    lay_out(&arena, m, gradients, s);
    return MHA_OK;
}

mha_status mha__stem_forward(const mha_model *m, const mha_model_input *in, float *x, mha_error *err)
{
    const int64_t L = in->length, E = m->config.hidden;
    mha__stem s;
    mha_status status = mha__stem_create(m, false, &s, err);
    for (int64_t b = 0; b < in->batch && status == MHA_OK; b++) {
        mha__convolution_gather(&s.features, 1, 0, 2 * L, in->features + b * 2 * L * m->config.mel_bins, s.first);
        status = mha_linear_forward(m->convolution[0], s.first, 2 * L, s.wide, err);
        mha__convolution_gather(&s.middle, 2, 0, L, s.wide, s.second);
        if (status == MHA_OK) status = mha_linear_forward(m->convolution[1], s.second, L, x + b * L * E, err);
    }
    mha__free(m->ctx, s.memory);
    return status;
}
