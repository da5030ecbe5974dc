/* prune_make.c - from a list of heads that stay to a model: cut, made up for, opened, written, with its record. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "heads/digests.h"
#include "heads/pruning.h"
#include "io/json.h"
#include "mha/model_save.h"
#include <limits.h>
#include <math.h>
#include <string.h>

static const double default_ridge = 3;

static mha_status no_json(mha_error *err)
{
    return mha__no_memory(err, 0, "config.json");
}

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

/* Heads of keys and of values of each layer that are left. */
static json_t *shared_json(const mha_pruning *p)
{
    const mha__config *c = &p->model->config;
    json_t *keys = json_array(), *values = json_array();
    for (int64_t l = 0; l < c->layers; l++) {
        const int64_t kept = mha__kept(p->model, p->keep, l), had = c->layer_heads[l];
        json_array_append_new(keys, json_integer(kept * c->layer_k_heads[l] / had));
        json_array_append_new(values, json_integer(kept * c->layer_v_heads[l] / had));
    }
    return json_pack("{s:o, s:o}", "keys", keys, "values", values);
}

/* What the result is, as config.json says it. */
static mha_status write_config(mha_pruning *p, mha_error *err)
{
    const mha_model *m = p->model;
    MHA__TRY(mha__json_parse("config.json", m->config_text, strlen(m->config_text), MHA__JSON_BOM, &p->config, err));
    int failed = 0;
    const char *own = json_object_get(p->config, "mha.kv_heads") ? "mha.kv_heads" : m->config.own_key;
    if (p->compatible && own)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "config.json has %s, which no other program knows: there is nothing to be compatible with",
                         own);
    if (p->compatible)
        json_object_del(p->config, "mha.heads");
    else
        failed = json_object_set_new(p->config, "mha.heads", mha__heads_json(m, p->numbers, p->keep, true));
    if (json_object_get(p->config, "mha.kv_heads"))
        failed |= json_object_set_new(p->config, "mha.kv_heads", shared_json(p));
    if (p->add_bias) failed |= json_object_set_new(p->config, "attention_bias", json_true());
    return failed ? no_json(err) : MHA_OK;
}

char *mha__pruning_text(mha_ctx *ctx, const json_t *json)
{
    const size_t bytes = json_dumpb(json, NULL, 0, JSON_INDENT(2));
    char *text = bytes ? mha__calloc(ctx, bytes + 1, 1) : NULL;
    if (text) json_dumpb(json, text, bytes, JSON_INDENT(2));
    return text;
}

static mha_status begin_record(mha_pruning *p, const mha_prune_options *o, mha_error *err)
{
    const mha_model *m = p->model;
    int64_t before = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        before += m->heads_per_layer[l];
    p->entry = json_pack("{s:o, s:[I, I]}", "removed", mha__heads_json(m, p->numbers, p->keep, false), "heads",
                         (json_int_t)before, (json_int_t)mha__kept(m, p->keep, -1));
    int failed = !p->entry;
    if (o->chosen_by) failed |= json_object_set_new(p->entry, "chosen_by", json_string(o->chosen_by));
    if (o->fill) failed |= json_object_set_new(p->entry, "fill", json_integer(mha_head_data_tokens(o->fill)));
    if (o->refit)
        failed |= json_object_set_new(
            p->entry, "refit",
            json_pack("{s:I, s:f}", "tokens", (json_int_t)mha_head_data_tokens(o->refit), "ridge", o->ridge));
    if (o->compatible) failed |= json_object_set_new(p->entry, "compatible", json_true());
    return failed ? no_json(err) : MHA_OK;
}

const mha_named_tensor *mha_pruning_list(const mha_pruning *pruning, int64_t *count)
{
    if (count) *count = pruning ? pruning->count : 0;
    return pruning ? pruning->list : NULL;
}

mha_status mha_pruning_note(mha_pruning *pruning, const char *quality_json, mha_error *err)
{
    json_t *quality = NULL;
    if (!pruning || !quality_json)
        return mha__fail(err, MHA_ERR_ARG, "mha_pruning_note: %s is NULL", pruning ? "quality_json" : "pruning");
    MHA__TRY(mha__json_parse("quality", quality_json, strlen(quality_json), 0, &quality, err));
    return json_object_set_new(pruning->entry, "quality", quality) == 0 ? MHA_OK : no_json(err);
}

static mha_status add_digests(const mha_pruning *p, json_t *entry, mha_error *err)
{
    json_t *from = json_object();
    if (json_object_set_new(entry, "from", from) != 0) return no_json(err);
    return mha__model_digests(p->model, from, err);
}

/* config.json with one more entry in its record. */
static mha_status final_config(const mha_pruning *p, char **text, mha_error *err)
{
    json_t *config = json_deep_copy(p->config), *entry = json_deep_copy(p->entry);
    json_t *record = json_object_get(config, "mha.record");
    if (config && !json_is_array(record) && json_object_set_new(config, "mha.record", record = json_array()) != 0)
        record = NULL;
    mha_status status = entry && record ? add_digests(p, entry, err) : no_json(err);
    if (status == MHA_OK && json_array_append(record, entry) != 0) status = no_json(err);
    if (status == MHA_OK && !(*text = mha__pruning_text(p->ctx, config))) status = no_json(err);
    json_decref(entry);
    json_decref(config);
    return status;
}

/* ---- making ---- */

static mha_status make(mha_pruning *p, const uint8_t *keep, const mha_prune_options *o, mha_error *err)
{
    const mha_model *m = p->model;
    const size_t cells = (size_t)(m->config.layers * m->config.heads);
    p->keep = mha__alloc(p->ctx, cells);
    if (!p->keep) return mha__no_memory(err, cells, "a list of heads");
    memcpy(p->keep, keep, cells);
    MHA__TRY(mha__head_numbers(m, &p->numbers, err));
    if (o->fill) MHA__TRY(check_fill(p, err));
    MHA__TRY(write_config(p, err));
    MHA__TRY(begin_record(p, o, err));
    p->config_text = mha__pruning_text(p->ctx, p->config);
    if (!p->config_text) return no_json(err);
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
    mha__free(p->ctx, p->numbers);
    mha__free(p->ctx, p->config_text);
    json_decref(p->config);
    json_decref(p->entry);
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
                                 .config_json = p->config_text,
                                 .memory_only = mha_file_count(m->shards.file) == 0};
    const mha_status status = mha_model_open(m->given, folder, &o, out, err);
    mha__free(p->ctx, all);
    return status;
}

mha_status mha_pruning_save(const mha_pruning *p, const char *folder, int overwrite, mha_error *err)
{
    char *config = NULL;
    if (!p || !folder) return mha__fail(err, MHA_ERR_ARG, "mha_pruning_save: %s is NULL", p ? "folder" : "pruning");
    MHA__TRY(final_config(p, &config, err));
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
