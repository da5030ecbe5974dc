/* diversity.c - accessors of the result of a head comparison. */
#include "heads/diversity/diversity.h"

#include "base/ctx.h"
#include <math.h>

static const struct {
    const char *key, *help;
    bool across;  /* also defined for heads of different layers */
    bool differs; /* greater = more different */
} kinds[MHA_DIVERSITIES] = {
#define MHA__X(name, key, text)                                                      \
    [name] = {key, text, name == MHA_DIVERSITY_JS || name == MHA_DIVERSITY_JS_CLARK, \
              name == MHA_DIVERSITY_JS || name == MHA_DIVERSITY_JS_CLARK},
    MHA_DIVERSITY_MAP(MHA__X)
#undef MHA__X
};

const char *mha_diversity_key(mha_diversity_kind what)
{
    return (unsigned)what < MHA_DIVERSITIES ? kinds[what].key : NULL;
}

const char *mha_diversity_help(mha_diversity_kind what)
{
    return (unsigned)what < MHA_DIVERSITIES ? kinds[what].help : NULL;
}

void mha_diversity_free(mha_diversity *d)
{
    if (!d) return;
    for (int what = 0; what < MHA_DIVERSITIES; what++)
        mha__free(d->ctx, d->value[what]);
    mha__free(d->ctx, d->map);
    mha__free(d->ctx, d->merges);
    mha__free(d->ctx, d->first);
    mha__free(d->ctx, d);
}

int64_t mha_diversity_heads(const mha_diversity *d)
{
    return d ? d->first[d->layers] : 0;
}

int64_t mha_diversity_rows(const mha_diversity *d)
{
    return d ? d->rows : 0;
}

/* Returns the index of a head among the heads of all layers; -1 if out of range. */
static int64_t number_of(const mha_diversity *d, int64_t layer, int64_t head)
{
    if (layer < 0 || layer >= d->layers || head < 0 || head >= mha__diversity_width(d, layer)) return -1;
    return d->first[layer] + head;
}

double mha_diversity_value(const mha_diversity *d, mha_diversity_kind what, int64_t layer_a, int64_t head_a,
                           int64_t layer_b, int64_t head_b)
{
    if (!d) return NAN;
    const int64_t a = number_of(d, layer_a, head_a), b = number_of(d, layer_b, head_b);
    if ((unsigned)what >= MHA_DIVERSITIES || !d->value[what] || a < 0 || b < 0) return NAN;
    if (what == MHA_DIVERSITY_UNIQUE) return a == b ? d->value[what][a] : NAN;
    return layer_a == layer_b || kinds[what].across ? d->value[what][a * mha_diversity_heads(d) + b] : NAN;
}

double mha_diversity_layer(const mha_diversity *d, mha_diversity_kind what, int64_t layer)
{
    if (!d || (unsigned)what >= MHA_DIVERSITIES || layer < 0 || layer >= d->layers) return NAN;
    const int64_t heads = mha__diversity_width(d, layer);
    const bool single = what == MHA_DIVERSITY_UNIQUE;
    double sum = 0;
    for (int64_t a = 0; a < heads; a++)
        for (int64_t b = single ? a : 0; b < (single ? a + 1 : a); b++)
            sum += mha_diversity_value(d, what, layer, a, layer, b);
    if (heads < 2) return NAN;
    const double mean = sum / (double)(single ? heads : heads * (heads - 1) / 2);
    return single || kinds[what].differs ? mean : 1 - mean;
}

const double *mha_diversity_map(const mha_diversity *d)
{
    return d ? d->map : NULL;
}

const double *mha_diversity_eigenvalues(const mha_diversity *d)
{
    return d && d->map ? d->eigenvalues : NULL;
}

const mha_head_merge *mha_diversity_merges(const mha_diversity *d)
{
    return d ? d->merges : NULL;
}
