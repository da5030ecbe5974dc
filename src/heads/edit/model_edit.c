/* model_edit.c - creates, opens and saves an edited model, and performs the checks shared by pruning and regrouping. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/edit/edit_struct.h"
#include "mha/model_save.h"
#include <limits.h>
#include <math.h>
#include <string.h>

/* Maximum number of tensors per layer: weights and biases of six projections and of the four of cross-attention, and
 * sinks; and outside the layers: the table of relative positions. */
enum { PER_LAYER = 21, OUTER = 1 };

/* ---- checks ---- */

mha_status mha__edit_check_compatible(const char *key, mha_error *err)
{
    if (!key) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_UNSUPPORTED,
        "compatible must be 0 for a model with %s in config.json, since other programs do not read this key", key);
}

mha_status mha__edit_check_norms(const mha_model *m, mha_error *err)
{
    if (mha__config_shares(&m->config))
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "heads of %s must not be removed or regrouped, since layers share their tensors",
                         m->info.family);
    for (int64_t l = 0; l < m->config.layers; l++)
        if ((m->config.family->whole_norms || m->config.family->head_gains) && m->config.attention[l].normed)
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "heads of %s must not be removed or regrouped, since a norm %s",
                             m->info.family,
                             m->config.family->whole_norms ? "covers all heads of a layer"
                                                           : "has weights for each head of a layer");
    return MHA_OK;
}

mha_status mha__edit_check_selection(const mha_model *m, int64_t layer, mha_error *err)
{
    if (m->config.attention[layer].choice.of == MHA_CHOICE_NONE) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_UNSUPPORTED,
        "heads of layer %lld must not be removed or regrouped, since the layer selects its heads for each text",
        (long long)layer);
}

mha_status mha__edit_check_weights(const mha_model *m, mha_error *err)
{
    if (m->packed) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "model must have weights (got a model opened with no_weights)");
}

mha_status mha__edit_check_scores(const mha_model *m, const double *scores, int64_t layer, mha_error *err)
{
    for (int64_t h = 0; h < m->heads_per_layer[layer]; h++)
        if (!isfinite(scores[h]))
            return mha__fail(err, MHA_ERR_ARG, "the score of head %lld.%lld must be finite (got %g)", (long long)layer,
                             (long long)m->head_numbers[layer * m->config.heads + h], scores[h]);
    return MHA_OK;
}

/* ---- creation ---- */

/* Returns the maximum number of tensors of an edit: those of the model and of the other side of an encoder-decoder. */
static size_t max_tensors(const mha_model *m)
{
    const mha_model *other = m->encoder ? m->encoder : m->decoder;
    const int64_t layers = m->config.layers + (other ? other->config.layers : 0);
    return (size_t)layers * PER_LAYER + 2 * OUTER;
}

/* Returns the number of output projections in edit->out. */
static int64_t count_out(const mha_model *m)
{
    return m->config.layers + (m->encoder ? m->config.layers + m->encoder->config.layers : 0);
}

mha__out_part *mha__edit_out(const mha_model_edit *e, mha_head_kind kind)
{
    return e->out + (int)kind * e->model->config.layers;
}

mha_status mha__edit_create(const mha_model *model, mha_model_edit **out, mha_error *err)
{
    const size_t layers = (size_t)count_out(model), max = max_tensors(model);
    mha_model_edit *e = *out = mha__calloc(model->ctx, 1, sizeof *e);
    if (!e) return mha__no_memory(err, sizeof *e, "an edited model");
    e->model = model;
    e->ctx = model->ctx;
    e->max = (int64_t)max;
    e->list = mha__calloc(e->ctx, max, sizeof *e->list);
    e->own_names = mha__calloc(e->ctx, max, sizeof *e->own_names);
    e->out = mha__calloc(e->ctx, layers, sizeof *e->out);
    if (e->list && e->own_names && e->out) return MHA_OK;
    mha_model_edit_free(e);
    *out = NULL;
    return mha__no_memory(err, max * sizeof *e->list, "the tensors of an edited model");
}

mha_status mha__edit_finish(mha_model_edit *edit, mha_status status, mha_model_edit **out)
{
    if (status == MHA_OK)
        *out = edit;
    else
        mha_model_edit_free(edit);
    return status;
}

