/* gguf_rope.c - writes the keys of config.json for the rotation and for the layers with a window. */
#include "base/ctx.h"
#include "io/input_limits.h"
#include "model/gguf/gguf_config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef mha__gguf_config_writer config;

enum { KEY = MHA__GGUF_CONFIG_KEY };

/* ---- scaling ---- */

/* rope.scaling.type [n], and rope.scaling.factor. */
typedef struct scaling {
    const char *type;
    size_t n;
    double factor;
} scaling;

static bool is(const scaling *s, const char *type)
{
    return s->n == strlen(type) && memcmp(s->type, type, s->n) == 0;
}

static bool unscaled(const scaling *s)
{
    return is(s, "none") || (is(s, "linear") && s->factor == 1);
}

/* Reads the scaling. As in llama.cpp, a factor without a type is linear, and a factor of 0 is none. */
static mha_status read_scaling(const config *c, scaling *s)
{
    char key[KEY];
    static const scaling none = {.type = "none", .n = 4};
    *s = (scaling){.type = "linear", .n = 6};
    MHA__TRY(mha__gguf_real(c->file, mha__gguf_config_key(c->arch, "rope.scaling.factor", key), &s->factor, c->err));
    MHA__TRY(mha__gguf_text(c->file, mha__gguf_config_key(c->arch, "rope.scaling.type", key), &s->type, &s->n, c->err));
    if (s->factor == 0 && is(s, "linear")) *s = none;
    return MHA_OK;
}

static mha_status refuse(const config *c, const char *suffix, const char *rule)
{
    char key[KEY];
    return mha__gguf_unsupported(c->file, mha__gguf_config_key(c->arch, suffix, key), rule, c->err);
}

/* ---- frequency factors ---- */

/* Reads the factors of a tensor, which the caller frees. */
static mha_status read_factors(const config *c, const mha_tensor *t, float **factors)
{
    *factors = mha__alloc(c->file->ctx, (size_t)t->elements * sizeof **factors);
    if (!*factors) return mha__no_memory(c->err, (size_t)t->elements * sizeof **factors, t->name);
    const mha_status status = mha_tensor_read(t, MHA_F32, *factors, c->err);
    if (status != MHA_OK) mha__free(c->file->ctx, *factors);
    return status;
}

static void put_list(config *c, const char *key, const float *factors, int64_t count)
{
    mha__json_key(&c->w, key);
    mha__json_open(&c->w, '[');
    for (int64_t i = 0; i < count; i++)
        mha__json_put_real(&c->w, factors[i] > 0 && factors[i] < 1e30F ? mha__gguf_config_shortest(factors[i])
                                                                       : 0); /* 0 is refused later */
    mha__json_close(&c->w, ']');
}

static void put_llama3(config *c, const mha_rope_options *o)
{
    mha__gguf_config_text(c, "rope_type", "llama3");
    mha__gguf_config_real(c, "factor", o->factor);
    mha__gguf_config_real(c, "low_freq_factor", o->low_freq);
    mha__gguf_config_real(c, "high_freq_factor", o->high_freq);
    mha__gguf_config_int(c, "original_max_position_embeddings", o->original_positions);
}

/* Factors that are not those of LLaMA 3 become two equal lists. */
static void put_equal_lists(config *c, const float *factors, int64_t count, int64_t positions)
{
    mha__gguf_config_text(c, "rope_type", "longrope");
    mha__gguf_config_real(c, "factor", 1);
    mha__gguf_config_int(c, "original_max_position_embeddings", positions);
    put_list(c, "short_factor", factors, count);
    put_list(c, "long_factor", factors, count);
}

