/* prune_model.c - mha_prune: creates an edited model with its config and record from the list of kept heads. */
#include "heads/edit/prune_model.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "heads/data/head_data.h"
#include "model/config/config_layers.h"
#include <math.h>
#include <string.h>

#define CONFIG "config.json"

static const double DEFAULT_RIDGE = 3;

/* ---- config.json ---- */

/* Returns true if config.json of this family states whether the attention projections have biases. */
static bool may_add_bias(const mha_model *m)
{
    const mha__family *f = m->config.family;
    for (int i = 0; i < f->key_count; i++)
        if (f->keys[i].offset == offsetof(mha__config, attn_bias) && f->keys[i].kind == MHA__KEY_BOOL) return true;
    return false;
}

static mha_status check_fill(mha__prune_job *p, mha_error *err)
{
    const mha_model *m = p->model;
    if (mha__weights_tensor(&m->outer, MHA__ATTN_OUT, 0, true)) return MHA_OK;
    p->add_bias = may_add_bias(m);
    if (p->add_bias) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "fill must be NULL for %s, since its output projections have no bias, and its config.json has "
                     "no key to add a bias",
                     m->info.family);
}

/* Returns the head counts of a layer after pruning. */
static mha__head_count remaining(const void *user, int64_t layer)
{
    const mha__prune_job *p = user;
    const mha__config *c = &p->model->config;
    const int64_t kept = mha__keep_count(&p->part[0], layer), had = c->layer_heads[layer];
    return (mha__head_count){kept, kept * c->layer_k_heads[layer] / had, kept * c->layer_v_heads[layer] / had};
}

static void write_shared(mha__json_writer *w, const mha__prune_job *p)
{
    static const char *const keys[] = {"keys", "values"};
    mha__json_key(w, "mha.kv_heads");
    mha__json_open(w, '{');
    for (int values = 0; values < 2; values++) {
        mha__json_key(w, keys[values]);
        mha__json_open(w, '[');
        for (int64_t l = 0; l < p->model->config.layers; l++)
            mha__json_put_int(w, values ? remaining(p, l).values : remaining(p, l).keys);
        mha__json_close(w, ']');
    }
    mha__json_close(w, '}');
}

/* Writes the lists of the heads that are kept, or of those that are not; in an encoder-decoder, an object with the
 * lists of each part. */
static void write_lists(mha__json_writer *w, const mha__prune_job *p, bool which)
{
    if (!p->model->config.family->one_side) {
        mha__keep_write(w, &p->part[0], which);
        return;
    }
    mha__json_open(w, '{');
    for (int n = 0; n < p->parts; n++) {
        const mha__keep *k = &p->part[n];
        mha__json_key(w, k->cross ? "cross" : k->model->encoder ? "decoder" : "encoder");
        mha__keep_write(w, k, which);
    }
    mha__json_close(w, '}');
}

/* Returns true if the key of an encoder-decoder's head count can express the result: all layers of all parts have the
 * same count, and all layers of a side the same heads, since its table of relative positions has a column per head. */
static bool is_plain_pair(const mha__prune_job *p)
{
    const int64_t count = mha__keep_count(&p->part[0], 0);
    if (!p->model->config.family->heads_key) return false;
    for (int n = 0; n < p->parts; n++) {
        const mha__keep *k = &p->part[n];
        for (int64_t l = 0; l < k->model->config.layers; l++)
            if (mha__keep_count(k, l) != count) return false;
        if (!k->cross && !mha__keep_is_uniform(k)) return false;
    }
    return true;
}

/* Writes the head counts and the lists of kept heads. */
static void write_heads(mha__json_writer *w, const mha__prune_job *p, bool shared)
{
    const mha__config *c = &p->model->config;
    const mha__head_count first = remaining(p, 0);
    if (p->compatible) {
        mha__original_heads_write(w, c);
        return;
    }
    mha__json_key(w, "mha.heads");
    write_lists(w, p, true);
    if (shared) write_shared(w, p);
    const bool plain = c->family->one_side ? is_plain_pair(p) : mha__heads_are_plain(c, remaining, p);
    if (first.heads != c->heads && plain) mha__plain_heads_write(w, c, &first);
}

