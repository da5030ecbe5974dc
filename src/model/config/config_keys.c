/* config_keys.c - reads the keys of config.json that the table of a family lists. */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include <float.h>
#include <string.h>

/* ---- activations by name ---- */

static const struct {
    const char *name;
    mha_activation activation;
} activations[] = {
    {"gelu", MHA_ACT_GELU},
    {"gelu_python", MHA_ACT_GELU},
    {"gelu_accurate", MHA_ACT_GELU_TANH},
    {"gelu_fast", MHA_ACT_GELU_TANH},
    {"gelu_new", MHA_ACT_GELU_TANH},
    {"gelu_python_tanh", MHA_ACT_GELU_TANH},
    {"gelu_pytorch_tanh", MHA_ACT_GELU_TANH},
    {"relu", MHA_ACT_RELU},
    {"tanh", MHA_ACT_TANH},
    {"silu", MHA_ACT_SILU},
    {"swish", MHA_ACT_SILU},
    {"quick_gelu", MHA_ACT_QUICK_GELU},
    {"sigmoid", MHA_ACT_SIGMOID},
};

static mha_status find_activation(const mha__json_obj *root, const char *key, const char *name, mha_activation *out,
                                  mha_error *err)
{
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, name) == 0) {
            *out = activations[i].activation;
            return MHA_OK;
        }
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "%s: %s must be one of gelu, gelu_accurate, gelu_fast, gelu_new, gelu_python, gelu_python_tanh, "
                     "gelu_pytorch_tanh, quick_gelu, relu, sigmoid, silu, swish, tanh (got \"%s\")",
                     root->file, key, mha__quote(&(mha__quoted){0}, name, strlen(name)));
}

static mha_status read_activation(const mha__json_obj *root, const mha__config_key *key, mha_activation *out,
                                  mha_error *err)
{
    const char *name = key->text;
    MHA__TRY(mha__json_string(root, key->key, MHA__OPTIONAL, &name, NULL, err));
    return name ? find_activation(root, key->key, name, out, err) : MHA_OK;
}

/* Reads hidden_act of Gemma, where "gelu" has always meant the approximation. */
static mha_status read_tanh_gelu(const mha__json_obj *root, const mha__config_key *key, mha_activation *out,
                                 mha_error *err)
{
    MHA__TRY(read_activation(root, key, out, err));
    if (*out == MHA_ACT_GELU) *out = MHA_ACT_GELU_TANH;
    return MHA_OK;
}

/* Reads feed_forward_proj of T5: an activation, after "gated-" if feed-forward has a gate. The name gated-gelu has
 * always meant gelu_new. */
static mha_status read_feed_forward(const mha__json_obj *root, const mha__config_key *key, mha__config *c,
                                    mha_error *err)
{
    static const char gated[] = "gated-";
    const char *name = key->text;
    MHA__TRY(mha__json_string(root, key->key, MHA__OPTIONAL, &name, NULL, err));
    c->gated = strncmp(name, gated, strlen(gated)) == 0;
    if (c->gated) name += strlen(gated);
    if (c->gated && strcmp(name, "gelu") == 0) name = "gelu_new";
    return find_activation(root, key->key, name, &c->activation, err);
}

/* ---- reading of a single key ---- */

static mha_status not_built(const mha__json_obj *o, const char *key, const char *built, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s%s%s must be %s (got %s)", o->file, o->where ? o->where : "",
                     o->where ? "." : "", key, built, mha__json_show(&(mha__quoted){0}, mha__json_get(o->json, key)));
}

