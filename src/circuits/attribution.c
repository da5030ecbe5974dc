/* attribution.c - attribution patching: gradients of the three metrics in one backward pass of three copies of a run,
 * and their products with the difference of both runs at a site. */
#include "circuits/attribution.h"

#include "base/ctx.h"
#include "base/error.h"
#include "math/kl_divergence.h"
#include "model/backward/model_grads.h"
#include <math.h>
#include <string.h>

enum { STEPS = 8 }; /* runs of MHA_ESTIMATE_IG */

/* ---- gradients of the metrics ---- */

/* Computes the gradient of metric m with respect to the logits of a run. */
static void metric_gradient(const mha_prompt_pair *pair, const float *logits, int m, float *gradient)
{
    const int64_t vocab = pair->info->vocab;
    memset(gradient, 0, (size_t)vocab * sizeof *gradient);
    if (m == MHA_LOGIT_DIFF) {
        gradient[pair->answer] += 1;
        gradient[pair->wrong] -= 1;
        return;
    }
    const double total = mha__log_sum_exp(logits, vocab);
    for (int64_t v = 0; v < vocab; v++) {
        const double p = exp((double)logits[v] - total);
        gradient[v] = (float)(m == MHA_LOGPROB ? -p : p - exp(pair->clean_logprob[v]));
    }
    if (m == MHA_LOGPROB) gradient[pair->answer] += 1;
}

/* ---- products ---- */

/* Returns the site whose gradient an estimate needs; resid_pre is the gradient of the block's input. */
static mha__edit_site gradient_of(mha_site site)
{
    return site == MHA_SITE_RESID_PRE    ? MHA__EDIT_EMBEDDED
           : site == MHA_SITE_RESID_MID  ? MHA__EDIT_RESID_MID
           : site == MHA_SITE_RESID_POST ? MHA__EDIT_RESID_POST
           : site == MHA_SITE_ATTN_OUT   ? MHA__EDIT_ATTN_OUT
           : site == MHA_SITE_MLP_OUT    ? MHA__EDIT_MLP_OUT
                                         : MHA__EDIT_CONTEXT;
}

/* Adds the products of metric m at a site without heads. */
static void attribute_rows(const mha__attribution *a, int m, int64_t layer, const float *gradient)
{
    const mha_prompt_pair *pair = a->pair;
    const mha_patch_part part = {a->site, layer, -1, -1};
    int64_t stride = 0;
    const float *base = mha__part_rows(pair, a->base, &part, &stride);
    const float *source = mha__part_rows(pair, a->source, &part, &stride);
    for (int64_t t = 0; t < pair->length; t++) {
        double sum = 0;
        for (int64_t e = 0; e < pair->width; e++)
            sum +=
                ((double)source[t * stride + e] - (double)base[t * stride + e]) * (double)gradient[t * pair->width + e];
        a->sums[(m * pair->info->layers + layer) * pair->length + t] += a->weight * sum;
    }
}

/* Receives the gradient of a site: three copies of the run, one per metric. */
static void take(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    const mha__attribution *a = user;
    (void)first;
    if (site != gradient_of(a->site)) return;
    const int64_t T = rows / MHA_CIRCUIT_METRICS, width = mha__context_width(mha__pair_attn(a->pair, layer));
    for (int m = 0; m < MHA_CIRCUIT_METRICS; m++)
        if (site == MHA__EDIT_CONTEXT)
            mha__attribute_heads(a, m, layer, x + m * T * width);
        else
            attribute_rows(a, m, layer, x + m * T * a->pair->width);
}

/* ---- a run with gradients ---- */

typedef struct copies {
    float *hidden;    /* [3, T, E] */
    int32_t *ids;     /* [3, T] zeros: the pass starts from `hidden` */
    float *gradients; /* [3, T, vocab], or [3, vocab] for the last token */
    void *memory;
} copies;

static mha_status set_up(const mha_prompt_pair *pair, const mha__run_record *at, copies *c, mha_error *err)
{
    const size_t rows = (size_t)(MHA_CIRCUIT_METRICS * pair->length), vocab = (size_t)pair->info->vocab;
    const bool last = pair->position == pair->length - 1;
    const size_t each = (size_t)pair->length * (size_t)pair->width;
    const size_t count = MHA_CIRCUIT_METRICS * each + rows + (last ? MHA_CIRCUIT_METRICS : rows) * vocab;
    c->memory = c->hidden = mha__calloc(pair->ctx, count, sizeof(float));
    if (!c->memory) return mha__no_memory(err, count * sizeof(float), "gradients of the metrics");
    c->gradients = c->hidden + MHA_CIRCUIT_METRICS * each;
    c->ids = (int32_t *)(c->gradients + (last ? MHA_CIRCUIT_METRICS : rows) * vocab);
    for (int m = 0; m < MHA_CIRCUIT_METRICS; m++) {
        const int64_t row = last ? m : m * pair->length + pair->position;
        memcpy(c->hidden + (size_t)m * each, at->resid, each * sizeof *c->hidden);
        metric_gradient(pair, at->logits, m, c->gradients + row * pair->info->vocab);
    }
    return MHA_OK;
}