/* Writes the frequency factors of rope_freqs.weight, by which LLaMA 3 scales its rotation. */
static mha_status put_factors(config *c, const scaling *s, const mha_tensor *t, int64_t positions)
{
    char key[KEY];
    double theta = 10000;
    float *factors;
    mha_rope_options found;
    if (!unscaled(s)) return refuse(c, "rope.scaling.type", "none with the tensor rope_freqs.weight");
    if (t->elements != c->head_dim / 2)
        return mha__fail(c->err, MHA_ERR_FORMAT, "%s: tensor \"%s\" must have %lld elements (got %lld)",
                         mha__quote(&(mha__quoted){0}, c->file->path, strlen(c->file->path)), t->name,
                         (long long)(c->head_dim / 2), (long long)t->elements);
    MHA__TRY(mha__gguf_real(c->file, mha__gguf_config_key(c->arch, "rope.freq_base", key), &theta, c->err));
    MHA__TRY(read_factors(c, t, &factors));
    if (mha__gguf_llama3(factors, c->head_dim, mha__gguf_config_shortest(theta), &found))
        put_llama3(c, &found);
    else
        put_equal_lists(c, factors, t->elements, positions);
    mha__free(c->file->ctx, factors);
    return MHA_OK;
}

/* Writes the factor by which Phi-3 multiplies the rotation of scaled models, unless it follows from the lengths. */
static mha_status put_gain(config *c, int64_t positions, int64_t old)
{
    char key[KEY];
    double gain = 0;
    const double s = (double)positions / (double)old, usual = s > 1 ? sqrt(1 + log(s) / log((double)old)) : 1;
    MHA__TRY(mha__gguf_real(c->file, mha__gguf_config_key(c->arch, "rope.scaling.attn_factor", key), &gain, c->err));
    if (gain != 0 && fabs(gain - usual) > 1e-6 * usual) mha__gguf_config_real(c, "attention_factor", gain);
    return MHA_OK;
}

/* Refuses scaling by other keys than the frequency factors of Phi-3. */
static mha_status check_long(const config *c, const scaling *s)
{
    if (!unscaled(s) && !is(s, "longrope"))
        return refuse(c, "rope.scaling.type", "none or longrope with the tensors rope_factors_*.weight");
    if (s->factor == 0 || s->factor == 1) return MHA_OK;
    return refuse(c, "rope.scaling.factor", "0 or 1 with the tensors rope_factors_*.weight");
}

static mha_status put_long(config *c, const scaling *s, int64_t positions)
{
    char key[KEY];
    int64_t old = 0;
    MHA__TRY(check_long(c, s));
    mha__gguf_config_key(c->arch, "rope.scaling.original_context_length", key);
    MHA__TRY(mha__gguf_int(c->file, key, 2, MHA__DIM, &old, c->err));
    if (!old) return mha__gguf_refuse(c->file, key, "an integer of at least 2", c->err);
    mha__gguf_config_text(c, "rope_type", "longrope");
    mha__gguf_config_int(c, "original_max_position_embeddings", old);
    for (int n = 0; n < 2; n++) {
        const char *name = mha__gguf_rope_factors[n + 1];
        const mha_tensor *t = mha_file_find(c->file, name);
        float *factors;
        if (!t || t->elements != c->rotated / 2)
            return mha__fail(c->err, MHA_ERR_FORMAT, "%s: tensor \"%s\" must have %lld elements (got %lld)",
                             mha__quote(&(mha__quoted){0}, c->file->path, strlen(c->file->path)), name,
                             (long long)(c->rotated / 2), t ? (long long)t->elements : 0);
        MHA__TRY(read_factors(c, t, &factors));
        put_list(c, n ? "long_factor" : "short_factor", factors, t->elements);
        mha__free(c->file->ctx, factors);
    }
    return put_gain(c, positions, old);
}

static bool has_long(const config *c, const scaling *s)
{
    return is(s, "longrope") || mha_file_find(c->file, mha__gguf_rope_factors[1]) ||
           mha_file_find(c->file, mha__gguf_rope_factors[2]);
}

/* Refuses a factor that only scaled models have. */
static mha_status check_gain(const config *c)
{
    static const char suffix[] = "rope.scaling.attn_factor";
    char key[KEY];
    double gain = 1;
    MHA__TRY(mha__gguf_real(c->file, mha__gguf_config_key(c->arch, suffix, key), &gain, c->err));
    return gain == 1 ? MHA_OK : refuse(c, suffix, "1 without rope_factors_long.weight");
}

