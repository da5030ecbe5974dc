/* config_rope.c - reads the rotation of q and k, under the key names of transformers 4.x and 5.x. */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include <float.h>
#include <string.h>

static const struct {
    const char *name;
    mha_rope_kind kind;
} kinds[] = {
    {"default", MHA_ROPE_DEFAULT}, {"linear", MHA_ROPE_LINEAR}, {"dynamic", MHA_ROPE_DYNAMIC},
    {"llama3", MHA_ROPE_LLAMA3},   {"yarn", MHA_ROPE_YARN},     {"longrope", MHA_ROPE_LONGROPE},
};

static mha_status read_kind(const mha__json_obj *rope, const mha__family *family, mha_rope_kind *kind, mha_error *err)
{
    const char *name = "default";
    *kind = MHA_ROPE_DEFAULT;
    MHA__TRY(mha__json_string(rope, "type", MHA__OPTIONAL, &name, NULL, err)); /* name of the key in older versions */
    MHA__TRY(mha__json_string(rope, "rope_type", MHA__OPTIONAL, &name, NULL, err));
    if (family->old_longrope && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0)) name = "longrope";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            *kind = kinds[i].kind;
            return MHA_OK;
        }
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "%s: %s.rope_type must be one of default, linear, dynamic, llama3, yarn, longrope (got \"%s\")",
                     rope->file, rope->where, mha__quote(&(mha__quoted){0}, name, strlen(name)));
}

static mha_status positive(const mha__json_obj *o, const char *key, double *value, mha_error *err)
{
    return mha__json_number(o, key, MHA__OPTIONAL, FLT_MIN, FLT_MAX, value, err);
}

/* Same for a number of which 0 selects the default. */
static mha_status positive_or_zero(const mha__json_obj *o, const char *key, double *value, mha_error *err)
{
    double given = 0;
    MHA__TRY(mha__json_number(o, key, MHA__OPTIONAL, 0, FLT_MAX, &given, err));
    return given == 0 ? MHA_OK : positive(o, key, value, err);
}

static mha_status read_list(const mha__json_obj *rope, const char *key, int64_t count, double *list, mha_error *err)
{
    const mha__json *array = NULL;
    MHA__TRY(mha__json_array(rope, key, MHA__REQUIRED, &array, err));
    MHA__TRY(mha__config_count(rope, key, array, count, "one number per rotated pair of dimensions", err));
    for (int64_t i = 0; i < count; i++) {
        const mha__json *item = mha__json_item(array, (size_t)i);
        list[i] = mha__json_as_number(item);
        if (!mha__json_is_number(item) || !(list[i] >= FLT_MIN) || list[i] > FLT_MAX)
            return mha__json_refuse_item(rope, key, (size_t)i, "a number > 0", err);
    }
    return MHA_OK;
}

/* Reads the scaling factor, which for yarn and longrope defaults to max_positions / original_positions. */
static mha_status read_factor(const mha__json_obj *rope, mha_rope_options *o, mha_error *err)
{
    const mha__need need = o->kind >= MHA_ROPE_YARN ? MHA__OPTIONAL : MHA__REQUIRED;
    return mha__json_number(rope, "factor", need, 1, FLT_MAX, &o->factor, err);
}

/* Checks the frequency factors of LLaMA 3, which bound the scaled wavelengths. 0 = absent; the defaults are 1 and 4. */
static mha_status check_band(const mha__json_obj *rope, const mha_rope_options *o, mha_error *err)
{
    const double low = o->low_freq != 0 ? o->low_freq : 1, high = o->high_freq != 0 ? o->high_freq : 4;
    if (o->kind != MHA_ROPE_LLAMA3 || low < high) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s.low_freq_factor must be below high_freq_factor = %g (got %g)",
                     rope->file, rope->where, high, low);
}

