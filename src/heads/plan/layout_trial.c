/* layout_trial.c - trains the model of a head layout variant, and measures its loss, times and memory. */
#include "base/clock.h"
#include "base/ctx_count.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/plan/layout_training.h"
#include "mha/mean_interval.h"
#include "mha/model_create.h"
#include "mha/prune.h"
#include <math.h>
#include <string.h>

/* One training run. Unset pointers are NULL, so that trial_close can free a partly opened run. */
typedef struct trial {
    const mha__layout_setup *s;
    const mha_layout_model *model;
    uint64_t seed;
    mha_ctx *ctx; /* counts the memory of the trainer */
    mha__memory_count memory;
    mha_trainer *trainer;
    int32_t *ids, *labels; /* [batch, seq]; labels of encoders */
    double *seconds;       /* [steps] */
} trial;

static void trial_close(trial *t)
{
    mha_trainer_free(t->trainer);
    mha__free(t->ctx, t->ids);
    mha__free(t->ctx, t->labels);
    mha__free(t->ctx, t->seconds);
    mha_ctx_free(t->ctx);
}

/* ---- the trainer ---- */

/* Returns the gates that select the heads of variant pruned: they are trained together with the weights in the second
 * quarter of the steps. */
static mha_train_gates gates_of(const trial *t)
{
    const int64_t steps = t->s->train.steps, start = steps / 4;
    if (!t->model->kept_heads) return (mha_train_gates){0};
    return (mha_train_gates){.penalty = MHA_GATES_L0,
                             .heads = t->model->kept_heads,
                             .start = start,
                             .end = mha__max64(start + 1, steps / 2)};
}

static mha_status open_trainer(trial *t, mha_error *err)
{
    mha_model *model;
    mha_train_options o = t->s->train;
    const mha_model_create_options how = {.size = sizeof how, .seed = t->seed};
    o.seed = t->seed;
    o.gates = gates_of(t);
    MHA__TRY(mha_model_create(t->ctx, t->model->config, &how, &model, err));
    const mha_status status = mha_trainer_create(model, &o, &t->trainer, err);
    mha_model_free(model);
    return status;
}

static mha_status allocate(trial *t, size_t count, size_t size, void **memory, mha_error *err)
{
    *memory = mha__calloc(t->ctx, count, size);
    return *memory ? MHA_OK : mha__no_memory(err, count * size, "the batches of a training run");
}

static mha_status open_memory(trial *t, mha_error *err)
{
    const int64_t dims[] = {t->s->layout.batch, t->s->layout.seq};
    size_t tokens;
    if (!mha__bytes(dims, 2, 1, &tokens)) tokens = SIZE_MAX;
    MHA__TRY(allocate(t, tokens, sizeof *t->ids, (void **)&t->ids, err));
    if (t->s->o.encoder) MHA__TRY(allocate(t, tokens, sizeof *t->labels, (void **)&t->labels, err));
    return allocate(t, (size_t)t->s->train.steps, sizeof *t->seconds, (void **)&t->seconds, err);
}

/* ---- batches, in the order of mha train ---- */

/* Copies sequence `sequence` to slot `place` of the batch. `index` selects the masked tokens of encoders. */
static mha_status put_sequence(trial *t, const mha_train_data *data, int64_t sequence, int64_t index, int64_t place,
                               mha_error *err)
{
    const int64_t length = t->s->layout.seq;
    int32_t *const ids = t->ids + place * length;
    mha_train_data_sequence(data, sequence, ids);
    if (!t->labels) return MHA_OK;
    const mha_train_mask_options mask = {.size = sizeof mask,
                                         .length = length,
                                         .vocab = t->s->layout.vocab,
                                         .fraction = t->s->o.mask_fraction,
                                         .mask = t->s->o.mask,
                                         .seed = t->seed};
    return mha_train_mask_tokens(t->s->o.tokenizer, &mask, index, ids, t->labels + place * length, err);
}