static void write_changes(mha__json_writer *w, const mha__prune_job *p, bool shared)
{
    mha__json_open(w, '{');
    write_heads(w, p, shared);
    if (p->add_bias) {
        mha__json_key(w, "attention_bias");
        mha__json_put_bool(w, true);
    }
    mha__json_close(w, '}');
}

/* Applies changes to the object of config.json with the keys of this model: the root or, in a CLIP model, the object of
 * its tower. `own` is this object. */
static mha_status change_config(const mha__prune_job *p, const mha__json_obj *own, mha__json_writer *changes,
                                mha_error *err)
{
    static const char *const removed[] = {"mha.heads", "mha.original_heads", NULL};
    const char *const *gone = p->compatible ? removed : NULL, *text = p->model->config_text;
    mha__json_writer object = {.ctx = p->edit->ctx}, outer = object;
    char *before = NULL, *after = NULL;
    if (!own->where) return mha__json_changed(CONFIG, text, gone, changes, 2, &p->edit->config, err);
    mha__json_put(&object, own->json);
    mha_status status = mha__json_written(&object, CONFIG, &before, NULL, err);
    if (status == MHA_OK)
        status = mha__json_changed(CONFIG, before, gone, changes, 2, &after, err);
    else
        mha__json_written(changes, CONFIG, NULL, NULL, NULL);
    mha__free(p->edit->ctx, before);
    if (status != MHA_OK) return status;
    mha__json_open(&outer, '{');
    mha__json_key(&outer, own->where);
    status = mha__json_put_json(&outer, CONFIG, after, err);
    mha__json_close(&outer, '}');
    mha__free(p->edit->ctx, after);
    if (status == MHA_OK) return mha__json_changed(CONFIG, text, NULL, &outer, 2, &p->edit->config, err);
    mha__json_written(&outer, CONFIG, NULL, NULL, NULL);
    return status;
}

static mha_status change_object(const mha__prune_job *p, const mha__json_obj *root, mha_error *err)
{
    mha__json_writer changes = {.ctx = p->edit->ctx};
    mha__json_obj own = {0};
    MHA__TRY(mha__config_tower(root, &p->model->config, &own, err));
    const bool shared = mha__json_get(own.json, "mha.kv_heads") != NULL;
    if (p->compatible) MHA__TRY(mha__edit_check_compatible(shared ? "mha.kv_heads" : p->model->config.own_key, err));
    if (own.where && !own.json)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, CONFIG ": %s must exist to store which heads are kept", own.where);
    write_changes(&changes, p, shared);
    return change_config(p, &own, &changes, err);
}

static mha_status write_config(const mha__prune_job *p, mha_error *err)
{
    const char *text = p->model->config_text;
    const mha__json *json;
    MHA__TRY(mha__json_parse(p->model->ctx, CONFIG, text, strlen(text), MHA__JSON_BOM, &json, err));
    const mha_status status = change_object(p, &(mha__json_obj){.json = json, .file = CONFIG}, err);
    mha__json_free(json);
    return status;
}

/* ---- record ---- */

