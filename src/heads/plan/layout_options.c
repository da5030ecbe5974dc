/* layout_options.c - checks the options of a head plan and sets defaults. */
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/plan/option_range.h"
#include "mha/head_layouts.h"
#include <math.h>

/* Returns the number of heads that divides d_model and whose head width, d_model / heads, is closest in ratio to
 * `width`. */
static int64_t usual_heads(int64_t d_model, int64_t width)
{
    int64_t best = 1;
    double nearest = INFINITY;
    for (int64_t heads = 1; heads <= d_model; heads++) {
        if (d_model % heads != 0) continue;
        const double off = fabs(log((double)(d_model / heads) / (double)width));
        if (off < nearest) best = heads, nearest = off;
    }
    return best;
}

static mha_status resolve_rest(mha_head_layout_options *o, mha_error *err)
{
    if (o->dtype == MHA_DTYPE_DEFAULT) o->dtype = MHA_F32;
    if (o->dtype != MHA_F32 && o->dtype != MHA_BF16 && o->dtype != MHA_F16)
        return mha__fail(err, MHA_ERR_ARG, "dtype must be one of f32, bf16, f16 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, o->dtype));
    if (o->parameters == 0) o->parameters = o->layers * 12 * o->d_model * o->d_model + o->vocab * o->d_model;
    if (o->parameters < 1)
        return mha__fail(err, MHA_ERR_ARG, "parameters must be at least 1 (got %lld)", (long long)o->parameters);
    if (o->prune == 0) o->prune = 0.25;
    if (!(o->prune > 0 && o->prune < 1))
        return mha__fail(err, MHA_ERR_ARG, "prune must be above 0 and below 1 (got %g)", o->prune);
    return MHA_OK;
}

mha_status mha_head_layout_resolve(const mha_head_layout_options *options, mha_head_layout_options *resolved,
                                   mha_error *err)
{
    mha_head_layout_options o;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_head_layout_options", err));
    const int64_t wide = INT64_C(1) << 20;
    MHA__TRY(mha__option_count("d_model", &o.d_model, 0, wide, err));
    MHA__TRY(mha__option_count("heads", &o.heads, usual_heads(o.d_model, o.d_model < 2048 ? 64 : 128), wide, err));
    if (o.d_model % o.heads != 0)
        return mha__fail(err, MHA_ERR_ARG, "heads must divide d_model = %lld (got %lld)", (long long)o.d_model,
                         (long long)o.heads);
    MHA__TRY(mha__option_count("layers", &o.layers, mha__max64(12, o.d_model / 128), 65536, err));
    MHA__TRY(mha__option_count("vocab", &o.vocab, 32000, INT64_C(1) << 31, err));
    MHA__TRY(mha__option_count("seq", &o.seq, 2048, INT64_C(1) << 32, err));
    MHA__TRY(mha__option_count("batch", &o.batch, 1, wide, err));
    MHA__TRY(mha__option_count("experts", &o.experts, o.heads, wide, err));
    MHA__TRY(mha__option_count("top_k", &o.top_k, mha__min64(2, o.experts), o.experts, err));
    MHA__TRY(resolve_rest(&o, err));
    *resolved = o;
    return MHA_OK;
}