static mha_status fill_step(trial *t, int64_t step, mha_error *err)
{
    const int64_t batch = t->s->layout.batch, sequences = t->s->learned;
    for (int64_t n = 0; n < batch; n++) {
        const int64_t index = (step - 1) * batch + n;
        const int64_t sequence = mha_train_sequence_order(t->seed, index / sequences, index % sequences, sequences);
        MHA__TRY(put_sequence(t, t->s->o.data, sequence, index, n, err));
    }
    return MHA_OK;
}

static mha_model_input input_of(const trial *t, int64_t batch)
{
    return (mha_model_input){
        .size = sizeof(mha_model_input), .batch = batch, .length = t->s->layout.seq, .ids = t->ids};
}

/* ---- steps ---- */

static mha_status run_steps(trial *t, mha_layout_trial *out, mha_error *err)
{
    const int64_t steps = t->s->train.steps;
    const mha_model_input input = input_of(t, t->s->layout.batch);
    const mha_train_batch batch = {.input = &input, .labels = t->labels};
    const clockid_t clock = mha__clock_for(mha__threads(t->ctx), 1); /* steps take more than a millisecond */
    mha__memory_restart(&t->memory);
    for (int64_t step = 1; step <= steps; step++) {
        mha_train_report report;
        MHA__TRY(fill_step(t, step, err));
        const double start = mha__now(clock);
        MHA__TRY(mha_trainer_step(t->trainer, &batch, 1, &report, err));
        t->seconds[step - 1] = mha__now(clock) - start;
        if (step == 1) out->first_loss = report.loss;
        MHA__TRY(mha__progress(t->memory.parent, "steps", step, steps, err));
    }
    out->peak_bytes = (int64_t)atomic_load(&t->memory.peak);
    return MHA_OK;
}

static void set_step_times(trial *t, mha_layout_trial *out)
{
    out->step_median = mha_median(t->seconds, t->s->train.steps);
    out->step_best = t->seconds[0]; /* sorted by mha_median */
}

/* Computes the loss on the held-out sequences, which are read in the order of epoch -1, with the same masks for every
 * variant. */
static mha_status evaluate(trial *t, mha_layout_trial *out, mha_error *err)
{
    const int64_t batch = t->s->layout.batch, all = t->s->held_count;
    const int64_t count = mha__min64(all, t->s->o.held_out_sequences);
    double sum = 0;
    int64_t labels = 0;
    for (int64_t at = 0; at < count; at += batch) {
        const mha_model_input input = input_of(t, mha__min64(batch, count - at));
        const mha_train_batch one = {.input = &input, .labels = t->labels};
        double mean;
        int64_t counted;
        for (int64_t n = 0; n < input.batch; n++) {
            const int64_t sequence = t->s->held_first + mha_train_sequence_order(t->seed, -1, at + n, all);
            MHA__TRY(put_sequence(t, t->s->held, sequence, -1 - at - n, n, err));
        }
        MHA__TRY(mha_trainer_loss(t->trainer, &one, 1, &mean, &counted, err));
        sum += mean * (double)counted;
        labels += counted;
    }
    out->loss = sum / (double)labels;
    out->held_out = count;
    return MHA_OK;
}

/* ---- time per token ---- */

enum { TIMED_PASSES = 32 };

static mha_status time_pass(const mha_model *model, const mha_model_input *input, float *logits, double *best,
                            mha_error *err)
{
    const mha_model_output output = {.size = sizeof output, .last_logits = logits};
    const double start = mha__now(CLOCK_MONOTONIC);
    MHA__TRY(mha_model_forward(model, input, &output, err));
    *best = fmin(*best, mha__now(CLOCK_MONOTONIC) - start);
    return MHA_OK;
}

/* Measures a pass over one more token after seq - 1 cached tokens. */
static mha_status time_decode(const trial *t, const mha_model *model, mha_model_cache *cache, float *logits,
                              double *best, mha_error *err)
{
    const int64_t before = t->s->layout.seq - 1;
    mha_model_input input = input_of(t, 1);
    input.cache = cache;
    input.length = before;
    MHA__TRY(mha_model_forward(model, &input, NULL, err));
    input.length = 1;
    input.ids = t->ids + before;
    for (int n = 0; n < TIMED_PASSES; n++) {
        MHA__TRY(time_pass(model, &input, logits, best, err));
        MHA__TRY(mha_model_cache_truncate(cache, 0, before, err));
    }
    return MHA_OK;
}

