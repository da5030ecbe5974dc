/* save.c - a trainer as a checkpoint folder, and back: the model, and beside it the moments and the step. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "io/stream.h"
#include "io/tensors.h"
#include "model/saving.h"
#include "text/tokenizer.h"
#include "train/trainer.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE "training.safetensors"
#define STEP "mha.train.step"

/* ---- save ---- */

static mha_status write_state(const void *user, const mha__folder *folder, mha_error *err)
{
    const mha_trainer *t = user;
    char step[24];
    const mha_metadata meta = {.key = STEP, .value = step};
    const mha_tensors_writer_options o = {.size = sizeof o, .metadata = &meta, .metadata_count = 1};
    mha__outgoing *list = mha__calloc(t->ctx, 2 * (size_t)t->count, sizeof *list);
    if (!list) return mha__no_memory(err, 2 * (size_t)t->count * sizeof *list, "the list of moments");
    snprintf(step, sizeof step, "%" PRId64, t->step);
    mha_status status = MHA_OK;
    for (int64_t n = 0; n < 2 * t->count && status == MHA_OK; n++)
        status = mha__named_view(&t->state[n], &list[n].from, err);
    if (status == MHA_OK) status = mha__stream_tensors(t->ctx, folder, STATE, list, 2 * t->count, &o, err);
    mha__free(t->ctx, list);
    return status;
}

/* A tensor that the file holds under a second name, because two parts are one parameter, has to follow. */
static void add_twin(const mha_trainer *t, mha__role learns, mha__role twin, mha_named_tensor *list, int64_t *count)
{
    const mha_tensor *own = mha__weights_tensor(&t->model->outer, learns, -1, false);
    const mha_tensor *other = mha__weights_tensor(&t->model->outer, twin, -1, false);
    if (!own || !other || own == other) return;
    mha_named_tensor *to = &list[(*count)++];
    *to = (mha_named_tensor){.name = other->name, .dtype = MHA_F32, .rank = own->rank, .data = (void *)own->data};
    memcpy(to->shape, own->shape, (size_t)own->rank * sizeof *to->shape);
}

static int64_t list_twins(const mha_trainer *t, mha_named_tensor list[2])
{
    const mha_model *m = t->model;
    int64_t count = 0;
    if (m->config.tied) add_twin(t, MHA__WORDS, MHA__LM_HEAD, list, &count);
    if (m->config.tied)
        add_twin(t, m->lm_bias, m->lm_bias == MHA__LM_BIAS ? MHA__LM_TIED_BIAS : MHA__LM_BIAS, list, &count);
    return count;
}

mha_status mha_trainer_save(const mha_trainer *t, const char *folder, const mha_trainer_save_options *options,
                            mha_error *err)
{
    mha_trainer_save_options o;
    mha_named_tensor twins[2];
    if (!t || !folder) return mha__fail(err, MHA_ERR_ARG, "mha_trainer_save: %s is NULL", t ? "folder" : "trainer");
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_trainer_save_options", err));
    if (o.dtype && !o.model_only)
        return mha__fail(err, MHA_ERR_ARG, "mha_trainer_save_options: dtype is %s without model_only",
                         mha_dtype_name(o.dtype));
    const mha_model_save_options save = {.size = sizeof save,
                                         .dtype = o.dtype ? o.dtype : MHA_F32,
                                         .overwrite = o.overwrite,
                                         .tensors = twins,
                                         .count = list_twins(t, twins)};
    return mha__model_save_with(t->model, folder, &save, o.model_only ? NULL : write_state, t, err);
}

/* ---- resume ---- */

static mha_status read_step(const mha_file *file, int64_t *step, mha_error *err)
{
    const char *key, *value, *path = mha_file_path(file);
    mha__quoted q = {0};
    for (int64_t n = 0; mha_file_metadata(file, n, &key, &value, NULL) == MHA_OK; n++) {
        char *end = NULL;
        if (strcmp(key, STEP) != 0) continue;
        errno = 0;
        *step = strtoll(value, &end, 10);
        if (end != value && !*end && !errno && *step >= 0 && *step < INT64_MAX) return MHA_OK;
        return mha__fail(err, MHA_ERR_FORMAT, "%s: " STEP " is not a number of steps",
                         mha__quote(&q, path, strlen(path)));
    }
    return mha__fail(err, MHA_ERR_FORMAT, "%s: " STEP " is missing", mha__quote(&q, path, strlen(path)));
}

static mha_status read_state(mha_trainer *t, const char *folder, mha_error *err)
{
    mha_file *file = NULL;
    const size_t bytes = strlen(folder) + sizeof "/" STATE;
    char *path = mha__alloc(t->ctx, bytes);
    if (!path) return mha__no_memory(err, bytes, "a file name");
    snprintf(path, bytes, "%s/" STATE, folder);
    mha_status status = mha_file_open(t->ctx, path, NULL, &file, err);
    if (status == MHA_OK) status = read_step(file, &t->step, err);
    if (status == MHA_OK) status = mha_tensors_read(file, t->state, 2 * t->count, err);
    mha_file_free(file);
    mha__free(t->ctx, path);
    return status;
}

mha_status mha_trainer_resume(mha_ctx *ctx, const char *folder, const mha_train_options *options, mha_trainer **out,
                              mha_error *err)
{
    mha_model *model = NULL;
    if (!folder || !out) return mha__fail(err, MHA_ERR_ARG, "mha_trainer_resume: %s is NULL", out ? "folder" : "out");
    *out = NULL;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = !mha__source_exists(folder, MHA__TOKENIZER_FILE)};
    MHA__TRY(mha_model_open(ctx, folder, &o, &model, err));
    mha_status status = mha_trainer_create(model, options, out, err);
    mha_model_free(model);
    if (status == MHA_OK) status = read_state(*out, folder, err);
    if (status == MHA_OK) return MHA_OK;
    mha_trainer_free(*out);
    *out = NULL;
    return status;
}