/* ---- rotation ---- */

static mha_status put_yarn(config *c)
{
    char key[KEY];
    int64_t old = 0;
    bool found = false;
    mha__gguf_config_text(c, "rope_type", "yarn");
    MHA__TRY(mha__gguf_config_copy(c, "rope.scaling.factor", "factor", &found));
    if (!found)
        return mha__gguf_refuse(c->file, mha__gguf_config_key(c->arch, "rope.scaling.factor", key),
                                "a number with rope.scaling.type yarn", c->err);
    MHA__TRY(mha__gguf_int(c->file, mha__gguf_config_key(c->arch, "rope.scaling.original_context_length", key), 1,
                           MHA__DIM, &old, c->err));
    if (old) mha__gguf_config_int(c, "original_max_position_embeddings", old);
    mha__json_key(&c->w, "truncate"); /* gpt-oss does not round the dimensions between which frequencies change */
    mha__json_put_bool(&c->w, !c->arch->sinks);
    MHA__TRY(mha__gguf_config_copy(c, "rope.scaling.yarn_beta_fast", "beta_fast", NULL));
    MHA__TRY(mha__gguf_config_copy(c, "rope.scaling.yarn_beta_slow", "beta_slow", NULL));
    return MHA_OK;
}

/* Writes scaling without frequency factors. */
static mha_status put_interpolation(config *c, const scaling *s)
{
    if (is(s, "yarn")) return put_yarn(c);
    if (!is(s, "none") && !is(s, "linear")) return refuse(c, "rope.scaling.type", "none, linear or yarn");
    mha__gguf_config_text(c, "rope_type", is(s, "none") ? "default" : "linear");
    return is(s, "none") ? MHA_OK : mha__gguf_config_copy(c, "rope.scaling.factor", "factor", NULL);
}

static mha_status put_scaling(config *c, int64_t positions)
{
    scaling s;
    MHA__TRY(read_scaling(c, &s));
    if (c->arch->phi) {
        if (has_long(c, &s)) return put_long(c, &s, positions);
        MHA__TRY(check_gain(c));
        return put_interpolation(c, &s); /* rope_freqs.weight is refused as an unread tensor */
    }
    const mha_tensor *factors = mha_file_find(c->file, mha__gguf_rope_factors[0]);
    return factors ? put_factors(c, &s, factors, positions) : put_interpolation(c, &s);
}

mha_status mha__gguf_config_rope(config *c, int64_t positions)
{
    mha__json_key(&c->w, "rope_scaling");
    mha__json_open(&c->w, '{');
    const mha_status status = put_scaling(c, positions);
    mha__json_close(&c->w, '}');
    return status;
}

/* ---- windows ---- */

mha_status mha__gguf_config_windows(config *c)
{
    char key[KEY];
    const mha__gguf_value *v =
        mha__gguf_find(c->file, mha__gguf_config_key(c->arch, "attention.sliding_window_pattern", key));
    int64_t period = 0;
    if (!v) return MHA_OK;
    if (v->array && (v->type != MHA__GGUF_BOOL || v->count != (uint64_t)c->layers))
        return mha__gguf_refuse(c->file, key, "an integer, or an array of one bool per layer", c->err);
    if (!v->array) MHA__TRY(mha__gguf_int(c->file, key, 1, MHA__LAYERS, &period, c->err));
    mha__json_key(&c->w, "layer_types");
    mha__json_open(&c->w, '[');
    for (int64_t l = 0; l < c->layers; l++) {
        const bool slides = v->array ? v->data[l] != 0 : (l + 1) % period != 0;
        mha__json_put_text(&c->w, slides ? "sliding_attention" : "full_attention");
    }
    mha__json_close(&c->w, ']');
    return MHA_OK;
}
