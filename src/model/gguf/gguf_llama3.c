/* gguf_llama3.c - finds the LLaMA 3 scaling of a rotation from its frequency factors.
 *
 * A GGUF file stores only the factor r of each frequency f. With x = f / 2 pi in turns per token,
 * 1 / r = (1 - t) / factor + t, where t = (original x - low) / (high - low) is limited to 0..1. The factors depend only
 * on original / low and high / low, so that one of the equal triples is returned. */
#include "io/input_limits.h"
#include "math/pi.h"
#include "mha/attn.h"
#include "model/gguf/gguf_config.h"
#include <math.h>

typedef struct search {
    mha_rope_options o;
    const float *factors; /* [pairs] */
    int64_t pairs;
    double plain[MHA_HEAD_DIM_MAX / 2]; /* frequencies without scaling */
} search;

/* Returns true if the options have the factors, within the rounding of float32 frequencies. */
static bool matches(const search *s)
{
    double f[MHA_HEAD_DIM_MAX / 2], gain;
    if (mha_rope_frequencies(&s->o, 1, f, &gain, NULL) != MHA_OK) return false;
    for (int64_t i = 0; i < s->pairs; i++)
        if (!(fabs(s->plain[i] / f[i] - s->factors[i]) <= 1e-6 * s->factors[i])) return false;
    return true;
}

static bool try_triple(search *s, double original, double low, double high)
{
    if (!(original >= 1 && original <= (double)MHA__DIM && low > 0 && low < high)) return false;
    s->o.original_positions = (int64_t)original;
    s->o.low_freq = low;
    s->o.high_freq = high;
    return matches(s);
}

/* Returns t of a pair: 0 = divided by the factor, 1 = unscaled. */
static double part_of(const search *s, int64_t pair)
{
    return (1 / (double)s->factors[pair] - 1 / s->o.factor) / (1 - 1 / s->o.factor);
}

/* Tries the line through t of the first and the last pair between the limits. */
static bool try_line(search *s, int64_t first, int64_t last)
{
    const double x[] = {s->plain[first] / (2 * MHA__PI), s->plain[last] / (2 * MHA__PI)};
    const double slope = (part_of(s, first) - part_of(s, last)) / (x[0] - x[1]);
    const double below = slope * x[0] - part_of(s, first); /* low / (high - low) */
    for (int low = 1; low <= 8; low++)
        if (try_triple(s, round(low * slope / below), low, round(1000 * low * (1 + below) / below) / 1000)) return true;
    return false;
}

/* With fewer than two pairs between the limits, the usual limits 1 and 4 are tried. */
static bool try_usual(search *s)
{
    for (double original = 2; original <= (double)MHA__DIM; original *= 2)
        if (try_triple(s, original, 1, 4)) return true;
    for (int64_t i = 0; i < s->pairs; i++) /* the first pair with t < 1 */
        if (s->factors[i] > 1) {
            const double x = s->plain[i] / (2 * MHA__PI), t = part_of(s, i);
            return try_triple(s, t > 1e-6 ? round((1 + 3 * t) / x) : floor(1 / x), 1, 4);
        }
    return false;
}

bool mha__gguf_llama3(const float *factors, int64_t head_dim, double theta, mha_rope_options *found)
{
    search s = {.factors = factors, .pairs = head_dim / 2};
    mha_rope_options plain = {.size = sizeof plain, .head_dim = head_dim, .theta = theta};
    double gain;
    int64_t first = s.pairs, last = -1;
    if (mha_rope_frequencies(&plain, 1, s.plain, &gain, NULL) != MHA_OK) return false;
    s.o = plain;
    s.o.kind = MHA_ROPE_LLAMA3;
    s.o.factor = mha__gguf_config_shortest(factors[s.pairs - 1]); /* of the lowest frequency */
    for (int64_t i = s.pairs - 1; i >= 0; i--) {
        if (!(factors[i] > 1 && factors[i] < factors[s.pairs - 1])) continue;
        if (last < 0) last = i;
        first = i;
    }
    const bool ok = try_usual(&s) || (first < last && try_line(&s, first, last));
    *found = s.o;
    return ok;
}