/* Checks keys for which only one value is supported. */
static mha_status check_only(const mha__json_obj *root, const mha__config_key *key, mha_error *err)
{
    const char *text = key->text;
    bool on = false;
    mha__json_obj object = {0};
    switch (key->kind) {
    case MHA__KEY_ONLY_TEXT:
        MHA__TRY(mha__json_string(root, key->key, MHA__OPTIONAL, &text, NULL, err));
        return strcmp(text, key->text) == 0 ? MHA_OK : not_built(root, key->key, key->text, err);
    case MHA__KEY_ONLY_FALSE:
        MHA__TRY(mha__json_bool(root, key->key, MHA__OPTIONAL, &on, err));
        return on ? not_built(root, key->key, "false", err) : MHA_OK;
    case MHA__KEY_ONLY_TRUE:
        on = !mha__json_is(mha__json_get(root->json, key->key), MHA__JSON_NULL);
        MHA__TRY(mha__json_bool(root, key->key, MHA__OPTIONAL, &on, err));
        return on ? MHA_OK : not_built(root, key->key, "true", err);
    default:
        MHA__TRY(mha__json_object(root, key->key, MHA__OPTIONAL, &object, err));
        if (mha__json_has(&object, "quant_method")) return not_built(&object, "quant_method", "absent", err);
        return mha__json_size(object.json) ? not_built(root, key->key, "absent", err) : MHA_OK;
    }
}

/* Reads the index of a row of the vocabulary, whose size is known. An index outside the vocabulary is accepted, as in
 * transformers. */
static mha_status read_row(const mha__json_obj *root, const mha__config_key *key, int64_t vocab, int64_t *row,
                           mha_error *err)
{
    *row = mha__json_get(root->json, key->key) ? -1 : (int64_t)key->initial;
    if (!mha__json_has(root, key->key)) return MHA_OK;
    MHA__TRY(mha__json_int(root, key->key, MHA__OPTIONAL, -key->max, key->max, row, err));
    if (*row < 0 && *row >= -vocab) *row += vocab;
    return MHA_OK;
}

/* Reads a height and a width: one dimension for both, or a list of two. */
static mha_status read_size(const mha__json_obj *root, const mha__config_key *key, int64_t size[2], mha_error *err)
{
    const mha__json *value = mha__json_get(root->json, key->key);
    size[0] = (int64_t)key->initial;
    if (!mha__json_is(value, MHA__JSON_ARRAY))
        MHA__TRY(mha__json_dim(root, key->key, MHA__OPTIONAL, key->max, size, err));
    size[1] = size[0];
    if (!mha__json_is(value, MHA__JSON_ARRAY)) return MHA_OK;
    if (mha__json_size(value) != 2)
        return mha__json_refuse(root, key->key, "a number of pixels, or a list of height and width", err);
    for (size_t i = 0; i < 2; i++) {
        size[i] = mha__json_as_int(mha__json_item(value, i));
        if (!mha__json_is(mha__json_item(value, i), MHA__JSON_INTEGER) || size[i] < 1 || size[i] > key->max)
            return mha__json_refuse_item(root, key->key, i, "a number of pixels of at least 1", err);
    }
    return MHA_OK;
}

/* Counts the entries of id2label; without it, reads num_labels. */
static mha_status read_labels(const mha__json_obj *root, const mha__config_key *key, int64_t *count, mha_error *err)
{
    mha__json_obj labels = {0};
    *count = (int64_t)key->initial;
    MHA__TRY(mha__json_dim(root, "num_labels", MHA__OPTIONAL, key->max, count, err));
    MHA__TRY(mha__json_object(root, key->key, MHA__OPTIONAL, &labels, err));
    if (labels.json) *count = (int64_t)mha__json_size(labels.json);
    if (*count >= 1 && *count <= key->max) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s must have from 1 to %lld entries (got %lld)", root->file, key->key,
                     (long long)key->max, (long long)*count);
}

/* ---- quantization_config ---- */

/* Checks a string that may be absent. */
static mha_status check_text(const mha__json_obj *o, const char *key, const char *only, mha_error *err)
{
    const char *value = only;
    MHA__TRY(mha__json_string(o, key, MHA__OPTIONAL, &value, NULL, err));
    return !value || strcmp(value, only) == 0 ? MHA_OK : not_built(o, key, only, err);
}

