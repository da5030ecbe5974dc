/* regroup_model.c - heads that share keys and values: options, the layers, config and record. */
#include "heads/edit/regroup_model.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "io/json/json.h"
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
    int32_t *order;  /* [layers, H] */
    double *weights; /* [layers, H] NULL without scores */
    bool ordered;    /* some head stands elsewhere than before */
    bool listed;     /* the source lists its heads */
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
            return mha__fail(err, MHA_ERR_ARG, "%s must divide the %d heads of layer %lld (got %lld)", name,
                             (int)m->config.layer_heads[l], (long long)l, (long long)count);
        if (count > had[l])
            return mha__fail(err, MHA_ERR_ARG, "%s must be at most the %d of layer %lld (got %lld)", name, (int)had[l],
                             (long long)l, (long long)count);
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

/* ---- weights ---- */

/* Of one layer: a score below a hundredth of the largest is taken for that, also where the largest is not above 0. */
static mha_status weigh_layer(const regroup *r, int64_t layer, mha_error *err)
{
    static const double least = 0.01;
    const double *scores = r->o.scores + layer * r->model->config.heads;
    double *weights = r->weights + layer * r->model->config.heads, most = 0;
    const int64_t heads = r->model->heads_per_layer[layer];
    for (int64_t h = 0; h < heads; h++) {
        if (!isfinite(scores[h]))
            return mha__fail(err, MHA_ERR_ARG, "the score of head %lld.%lld is %g, which is no number",
                             (long long)layer, (long long)h, scores[h]);
        most = fmax(most, scores[h]);
    }
    for (int64_t h = 0; h < heads; h++)
        weights[h] = most > 0 ? fmax(scores[h] / most, least) : 1;
    return MHA_OK;
}

static mha_status weigh(regroup *r, mha_error *err)
{
    const mha__config *c = &r->model->config;
    const size_t cells = (size_t)(c->layers * c->heads);
    if (!r->o.scores) return MHA_OK;
    r->weights = mha__calloc(r->model->ctx, cells, sizeof *r->weights);
    if (!r->weights) return mha__no_memory(err, cells * sizeof *r->weights, "the weights of heads");
    for (int64_t l = 0; l < c->layers; l++)
        MHA__TRY(weigh_layer(r, l, err));
    return MHA_OK;
}

/* ---- config and record ---- */

/* Heads of a layer of the result. */
static mha__head_count made_of(const void *user, int64_t layer)
{
    const regroup *r = user;
    const mha__config *c = &r->model->config;
    return (mha__head_count){c->layer_heads[layer], wanted(r->o.key_heads, c->layer_k_heads[layer]),
                             wanted(r->o.value_heads, c->layer_v_heads[layer])};
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
static void write_counts(mha__json_writer *w, const regroup *r, const char *key, int64_t asked, const int32_t *had)
{
    bool same = true;
    for (int64_t l = 1; l < r->model->config.layers; l++)
        same &= wanted(asked, had[l]) == wanted(asked, had[0]);
    mha__json_key(w, key);
    if (same) {
        mha__json_put_int(w, wanted(asked, had[0]));
        return;
    }
    mha__json_open(w, '[');
    for (int64_t l = 0; l < r->model->config.layers; l++)
        mha__json_put_int(w, had[l]);
    mha__json_close(w, ']');
}

static void write_both(mha__json_writer *w, const regroup *r, const char *key)
{
    const mha__config *c = &r->model->config;
    mha__json_key(w, key);
    mha__json_open(w, '{');
    write_counts(w, r, "keys", r->o.key_heads, c->layer_k_heads);
    write_counts(w, r, "values", r->o.value_heads, c->layer_v_heads);
    mha__json_close(w, '}');
}

/* For each layer its heads in their new order: by `numbers`, or NULL, by their places before. */
static void write_order(mha__json_writer *w, const regroup *r, const char *key, const int32_t *numbers)
{
    const mha__config *c = &r->model->config;
    mha__json_key(w, key);
    mha__json_open(w, '[');
    for (int64_t l = 0; l < c->layers; l++) {
        mha__json_open(w, '[');
        for (int64_t h = 0; h < c->layer_heads[l]; h++) {
            const int32_t head = r->order[l * c->heads + h];
            mha__json_put_int(w, numbers ? numbers[l * c->heads + head] : head);
        }
        mha__json_close(w, ']');
    }
    mha__json_close(w, ']');
}

static void write_keys(mha__json_writer *w, const regroup *r, const int32_t *numbers)
{
    const mha__config *c = &r->model->config;
    const bool plain = mha__heads_are_plain(c, made_of, r), listed = (r->listed || r->ordered) && !r->o.compatible;
    mha__head_count first = made_of(r, 0);
    if (r->o.compatible) first.keys = copies_of(r, 0);
    mha__json_open(w, '{');
    if (c->family->rotary && (plain || r->o.compatible)) mha__plain_heads_write(w, c, &first);
    if (!r->o.compatible && (!plain || listed)) write_both(w, r, "mha.kv_heads");
    if (listed) write_order(w, r, "mha.heads", numbers);
    mha__json_close(w, '}');
}

static mha_status set_record(const regroup *r, mha_error *err)
{
    mha__json_writer w = {.ctx = r->p->ctx};
    const int64_t tokens = r->o.fit ? mha_head_data_tokens(r->o.fit) : 0;
    mha__json_open(&w, '{');
    write_both(&w, r, "regrouped");
    mha__json_key(&w, "method");
    mha__json_put_text(&w, methods[r->o.method].key);
    if (r->ordered) write_order(&w, r, "order", NULL);
    if (r->o.method != MHA_REGROUP_MEAN) {
        mha__json_key(&w, "fit");
        mha__json_put_int(&w, tokens);
    }
    if (r->o.scores && r->o.weighted_by) {
        mha__json_key(&w, "weighted_by");
        mha__json_put_text(&w, r->o.weighted_by);
    }
    if (r->o.ridge > 0) mha__refit_write(&w, tokens, r->o.ridge);
    if (r->o.compatible) {
        mha__json_key(&w, "compatible");
        mha__json_put_bool(&w, true);
    }
    mha__json_close(&w, '}');
    return mha__json_written(&w, "mha.record", &r->p->entry, NULL, err);
}

static mha_status write_config(regroup *r, mha_error *err)
{
    static const char *const all[] = {"mha.kv_heads", "mha.heads", "mha.original_heads", NULL}, *const shared[] = {
                                                                                                    "mha.kv_heads",
                                                                                                    NULL};
    const mha_model *m = r->model;
    const char *text = m->config_text;
    const mha__json *root;
    mha__json_writer changes = {.ctx = m->ctx};
    MHA__TRY(mha__json_parse(m->ctx, "config.json", text, strlen(text), MHA__JSON_BOM, &root, err));
    r->listed = mha__json_get(root, "mha.heads") != NULL;
    mha__json_free(root);
    write_keys(&changes, r, m->head_numbers);
    MHA__TRY(mha__json_changed("config.json", text, r->o.compatible ? all : shared, &changes, 2, &r->p->config, err));
    return set_record(r, err);
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
                                  .weights = r->weights ? r->weights + layer * c->heads : NULL,
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
    MHA__TRY(weigh(r, err));
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
    mha__free(model->ctx, r.weights);
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
