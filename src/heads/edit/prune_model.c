/* prune_model.c - from a list of heads that stay to a model: cut, made up for, opened, written, with its record. */
#include "heads/edit/prune_model.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "io/json/json_write.h"
#include "mha/model_save.h"
#include <limits.h>
#include <math.h>
#include <string.h>

#define CONFIG "config.json"

static const double default_ridge = 3;

/* ---- config and record ---- */

/* Does config.json of this family say whether the projections of attention have biases? */
static bool may_add_bias(const mha_model *m)
{
    const mha__family *f = m->config.family;
    for (int i = 0; i < f->key_count; i++)
        if (f->keys[i].offset == offsetof(mha__config, attn_bias) && f->keys[i].kind == MHA__KEY_BOOL) return true;
    return false;
}

static mha_status check_fill(mha_pruning *p, mha_error *err)
{
    const mha_model *m = p->model;
    if (mha__weights_tensor(&m->outer, MHA__ATTN_OUT, 0, true)) return MHA_OK;
    p->add_bias = may_add_bias(m);
    if (p->add_bias) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_UNSUPPORTED,
        "mean fill: the output projections of %s have no bias, and config.json of that family has no key to "
        "give them one",
        m->info.family);
}

/* Heads of a layer that are left. */
static mha__head_count left(const void *user, int64_t layer)
{
    const mha_pruning *p = user;
    const mha__config *c = &p->model->config;
    const int64_t kept = mha__kept(p->model, p->keep, layer), had = c->layer_heads[layer];
    return (mha__head_count){kept, kept * c->layer_k_heads[layer] / had, kept * c->layer_v_heads[layer] / had};
}

static void write_shared(mha__json_writer *w, const mha_pruning *p)
{
    static const char *const keys[] = {"keys", "values"};
    mha__json_key(w, "mha.kv_heads");
    mha__json_open(w, '{');
    for (int values = 0; values < 2; values++) {
        mha__json_key(w, keys[values]);
        mha__json_open(w, '[');
        for (int64_t l = 0; l < p->model->config.layers; l++)
            mha__json_put_int(w, values ? left(p, l).values : left(p, l).keys);
        mha__json_close(w, ']');
    }
    mha__json_close(w, '}');
}

/* How many heads there are, and which. */
static void write_heads(mha__json_writer *w, const mha_pruning *p, bool shared)
{
    const mha__config *c = &p->model->config;
    const mha__head_count first = left(p, 0);
    if (p->compatible) {
        mha__original_heads_write(w, c);
        return;
    }
    mha__json_key(w, "mha.heads");
    mha__heads_write(w, p->model, p->keep, true);
    if (shared) write_shared(w, p);
    if (first.heads != c->heads && mha__heads_are_plain(c, left, p)) mha__plain_heads_write(w, c, &first);
}

static void write_changes(mha__json_writer *w, const mha_pruning *p, bool shared)
{
    mha__json_open(w, '{');
    write_heads(w, p, shared);
    if (p->add_bias) {
        mha__json_key(w, "attention_bias");
        mha__json_put_bool(w, true);
    }
    mha__json_close(w, '}');
}

/* What the result is, as config.json says it. */
static mha_status write_config(mha_pruning *p, mha_error *err)
{
    static const char *const removed[] = {"mha.heads", "mha.original_heads", NULL};
    const mha_model *m = p->model;
    const mha__json *root;
    mha__json_writer changes = {.ctx = p->ctx};
    MHA__TRY(mha__json_parse(p->ctx, CONFIG, m->config_text, strlen(m->config_text), MHA__JSON_BOM, &root, err));
    const bool shared = mha__json_get(root, "mha.kv_heads") != NULL;
    const char *own = shared ? "mha.kv_heads" : m->config.own_key;
    mha__json_free(root);
    if (p->compatible && own)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "config.json has %s, which no other program knows: there is nothing to be compatible with",
                         own);
    write_changes(&changes, p, shared);
    return mha__json_changed(CONFIG, m->config_text, p->compatible ? removed : NULL, &changes, 2, &p->config, err);
}

const mha_named_tensor *mha_pruning_list(const mha_pruning *pruning, int64_t *count)
{
    if (count) *count = pruning ? pruning->count : 0;
    return pruning ? pruning->list : NULL;
}

/* ---- making ---- */

static mha_status make(mha_pruning *p, const uint8_t *keep, const mha_prune_options *o, mha_error *err)
{
    const mha_model *m = p->model;
    const size_t cells = (size_t)(m->config.layers * m->config.heads);
    p->keep = mha__alloc(p->ctx, cells);
    if (!p->keep) return mha__no_memory(err, cells, "a list of heads");
    memcpy(p->keep, keep, cells);
    if (o->fill) MHA__TRY(check_fill(p, err));
    MHA__TRY(write_config(p, err));
    MHA__TRY(mha__record_begin(p, o, err));
    MHA__TRY(mha__pruning_cut(p, o->refit != NULL, err));
    if (o->fill) MHA__TRY(mha__pruning_fill(p, o->fill, err));
    return o->refit ? mha__pruning_refit(p, o->refit, o->ridge, err) : MHA_OK;
}

