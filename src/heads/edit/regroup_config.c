/* regroup_config.c - writes config.json and the record of a regrouped model. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/edit/regroup_model.h"
#include <string.h>

/* ---- head counts ---- */

/* Returns the head counts of a layer of the regrouped model. */
static mha__head_count result_heads(const void *user, int64_t layer)
{
    const mha__regroup *r = user;
    const mha__config *c = &r->model->config;
    return (mha__head_count){c->layer_heads[layer], mha__regroup_count(r->o.key_heads, c->layer_k_heads[layer]),
                             mha__regroup_count(r->o.value_heads, c->layer_v_heads[layer])};
}

int64_t mha__regroup_copies(const mha__regroup *r, int64_t layer)
{
    const mha__config *c = &r->model->config;
    if (!r->o.compatible) return 0;
    if (!c->family->head_keys) return c->layer_heads[layer];
    int64_t copies = 1; /* config.json of a compatible result can express only one count for all layers */
    for (int64_t l = 0; l < c->layers; l++) {
        copies = mha__common_multiple(copies, mha__regroup_count(r->o.key_heads, c->layer_k_heads[l]));
        copies = mha__common_multiple(copies, mha__regroup_count(r->o.value_heads, c->layer_v_heads[l]));
    }
    return copies;
}

/* ---- config and record ---- */

/* Writes one head count, or a list of head counts if layers differ. */
static void write_counts(mha__json_writer *w, const mha__regroup *r, const char *key, int64_t asked, const int32_t *had)
{
    bool same = true;
    for (int64_t l = 1; l < r->model->config.layers; l++)
        same &= mha__regroup_count(asked, had[l]) == mha__regroup_count(asked, had[0]);
    mha__json_key(w, key);
    if (same) {
        mha__json_put_int(w, mha__regroup_count(asked, had[0]));
        return;
    }
    mha__json_open(w, '[');
    for (int64_t l = 0; l < r->model->config.layers; l++)
        mha__json_put_int(w, had[l]);
    mha__json_close(w, ']');
}

static void write_both(mha__json_writer *w, const mha__regroup *r, const char *key)
{
    const mha__config *c = &r->model->config;
    mha__json_key(w, key);
    mha__json_open(w, '{');
    write_counts(w, r, "keys", r->o.key_heads, c->layer_k_heads);
    write_counts(w, r, "values", r->o.value_heads, c->layer_v_heads);
    mha__json_close(w, '}');
}

/* Writes the heads of each layer in their new order: by `numbers` or, if `numbers` is NULL, by their previous
 * positions. */
static void write_order(mha__json_writer *w, const mha__regroup *r, const char *key, const int32_t *numbers)
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

static void write_keys(mha__json_writer *w, const mha__regroup *r, const int32_t *numbers)
{
    const mha__config *c = &r->model->config;
    const bool plain = mha__heads_are_plain(c, result_heads, r), listed = (r->listed || r->ordered) && !r->o.compatible;
    mha__head_count first = result_heads(r, 0);
    if (r->o.compatible) first.keys = mha__regroup_copies(r, 0);
    mha__json_open(w, '{');
    if (c->family->head_keys && (plain || r->o.compatible)) mha__plain_heads_write(w, c, &first);
    if (!r->o.compatible && (!plain || listed)) write_both(w, r, "mha.kv_heads");
    if (listed) write_order(w, r, "mha.heads", numbers);
    mha__json_close(w, '}');
}

static mha_status write_record(const mha__regroup *r, mha_error *err)
{
    mha__json_writer w = {.ctx = r->model->ctx};
    mha__json_open(&w, '{');
    write_both(&w, r, "regrouped");
    mha__record_text(&w, "method", mha_regroup_method_key(r->o.method));
    if (r->ordered) write_order(&w, r, "order", NULL);
    if (r->o.method != MHA_REGROUP_MEAN) {
        mha__json_key(&w, "fit");
        mha__json_put_int(&w, mha_head_data_tokens(r->o.fit));
    }
    if (r->o.scores && r->o.weighted_by) mha__record_text(&w, "weighted_by", r->o.weighted_by);
    return mha__record_end(r->edit, &w, r->o.ridge > 0 ? r->o.fit : NULL, r->o.ridge, r->o.compatible, err);
}

mha_status mha__regroup_config(mha__regroup *r, mha_error *err)
{
    static const char *const all[] = {"mha.kv_heads", "mha.heads", "mha.original_heads", NULL};
    static const char *const shared[] = {"mha.kv_heads", NULL};
    const mha_model *m = r->model;
    const char *text = m->config_text;
    const mha__json *root;
    mha__json_writer changes = {.ctx = m->ctx};
    MHA__TRY(mha__json_parse(m->ctx, "config.json", text, strlen(text), MHA__JSON_BOM, &root, err));
    r->listed = mha__json_get(root, "mha.heads") != NULL;
    mha__json_free(root);
    write_keys(&changes, r, m->head_numbers);
    MHA__TRY(
        mha__json_changed("config.json", text, r->o.compatible ? all : shared, &changes, 2, &r->edit->config, err));
    return write_record(r, err);
}
