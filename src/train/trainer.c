/* trainer.c - creates a trainer from a model: copies of its weights, moments, and a model opened on these copies. */
#include "train/trainer.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/adamw.h"
#include "layer/arena.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MEAN "mean."
#define SQUARE "square."

/* ---- parameters ---- */

/* Returns true for the embedding tables of tokens, positions and token types. */
static bool is_table(mha__role role)
{
    return role == MHA__WORDS || role == MHA__POSITIONS || role == MHA__TYPES;
}

static bool decays(const mha_train_options *o, mha__role role, int rank)
{
    return o->decays == MHA_DECAY_ALL || (rank > 1 && !(o->decays == MHA_DECAY_DENSE && is_table(role)));
}

static bool is_frozen(const mha_train_options *o, const char *name)
{
    for (int64_t n = 0; n < o->frozen_count; n++)
        if (o->frozen[n] && mha__train_fits(o->frozen[n], name)) return true;
    return false;
}

/* Two allocations: the moments take no physical memory until they are first written. */
typedef struct blocks {
    mha__arena own, moments;
} blocks;

/* Adds a moment, named as in a state file. */
static float *add_moment(blocks *b, mha_named_tensor *to, const mha_tensor *tensor, const char *prefix)
{
    const size_t bytes = strlen(prefix) + strlen(tensor->name) + 1;
    char *name = mha__take(&b->own, 1, bytes);
    float *data = mha__take(&b->moments, (size_t)tensor->elements, sizeof *data);
    if (!to) return NULL;
    snprintf(name, bytes, "%s%s", prefix, tensor->name);
    *to = (mha_named_tensor){.name = name, .dtype = MHA_F32, .rank = tensor->rank, .data = data};
    memcpy(to->shape, tensor->shape, (size_t)tensor->rank * sizeof *to->shape);
    return data;
}

/* Returns false for weights that do not affect the loss: they have no gradient, and must not be decayed. */
static bool is_reached(const mha_train_options *o, mha__role role)
{
    const bool of_logits = role == MHA__LM_DENSE || role == MHA__LM_NORM || role == MHA__LM_BIAS ||
                           role == MHA__LM_TIED_BIAS || role == MHA__LM_HEAD;
    return role != MHA__POOLER && (!of_logits || mha__distill_logits(&o->distill));
}

static mha_status add(blocks *b, mha_trainer *t, const mha_tensor *tensor, mha__parameter p, mha_error *err)
{
    const int64_t at = t->count++;
    float *weight = mha__take(&b->own, (size_t)tensor->elements, sizeof *weight);
    p.count = tensor->elements;
    p.mean = add_moment(b, t->state ? &t->state[2 * at] : NULL, tensor, MEAN);
    p.square = add_moment(b, t->state ? &t->state[2 * at + 1] : NULL, tensor, SQUARE);
    if (!t->list) return MHA_OK;
    t->list[at] = t->state[2 * at];
    t->list[at].name += strlen(MEAN);
    t->list[at].data = weight;
    p.decays = decays(&t->o, p.role, tensor->rank);
    p.frozen = t->o.gates.only || is_frozen(&t->o, tensor->name) || !is_reached(&t->o, p.role);
    t->parameter[at] = p;
    return mha_tensor_read(tensor, MHA_F32, weight, err);
}

/* Lists the tensors that the model uses, in the order of mha_model_grads_list. */
static mha_status walk(blocks *b, mha_trainer *t, const mha_model *m, mha_error *err)
{
    t->count = 0;
    for (mha__tensor_step at = {0}; mha__tensor_each(&m->config, &at);) {
        const mha_tensor *tensor = mha__model_tensor(m, &at);
        const mha__parameter p = {.layer = at.layer, .role = at.role};
        if (tensor) MHA__TRY(add(b, t, tensor, p, err));
    }
    return MHA_OK;
}

static void take_lists(mha__arena *arena, mha_trainer *t, int64_t count, int64_t longest)
{
    t->list = mha__take(arena, (size_t)count, sizeof *t->list);
    t->state = mha__take(arena, 2 * (size_t)count, sizeof *t->state);
    t->parameter = mha__take(arena, (size_t)count, sizeof *t->parameter);
    t->partial = mha__take(arena, (size_t)mha__squares_blocks(longest), sizeof *t->partial);
    t->unused = mha__take(arena, 1, sizeof *t->unused);
}

static mha_status copy_weights(mha_trainer *t, const mha_model *m, mha_error *err)
{
    blocks b = {0};
    MHA__TRY(walk(&b, t, m, err));
    const int64_t count = t->count, longest = m->info.parameters;
    take_lists(&b.own, t, count, longest);
    const size_t bytes = b.own.overflow || b.moments.overflow ? SIZE_MAX : b.own.used;
    b.own.base = t->memory = bytes == SIZE_MAX ? NULL : mha__calloc(t->ctx, 1, bytes);
    if (!b.own.base) return mha__no_memory(err, bytes, "the trained weights");
    b.moments.base = t->moments = mha__alloc(t->ctx, b.moments.used);
    if (!b.moments.base) return mha__no_memory(err, b.moments.used, "the moments of the weights");
    b.own.used = b.moments.used = 0;
    take_lists(&b.own, t, count, longest);
    MHA__TRY(walk(&b, t, m, err));
    *t->unused = b.moments.used;
    return MHA_OK;
}

