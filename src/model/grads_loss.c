/* grads_loss.c - forward, cross entropy and back. Only rows with a label go through the head of logits. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "model/grads.h"
#include "model/head.h"
#include <math.h>
#include <string.h>

/* The label that the token of a row is asked for, or MHA_IGNORE; `end` is the row behind its sequence. */
static int32_t label_of(const mha_model_grads *g, const int32_t *labels, int64_t row, int64_t end)
{
    const int64_t at = row + (g->model->config.family->causal ? 1 : 0);
    if (at >= end || !mha__grads_real(g, row)) return MHA_IGNORE;
    if (labels) return labels[at];
    return mha__grads_real(g, at) ? g->batch.in.ids[at] : MHA_IGNORE;
}

static mha_status choose_rows(const mha_model_grads *g, const int32_t *labels, int64_t *rows, int32_t *chosen,
                              int64_t *count, mha_error *err)
{
    const int64_t vocab = g->model->config.vocab, total = g->batch.in.batch * g->batch.in.length;
    *count = 0;
    for (int64_t row = 0, b = 0; row < total; row++) {
        const int64_t end = b + 1 < g->batch.sequences ? mha__batch_first(&g->batch, b + 1) : total;
        const int32_t label = label_of(g, labels, row, end);
        if (row + 1 == end) b++;
        if (label == MHA_IGNORE) continue;
        if (label < 0 || label >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "the label of token %lld is %d, not in 0..%lld or %d", (long long)row,
                             (int)label, (long long)vocab - 1, MHA_IGNORE);
        rows[*count] = row;
        chosen[(*count)++] = label;
    }
    return MHA_OK;
}

static mha_model_gradient wanted_of(const mha_model_loss_args *args)
{
    return (mha_model_gradient){.size = sizeof(mha_model_gradient),
                                .gates = args->dgates,
                                .embeddings = args->dembeddings,
                                .on_context = args->on_context,
                                .user = args->user,
                                .taylor = args->taylor};
}

static mha_status run(mha_model_grads *g, const mha_model_loss_args *args, int64_t *rows, int32_t *labels, double *loss,
                      int64_t *counted, mha_error *err)
{
    mha__head_job job = {.rows = rows, .labels = labels, .loss_only = args->loss_only != 0};
    double sum = 0;
    MHA__TRY(choose_rows(g, args->labels, rows, labels, &job.count, err));
    job.scale = args->scale != 0 ? args->scale : 1 / (double)job.count;
    memset(g->kept.dx, 0, (size_t)(g->batch.in.batch * g->batch.in.length * g->model->config.hidden) * sizeof(float));
    MHA__TRY(mha__grads_head(g, &job, &sum, err));
    if (loss) *loss = job.count || args->scale != 0 ? sum : (double)NAN;
    if (counted) *counted = job.count;
    if (job.loss_only) return MHA_OK;
    const mha_model_gradient wanted = wanted_of(args);
    return mha__grads_down(g, &wanted, err);
}

mha_status mha_model_grads_loss(mha_model_grads *g, const mha_model_input *input, const mha_model_loss_args *given,
                                double *loss, int64_t *counted, mha_error *err)
{
    mha_model_loss_args args;
    if (!g) return mha__fail(err, MHA_ERR_ARG, "mha_model_grads_loss: grads is NULL");
    MHA__TRY(mha__options_read(&args, sizeof args, given, "mha_model_loss_args", err));
    MHA__TRY(mha__head_check(g->model, false, true, err));
    if (!args.labels && !g->model->config.family->causal)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_loss_args: labels is NULL, but the model is an encoder");
    if (!isfinite(args.scale)) return mha__fail(err, MHA_ERR_ARG, "mha_model_loss_args: scale is %g", args.scale);
    const mha_model_gradient wanted = wanted_of(&args);
    MHA__TRY(mha__grads_check(&wanted, err));
    MHA__TRY(mha_model_grads_forward(g, input, NULL, err));
    const size_t count = (size_t)(g->batch.in.batch * g->batch.in.length),
                 bytes = count * (sizeof(int64_t) + sizeof(int32_t));
    int64_t *rows = mha__alloc(g->ctx, bytes);
    if (!rows) return mha__no_memory(err, bytes, "the rows of labels");
    const mha_status status = run(g, &args, rows, (int32_t *)(rows + count), loss, counted, err);
    mha__free(g->ctx, rows);
    return status;
}