/* Reads the rows and columns that have a scale. */
static mha_status read_fp8(const mha__json_obj *o, mha__config *c, mha_error *err)
{
    const mha__json *list = NULL;
    const bool off = mha__json_is(mha__json_get(o->json, "weight_block_size"), MHA__JSON_NULL);
    MHA__TRY(check_text(o, "fmt", "e4m3", err));
    MHA__TRY(mha__json_array(o, "weight_block_size", MHA__OPTIONAL, &list, err));
    c->fp8_block[0] = c->fp8_block[1] = off ? 0 : 128;
    if (!list) return MHA_OK;
    if (mha__json_size(list) != 2)
        return mha__json_refuse(o, "weight_block_size", "a list of two integers, rows and columns", err);
    for (size_t n = 0; n < 2; n++) {
        const mha__json *item = mha__json_item(list, n);
        c->fp8_block[n] = mha__json_as_int(item);
        if (!mha__json_is(item, MHA__JSON_INTEGER) || c->fp8_block[n] < 1 || c->fp8_block[n] > MHA__DIM)
            return mha__json_refuse_item(o, "weight_block_size", n, "an integer of at least 1", err);
    }
    return MHA_OK;
}

/* Checks that weights are 8-bit floats, and that nothing else was done to them. */
static mha_status check_compressed(const mha__json_obj *o, mha_error *err)
{
    mha__json_obj own = {0};
    MHA__TRY(check_text(o, "format", "float-quantized", err));
    MHA__TRY(mha__json_object(o, "transform_config", MHA__OPTIONAL, &own, err));
    if (mha__json_size(own.json)) return not_built(o, "transform_config", "absent or empty", err);
    MHA__TRY(mha__json_object(o, "sparsity_config", MHA__OPTIONAL, &own, err));
    return own.json ? check_text(&own, "format", "dense", err) : MHA_OK;
}

/* Reads in which form weights are stored. Methods whose weights are computed from codes and scales alone are supported;
 * how a method quantizes activations is ignored. */
static mha_status read_quantization(const mha__json_obj *root, const char *key, mha__config *c, mha_error *err)
{
    mha__json_obj o = {0};
    const char *method = "";
    MHA__TRY(mha__json_object(root, key, MHA__OPTIONAL, &o, err));
    if (!o.json || !mha__json_size(o.json)) return MHA_OK;
    if (!mha__json_has(&o, "quant_method")) return not_built(root, key, "absent", err);
    MHA__TRY(mha__json_string(&o, "quant_method", MHA__REQUIRED, &method, NULL, err));
    c->quantization = strcmp(method, "mxfp4") == 0 ? MHA__QUANTIZED_MXFP4 : MHA__QUANTIZED_FP8;
    if (c->quantization == MHA__QUANTIZED_MXFP4 || strcmp(method, "fbgemm_fp8") == 0) return MHA_OK;
    if (strcmp(method, "fp8") == 0) return read_fp8(&o, c, err);
    if (strcmp(method, "compressed-tensors") == 0) return check_compressed(&o, err);
    return not_built(&o, "quant_method", "one of compressed-tensors, fbgemm_fp8, fp8, mxfp4", err);
}

/* ---- any key ---- */

/* Returns the default of a number; 0 if the key is null and its kind reads null as 0. */
static double default_of(const mha__json_obj *root, const mha__config_key *key)
{
    const bool has_off =
        key->kind == MHA__KEY_DIM_OR_OFF || key->kind == MHA__KEY_POSITIVE_OR_OFF || key->kind == MHA__KEY_COUNT_OR_OFF;
    return has_off && mha__json_is(mha__json_get(root->json, key->key), MHA__JSON_NULL) ? 0 : key->initial;
}

