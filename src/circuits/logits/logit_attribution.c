/* logit_attribution.c - checks the arguments of a logit attribution, and owns its result. */
#include "mha/logit_attribution.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "circuits/logits/attribution_pass.h"
#include "model/forward/pooler_logits.h"
#include <math.h>

enum { N = MHA_LOGIT_TARGETS };

/* ---- memory ---- */

static void lay_out_result(mha__arena *arena, mha__logit_parts *r)
{
    const size_t layers = N * (size_t)r->shown.layers, heads = (size_t)r->shown.head_count;
    r->heads = mha__take(arena, layers, heads * sizeof(double));
    r->sources = mha__take(arena, layers * heads, (size_t)r->shown.tokens * sizeof(double));
    r->attn_bias = mha__take(arena, layers, sizeof(double));
    r->mlps = mha__take(arena, layers, sizeof(double));
}

static void lay_out_job(mha__arena *arena, mha__attribution_job *j)
{
    const size_t E = (size_t)j->m->config.hidden, heads = (size_t)j->m->config.heads;
    double **const wide[] = {&j->u, &j->w, &j->inner}, **const narrow[] = {&j->first, &j->last, &j->written};
    for (int i = 0; i < 3; i++) {
        *wide[i] = mha__take(arena, N, E * sizeof(double));
        *narrow[i] = mha__take(arena, E, sizeof(double));
    }
    j->maps = mha__take(arena, N * heads, (size_t)j->m->config.head_dim * sizeof(double));
    j->probs = mha__take(arena, heads, (size_t)j->to->shown.tokens * sizeof(float));
    j->rows = mha__take(arena, MHA__ATTRIBUTION_ROWS, E * sizeof(float));
    j->logits = mha__take(arena, (size_t)j->m->config.vocab, sizeof(float));
}

static mha_status create(const mha_model *m, int64_t count, mha__logit_parts **out, mha_error *err)
{
    mha__logit_parts *r = mha__calloc(m->ctx, 1, sizeof *r);
    mha__arena arena = {0};
    *out = r;
    if (!r) return mha__no_memory(err, sizeof *r, "a logit attribution");
    r->ctx = m->ctx;
    r->shown =
        (mha_logit_attribution){.layers = m->config.layers, .head_count = m->config.heads, .tokens = count, .scale = 1};
    lay_out_result(&arena, r);
    arena.base = r->memory = arena.overflow ? NULL : mha__calloc(m->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a logit attribution");
    arena.used = 0;
    lay_out_result(&arena, r);
    r->shown.heads = r->heads;
    r->shown.sources = r->sources;
    r->shown.attn_bias = r->attn_bias;
    r->shown.mlps = r->mlps;
    return MHA_OK;
}

static mha_status measure(const mha_model *m, const int32_t *ids, const mha_logit_attribution_options *o,
                          mha__logit_parts *to, mha_error *err)
{
    mha_error own = {0};
    mha__attribution_job j = {.m = m, .to = to, .o = *o, .err = &own};
    mha__arena arena = {0};
    lay_out_job(&arena, &j);
    void *memory = arena.base = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a logit attribution");
    arena.used = 0;
    lay_out_job(&arena, &j);
    const mha_status status = mha__attribution_run(&j, ids, err);
    if (j.status != MHA_OK && err) *err = own;
    mha__free(m->ctx, memory);
    return status;
}

/* ---- arguments ---- */

static mha_status refuse(const mha_model *m, const char *reason, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "logit attribution: model must be a pre-norm decoder (got %s: %s)",
                     m->info.family, reason);
}

static mha_status check_model(const mha_model *m, mha_error *err)
{
    if (!m->packed)
        return mha__fail(err, MHA_ERR_ARG, "logit attribution: model must have been opened with its weights");
    MHA__TRY(mha__model_not_seq2seq(m, "logit attribution: model", err));
    MHA__TRY(mha__model_single_heads(m, "logit attribution", err));
    if (!m->config.pre_norm)
        return refuse(m, "a norm after each layer rescales all parts so far, so no exact sum exists", err);
    if (!m->info.causal) return refuse(m, "an activation lies before the output matrix, so no exact sum exists", err);
    if (m->embed_map) return refuse(m, "a linear map lies before the output matrix", err);
    if (m->ranks.ranks) return refuse(m, "it is divided among processes", err);
    return mha__head_check_tokens(m, err);
}

static mha_status check(const mha_model *m, const int32_t *ids, int64_t count, const mha_logit_attribution_options *o,
                        mha_error *err)
{
    const long long vocab = m ? (long long)m->config.vocab : 0;
    if (!m || !ids) return mha__fail(err, MHA_ERR_ARG, "mha_logit_attribution_measure: model and ids must not be NULL");
    MHA__TRY(check_model(m, err));
    if (count < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_logit_attribution_measure: count must be at least 1 (got %lld)",
                         (long long)count);
    if (o->position < 0 || o->position >= count)
        return mha__fail(err, MHA_ERR_ARG, "mha_logit_attribution_options: position must be from 0 to %lld (got %lld)",
                         (long long)count - 1, (long long)o->position);
    if (o->answer < 0 || o->answer >= vocab)
        return mha__fail(err, MHA_ERR_ARG, "mha_logit_attribution_options: answer must be from 0 to %lld (got %d)",
                         vocab - 1, o->answer);
    if (o->wrong < -1 || o->wrong >= vocab)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_logit_attribution_options: wrong must be from 0 to %lld, or -1 (got %d)", vocab - 1,
                         o->wrong);
    return MHA_OK;
}

mha_status mha_logit_attribution_measure(const mha_model *model, const int32_t *ids, int64_t count,
                                         const mha_logit_attribution_options *options, mha_logit_attribution **out,
                                         mha_error *err)
{
    mha_logit_attribution_options o;
    mha__logit_parts *r = NULL;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_logit_attribution_measure: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_logit_attribution_options", err));
    MHA__TRY(check(model, ids, count, &o, err));
    mha_status status = create(model, count, &r, err);
    if (status == MHA_OK) status = measure(model, ids, &o, r, err);
    if (status == MHA_OK)
        *out = &r->shown;
    else
        mha_logit_attribution_free(r ? &r->shown : NULL);
    return status;
}

void mha_logit_attribution_free(mha_logit_attribution *attribution)
{
    mha__logit_parts *r = (mha__logit_parts *)attribution;
    if (!r) return;
    mha__free(r->ctx, r->memory);
    mha__free(r->ctx, r);
}