/* Adds the products of the run a->at. */
static mha_status back(mha__attribution *a, mha_model_grads *grads, mha_error *err)
{
    const mha_prompt_pair *pair = a->pair;
    const bool last = pair->position == pair->length - 1;
    copies c = {0};
    mha__site_edit sites = {.change = take, .user = a};
    mha_status status = set_up(pair, a->at, &c, err);
    const mha_model_input in = {.size = sizeof in, .batch = MHA_CIRCUIT_METRICS, .length = pair->length, .ids = c.ids};
    const mha_model_gradient wanted = {
        .size = sizeof wanted, .last_logits = last ? c.gradients : NULL, .logits = last ? NULL : c.gradients};
    grads->start = c.hidden;
    if (status == MHA_OK) status = mha_model_grads_forward(grads, &in, NULL, err);
    grads->sites = &sites;
    if (status == MHA_OK) status = mha_model_grads_backward(grads, &wanted, err);
    grads->sites = NULL;
    mha__free(pair->ctx, c.memory);
    return status;
}

/* Adds the products of run `step` between the base and the source run. */
static mha_status back_between(mha__attribution *a, int step, mha_model_grads *grads, mha_error *err)
{
    const mha_prompt_pair *pair = a->pair;
    const int64_t count = pair->length * pair->width;
    const float share = ((float)step + 0.5f) / STEPS;
    float *hidden = mha__alloc(pair->ctx, (size_t)count * sizeof *hidden);
    if (!hidden) return mha__no_memory(err, (size_t)count * sizeof *hidden, "the input of a run");
    for (int64_t n = 0; n < count; n++)
        hidden[n] = a->base->resid[n] + share * (a->source->resid[n] - a->base->resid[n]);
    mha__run_record at = {0};
    const mha__run_start start = {.hidden = hidden};
    mha_status status = mha__record_run(pair, &start, &at, err);
    a->at = &at;
    if (status == MHA_OK) status = back(a, grads, err);
    mha__record_free(pair, &at);
    mha__free(pair->ctx, hidden);
    return status;
}

static mha_status back_all(mha__attribution *a, mha_error *err)
{
    mha_model_grads *grads = NULL;
    const mha_model_grads_options o = {.size = sizeof o, .no_parameters = 1};
    const int steps = a->estimate == MHA_ESTIMATE_IG ? STEPS : 1;
    MHA__TRY(mha_model_grads_create(a->pair->model, &o, &grads, err));
    mha_status status = MHA_OK;
    a->weight = 1.0 / steps;
    a->at = a->base;
    for (int step = 0; status == MHA_OK && step < steps; step++) {
        status = steps > 1 ? back_between(a, step, grads, err) : back(a, grads, err);
        if (status == MHA_OK) status = mha__progress(a->pair->ctx, "attribution", step + 1, steps, err);
    }
    mha_model_grads_free(grads);
    return status;
}

/* ---- the public function ---- */

static mha_status check(const mha_prompt_pair *pair, mha_estimate estimate, mha_site site, mha_patch_by by,
                        mha_error *err)
{
    int64_t shape[3];
    MHA__TRY(mha__site_check(pair, site, err));
    if ((int)estimate < 0 || estimate > MHA_ESTIMATE_QKFIX)
        return mha__fail(err, MHA_ERR_ARG, "estimate must be a value of mha_estimate (got %d)", (int)estimate);
    if (mha_patch_shape(pair, site, by, shape) == 0) return mha__by_fail(site, by, err);
    if (estimate == MHA_ESTIMATE_QKFIX && site != MHA_SITE_Q && site != MHA_SITE_K)
        return mha__fail(err, MHA_ERR_ARG, "site must be q or k for MHA_ESTIMATE_QKFIX (got %s)", mha_site_name(site));
    if ((site == MHA_SITE_Q || site == MHA_SITE_K) && mha__pair_attn(pair, 0)->relative)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "the attribution of %s is not supported for %s: its scores have terms of relative positions",
                         mha_site_name(site), pair->info->family);
    return MHA_OK;
}

/* Writes the sums by the requested granularity. */
static void write(const mha__attribution *a, mha_patch_by by, double *out)
{
    const int64_t T = a->pair->length, rows = MHA_CIRCUIT_METRICS * a->pair->info->layers * a->heads;
    if (by != MHA_BY_HEAD) {
        memcpy(out, a->sums, (size_t)(rows * T) * sizeof *out);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        out[r] = 0;
        for (int64_t t = 0; t < T; t++)
            out[r] += a->sums[r * T + t];
    }
}

mha_status mha_attribution(const mha_prompt_pair *pair, mha_estimate estimate, mha_site site, mha_patch_by by,
                           mha_patch_direction direction, double *out, mha_error *err)
{
    MHA__TRY(mha__pair_check(pair, (int)direction, out, "mha_attribution", err));
    MHA__TRY(check(pair, estimate, site, by, err));
    mha__attribution a = {.pair = pair,
                          .base = mha__base_run(pair, direction),
                          .source = mha__source_run(pair, direction),
                          .site = site,
                          .estimate = estimate,
                          .heads = mha__max64(1, mha__site_max_heads(pair, site))};
    const int64_t rows = MHA_CIRCUIT_METRICS * pair->info->layers * a.heads + 1; /* the last row is scratch */
    a.sums = mha__calloc(pair->ctx, (size_t)(rows * pair->length), sizeof *a.sums);
    if (!a.sums) return mha__no_memory(err, (size_t)(rows * pair->length) * sizeof *a.sums, "attributions");
    a.row = a.sums + (rows - 1) * pair->length;
    const mha_status status = back_all(&a, err);
    if (status == MHA_OK) write(&a, by, out);
    mha__free(pair->ctx, a.sums);
    return status;
}