static mha_status check(const mha_model *model, const uint8_t *keep, mha_prune_options *o, mha_error *err)
{
    if (!model || !keep) return mha__fail(err, MHA_ERR_ARG, "mha_prune_make: %s is NULL", model ? "keep" : "model");
    if (!(o->ridge >= 0 && isfinite(o->ridge)))
        return mha__fail(err, MHA_ERR_ARG, "mha_prune_options: ridge is %g, must be 0 or more", o->ridge);
    if (o->ridge == 0) o->ridge = default_ridge;
    if ((o->fill || o->refit) && !model->packed)
        return mha__fail(err, MHA_ERR_ARG, "the model was opened without weights (no_weights)");
    return mha__check_keep(model, keep, err);
}

mha_status mha_prune_make(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                          mha_pruning **out, mha_error *err)
{
    mha_prune_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_prune_make: out is NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_prune_options", err));
    MHA__TRY(check(model, keep, &o, err));
    mha_pruning *p = mha__calloc(model->ctx, 1, sizeof *p);
    if (!p) return mha__no_memory(err, sizeof *p, "a pruning");
    p->model = model;
    p->ctx = model->ctx;
    p->compatible = o.compatible != 0;
    const mha_status status = make(p, keep, &o, err);
    if (status == MHA_OK)
        *out = p;
    else
        mha_pruning_free(p);
    return status;
}

void mha_pruning_free(mha_pruning *p)
{
    if (!p) return;
    for (int64_t n = 0; n < p->count; n++) {
        mha__free(p->ctx, p->list[n].data);
        mha__free(p->ctx, p->named[n]);
    }
    for (int64_t l = 0; p->out && l < p->model->config.layers; l++)
        mha__free(p->ctx, p->out[l].used);
    mha__free(p->ctx, p->list);
    mha__free(p->ctx, p->named);
    mha__free(p->ctx, p->out);
    mha__free(p->ctx, p->keep);
    mha__free(p->ctx, p->config);
    mha__free(p->ctx, p->entry);
    mha__free(p->ctx, p);
}

/* ---- using it ---- */

static bool is_listed(const mha_pruning *p, const char *name)
{
    for (int64_t n = 0; n < p->count; n++)
        if (strcmp(p->list[n].name, name) == 0) return true;
    return false;
}

/* What changed, and what the source has in memory already. */
static int64_t list_all(const mha_pruning *p, mha_named_tensor *all)
{
    const mha__shards *shards = &p->model->shards;
    int64_t count = 0;
    for (; count < p->count; count++)
        all[count] = p->list[count];
    for (int64_t n = 0; n < shards->instead_count; n++) {
        const mha_tensor *t = &shards->instead[n];
        if (is_listed(p, t->name)) continue;
        all[count] = (mha_named_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank};
        all[count].data = (void *)t->data;
        memcpy(all[count++].shape, t->shape, (size_t)t->rank * sizeof *t->shape);
    }
    return count;
}

mha_status mha_pruning_open(const mha_pruning *p, mha_model **out, mha_error *err)
{
    char folder[PATH_MAX];
    if (!p || !out) return mha__fail(err, MHA_ERR_ARG, "mha_pruning_open: %s is NULL", p ? "out" : "pruning");
    *out = NULL;
    const mha_model *m = p->model;
    MHA__TRY(mha__shards_folder(&m->shards, folder, sizeof folder, err));
    const size_t most = (size_t)(p->count + m->shards.instead_count) + 1;
    mha_named_tensor *all = mha__calloc(p->ctx, most, sizeof *all);
    if (!all) return mha__no_memory(err, most * sizeof *all, "a list of tensors");
    const mha_model_options o = {.size = sizeof o,
                                 .no_tokenizer = 1,
                                 .dtype = m->outer.packed,
                                 .tensors = all,
                                 .tensor_count = list_all(p, all),
                                 .config_json = p->config,
                                 .memory_only = mha_file_count(m->shards.file) == 0};
    const mha_status status = mha_model_open(m->given, folder, &o, out, err);
    mha__free(p->ctx, all);
    return status;
}

mha_status mha_pruning_save(const mha_pruning *p, const char *folder, int overwrite, mha_error *err)
{
    char *config = NULL;
    if (!p || !folder) return mha__fail(err, MHA_ERR_ARG, "mha_pruning_save: %s is NULL", p ? "folder" : "pruning");
    MHA__TRY(mha__record_config(p, &config, err));
    const mha_model_save_options o = {
        .size = sizeof o, .overwrite = overwrite, .tensors = p->list, .count = p->count, .config_json = config};
    const mha_status status = mha_model_save(p->model, folder, &o, err);
    mha__free(p->ctx, config);
    return status;
}

mha_status mha_prune_save(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                          const char *folder, mha_error *err)
{
    mha_pruning *pruning;
    mha_prune_options o;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_prune_options", err));
    MHA__TRY(mha_prune_make(model, keep, &o, &pruning, err));
    const mha_status status = mha_pruning_save(pruning, folder, o.overwrite, err);
    mha_pruning_free(pruning);
    return status;
}