static mha_status read_number(const mha__json_obj *root, const mha__config_key *key, void *field, mha_error *err)
{
    const double initial = default_of(root, key);
    switch (key->kind) {
    case MHA__KEY_DIM_IF:
        return mha__json_dim(root, key->key, MHA__OPTIONAL, key->max, field, err);
    case MHA__KEY_COUNT:
    case MHA__KEY_COUNT_OR_OFF:
        *(int64_t *)field = (int64_t)initial;
        return mha__json_int(root, key->key, MHA__OPTIONAL, 0, key->max, field, err);
    case MHA__KEY_POSITIVE: /* checked against the range of float, the type in which it is used */
    case MHA__KEY_POSITIVE_OR_OFF:
        *(double *)field = initial;
        return mha__json_number(root, key->key, MHA__OPTIONAL, FLT_MIN, FLT_MAX, field, err);
    case MHA__KEY_FIXED:
        *(double *)field = initial;
        return MHA_OK;
    default:
        *(int64_t *)field = (int64_t)initial;
        return mha__json_dim(root, key->key, key->kind == MHA__KEY_DIM && initial == 0 ? MHA__REQUIRED : MHA__OPTIONAL,
                             key->max, field, err);
    }
}

static mha_status read_bool(const mha__json_obj *root, const mha__config_key *key, bool *field, mha_error *err)
{
    if (key->kind == MHA__KEY_BOOL) *field = key->initial != 0;
    return mha__json_bool(root, key->key, MHA__OPTIONAL, field, err);
}

static mha_status read_key(const mha__json_obj *root, const mha__config_key *key, mha__config *config, mha_error *err)
{
    void *field = (char *)config + key->offset;
    switch (key->kind) {
    case MHA__KEY_ROW:
        return read_row(root, key, config->vocab, field, err);
    case MHA__KEY_BOOL:
    case MHA__KEY_BOOL_IF:
        return read_bool(root, key, field, err);
    case MHA__KEY_ACTIVATION:
    case MHA__KEY_ACTIVATION_IF:
        return read_activation(root, key, field, err);
    case MHA__KEY_TANH_GELU:
        return read_tanh_gelu(root, key, field, err);
    case MHA__KEY_FEED_FORWARD:
        return read_feed_forward(root, key, config, err);
    case MHA__KEY_SIZE:
        return read_size(root, key, field, err);
    case MHA__KEY_LABELS:
        return read_labels(root, key, field, err);
    case MHA__KEY_QUANTIZATION:
        return read_quantization(root, key->key, config, err);
    case MHA__KEY_ONLY_TEXT:
    case MHA__KEY_ONLY_FALSE:
    case MHA__KEY_ONLY_TRUE:
    case MHA__KEY_ONLY_EMPTY:
        return check_only(root, key, err);
    default:
        return read_number(root, key, field, err);
    }
}

/* ---- all keys of a family ---- */

/* Finds a key under any of its names. */
static mha_status find_key(const mha__json_obj *root, const mha__family *family, const mha__config_key *key,
                           mha__config_key *found, mha_error *err)
{
    *found = *key;
    for (int i = 0; family->aliases && family->aliases[i][0]; i++) {
        const char *alias = family->aliases[i][1];
        if (strcmp(family->aliases[i][0], key->key) != 0 || !mha__json_has(root, alias)) continue;
        found->key = alias;
        if (mha__json_has(root, key->key) &&
            !mha__json_equal(mha__json_get(root->json, key->key), mha__json_get(root->json, alias)))
            return mha__fail(err, MHA_ERR_FORMAT, "%s: %s and %s, names of the same key, must be equal", root->file,
                             key->key, alias);
    }
    return MHA_OK;
}

mha_status mha__config_top(const mha__json_obj *root, mha__config *config, mha_error *err)
{
    const mha__family *f = config->family;
    for (int i = 0; i < f->top_count; i++)
        MHA__TRY(read_key(root, &f->top[i], config, err));
    return MHA_OK;
}

mha_status mha__config_keys(const mha__json_obj *root, mha__config *config, mha_error *err)
{
    const mha__family *f = config->family;
    for (int i = 0; i < f->common_count; i++)
        MHA__TRY(read_key(root, &f->common[i], config, err));
    for (int i = 0; i < f->key_count; i++) {
        mha__config_key key;
        MHA__TRY(find_key(root, f, &f->keys[i], &key, err));
        MHA__TRY(read_key(root, &key, config, err));
    }
    return MHA_OK;
}
