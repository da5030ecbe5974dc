/* model_loss.c - forward pass, loss and backward pass. The loss is a cross entropy plus distillation terms. Only rows
 * with a label or a target pass through the output head. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/backward/model_grads.h"
#include "model/forward/pooler_logits.h"
#include <math.h>
#include <string.h>

/* Returns the label that the token of a row predicts, or MHA_IGNORE; `end` is one past the last row of its sequence. */
static int32_t label_of(const mha_model_grads *g, const int32_t *labels, int64_t row, int64_t end)
{
    const bool shifted = g->model->encoder && labels; /* ids are labels moved right (seq2seq.h) */
    const int64_t at = row + (g->model->config.family->causal && !shifted ? 1 : 0);
    if (at >= end || !mha__grads_real(g, row)) return MHA_IGNORE;
    if (labels) return labels[at];
    return mha__grads_real(g, at) ? g->batch.in.ids[at] : MHA_IGNORE;
}

/* Returns true if, without labels, all real tokens of an encoder are compared with the teacher. */
static bool all_rows(const mha_model *m, const int32_t *labels)
{
    return !labels && !m->config.family->causal;
}

/* Selects the rows that pass through the output head, with their labels; if `rows` is NULL, only counts them. */
static mha_status choose_rows(const mha_model_grads *g, const int32_t *labels, int64_t *rows, int32_t *chosen,
                              int64_t *count, mha_error *err)
{
    const int64_t vocab = mha__head_classes(g->model), total = g->batch.in.batch * g->batch.in.length;
    const bool all = all_rows(g->model, labels), images = g->model->config.channels > 0;
    *count = 0;
    for (int64_t row = 0, b = 0; row < total; row++) {
        const int64_t end = b + 1 < g->batch.sequences ? mha__batch_first(&g->batch, b + 1) : total;
        const bool outside = images && row != mha__batch_first(&g->batch, b); /* only class tokens have logits */
        const int32_t label = all || outside ? 0 : images ? labels[b] : label_of(g, labels, row, end);
        if (row + 1 == end) b++;
        if (outside) continue;
        if (all ? !mha__grads_real(g, row) : label == MHA_IGNORE) continue;
        if (label < 0 || label >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "the label of token %lld must be from 0 to %lld, or %d (got %d)",
                             (long long)row, (long long)vocab - 1, MHA_IGNORE, (int)label);
        if (rows) rows[*count] = row, chosen[*count] = label;
        (*count)++;
    }
    return MHA_OK;
}

mha_status mha__grads_units(mha_model_grads *g, const mha_model_input *input, const int32_t *labels, mha__units *units,
                            mha_error *err)
{
    g->ready = false;
    MHA__TRY(mha__batch_read(g->model, &g->batch, input, err));
    mha__count_states(g, units);
    return choose_rows(g, labels, NULL, NULL, &units->labels, err);
}

static mha_model_gradient wanted_of(const mha_model_loss_args *args)
{
    return (mha_model_gradient){.size = sizeof(mha_model_gradient),
                                .gates = args->dgates,
                                .embeddings = args->dembeddings,
                                .on_context = args->on_context,
                                .user = args->user,
                                .taylor = args->taylor,
                                .cross_gates = args->dcross_gates,
                                .encoder_gates = args->dencoder_gates};
}

/* ---- loss of one batch ---- */

/* One computation of a loss: the options with defaults filled in, and the buffers. */
typedef struct lesson {
    const mha_model_loss_args *args;
    mha_model_distill d;
    mha__units units;
    mha__teaching teaching;
    int64_t *rows;   /* [B L] selected rows */
    int32_t *labels; /* [B L] labels of the selected rows */
    float *hidden;   /* [B L, E of the teacher] the teacher's last hidden states */
} lesson;

/* Returns the weight in the loss of one unit of a term: one label, token or text. */
static double share(const lesson *l, double weight, int64_t units)
{
    if (weight == 0) return 0;
    return weight * (l->args->scale != 0 ? l->args->scale : 1 / (double)units);
}

/* Returns true if a term is a mean over zero units. */
static bool is_empty(const lesson *l)
{
    return l->args->scale == 0 && ((mha__distill_logits(&l->d) && !l->units.labels) ||
                                   (l->d.hidden != 0 && !l->units.tokens) || (l->d.text != 0 && !l->units.texts));
}

