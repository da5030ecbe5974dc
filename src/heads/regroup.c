/* regroup.c - heads that share keys and values: options, the layers, config and record. */
#include "heads/regroup.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "io/json.h"
#include <math.h>
#include <string.h>

static const double default_ridge = 0.3;

/* ---- methods ---- */

static const struct {
    const char *key, *help;
} methods[] = {
#define MHA__X(name, key, text) [name] = {key, text},
    MHA_REGROUP_METHOD_MAP(MHA__X)
#undef MHA__X
};

static bool is_method(mha_regroup_method method)
{
    return (int)method >= 0 && method < MHA_REGROUP_METHODS;
}

const char *mha_regroup_method_key(mha_regroup_method method)
{
    return is_method(method) ? methods[method].key : NULL;
}

const char *mha_regroup_method_help(mha_regroup_method method)
{
    return is_method(method) ? methods[method].help : NULL;
}

/* ---- what is asked for ---- */

typedef struct regroup {
    const mha_model *model;
    mha_regroup_options o;
    mha_pruning *p;
    mha__moments moments;
    int32_t *order; /* [layers, H] */
    bool ordered;   /* some head stands elsewhere than before */
    bool listed;    /* the source lists its heads */
} regroup;

static int64_t wanted(int64_t asked, int32_t had)
{
    return asked ? asked : had;
}

static bool has_rotation(const mha_model *m)
{
    return m->config.rope.head_dim != 0;
}

static bool has_head_norms(const mha_model *m)
{
    bool normed = false;
    for (int64_t l = 0; l < m->config.layers; l++)
        normed |= m->config.attention[l].normed;
    return normed;
}

/* Whether a layer's keys (or values) become fewer. */
static bool shrinks(const regroup *r, bool keys)
{
    const mha__config *c = &r->model->config;
    for (int64_t l = 0; l < c->layers; l++)
        if (keys ? wanted(r->o.key_heads, c->layer_k_heads[l]) < c->layer_k_heads[l]
                 : wanted(r->o.value_heads, c->layer_v_heads[l]) < c->layer_v_heads[l])
            return true;
    return false;
}

static mha_status check_count(const mha_model *m, const char *name, int64_t count, const int32_t *had, mha_error *err)
{
    for (int64_t l = 0; count && l < m->config.layers; l++) {
        if (count < 0 || m->config.layer_heads[l] % count)
            return mha__fail(err, MHA_ERR_ARG, "regroup: %s is %lld, which does not divide the %d heads of layer %lld",
                             name, (long long)count, (int)m->config.layer_heads[l], (long long)l);
        if (count > had[l])
            return mha__fail(err, MHA_ERR_ARG, "regroup: %s is %lld, more than the %d of layer %lld", name,
                             (long long)count, (int)had[l], (long long)l);
    }
    return MHA_OK;
}

/* A map of keys would have to pass rotation and norms. */
static mha_status check_keys(const regroup *r, mha_error *err)
{
    const mha_model *m = r->model;
    if (r->o.method != MHA_REGROUP_CLOSED || !shrinks(r, true) || (!has_rotation(m) && !has_head_norms(m)))
        return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "keys of %s have no closed form: they are %s after the projection, which a map of keys would have "
                     "to commute with; \"values\" takes the mean of keys and the closed form for values, and fewer "
                     "value heads alone keep the keys as they are",
                     m->info.family, has_head_norms(m) ? "normed and rotated" : "rotated");
}

static mha_status check_shapes(const regroup *r, mha_error *err)
{
    const mha__config *c = &r->model->config;
    if (r->o.compatible && c->own_key)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "config.json has %s, which no other program knows: there is nothing to be compatible with",
                         c->own_key);
    if (mha__config_choosing(c) >= 0)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "layer %lld chooses its heads for each text, and they would share keys with others",
                         (long long)mha__config_choosing(c));
    for (int64_t l = 0; l < c->layers && r->o.compatible; l++)
        if (c->layer_heads[l] != c->heads)
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "compatible: layer %lld has %d heads of %lld, and transformers knows no such layers",
                             (long long)l, (int)c->layer_heads[l], (long long)c->heads);
    return MHA_OK;
}

static mha_status check(regroup *r, mha_error *err)
{
    const mha_model *m = r->model;
    mha_regroup_options *o = &r->o;
    if (!is_method(o->method)) return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: method is %d", (int)o->method);
    if (!o->key_heads && !o->value_heads)
        return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: key_heads and value_heads are 0: nothing to do");
    if (!isfinite(o->ridge)) return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: ridge is %g", o->ridge);
    MHA__TRY(check_count(m, "key_heads", o->key_heads, m->config.layer_k_heads, err));
    MHA__TRY(check_count(m, "value_heads", o->value_heads, m->config.layer_v_heads, err));
    MHA__TRY(check_keys(r, err));
    MHA__TRY(check_shapes(r, err));
    if (o->ridge == 0) o->ridge = o->method == MHA_REGROUP_MEAN ? -1 : default_ridge;
    if ((o->method != MHA_REGROUP_MEAN || o->ridge > 0) && !o->fit)
        return mha__fail(err, MHA_ERR_ARG, "mha_regroup_options: fit is NULL, but \"%s\"%s needs texts",
                         methods[o->method].key, o->method == MHA_REGROUP_MEAN ? " with a refit" : "");
    if (o->fit && !m->packed) return mha__fail(err, MHA_ERR_ARG, "the model was opened without weights (no_weights)");
    return MHA_OK;
}