static mha_status write_record(const mha__prune_job *p, const mha_prune_options *o, mha_error *err)
{
    const mha_model *m = p->model;
    mha__json_writer w = {.ctx = m->ctx};
    int64_t before = 0, after = 0;
    for (int n = 0; n < p->parts; n++) {
        for (int64_t l = 0; l < p->part[n].model->config.layers; l++)
            before += mha__keep_heads(&p->part[n], l);
        after += mha__keep_count(&p->part[n], -1);
    }
    mha__json_open(&w, '{');
    if (m->config.family->tower) mha__record_text(&w, "part", m->info.image_channels ? "image" : "text");
    mha__json_key(&w, "removed");
    write_lists(&w, p, false);
    mha__json_key(&w, "heads");
    mha__json_open(&w, '[');
    mha__json_put_int(&w, before);
    mha__json_put_int(&w, after);
    mha__json_close(&w, ']');
    if (o->chosen_by) mha__record_text(&w, "chosen_by", o->chosen_by);
    if (o->fill) {
        mha__json_key(&w, "fill");
        mha__json_put_int(&w, mha_head_data_tokens(o->fill));
    }
    return mha__record_end(p->edit, &w, o->refit, o->ridge, p->compatible, err);
}

/* ---- creation ---- */

static mha_status make(mha__prune_job *p, const mha_prune_options *o, mha_error *err)
{
    if (o->fill) MHA__TRY(check_fill(p, err));
    MHA__TRY(write_config(p, err));
    MHA__TRY(write_record(p, o, err));
    MHA__TRY(mha__prune_tensors(p, o->refit != NULL, err));
    if (o->fill) MHA__TRY(mha__mean_fill(p, o->fill, err));
    return o->refit ? mha__edit_refit(p->edit, o->refit, o->ridge, err) : MHA_OK;
}

/* Lists the parts whose heads are described together in config.json. */
static void list_parts(mha__prune_job *p, const uint8_t *keep, const mha_prune_options *o)
{
    const mha_model *m = p->model, *decoder = m->encoder ? m : m->decoder;
    p->part[p->parts++] = (mha__keep){m, false, keep};
    if (m->encoder) p->part[p->parts++] = (mha__keep){m->encoder, false, o->encoder_keep};
    if (m->decoder) p->part[p->parts++] = (mha__keep){m->decoder, false, NULL};
    if (decoder) p->part[p->parts++] = (mha__keep){decoder, true, o->cross_keep};
}

/* Checks the options that depend on the family. */
static mha_status check_family(const mha_model *m, const mha_prune_options *o, mha_error *err)
{
    if ((o->cross_keep || o->encoder_keep) && !m->encoder)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_prune_options: %s must be NULL unless the model is the decoder of an encoder-decoder "
                         "(got %s)",
                         o->cross_keep ? "cross_keep" : "encoder_keep", m->info.family);
    if ((o->fill || o->refit) && m->config.family->latent)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_prune_options: fill and refit must be NULL for %s",
                         m->info.family);
    return MHA_OK;
}

static mha_status check(const mha_model *model, const uint8_t *keep, mha_prune_options *o, mha_error *err)
{
    if (!model || !keep) return mha__fail(err, MHA_ERR_ARG, "mha_prune: %s must not be NULL", model ? "keep" : "model");
    if (!(o->ridge >= 0 && isfinite(o->ridge)))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_options: ridge must be at least 0 (got %g)", o->ridge);
    if (o->ridge == 0) o->ridge = DEFAULT_RIDGE;
    MHA__TRY(check_family(model, o, err));
    if (o->fill) MHA__TRY(mha__head_data_matches(model, o->fill, err));
    if (o->refit) MHA__TRY(mha__head_data_no_images(o->refit, err));
    if (o->refit) MHA__TRY(mha__head_data_matches(model, o->refit, err));
    return o->fill || o->refit ? mha__edit_check_weights(model, err) : MHA_OK;
}

mha_status mha_prune(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                     mha_model_edit **out, mha_error *err)
{
    mha_prune_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_prune: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_prune_options", err));
    MHA__TRY(check(model, keep, &o, err));
    mha__prune_job p = {.model = model, .compatible = o.compatible != 0};
    list_parts(&p, keep, &o);
    for (int n = 0; n < p.parts; n++)
        MHA__TRY(mha__keep_check(&p.part[n], err));
    MHA__TRY(mha__edit_create(model, &p.edit, err));
    return mha__edit_finish(p.edit, make(&p, &o, err), out);
}
