/* edit_record.c - writes the record of a pruned or regrouped model to config.json: the edit, and the digests of the
 * source files. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/data/model_digests.h"
#include "heads/edit/edit_struct.h"
#include "io/json/json_write.h"
#include <string.h>

#define CONFIG "config.json"
#define RECORD "mha.record"

void mha__record_text(mha__json_writer *w, const char *key, const char *value)
{
    mha__json_key(w, key);
    mha__json_put_text(w, value);
}

static void write_refit(mha__json_writer *w, int64_t tokens, double ridge)
{
    mha__json_key(w, "refit");
    mha__json_open(w, '{');
    mha__json_key(w, "tokens");
    mha__json_put_int(w, tokens);
    mha__json_key(w, "ridge");
    mha__json_put_real(w, ridge);
    mha__json_close(w, '}');
}

mha_status mha__record_end(mha_model_edit *edit, mha__json_writer *w, const mha_head_data *refit, double ridge,
                           bool compatible, mha_error *err)
{
    if (refit) write_refit(w, mha_head_data_tokens(refit), ridge);
    if (compatible) {
        mha__json_key(w, "compatible");
        mha__json_put_bool(w, true);
    }
    mha__json_close(w, '}');
    return mha__json_written(w, RECORD, &edit->entry, NULL, err);
}

mha_status mha_model_edit_note(mha_model_edit *edit, const char *quality_json, mha_error *err)
{
    mha__json_writer w = {0};
    char *entry = NULL;
    if (!edit || !quality_json)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_edit_note: %s must not be NULL", edit ? "quality_json" : "edit");
    w.ctx = edit->ctx;
    mha__json_open(&w, '{');
    mha__json_key(&w, "quality");
    mha_status status = mha__json_put_json(&w, "quality", quality_json, err);
    mha__json_close(&w, '}');
    if (status == MHA_OK)
        status = mha__json_changed(RECORD, edit->entry, NULL, &w, MHA__JSON_COMPACT, &entry, err);
    else
        mha__json_written(&w, RECORD, NULL, NULL, NULL);
    if (status != MHA_OK) return status;
    mha__free(edit->ctx, edit->entry);
    edit->entry = entry;
    return MHA_OK;
}

/* Completes the entry of the record with the digests of the files that the source model was read from. */
static mha_status final_entry(const mha_model_edit *edit, char **entry, mha_error *err)
{
    mha__json_writer w = {.ctx = edit->ctx};
    mha__json_open(&w, '{');
    mha__json_key(&w, "from");
    const mha_status status = mha__model_digests(edit->model, &w, err);
    mha__json_close(&w, '}');
    if (status == MHA_OK) return mha__json_changed(RECORD, edit->entry, NULL, &w, MHA__JSON_COMPACT, entry, err);
    mha__json_written(&w, RECORD, NULL, NULL, NULL);
    return status;
}

/* Writes the record of config.json with `entry` appended. */
static mha_status write_record(const mha_model_edit *edit, const char *entry, mha__json_writer *w, mha_error *err)
{
    const mha__json *root;
    MHA__TRY(mha__json_parse(edit->ctx, CONFIG, edit->config, strlen(edit->config), 0, &root, err));
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

mha_status mha__record_config(const mha_model_edit *edit, char **text, mha_error *err)
{
    mha__json_writer w = {.ctx = edit->ctx};
    char *entry = NULL;
    mha_status status = final_entry(edit, &entry, err);
    if (status == MHA_OK) status = write_record(edit, entry, &w, err);
    if (status == MHA_OK)
        status = mha__json_changed(CONFIG, edit->config, NULL, &w, 2, text, err);
    else
        mha__json_written(&w, CONFIG, NULL, NULL, NULL);
    mha__free(edit->ctx, entry);
    return status;
}