static mha_status time_encode(const trial *t, const mha_model *model, float *logits, double *best, mha_error *err)
{
    const mha_model_input input = input_of(t, 1);
    for (int n = 0; n < TIMED_PASSES; n++)
        MHA__TRY(time_pass(model, &input, logits, best, err));
    *best /= (double)t->s->layout.seq;
    return MHA_OK;
}

static mha_status time_token(const trial *t, const mha_model *model, double *best, mha_error *err)
{
    const mha_model_cache_options o = {
        .size = sizeof o, .batch = 1, .tokens = t->s->layout.seq, .dtype = t->s->layout.dtype};
    mha_model_cache *cache = NULL;
    float *logits = mha__calloc(t->ctx, (size_t)t->s->layout.vocab, sizeof *logits);
    *best = INFINITY;
    if (!logits) return mha__no_memory(err, (size_t)t->s->layout.vocab * sizeof *logits, "the logits of a token");
    mha_status status = t->s->o.encoder ? MHA_OK : mha_model_cache_create(model, &o, &cache, err);
    if (status == MHA_OK)
        status = t->s->o.encoder ? time_encode(t, model, logits, best, err)
                                 : time_decode(t, model, cache, logits, best, err);
    mha_model_cache_free(cache);
    mha__free(t->ctx, logits);
    return status;
}

/* ---- the trained model ---- */

/* Removes the heads whose gates are closed, and measures the remaining model. */
static mha_status time_pruned(const trial *t, double *best, mha_error *err)
{
    const size_t heads = (size_t)(t->s->layout.layers * t->s->layout.heads);
    const mha_model *model = mha_trainer_model(t->trainer);
    mha_model_edit *edit = NULL;
    mha_model *pruned = NULL;
    float *gates = mha__calloc(t->ctx, heads, sizeof *gates + 1);
    if (!gates) return mha__no_memory(err, heads * (sizeof *gates + 1), "the gates of all heads");
    uint8_t *keep = (uint8_t *)(gates + heads);
    mha_trainer_gates(t->trainer, gates, NULL);
    for (size_t n = 0; n < heads; n++)
        keep[n] = gates[n] != 0;
    mha_status status = mha_prune(model, keep, NULL, &edit, err);
    if (status == MHA_OK) status = mha_model_edit_open(edit, &pruned, err);
    if (status == MHA_OK) status = time_token(t, pruned, best, err);
    mha_model_free(pruned);
    mha_model_edit_free(edit);
    mha__free(t->ctx, gates);
    return status;
}

static mha_status run_trial(trial *t, mha_layout_trial *out, mha_error *err)
{
    MHA__TRY(open_trainer(t, err));
    MHA__TRY(open_memory(t, err));
    MHA__TRY(run_steps(t, out, err));
    set_step_times(t, out);
    MHA__TRY(evaluate(t, out, err));
    if (t->model->kept_heads) return time_pruned(t, &out->token_time, err);
    return time_token(t, mha_trainer_model(t->trainer), &out->token_time, err);
}

mha_status mha_layout_train(mha_ctx *ctx, const mha_layout_training *options, const mha_layout_model *model,
                            uint64_t seed, mha_layout_trial *out, mha_error *err)
{
    mha__layout_setup setup;
    if (!model || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_layout_train: %s must not be NULL", model ? "trial" : "model");
    if (model->refused)
        return mha__fail(err, MHA_ERR_ARG, "mha_layout_train: model must not be a refused variant (%s)",
                         model->refused);
    MHA__TRY(mha__layout_setup_read(options, &setup, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    trial t = {.s = &setup, .model = model, .seed = seed};
    mha_layout_trial found = {0};
    MHA__TRY(mha__ctx_counting(ctx, &t.memory, &t.ctx, err));
    const mha_status status = run_trial(&t, &found, err);
    trial_close(&t);
    if (status == MHA_OK) *out = found;
    return status;
}