mha_status mha__edit_new_tensor(mha_model_edit *e, const char *name, int rank, const int64_t *shape, float **data,
                                mha_error *err)
{
    size_t bytes = 0;
    const bool fits = mha__bytes(shape, rank, sizeof(float), &bytes);
    *data = fits ? mha__calloc(e->ctx, 1, bytes) : NULL;
    if (!*data) return mha__no_memory(err, fits ? bytes : SIZE_MAX, name);
    mha_named_tensor *t = &e->list[e->count++];
    *t = (mha_named_tensor){.name = name, .dtype = MHA_F32, .rank = rank, .data = *data};
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    return MHA_OK;
}

void mha_model_edit_free(mha_model_edit *e)
{
    if (!e) return;
    for (int64_t n = 0; n < e->count; n++)
        mha__free(e->ctx, e->list[n].data);
    for (int64_t n = 0; e->own_names && n < e->max; n++)
        mha__free(e->ctx, e->own_names[n]);
    for (int64_t l = 0; e->out && l < count_out(e->model); l++)
        mha__free(e->ctx, e->out[l].used);
    mha__free(e->ctx, e->list);
    mha__free(e->ctx, e->own_names);
    mha__free(e->ctx, e->out);
    mha__free(e->ctx, e->config);
    mha__free(e->ctx, e->entry);
    mha__free(e->ctx, e);
}

/* ---- opening and saving ---- */

const mha_named_tensor *mha_model_edit_tensors(const mha_model_edit *edit, int64_t *count)
{
    if (count) *count = edit ? edit->count : 0;
    return edit ? edit->list : NULL;
}

static bool is_listed(const mha_model_edit *e, const char *name)
{
    for (int64_t n = 0; n < e->count; n++)
        if (strcmp(e->list[n].name, name) == 0) return true;
    return false;
}

/* Lists the changed tensors, and the tensors that were passed to the source model in memory. */
static int64_t list_all(const mha_model_edit *e, mha_named_tensor *all)
{
    const mha__shards *shards = &e->model->shards;
    int64_t count = 0;
    for (; count < e->count; count++)
        all[count] = e->list[count];
    for (int64_t n = 0; n < shards->instead_count; n++) {
        const mha_tensor *t = &shards->instead[n];
        if (is_listed(e, t->name)) continue;
        all[count] = (mha_named_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank};
        all[count].data = (void *)t->data;
        memcpy(all[count++].shape, t->shape, (size_t)t->rank * sizeof *t->shape);
    }
    return count;
}

mha_status mha_model_edit_open(const mha_model_edit *e, mha_model **out, mha_error *err)
{
    char folder[PATH_MAX];
    if (!e || !out) return mha__fail(err, MHA_ERR_ARG, "mha_model_edit_open: %s must not be NULL", e ? "out" : "edit");
    *out = NULL;
    const mha_model *m = e->model;
    MHA__TRY(mha__shards_folder(&m->shards, folder, sizeof folder, err));
    const size_t max = (size_t)(e->count + m->shards.instead_count) + 1;
    mha_named_tensor *all = mha__calloc(e->ctx, max, sizeof *all);
    if (!all) return mha__no_memory(err, max * sizeof *all, "a list of tensors");
    const mha_model_options o = {.size = sizeof o,
                                 .no_tokenizer = 1,
                                 .dtype = m->outer.packed,
                                 .tensors = all,
                                 .tensor_count = list_all(e, all),
                                 .config_json = e->config,
                                 .memory_only = mha_file_count(m->shards.file) == 0};
    const mha_status status = mha_model_open(m->given, folder, &o, out, err);
    mha__free(e->ctx, all);
    return status;
}

mha_model *mha__edit_side(const mha_model_edit *e, mha_model *whole)
{
    return e->model->decoder ? whole->encoder : e->model->text ? whole->vision : whole;
}

mha_status mha_model_edit_save(const mha_model_edit *e, const char *folder, int overwrite, mha_error *err)
{
    char *config = NULL;
    if (!e || !folder)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_edit_save: %s must not be NULL", e ? "folder" : "edit");
    MHA__TRY(mha__record_config(e, &config, err));
    const mha_model_save_options o = {
        .size = sizeof o, .overwrite = overwrite, .tensors = e->list, .count = e->count, .config_json = config};
    const mha_status status = mha_model_save(e->model, folder, &o, err);
    mha__free(e->ctx, config);
    return status;
}
