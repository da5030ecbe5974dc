/* importance_run.c - processes units in groups, from the first to the last or until the ranking has converged. */
#include "heads/importance/importance.h"

#include <math.h>
#include <string.h>

#include "base/ctx.h"
#include "base/error.h"
#include "layer/arena.h"

enum { GROUP = 64, TOKENS = 1024, TOKENS_BACK = 512 }; /* units per group without a loss; tokens per batch */
static const double SATURATED = 0.05;

const mha__importance_rule mha__importance_rules[MHA_IMPORTANCE_SCORES] = {
    [MHA_IMPORTANCE_GATE] = {.group = mha__importance_loss, .take = mha__take_gate, .loss = true},
    [MHA_IMPORTANCE_GATE_BATCH] = {.group = mha__importance_loss,
                                   .take = mha__take_gate_batch,
                                   .form = MHA__FORM_ABS,
                                   .loss = true},
    [MHA_IMPORTANCE_GATE_LAYER_L2] = {.group = mha__importance_loss,
                                      .take = mha__take_gate,
                                      .form = MHA__FORM_LAYER_L2,
                                      .loss = true},
    [MHA_IMPORTANCE_TAYLOR_TOKEN] = {.group = mha__importance_loss, .loss = true},
    [MHA_IMPORTANCE_TAYLOR_ELEM] = {.group = mha__importance_loss, .loss = true, .taylor = true},
    [MHA_IMPORTANCE_GRADMAG] = {.group = mha__group_gradmag, .loss = true, .parameters = true, .adds = true},
    [MHA_IMPORTANCE_JACOBIAN] = {.group = mha__group_jacobian},
    [MHA_IMPORTANCE_JACOBIAN_PROBE] = {.group = mha__group_jacobian},
    [MHA_IMPORTANCE_LOO] = {.group = mha__group_ablation, .forward = true},
    [MHA_IMPORTANCE_LOO_LOSS] = {.group = mha__group_ablation, .forward = true, .loss = true, .negative = true},
    [MHA_IMPORTANCE_LOO_MEAN] = {.group = mha__group_ablation, .forward = true},
    [MHA_IMPORTANCE_LOO_MEAN_LOSS] = {.group = mha__group_ablation, .forward = true, .loss = true, .negative = true},
    [MHA_IMPORTANCE_CONFIDENCE] = {.group = mha__group_confidence, .forward = true},
    [MHA_IMPORTANCE_CONFIDENCE_NOSPECIAL] = {.group = mha__group_confidence, .forward = true},
    [MHA_IMPORTANCE_OV_NORM] = {.weights = mha__ov_norm},
    [MHA_IMPORTANCE_QK_NORM] = {.weights = mha__qk_norm},
};

/* ---- memory ---- */

static bool pairs(const mha__importance_job *s)
{
    return s->rule->loss && s->options.loss == MHA_LOSS_PAIRS;
}

static void lay_out(mha__arena *arena, mha__importance_job *s, int64_t texts)
{
    const size_t n = (size_t)texts, total = (size_t)s->total, width = (size_t)s->info->hidden;
    const size_t most = (size_t)mha__packer_room(&s->packer);
    s->text = mha__take(arena, n, sizeof *s->text);
    s->part = mha__take(arena, n, total * sizeof *s->part);
    s->weight = mha__take(arena, n, sizeof *s->weight);
    s->length = mha__take(arena, n, sizeof *s->length);
    s->unit = mha__take(arena, n, width * sizeof *s->unit);
    s->dunit = mha__take(arena, n, width * sizeof *s->dunit);
    s->hidden = mha__take(arena, most, width * sizeof *s->hidden);
    s->gates = mha__take(arena, mha__min64((int64_t)most, texts), total * sizeof *s->gates);
    if (mha__jacobian_of_logits(s)) {
        s->logits = mha__take(arena, n, (size_t)s->info->vocab * sizeof *s->logits);
        s->dlogits = mha__take(arena, n, (size_t)s->info->vocab * sizeof *s->dlogits);
    }
    s->direction = mha__take(arena, (size_t)mha__max64(s->info->hidden, s->info->vocab), sizeof *s->direction);
    for (int form = 0; form < MHA__FORMS; form++)
        s->forms[form] = mha__take(arena, total, sizeof *s->forms[form]);
    s->label_at =
        s->options.labels ? mha__take(arena, (size_t)mha_head_data_count(s->data), sizeof *s->label_at) : NULL;
}

/* The backward pass stores much memory per token, so its batches are smaller. Pairs use large batches, because a group
 * that fits in one batch is run once. */
static int64_t tokens_of_batch(const mha__importance_job *s)
{
    return s->rule->forward || pairs(s) ? TOKENS : TOKENS_BACK;
}