void mha__train_moments(const mha_trainer *t)
{
    memset(t->moments, 0, *t->unused);
    *t->unused = 0;
}

static mha_status check_frozen(const mha_trainer *t, mha_error *err)
{
    for (int64_t n = 0; n < t->o.frozen_count; n++) {
        const char *pattern = t->o.frozen[n];
        bool found = false;
        for (int64_t p = 0; pattern && p < t->count; p++)
            found |= mha__train_fits(pattern, t->list[p].name);
        if (!found)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_train_options: frozen[%lld] must match a tensor of the model (got \"%s\")",
                             (long long)n, pattern ? mha__quote(&(mha__quoted){0}, pattern, strlen(pattern)) : "NULL");
    }
    bool all = t->o.frozen_count > 0;
    for (int64_t p = 0; p < t->count; p++)
        all &= is_frozen(&t->o, t->list[p].name);
    if (all && !t->o.gates.penalty)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_options: frozen must leave at least one tensor to train");
    return MHA_OK;
}

/* ---- object ---- */

/* Checks that the model opened on the copies uses all of them and no other tensors. */
static mha_status check_opened(const mha_trainer *t, mha_error *err)
{
    int64_t count = 0;
    bool same = true;
    for (mha__tensor_step at = {0}; mha__tensor_each(&t->model->config, &at);) {
        const mha_tensor *tensor = mha__model_tensor(t->model, &at);
        if (tensor) same = same && count < t->count && tensor->data == t->list[count++].data;
    }
    if (same && count == t->count) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT,
                     "the folder has changed since the model was opened: its tensors no longer match the model");
}

static mha_status open_over(mha_trainer *t, const mha_model *m, mha_error *err)
{
    char folder[PATH_MAX];
    MHA__TRY(mha__shards_folder(&m->shards, folder, sizeof folder, err));
    const mha_model_options o = {.size = sizeof o,
                                 .no_tokenizer = m->tokenizer == NULL,
                                 .dtype = t->o.dtype,
                                 .tensors = t->list,
                                 .tensor_count = t->count,
                                 .config_json = m->config_text,
                                 .memory_only = mha_file_count(m->shards.file) == 0};
    const mha_model_grads_options g = {.size = sizeof g, .recompute = t->o.recompute, .no_parameters = t->o.gates.only};
    MHA__TRY(mha_model_open(m->given, folder, &o, &t->model, err));
    MHA__TRY(check_opened(t, err));
    MHA__TRY(mha_model_grads_create(t->model, &g, &t->grads, err));
    t->gradients = mha_model_grads_list(t->grads, NULL);
    return MHA_OK;
}

static mha_status create(mha_trainer *t, const mha_model *m, mha_error *err)
{
    MHA__TRY(copy_weights(t, m, err));
    MHA__TRY(check_frozen(t, err));
    t->o.frozen = NULL; /* owned by the caller, and already read */
    MHA__TRY(open_over(t, m, err));
    if (!t->o.gates.penalty) return MHA_OK;
    const int64_t choosing = mha__config_choosing(&t->model->config);
    if (choosing < 0) return mha__gates_create(t, err);
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "mha_train_options: gates must be unset for a model that selects heads per text (got layer %lld)",
                     (long long)choosing);
}

mha_status mha_trainer_create(const mha_model *model, const mha_train_options *options, mha_trainer **out,
                              mha_error *err)
{
    mha_train_options o;
    if (!model || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_trainer_create: %s must not be NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__train_options(&o, options, err));
    if (!model->packed) return mha__fail(err, MHA_ERR_ARG, "model must have weights (opened with no_weights)");
    MHA__TRY(mha__distill_read(model, o.teacher, &o.distill, err));
    mha_trainer *t = mha__calloc(model->ctx, 1, sizeof *t);
    if (!t) return mha__no_memory(err, sizeof *t, "a trainer");
    t->ctx = model->ctx;
    t->o = o;
    const mha_status status = create(t, model, err);
    if (status == MHA_OK)
        *out = t;
    else
        mha_trainer_free(t);
    return status;
}

void mha_trainer_free(mha_trainer *trainer)
{
    if (!trainer) return;
    mha_model_grads_free(trainer->grads);
    mha_model_free(trainer->model);
    if (trainer->gates) mha__free(trainer->ctx, trainer->gates->memory);
    mha__free(trainer->ctx, trainer->gates);
    mha__free(trainer->ctx, trainer->moments);
    mha__free(trainer->ctx, trainer->memory);
    mha__free(trainer->ctx, trainer);
}

const mha_model *mha_trainer_model(const mha_trainer *trainer)
{
    return trainer ? trainer->model : NULL;
}

int64_t mha_trainer_step_count(const mha_trainer *trainer)
{
    return trainer ? trainer->step : 0;
}

const mha_named_tensor *mha_trainer_weights(const mha_trainer *trainer, int64_t *count)
{
    if (count) *count = trainer ? trainer->count : 0;
    return trainer ? trainer->list : NULL;
}

mha_status mha_trainer_refresh(mha_trainer *trainer, mha_error *err)
{
    if (!trainer) return mha__fail(err, MHA_ERR_ARG, "mha_trainer_refresh: trainer must not be NULL");
    return mha__trainer_refresh(trainer, err);
}