/* Reads the parameters of one kind of scaling. */
static mha_status read_scaling(const mha__json_obj *root, const mha__json_obj *rope, mha__config *c,
                               mha_rope_options *o, mha_error *err)
{
    static const char *const original = "original_max_position_embeddings";
    bool truncate = true;
    o->max_positions = c->max_positions;
    o->original_positions = c->family->original_positions ? c->family->original_positions : c->max_positions;
    MHA__TRY(read_factor(rope, o, err));
    MHA__TRY(mha__json_dim(rope, original, MHA__OPTIONAL, MHA__DIM, &o->original_positions, err));
    /* the top-level key takes precedence */
    MHA__TRY(mha__json_dim(root, original, MHA__OPTIONAL, MHA__DIM, &o->original_positions, err));
    MHA__TRY(positive(rope, "low_freq_factor", &o->low_freq, err));
    MHA__TRY(positive(rope, "high_freq_factor", &o->high_freq, err));
    MHA__TRY(check_band(rope, o, err));
    MHA__TRY(positive_or_zero(rope, "beta_fast", &o->beta_fast, err));
    MHA__TRY(positive_or_zero(rope, "beta_slow", &o->beta_slow, err));
    MHA__TRY(positive(rope, "attention_factor", &o->gain, err));
    MHA__TRY(positive_or_zero(rope, "mscale", &o->mscale, err));
    MHA__TRY(positive_or_zero(rope, "mscale_all_dim", &o->mscale_all, err));
    MHA__TRY(mha__json_bool(rope, "truncate", MHA__OPTIONAL, &truncate, err));
    o->no_truncate = !truncate;
    if (o->kind != MHA_ROPE_LONGROPE) return MHA_OK;
    if (o == &c->local_rope)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s.rope_type must not be longrope in sliding layers",
                         rope->file, rope->where);
    o->short_by = c->short_by;
    o->long_by = c->long_by;
    MHA__TRY(read_list(rope, "short_factor", o->rotary_dim / 2, c->short_by, err));
    return read_list(rope, "long_factor", o->rotary_dim / 2, c->long_by, err);
}

/* Reads the number of rotated dimensions of a head. */
static mha_status read_part(const mha__json_obj *root, const mha__json_obj *rope, const mha__config *c,
                            mha_rope_options *o, mha_error *err)
{
    const mha__family *f = c->family;
    double part = f->rotary_part != 0 ? f->rotary_part : 1;
    if (f->partial_key) MHA__TRY(mha__json_number(root, f->partial_key, MHA__OPTIONAL, 0, 1, &part, err));
    MHA__TRY(mha__json_number(root, "partial_rotary_factor", MHA__OPTIONAL, 0, 1, &part, err));
    MHA__TRY(mha__json_number(rope, "partial_rotary_factor", MHA__OPTIONAL, 0, 1, &part, err));
    if (f->rotary_part == 0 && part != 1 && o->kind != MHA_ROPE_DEFAULT)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: partial_rotary_factor must be 1 with scaled rotation in a model of type %s (got %g)",
                         root->file, f->name, part);
    o->rotary_dim = c->head_dim; /* as in transformers, families without partial rotation ignore the key unless the
                                  * rotation is scaled */
    if (f->latent) o->rotary_dim = c->rope_width;
    if (f->rotary_part != 0) o->rotary_dim = (int64_t)((double)c->head_dim * part);
    if (o->rotary_dim >= 2 && o->rotary_dim % 2 == 0) return MHA_OK;
    if (f->rotary_part == 0)
        return mha__fail(
            err, MHA_ERR_FORMAT,
            "%s: head_dim must be even for rotation (got %lld; default: hidden_size / num_attention_heads)", root->file,
            (long long)c->head_dim);
    return mha__fail(err, MHA_ERR_FORMAT,
                     "%s: partial_rotary_factor must select an even number of the %lld dimensions of a head (got %g)",
                     root->file, (long long)c->head_dim, part);
}

static mha_status check_rotation(const mha__json_obj *root, const mha_rope_options *o, mha_error *err)
{
    double f[MHA_HEAD_DIM_MAX / 2], gain;
    mha_error why;
    if (mha_rope_frequencies(o, 1, f, &gain, &why) == MHA_OK) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: rotary embedding: %s", root->file, why.message);
}