/* ---- config and record ---- */

/* Does num_key_value_heads say it? */
static bool is_plain(const regroup *r)
{
    const mha__config *c = &r->model->config;
    const int64_t first = wanted(r->o.key_heads, c->layer_k_heads[0]);
    for (int64_t l = 0; l < c->layers; l++)
        if (wanted(r->o.key_heads, c->layer_k_heads[l]) != first ||
            wanted(r->o.value_heads, c->layer_v_heads[l]) != first || c->layer_heads[l] != c->heads)
            return false;
    return c->family->rotary;
}

/* Heads of both that are stored with `compatible`. */
static int64_t copies_of(const regroup *r, int64_t layer)
{
    const mha__config *c = &r->model->config;
    if (!r->o.compatible) return 0;
    if (!c->family->rotary) return c->layer_heads[layer];
    int64_t copies = 1; /* one number for all layers */
    for (int64_t l = 0; l < c->layers; l++) {
        copies = mha__common_multiple(copies, wanted(r->o.key_heads, c->layer_k_heads[l]));
        copies = mha__common_multiple(copies, wanted(r->o.value_heads, c->layer_v_heads[l]));
    }
    return copies;
}

/* A number, or where layers differ one for each. */
static json_t *counts_json(const regroup *r, int64_t asked, const int32_t *had)
{
    bool same = true;
    for (int64_t l = 1; l < r->model->config.layers; l++)
        same &= wanted(asked, had[l]) == wanted(asked, had[0]);
    if (same) return json_integer(wanted(asked, had[0]));
    json_t *list = json_array();
    for (int64_t l = 0; l < r->model->config.layers; l++)
        json_array_append_new(list, json_integer(had[l]));
    return list;
}

static json_t *both_json(const regroup *r)
{
    const mha__config *c = &r->model->config;
    return json_pack("{s:o, s:o}", "keys", counts_json(r, r->o.key_heads, c->layer_k_heads), "values",
                     counts_json(r, r->o.value_heads, c->layer_v_heads));
}

/* For each layer its heads in their new order: by `numbers`, or NULL, by their places before. */
static json_t *order_json(const regroup *r, const int32_t *numbers)
{
    const mha__config *c = &r->model->config;
    json_t *lists = json_array();
    for (int64_t l = 0; l < c->layers; l++) {
        json_t *list = json_array();
        for (int64_t h = 0; h < c->layer_heads[l]; h++) {
            const int32_t head = r->order[l * c->heads + h];
            json_array_append_new(list, json_integer(numbers ? numbers[l * c->heads + head] : head));
        }
        json_array_append_new(lists, list);
    }
    return lists;
}

static int set_keys(const regroup *r, const int32_t *numbers)
{
    json_t *config = r->p->config;
    const bool plain = is_plain(r), listed = (r->listed || r->ordered) && !r->o.compatible;
    int failed = 0;
    json_object_del(config, "mha.kv_heads");
    if (r->o.compatible) json_object_del(config, "mha.heads");
    if (r->model->config.family->rotary && (plain || r->o.compatible))
        failed |= json_object_set_new(config, "num_key_value_heads",
                                      json_integer(r->o.compatible
                                                       ? copies_of(r, 0)
                                                       : wanted(r->o.key_heads, r->model->config.layer_k_heads[0])));
    if (!r->o.compatible && (!plain || listed)) failed |= json_object_set_new(config, "mha.kv_heads", both_json(r));
    if (listed) failed |= json_object_set_new(config, "mha.heads", order_json(r, numbers));
    return failed;
}

static int set_record(const regroup *r)
{
    json_t *entry = r->p->entry =
        json_pack("{s:o, s:s}", "regrouped", both_json(r), "method", methods[r->o.method].key);
    const json_int_t tokens = r->o.fit ? mha_head_data_tokens(r->o.fit) : 0;
    int failed = !entry;
    if (r->ordered) failed |= json_object_set_new(entry, "order", order_json(r, NULL));
    if (r->o.method != MHA_REGROUP_MEAN) failed |= json_object_set_new(entry, "fit", json_integer(tokens));
    if (r->o.ridge > 0)
        failed |= json_object_set_new(entry, "refit", json_pack("{s:I, s:f}", "tokens", tokens, "ridge", r->o.ridge));
    if (r->o.compatible) failed |= json_object_set_new(entry, "compatible", json_true());
    return failed;
}

