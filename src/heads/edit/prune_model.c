/* prune_model.c - mha_prune: creates an edited model with its config and record from the list of kept heads. */
#include "heads/edit/prune_model.h"
#include "base/error.h"
#include "base/struct_size.h"
#include <math.h>
#include <string.h>

#define CONFIG "config.json"

static const double default_ridge = 3;

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
    const int64_t kept = mha__keep_count(p->model, p->keep, layer), had = c->layer_heads[layer];
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
    mha__keep_write(w, p->model, p->keep, true);
    if (shared) write_shared(w, p);
    if (first.heads != c->heads && mha__heads_are_plain(c, remaining, p)) mha__plain_heads_write(w, c, &first);
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

static mha_status write_config(const mha__prune_job *p, mha_error *err)
{
    static const char *const removed[] = {"mha.heads", "mha.original_heads", NULL};
    const mha_model *m = p->model;
    const mha__json *root;
    mha__json_writer changes = {.ctx = p->edit->ctx};
    MHA__TRY(mha__json_parse(m->ctx, CONFIG, m->config_text, strlen(m->config_text), MHA__JSON_BOM, &root, err));
    const bool shared = mha__json_get(root, "mha.kv_heads") != NULL;
    const char *own = shared ? "mha.kv_heads" : m->config.own_key;
    mha__json_free(root);
    if (p->compatible) MHA__TRY(mha__edit_check_compatible(own, err));
    write_changes(&changes, p, shared);
    return mha__json_changed(CONFIG, m->config_text, p->compatible ? removed : NULL, &changes, 2, &p->edit->config,
                             err);
}

/* ---- record ---- */

static mha_status write_record(const mha__prune_job *p, const mha_prune_options *o, mha_error *err)
{
    const mha_model *m = p->model;
    mha__json_writer w = {.ctx = m->ctx};
    int64_t before = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        before += m->heads_per_layer[l];
    mha__json_open(&w, '{');
    mha__json_key(&w, "removed");
    mha__keep_write(&w, m, p->keep, false);
    mha__json_key(&w, "heads");
    mha__json_open(&w, '[');
    mha__json_put_int(&w, before);
    mha__json_put_int(&w, mha__keep_count(m, p->keep, -1));
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

static mha_status check(const mha_model *model, const uint8_t *keep, mha_prune_options *o, mha_error *err)
{
    if (!model || !keep) return mha__fail(err, MHA_ERR_ARG, "mha_prune: %s must not be NULL", model ? "keep" : "model");
    if (!(o->ridge >= 0 && isfinite(o->ridge)))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_options: ridge must be at least 0 (got %g)", o->ridge);
    if (o->ridge == 0) o->ridge = default_ridge;
    if ((o->fill || o->refit) && model->config.family->latent)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_prune_options: fill and refit must be NULL for %s",
                         model->info.family);
    if (o->fill || o->refit) MHA__TRY(mha__edit_check_weights(model, err));
    return mha__keep_check(model, keep, err);
}

mha_status mha_prune(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                     mha_model_edit **out, mha_error *err)
{
    mha_prune_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_prune: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_prune_options", err));
    MHA__TRY(check(model, keep, &o, err));
    mha__prune_job p = {.model = model, .keep = keep, .compatible = o.compatible != 0};
    MHA__TRY(mha__edit_create(model, &p.edit, err));
    return mha__edit_finish(p.edit, make(&p, &o, err), out);
}
