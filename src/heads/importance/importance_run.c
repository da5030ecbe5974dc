/* importance_run.c - the table of scores, and the function that runs one measurement. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/importance/importance.h"

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

static void warn_saturated(const mha__importance_job *s, mha_importance *out)
{
    if (!s->rule->loss) return;
    out->identity = mha__identity(s);
    out->loss = mha__fixed_value(*s->loss) / (double)s->counts[MHA__GROUPS];
    out->saturated = out->loss < SATURATED;
    if (out->saturated)
        mha__log(s->ctx, 0, "the loss is %.3g, below %g: its gradient is too small to rank heads reliably%s", out->loss,
                 SATURATED,
                 mha__importance_of_pairs(s) ? "; use harder pairs, larger batches or a smaller loss_scale" : "");
}

/* Opens the measurement of statistics, which uses the forward passes of the measurement of importance. */
static mha_status open_statistics(mha__importance_job *s, const mha_heads_options *options, mha__heads_job *run,
                                  mha_error *err)
{
    s->statistics = run;
    return mha__heads_open(s->model, s->data, options, s->max_texts, mha__packer_room(&s->packer), run, err);
}

mha_status mha__importance_run(const mha_model *model, const mha_head_data *data, const mha_importance_options *options,
                               const mha__shared_statistics *with, mha_importance *out, mha_error *err)
{
    mha__importance_job s;
    mha__heads_job run = {0};
    mha_status status = mha__importance_open(&s, model, data, options, err);
    if (status == MHA_OK && with) status = open_statistics(&s, with->options, &run, err);
    if (status == MHA_OK) status = mha__importance_means(&s, err);
    if (status == MHA_OK) status = mha__importance_run_steps(&s, err);
    if (status == MHA_OK) status = mha__importance_finish(&s, out, err);
    if (status == MHA_OK) warn_saturated(&s, out);
    if (status == MHA_OK) out->texts = s.counts[MHA__TEXTS];
    if (status == MHA_OK && with) status = mha__heads_finish(&run, err);
    mha__heads_close(&run, status == MHA_OK && with ? with->out : NULL);
    mha__importance_close(&s);
    return status;
}
