/* trainer.c - creates a trainer from a model: copies its weights, allocates moments, and opens a model on the copied
 * weights. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/adamw.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer/worker_sums.h"
#include "train/trainer_struct.h"
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

/* Adds a moment of a tensor, with its name in a state file. */
static void add_moment(mha__arena *arena, mha_named_tensor *to, mha_dtype type, const mha_tensor *tensor,
                       const char *prefix)
{
    const size_t bytes = strlen(prefix) + strlen(tensor->name) + 1;
    char *name = mha__take(arena, 1, bytes);
    if (!to) return;
    snprintf(name, bytes, "%s%s", prefix, tensor->name);
    *to = (mha_named_tensor){.name = name, .dtype = type, .rank = tensor->rank};
    memcpy(to->shape, tensor->shape, (size_t)tensor->rank * sizeof *to->shape);
}

/* Returns false for constants, and for weights that do not affect the loss. They have no gradient and must not be
 * decayed. */
static bool is_reached(const mha_train_options *o, const mha__config *c, mha__role role)
{
    const bool of_logits = role == MHA__LM_DENSE || role == MHA__LM_NORM || role == MHA__LM_BIAS ||
                           role == MHA__LM_TIED_BIAS || role == MHA__LM_HEAD;
    return mha__grads_learned(c, role) && role != MHA__POOLER && (!of_logits || mha__distill_logits(&o->distill));
}

static mha_status add(mha__arena *arena, mha_trainer *t, const mha_model *m, const mha_tensor *tensor, mha__parameter p,
                      mha_error *err)
{
    const int64_t at = t->count++;
    p.first = t->elements;
    p.count = tensor->elements;
    t->elements += p.count;
    t->blocks += mha__squares_blocks(p.count);
    add_moment(arena, t->state ? &t->state[2 * at] : NULL, t->o.moments, tensor, MEAN);
    add_moment(arena, t->state ? &t->state[2 * at + 1] : NULL, t->o.moments, tensor, SQUARE);
    if (!t->list) return MHA_OK;
    t->list[at] = t->state[2 * at];
    t->list[at].name += strlen(MEAN);
    t->list[at].dtype = MHA_F32;
    t->list[at].data = t->weights + p.first;
    p.decays = decays(&t->o, p.role, tensor->rank);
    p.frozen = t->o.gates.only || is_frozen(&t->o, tensor->name) || !is_reached(&t->o, &m->config, p.role);
    t->parameter[at] = p;
    return mha_tensor_read(tensor, MHA_F32, t->weights + p.first, err);
}

/* Lists the tensors that the model uses, in the order of the gradients. */
static mha_status walk(mha__arena *arena, mha_trainer *t, const mha_model *m, mha_error *err)
{
    t->count = t->elements = t->blocks = 0;
    for (mha__tensor_step at = {0}; mha__tensor_each(&m->config, &at);) {
        const mha_tensor *tensor = mha__model_tensor(m, &at);
        const mha__parameter p = {.layer = at.layer, .role = at.role};
        if (tensor) MHA__TRY(add(arena, t, m, tensor, p, err));
    }
    return MHA_OK;
}

static void take_lists(mha__arena *arena, mha_trainer *t, int64_t count, int64_t blocks)
{
    const size_t ranks = (size_t)mha__train_ranks(t);
    t->list = mha__take(arena, (size_t)count, sizeof *t->list);
    t->state = mha__take(arena, 2 * (size_t)count, sizeof *t->state);
    t->parameter = mha__take(arena, (size_t)count, sizeof *t->parameter);
    t->partial = mha__take(arena, (size_t)blocks, sizeof *t->partial);
    t->starts = mha__take(arena, ranks + 1, sizeof *t->starts);
    t->own_blocks = mha__take(arena, ranks + 1, sizeof *t->own_blocks);
    t->piece_starts = mha__take(arena, ranks + 1, sizeof *t->piece_starts);
    t->unused = mha__take(arena, 1, sizeof *t->unused);
}

static mha_status copy_weights(mha_trainer *t, const mha_model *m, mha_error *err)
{
    mha__arena arena = {0};
    MHA__TRY(walk(&arena, t, m, err));
    const int64_t count = t->count, blocks = t->blocks;
    const size_t weights = (size_t)t->elements * sizeof *t->weights;
    take_lists(&arena, t, count, blocks);
    const size_t bytes = arena.overflow ? SIZE_MAX : arena.used;
    arena.base = t->memory = arena.overflow ? NULL : mha__calloc(t->ctx, 1, bytes);
    t->weights = arena.base ? mha__alloc(t->ctx, weights) : NULL;
    if (!t->weights) return mha__no_memory(err, arena.base ? weights : bytes, "the trained weights");
    arena.used = 0;
    take_lists(&arena, t, count, blocks);
    MHA__TRY(walk(&arena, t, m, err));
    return mha__train_moments_create(t, err);
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

/* ---- creation and release ---- */

/* Checks that the model opened on the copied weights uses all these weights and no other tensors. */
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
                     "tensors of the folder must match the model (the folder has changed since the model was opened)");
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
    MHA__TRY(mha__model_grads_create(t->model, &g, true, &t->grads, err));
    t->gradients = mha_model_grads_list(t->grads, NULL);
    return MHA_OK;
}

static mha_status create_gates(mha_trainer *t, mha_error *err)
{
    if (!t->o.gates.penalty) return MHA_OK;
    if (mha__config_shares(&t->model->config))
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_train_options: gates must be unset for a model whose layers share tensors (got %s)",
                         t->model->info.family);
    const int64_t choosing = mha__config_choosing(&t->model->config);
    if (choosing < 0) return mha__gates_create(t, err);
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "mha_train_options: gates must be unset for a model that selects heads per text (got layer %lld)",
                     (long long)choosing);
}

static mha_status create(mha_trainer *t, const mha_model *m, mha_error *err)
{
    MHA__TRY(copy_weights(t, m, err));
    MHA__TRY(check_frozen(t, err));
    t->o.frozen = NULL; /* owned by the caller, and already read */
    MHA__TRY(open_over(t, m, err));
    MHA__TRY(create_gates(t, err));
    return mha__worker_sums_create(t, err);
}

mha_status mha_trainer_create(const mha_model *model, const mha_train_options *options, mha_trainer **out,
                              mha_error *err)
{
    mha_train_options o;
    mha_train_ranks ranks = {0};
    if (!model || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_trainer_create: %s must not be NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__train_options(&o, &ranks, options, err));
    if (!model->packed)
        return mha__fail(err, MHA_ERR_ARG, "model must have weights (got a model opened with no_weights)");
    MHA__TRY(mha__model_not_seq2seq(model, "mha_trainer_create: model", err));
    MHA__TRY(mha__model_reads_ids(model, "mha_trainer_create: model", err));
    if (model->vision)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_trainer_create: model must not have two towers (got %s)",
                         model->info.family);
    MHA__TRY(mha__distill_read(model, o.teacher, &o.distill, err));
    mha_trainer *t = mha__calloc(model->ctx, 1, sizeof *t);
    if (!t) return mha__no_memory(err, sizeof *t, "a trainer");
    t->ctx = model->ctx;
    t->o = o;
    t->ranks = ranks;
    if (o.ranks) t->o.ranks = &t->ranks;
    t->bucket = MHA__TRAIN_BUCKET;
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
    mha__worker_sums_free(trainer);
    mha__free(trainer->ctx, trainer->moments);
    mha__free(trainer->ctx, trainer->weights);
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
