/* prompt_pair.c - creates a pair of prompts: runs both and measures them. */
#include "circuits/prompt_pair.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "math/hash.h"
#include "math/kl_divergence.h"
#include "model/forward/batch.h"
#include "model/forward/pooler_logits.h"
#include <math.h>
#include <string.h>

/* ---- metrics ---- */

void mha__pair_metrics(const mha_prompt_pair *pair, int64_t rows, const float *logits, double *metrics, int64_t stride)
{
    const int64_t vocab = pair->info->vocab;
    /* the log-sum-exps are written where the log-probabilities will be */
    mha__kl_rows(pair->ctx, rows, vocab, logits, pair->clean_logprob, metrics + MHA_LOGPROB * stride,
                 metrics + MHA_KL * stride);
    for (int64_t n = 0; n < rows; n++) {
        const double right = (double)logits[n * vocab + pair->answer], wrong = (double)logits[n * vocab + pair->wrong];
        metrics[MHA_LOGIT_DIFF * stride + n] = right - wrong;
        metrics[MHA_LOGPROB * stride + n] = right - metrics[MHA_LOGPROB * stride + n];
    }
}

void mha__fill_metrics(const mha__run_record *run, int64_t count, double *metrics)
{
    for (int m = 0; m < MHA_CIRCUIT_METRICS; m++)
        for (int64_t n = 0; n < count; n++)
            metrics[m * count + n] = run->metrics[m];
}

double mha_patch_normalized(double value, double clean, double corrupted)
{
    return fabs(clean - corrupted) < 1e-3 ? (double)NAN : (value - corrupted) / (clean - corrupted);
}

double mha_kl_divergence(const float *p, const float *q, int64_t count)
{
    if (!p || !q || count < 1) return (double)NAN;
    return mha__kl_of_logits(p, mha__log_sum_exp(p, count), q, mha__log_sum_exp(q, count), count);
}

/* ---- checks ---- */

/* Returns what passes with changed activations require of the model and it does not have; NULL = nothing. */
static const char *unsupported(const mha_model *m)
{
    if (m->encoder || m->decoder) return "not be an encoder-decoder";
    if (m->ranks.ranks) return "not be divided among processes";
    for (int64_t layer = 0; layer < m->info.layers; layer++)
        if (m->info.attention_per_layer[layer].choice) return "not have layers that select heads per text";
    return NULL;
}

mha_status mha__circuits_check(const mha_model *m, const char *function, mha_error *err)
{
    if (!m) return mha__fail(err, MHA_ERR_ARG, "%s: model must not be NULL", function);
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "%s: model must have weights", function);
    const char *what = unsupported(m);
    if (what) return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: model must %s (got %s)", function, what, m->info.family);
    if (m->outer.packed != MHA_F32)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: model must be opened in f32 (got %s)", function,
                         mha_dtype_name(m->outer.packed));
    return MHA_OK;
}

static mha_status check_token(const mha_model *m, const char *name, int64_t index, int32_t id, mha_error *err)
{
    if (id >= 0 && id < m->info.vocab) return MHA_OK;
    if (index < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_prompt_pair_options: %s must be from 0 to %lld (got %d)", name,
                         (long long)m->info.vocab - 1, (int)id);
    return mha__fail(err, MHA_ERR_ARG, "mha_prompt_pair_options: %s[%lld] must be from 0 to %lld (got %d)", name,
                     (long long)index, (long long)m->info.vocab - 1, (int)id);
}

static mha_status check_options(const mha_model *m, const mha_prompt_pair_options *o, mha_error *err)
{
    const int64_t max = mha__batch_max_tokens(m);
    if (!o->clean || !o->corrupted)
        return mha__fail(err, MHA_ERR_ARG, "mha_prompt_pair_options: %s must not be NULL",
                         o->clean ? "corrupted" : "clean");
    if (o->length < 1 || o->length > max)
        return mha__fail(err, MHA_ERR_ARG, "mha_prompt_pair_options: length must be from 1 to %lld (got %lld)",
                         (long long)max, (long long)o->length);
    if (o->position && (*o->position < 0 || *o->position >= o->length))
        return mha__fail(err, MHA_ERR_ARG, "mha_prompt_pair_options: position must be from 0 to %lld (got %lld)",
                         (long long)o->length - 1, (long long)*o->position);
    for (int64_t t = 0; t < o->length; t++) {
        MHA__TRY(check_token(m, "clean", t, o->clean[t], err));
        MHA__TRY(check_token(m, "corrupted", t, o->corrupted[t], err));
    }
    MHA__TRY(check_token(m, "answer", -1, o->answer, err));
    return check_token(m, "wrong", -1, o->wrong, err);
}

mha_status mha__pair_check(const mha_prompt_pair *pair, int direction, const void *out, const char *function,
                           mha_error *err)
{
    if (!pair || !out)
        return mha__fail(err, MHA_ERR_ARG, "%s: %s must not be NULL", function, pair ? "the result" : "pair");
    if (direction != MHA_DENOISE && direction != MHA_NOISE)
        return mha__fail(err, MHA_ERR_ARG, "%s: direction must be MHA_DENOISE or MHA_NOISE (got %d)", function,
                         direction);
    return MHA_OK;
}

/* ---- creation ---- */