/* Reads one rotation from `rope`, which may be the whole config; `key` is the older name of rope_theta, or NULL. */
static mha_status read_rotation(const mha__json_obj *root, const mha__json_obj *rope, const char *key, double theta,
                                mha__config *c, mha_rope_options *o, mha_error *err)
{
    *o = (mha_rope_options){.size = sizeof *o,
                            .head_dim = c->head_dim,
                            .theta = theta,
                            .interleaved = c->family->interleaved || c->interleaved};
    if (rope->json != root->json) MHA__TRY(read_kind(rope, c->family, &o->kind, err));
    if (key) MHA__TRY(positive(root, key, &o->theta, err));
    MHA__TRY(positive(rope, "rope_theta", &o->theta, err));
    MHA__TRY(read_part(root, rope, c, o, err));
    if (o->kind != MHA_ROPE_DEFAULT) MHA__TRY(read_scaling(root, rope, c, o, err));
    return check_rotation(root, o, err);
}

/* Reads the rotations of full and of sliding layers: one object per layer type (5.x), or separate keys (4.x), where
 * scaling only applies to full layers. */
static mha_status read_two(const mha__json_obj *root, const mha__json_obj *rope, mha__config *c, mha_error *err)
{
    static const mha__json_obj nothing = {0};
    const mha__family *f = c->family;
    mha__json_obj full = *rope, local = nothing;
    local.file = root->file;
    if (mha__json_has(rope, "full_attention") || mha__json_has(rope, "sliding_attention")) {
        MHA__TRY(mha__json_object(rope, "full_attention", MHA__REQUIRED, &full, err));
        MHA__TRY(mha__json_object(rope, "sliding_attention", MHA__REQUIRED, &local, err));
    }
    MHA__TRY(read_rotation(root, &full, f->theta_key ? f->theta_key : "rope_theta", f->theta, c, &c->rope, err));
    return read_rotation(root, &local, f->local_theta_key, f->local_theta, c, &c->local_rope, err);
}

/* Sets the family's rotation for a config without rope_parameters. */
static mha_status read_default(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    c->rope = *c->family->default_rope;
    c->rope.head_dim = c->rope.rotary_dim = c->head_dim;
    c->rope.max_positions = c->max_positions;
    MHA__TRY(positive(root, "rope_theta", &c->rope.theta, err));
    return check_rotation(root, &c->rope, err);
}

static bool turns(const mha__config *c)
{
    for (int64_t i = 0; i < c->layers; i++)
        if (c->attention[i].turned) return true;
    return false;
}

mha_status mha__config_rope(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const mha__family *f = c->family;
    mha__json_obj rope = {0};
    if (!turns(c)) return MHA_OK;
    MHA__TRY(mha__json_object(root, "rope_scaling", MHA__OPTIONAL, &rope, err));
    if (rope.json && mha__json_has(root, "rope_parameters") &&
        !mha__json_equal(rope.json, mha__json_get(root->json, "rope_parameters")))
        return mha__fail(err, MHA_ERR_FORMAT, "%s: rope_scaling and rope_parameters must be equal if both are given",
                         root->file);
    if (mha__json_has(root, "rope_parameters"))
        MHA__TRY(mha__json_object(root, "rope_parameters", MHA__OPTIONAL, &rope, err));
    if (!rope.json && f->default_rope) return read_default(root, c, err);
    if (!rope.json) rope = *root; /* 4.x without scaling: rope_theta is a top-level key */
    if (f->local_theta != 0) return read_two(root, &rope, c, err);
    if (mha__json_has(&rope, "full_attention") || mha__json_has(&rope, "sliding_attention"))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must not be given per layer type", root->file, rope.where);
    const bool own = f->theta_key && mha__json_has(root, f->theta_key);
    return read_rotation(root, &rope, own ? f->theta_key : "rope_theta", f->theta != 0 ? f->theta : 10000, c, &c->rope,
                         err);
}