static mha_status allocate(mha__importance_job *s, mha_error *err)
{
    /* a last pair that would be alone joins the previous group */
    const int64_t texts = pairs(s) ? 2 * (s->per_group + 1) : s->per_group;
    mha__arena arena = {0};
    MHA__TRY(mha__packer_create(s->ctx, s->data, texts, tokens_of_batch(s), &s->packer, err));
    lay_out(&arena, s, texts);
    arena.base = s->memory = arena.overflow ? NULL : mha__alloc(s->ctx, arena.used);
    if (!s->memory)
        return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the scores of a group of texts");
    arena.used = 0;
    lay_out(&arena, s, texts);
    MHA__TRY(mha__tally_create(s->ctx, s->total, &s->tally, err));
    const mha_model_grads_options how = {
        .size = sizeof how, .no_parameters = !s->rule->parameters, .pack = 1, .attention_only = 1};
    if (s->rule->forward) return MHA_OK;
    return mha_model_grads_create(s->model, &how, &s->grads, err);
}

static void find_labels(mha__importance_job *s)
{
    int64_t at = 0, length = 0;
    if (!s->options.labels) return;
    for (int64_t t = 0; t < mha_head_data_count(s->data); t++, at += length) {
        mha_head_data_ids(s->data, t, &length);
        s->label_at[t] = at;
    }
    s->packer.labelled = s->options.labels;
    s->packer.label_at = s->label_at;
}

/* ---- groups ---- */

bool mha__importance_next(mha__importance_job *s)
{
    s->first += s->count;
    s->done += s->texts;
    s->count = mha__min64(s->per_group, s->units - s->first);
    if (pairs(s) && s->units - s->first - s->count == 1) s->count++;
    s->texts = pairs(s) ? 2 * s->count : s->count;
    s->done_here = 0;
    for (int64_t n = 0; n < s->texts; n++)
        s->text[n] = n < s->count ? s->first + n : s->units + s->first + n - s->count;
    return s->count > 0;
}

static void add_units(mha__importance_job *s)
{
    for (int64_t u = 0; u < s->count; u++) {
        double *sum = s->part + u * s->total, *other = s->part + (s->count + u) * s->total;
        for (int64_t n = 0; pairs(s) && n < s->total; n++)
            sum[n] += other[n];
        mha__tally_add(&s->tally, sum, s->weight[u]);
    }
}

mha_status mha__importance_step(mha__importance_job *s, const mha__packed *batch, mha_error *err)
{
    s->done_here += batch->input.batch;
    return mha__progress(s->ctx, "importance", s->done + s->done_here, mha_head_data_count(s->data), err);
}

mha_status mha__importance_group(mha__importance_job *s, mha_error *err)
{
    memset(s->part, 0, (size_t)(s->texts * s->total) * sizeof *s->part);
    for (int64_t n = 0; n < s->texts; n++)
        s->weight[n] = 1;
    MHA__TRY(s->rule->group(s, err));
    if (!s->rule->adds) add_units(s);
    return MHA_OK;
}

static void warn_saturated(const mha__importance_job *s, mha_importance *out)
{
    if (!s->rule->loss) return;
    out->identity = s->identity;
    out->loss = s->loss / (double)s->groups;
    out->saturated = out->loss < SATURATED;
    if (out->saturated)
        mha__log(s->ctx, 0, "the loss is %.3g, below %g: what gradient is left ranks heads badly%s", out->loss,
                 SATURATED, pairs(s) ? "; harder pairs, more in a batch or a smaller loss_scale help" : "");
}

mha_status mha__importance_open(mha__importance_job *s, const mha_model *model, const mha_head_data *data,
                                const mha_importance_options *options, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    *s = (mha__importance_job){.ctx = mha_model_ctx(model),
                               .model = model,
                               .info = info,
                               .data = data,
                               .rule = &mha__importance_rules[options->by],
                               .options = *options,
                               .total = info->layers * info->heads};
    s->units = mha_head_data_count(data) / (pairs(s) ? 2 : 1);
    s->per_group = !s->rule->loss ? GROUP : options->batch_texts ? options->batch_texts : s->units;
    s->per_group = mha__min64(s->per_group, s->units);
    MHA__TRY(allocate(s, err));
    find_labels(s);
    return MHA_OK;
}

void mha__importance_close(mha__importance_job *s)
{
    mha_model_grads_free(s->grads);
    mha__tally_free(s->ctx, &s->tally);
    mha__free(s->ctx, s->means);
    mha__free(s->ctx, s->memory);
    mha__packer_free(s->ctx, &s->packer);
}

mha_status mha__importance_run(const mha_model *model, const mha_head_data *data, const mha_importance_options *options,
                               mha_importance *out, mha_error *err)
{
    mha__importance_job s;
    mha_status status = mha__importance_open(&s, model, data, options, err);
    if (status == MHA_OK) status = mha__importance_groups(&s, err);
    out->texts = s.done + s.texts;
    if (status == MHA_OK) status = mha__importance_finish(&s, out, err);
    if (status == MHA_OK) warn_saturated(&s, out);
    mha__importance_close(&s);
    return status;
}
