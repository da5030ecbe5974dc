/* edit_record.c - the record of a pruned or regrouped model in config.json: what was done to it, and from which files.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/model_digests.h"
#include "heads/edit/prune_model.h"
#include "io/json/json_write.h"
#include <string.h>

#define CONFIG "config.json"
#define RECORD "mha.record"

void mha__refit_write(mha__json_writer *w, int64_t tokens, double ridge)
{
    mha__json_key(w, "refit");
    mha__json_open(w, '{');
    mha__json_key(w, "tokens");
    mha__json_put_int(w, tokens);
    mha__json_key(w, "ridge");
    mha__json_put_real(w, ridge);
    mha__json_close(w, '}');
}

mha_status mha__record_begin(mha_pruning *p, const mha_prune_options *o, mha_error *err)
{
    const mha_model *m = p->model;
    mha__json_writer w = {.ctx = p->ctx};
    int64_t before = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        before += m->heads_per_layer[l];
    mha__json_open(&w, '{');
    mha__json_key(&w, "removed");
    mha__heads_write(&w, m, p->keep, false);
    mha__json_key(&w, "heads");
    mha__json_open(&w, '[');
    mha__json_put_int(&w, before);
    mha__json_put_int(&w, mha__kept(m, p->keep, -1));
    mha__json_close(&w, ']');
    if (o->chosen_by) {
        mha__json_key(&w, "chosen_by");
        mha__json_put_text(&w, o->chosen_by);
    }
    if (o->fill) {
        mha__json_key(&w, "fill");
        mha__json_put_int(&w, mha_head_data_tokens(o->fill));
    }
    if (o->refit) mha__refit_write(&w, mha_head_data_tokens(o->refit), o->ridge);
    if (o->compatible) {
        mha__json_key(&w, "compatible");
        mha__json_put_bool(&w, true);
    }
    mha__json_close(&w, '}');
    return mha__json_written(&w, RECORD, &p->entry, NULL, err);
}

mha_status mha_pruning_note(mha_pruning *pruning, const char *quality_json, mha_error *err)
{
    mha__json_writer w = {0};
    char *entry = NULL;
    if (!pruning || !quality_json)
        return mha__fail(err, MHA_ERR_ARG, "mha_pruning_note: %s is NULL", pruning ? "quality_json" : "pruning");
    w.ctx = pruning->ctx;
    mha__json_open(&w, '{');
    mha__json_key(&w, "quality");
    mha_status status = mha__json_put_json(&w, "quality", quality_json, err);
    mha__json_close(&w, '}');
    if (status == MHA_OK)
        status = mha__json_changed(RECORD, pruning->entry, NULL, &w, MHA__JSON_COMPACT, &entry, err);
    else
        mha__json_written(&w, RECORD, NULL, NULL, NULL);
    if (status != MHA_OK) return status;
    mha__free(pruning->ctx, pruning->entry);
    pruning->entry = entry;
    return MHA_OK;
}

/* The entry of the record, with the digests of the files that the model was read from. */
static mha_status final_entry(const mha_pruning *p, char **entry, mha_error *err)
{
    mha__json_writer w = {.ctx = p->ctx};
    mha__json_open(&w, '{');
    mha__json_key(&w, "from");
    const mha_status status = mha__model_digests(p->model, &w, err);
    mha__json_close(&w, '}');
    if (status == MHA_OK) return mha__json_changed(RECORD, p->entry, NULL, &w, MHA__JSON_COMPACT, entry, err);
    mha__json_written(&w, RECORD, NULL, NULL, NULL);
    return status;
}

/* The record of config.json with one more entry. */
static mha_status write_record(const mha_pruning *p, const char *entry, mha__json_writer *w, mha_error *err)
{
    const mha__json *root;
    MHA__TRY(mha__json_parse(p->ctx, CONFIG, p->config, strlen(p->config), 0, &root, err));
    const mha__json *record = mha__json_get(root, RECORD);
    mha__json_open(w, '{');
    mha__json_key(w, RECORD);
    mha__json_open(w, '[');
    if (mha__json_is(record, MHA__JSON_ARRAY))
        for (mha__json_step i = {0}; mha__json_each(record, &i);)
            mha__json_put(w, i.value);
    mha__json_free(root);
    const mha_status status = mha__json_put_json(w, RECORD, entry, err);
    mha__json_close(w, ']');
    mha__json_close(w, '}');
    return status;
}

mha_status mha__record_config(const mha_pruning *p, char **text, mha_error *err)
{
    mha__json_writer w = {.ctx = p->ctx};
    char *entry = NULL;
    mha_status status = final_entry(p, &entry, err);
    if (status == MHA_OK) status = write_record(p, entry, &w, err);
    if (status == MHA_OK)
        status = mha__json_changed(CONFIG, p->config, NULL, &w, 2, text, err);
    else
        mha__json_written(&w, CONFIG, NULL, NULL, NULL);
    mha__free(p->ctx, entry);
    return status;
}