static void describe(mha_prompt_pair *pair, const mha_model *m, const mha_prompt_pair_options *o)
{
    *pair = (mha_prompt_pair){.model = m,
                              .info = mha_model_describe(m),
                              .ctx = m->ctx,
                              .length = o->length,
                              .position = o->position ? *o->position : o->length - 1,
                              .width = m->config.hidden,
                              .answer = o->answer,
                              .wrong = o->wrong};
    for (int64_t layer = 0; layer < pair->info->layers; layer++) {
        const mha_attn_layer *attn = mha__pair_attn(pair, layer);
        pair->qkv_width = mha__max64(pair->qkv_width, mha__qkv_width(&attn->options));
        pair->z_width = mha__max64(pair->z_width, mha__context_width(attn));
    }
}

static void mark(mha_prompt_pair *pair, const mha_prompt_pair_options *o)
{
    const int64_t where[] = {o->length, pair->position, o->answer, o->wrong};
    const size_t length = (size_t)o->length;
    uint64_t h = mha__hash(0, where, sizeof where);
    h = mha__hash(h, o->clean, length * sizeof *o->clean);
    h = mha__hash(h, o->corrupted, length * sizeof *o->corrupted);
    if (o->noise) h = mha__hash(h, o->noise, length * (size_t)pair->model->config.embed_width * sizeof *o->noise);
    mha__hash_print(pair->mark, h);
}

static mha_status run_both(mha_prompt_pair *pair, const mha_prompt_pair_options *o, mha_error *err)
{
    const int64_t vocab = pair->info->vocab;
    const mha__run_start clean = {.ids = o->clean}, corrupted = {.ids = o->corrupted, .noise = o->noise};
    pair->clean_logprob = mha__calloc(pair->ctx, (size_t)vocab, sizeof *pair->clean_logprob);
    if (!pair->clean_logprob) return mha__no_memory(err, (size_t)vocab * sizeof(double), "log-probabilities");
    MHA__TRY(mha__record_run(pair, &clean, &pair->run[MHA_RUN_CLEAN], err));
    MHA__TRY(mha__record_run(pair, &corrupted, &pair->run[MHA_RUN_CORRUPTED], err));
    const float *logits = pair->run[MHA_RUN_CLEAN].logits;
    const double total = mha__log_sum_exp(logits, vocab);
    for (int64_t v = 0; v < vocab; v++)
        pair->clean_logprob[v] = (double)logits[v] - total;
    for (int n = 0; n < 2; n++)
        mha__pair_metrics(pair, 1, pair->run[n].logits, pair->run[n].metrics, 1);
    return MHA_OK;
}

mha_status mha_prompt_pair_create(const mha_model *model, const mha_prompt_pair_options *options, mha_prompt_pair **out,
                                  mha_error *err)
{
    mha_prompt_pair_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_prompt_pair_create: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__circuits_check(model, "mha_prompt_pair_create", err));
    MHA__TRY(mha__head_check_tokens(model, err));
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_prompt_pair_options", err));
    MHA__TRY(check_options(model, &o, err));
    mha_prompt_pair *pair = mha__alloc(model->ctx, sizeof *pair);
    if (!pair) return mha__no_memory(err, sizeof *pair, "a pair of prompts");
    describe(pair, model, &o);
    mark(pair, &o);
    const mha_status status = run_both(pair, &o, err);
    if (status == MHA_OK)
        *out = pair;
    else
        mha_prompt_pair_free(pair);
    return status;
}

void mha_prompt_pair_free(mha_prompt_pair *pair)
{
    if (!pair) return;
    mha_ctx *ctx = pair->ctx;
    for (int n = 0; n < 2; n++)
        mha__record_free(pair, &pair->run[n]);
    mha__free(ctx, pair->clean_logprob);
    mha__free(ctx, pair);
}

/* ---- results of the unchanged runs ---- */

static const mha__run_record *run_of(const mha_prompt_pair *pair, mha_prompt_run run)
{
    return pair && (run == MHA_RUN_CLEAN || run == MHA_RUN_CORRUPTED) ? &pair->run[run] : NULL;
}

mha_status mha_prompt_pair_metrics(const mha_prompt_pair *pair, mha_prompt_run run, double *metrics, mha_error *err)
{
    const mha__run_record *r = run_of(pair, run);
    if (!r || !metrics)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_prompt_pair_metrics: pair and metrics must not be NULL, and run must be MHA_RUN_CLEAN or "
                         "MHA_RUN_CORRUPTED (got %d)",
                         (int)run);
    memcpy(metrics, r->metrics, sizeof r->metrics);
    return MHA_OK;
}

const float *mha_prompt_pair_logits(const mha_prompt_pair *pair, mha_prompt_run run)
{
    const mha__run_record *r = run_of(pair, run);
    return r ? r->logits : NULL;
}

const float *mha_prompt_pair_map(const mha_prompt_pair *pair, mha_prompt_run run, int64_t layer, int64_t head)
{
    const mha__run_record *r = run_of(pair, run);
    if (!r || layer < 0 || layer >= pair->info->layers || head < 0 || head >= pair->info->heads_per_layer[layer])
        return NULL;
    return r->maps + (layer * pair->info->heads + head) * pair->length * pair->length;
}

int64_t mha_prompt_pair_length(const mha_prompt_pair *pair)
{
    return pair ? pair->length : -1;
}

int64_t mha_prompt_pair_position(const mha_prompt_pair *pair)
{
    return pair ? pair->position : -1;
}