static mha_status write_config(regroup *r, mha_error *err)
{
    const mha_model *m = r->model;
    int32_t *numbers;
    MHA__TRY(mha__json_parse("config.json", m->config_text, strlen(m->config_text), MHA__JSON_BOM, &r->p->config, err));
    MHA__TRY(mha__head_numbers(m, &numbers, err));
    r->listed = json_object_get(r->p->config, "mha.heads") != NULL;
    const int failed = set_keys(r, numbers) | set_record(r);
    mha__free(m->ctx, numbers);
    r->p->config_text = failed ? NULL : mha__pruning_text(m->ctx, r->p->config);
    return r->p->config_text ? MHA_OK : mha__no_memory(err, 0, "config.json");
}

/* ---- the layers ---- */

static mha_status regroup_layer(regroup *r, int64_t layer, mha_error *err)
{
    const mha_model *m = r->model;
    const mha__config *c = &m->config;
    const mha__regroup_job job = {.model = m,
                                  .o = &r->o,
                                  .moments = &r->moments,
                                  .layer = layer,
                                  .keys = wanted(r->o.key_heads, c->layer_k_heads[layer]),
                                  .values = wanted(r->o.value_heads, c->layer_v_heads[layer]),
                                  .order = r->order + layer * c->heads};
    mha__projections from, to = {0};
    MHA__TRY(mha__projections_read(m, layer, &from, err));
    mha_status status = mha__regroup_layer(&job, &from, &to, err);
    if (status == MHA_OK) status = mha__projections_list(r->p, layer, &to, copies_of(r, layer), err);
    mha__projections_free(m->ctx, &from);
    mha__projections_free(m->ctx, &to);
    for (int64_t h = 0; h < c->layer_heads[layer]; h++)
        r->ordered |= job.order[h] != h;
    return status;
}

static mha_status make_lists(regroup *r, mha_error *err)
{
    enum { PER_LAYER = 8 }; /* weights and biases of q, k, v, o */
    const mha__config *c = &r->model->config;
    mha_pruning *p = r->p;
    const size_t layers = (size_t)c->layers, count = layers * PER_LAYER;
    p->list = mha__calloc(p->ctx, count, sizeof *p->list);
    p->named = mha__calloc(p->ctx, count, sizeof *p->named);
    p->out = mha__calloc(p->ctx, layers, sizeof *p->out);
    r->order = mha__calloc(p->ctx, layers * (size_t)c->heads, sizeof *r->order);
    if (p->list && p->named && p->out && r->order) return MHA_OK;
    return mha__no_memory(err, count * sizeof *p->list, "the lists of a regrouped model");
}

static mha_status make(regroup *r, mha_error *err)
{
    const mha_model *m = r->model;
    const bool values = r->o.method != MHA_REGROUP_MEAN && shrinks(r, false);
    const bool keys = r->o.method == MHA_REGROUP_CLOSED && shrinks(r, true);
    MHA__TRY(make_lists(r, err));
    if (keys || values) MHA__TRY(mha__moments_sum(m, r->o.fit, keys, values, &r->moments, err));
    for (int64_t l = 0; l < m->config.layers; l++)
        MHA__TRY(regroup_layer(r, l, err));
    MHA__TRY(write_config(r, err));
    return r->o.ridge > 0 ? mha__pruning_refit(r->p, r->o.fit, r->o.ridge, err) : MHA_OK;
}

mha_status mha_regroup_make(const mha_model *model, const mha_regroup_options *options, mha_pruning **out,
                            mha_error *err)
{
    regroup r = {.model = model};
    if (!out || !model) return mha__fail(err, MHA_ERR_ARG, "mha_regroup_make: %s is NULL", out ? "model" : "out");
    *out = NULL;
    MHA__TRY(mha__options_need(&r.o, sizeof r.o, options, "mha_regroup_options", err));
    MHA__TRY(check(&r, err));
    r.p = mha__calloc(model->ctx, 1, sizeof *r.p);
    if (!r.p) return mha__no_memory(err, sizeof *r.p, "a regrouped model");
    r.p->model = model;
    r.p->ctx = model->ctx;
    const mha_status status = make(&r, err);
    mha__moments_free(model->ctx, &r.moments, model->config.layers);
    mha__free(model->ctx, r.order);
    if (status == MHA_OK)
        *out = r.p;
    else
        mha_pruning_free(r.p);
    return status;
}

mha_status mha_regroup_save(const mha_model *model, const mha_regroup_options *options, const char *folder,
                            mha_error *err)
{
    mha_pruning *pruning;
    mha_regroup_options o;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_regroup_options", err));
    MHA__TRY(mha_regroup_make(model, &o, &pruning, err));
    const mha_status status = mha_pruning_save(pruning, folder, o.overwrite, err);
    mha_pruning_free(pruning);
    return status;
}