static mha_status ask_teacher(const mha_model_grads *g, const mha_model_input *input, lesson *l, mha_error *err)
{
    const mha_model_loss_args *args = l->args;
    if (!args->teacher) return MHA_OK;
    mha__count_states(g, &l->units);
    l->teaching = (mha__teaching){.teacher = args->teacher,
                                  .hidden = l->hidden,
                                  .of_logits = share(l, l->d.logits, l->units.labels),
                                  .of_hidden = share(l, l->d.hidden, l->units.tokens),
                                  .of_text = share(l, l->d.text, l->units.texts),
                                  .temperature = l->d.temperature,
                                  .pool = l->d.pool};
    return mha__teacher_run(args->teacher, input, l->hidden, err);
}

/* Computes all loss terms, and sets saved.dx to their gradient, or to zeros if the loss is undefined. */
static mha_status find_loss(mha_model_grads *g, const lesson *l, double *sum, mha_error *err)
{
    const bool learn = !l->args->loss_only;
    const mha__head_job job = {.rows = l->rows,
                               .count = l->units.labels,
                               .labels = l->d.labels != 0 ? l->labels : NULL,
                               .scale = share(l, l->d.labels, l->units.labels),
                               .teaching = l->d.logits != 0 ? &l->teaching : NULL,
                               .loss_only = !learn};
    memset(g->saved.dx, 0, (size_t)(g->batch.in.batch * g->batch.in.length * g->model->config.hidden) * sizeof(float));
    if (is_empty(l)) {
        *sum = (double)NAN;
        return MHA_OK;
    }
    if (mha__distill_logits(&l->d)) MHA__TRY(mha__grads_head(g, &job, sum, err));
    return l->args->teacher ? mha__teach_states(g, &l->teaching, learn, sum, err) : MHA_OK;
}

static mha_status run(mha_model_grads *g, const mha_model_input *input, lesson *l, double *loss, int64_t *counted,
                      mha_error *err)
{
    double sum = 0;
    MHA__TRY(choose_rows(g, l->args->labels, l->rows, l->labels, &l->units.labels, err));
    MHA__TRY(ask_teacher(g, input, l, err));
    MHA__TRY(find_loss(g, l, &sum, err));
    if (loss) *loss = sum;
    if (counted) *counted = mha__distill_logits(&l->d) ? l->units.labels : l->units.tokens;
    if (l->args->loss_only) return MHA_OK;
    const mha_model_gradient wanted = wanted_of(l->args);
    return mha__grads_down(g, &wanted, err);
}

static void take_arrays(mha__arena *arena, const mha_model_grads *g, lesson *l)
{
    const size_t count = (size_t)(g->batch.in.batch * g->batch.in.length);
    const mha_model *teacher = l->args->teacher;
    l->rows = mha__take(arena, count, sizeof *l->rows);
    l->labels = mha__take(arena, count, sizeof *l->labels);
    l->hidden = teacher ? mha__take(arena, count, (size_t)teacher->config.hidden * sizeof *l->hidden) : NULL;
}

static mha_status read_args(const mha_model *m, const mha_model_loss_args *given, mha_model_loss_args *args,
                            mha_model_distill *d, mha_error *err)
{
    MHA__TRY(mha__options_read(args, sizeof *args, given, "mha_model_loss_args", err));
    *d = args->distill;
    MHA__TRY(mha__distill_read(m, args->teacher, d, err));
    if (d->labels != 0 && all_rows(m, args->labels))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_loss_args: labels must not be NULL for an encoder");
    if (!isfinite(args->scale))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_loss_args: scale must be finite (got %g)", args->scale);
    const mha_model_gradient wanted = wanted_of(args);
    return mha__grads_check(m, &wanted, err);
}

mha_status mha_model_grads_loss(mha_model_grads *g, const mha_model_input *input, const mha_model_loss_args *given,
                                double *loss, int64_t *counted, mha_error *err)
{
    mha_model_loss_args args;
    mha__arena arena = {0};
    lesson l = {.args = &args};
    if (!g) return mha__fail(err, MHA_ERR_ARG, "mha_model_grads_loss: grads must not be NULL");
    MHA__TRY(read_args(g->model, given, &args, &l.d, err));
    MHA__TRY(mha_model_grads_forward(g, input, args.output, err));
    take_arrays(&arena, g, &l);
    arena.base = arena.overflow ? NULL : mha__alloc(g->ctx, arena.used);
    if (!arena.base)
        return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used,
                              "the labels and the teacher's hidden states");
    arena.used = 0;
    take_arrays(&arena, g, &l);
    const mha_status status = run(g, input, &l, loss, counted, err);
    mha__free(g->ctx, arena.base);
    return status;
}
