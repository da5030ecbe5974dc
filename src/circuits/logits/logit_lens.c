/* logit_lens.c - applies the output head of a model to the hidden state after each layer. */
#include "mha/logit_lens.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/loss/logits_softmax.h"
#include "math/kl_divergence.h"
#include "model/forward/pooler_logits.h"
#include <math.h>
#include <string.h>

enum { TOP = 5, LOGITS = 1 << 23 }; /* LOGITS: elements of the logits in memory for each of two entries */

typedef struct result {
    mha_logit_lens shown; /* first, so that a pointer to it is a pointer to the result */
    mha_ctx *ctx;
    int32_t *top_ids, *targets;
    double *top_probs, *target_logprobs, *divergences;
    int64_t *target_ranks;
    void *memory;
} result;

/* The pass, and scratch for some rows. */
typedef struct job {
    const mha_model *m;
    const mha__kernels *kernels;
    result *to;
    float *hidden;                         /* [entries, tokens, E] without the final norm */
    int64_t rows;                          /* tokens at a time */
    float *input, *room, *logits, *output; /* [rows, E] twice, [rows, vocab] twice: of an entry, and of the model */
} job;

/* ---- memory ---- */

static void lay_out_result(mha__arena *arena, result *r)
{
    const size_t tokens = (size_t)r->shown.tokens, all = (size_t)r->shown.entries * tokens, top = (size_t)r->shown.top;
    r->top_ids = mha__take(arena, all, top * sizeof *r->top_ids);
    r->top_probs = mha__take(arena, all, top * sizeof *r->top_probs);
    r->targets = mha__take(arena, tokens, sizeof *r->targets);
    r->target_logprobs = mha__take(arena, all, sizeof *r->target_logprobs);
    r->target_ranks = mha__take(arena, all, sizeof *r->target_ranks);
    r->divergences = mha__take(arena, all, sizeof *r->divergences);
}

static void lay_out_job(mha__arena *arena, job *j)
{
    const size_t E = (size_t)j->m->config.hidden, vocab = (size_t)j->m->config.vocab, rows = (size_t)j->rows;
    const size_t wide = mha__max64(j->m->config.embed_width, (int64_t)E) * sizeof(float);
    j->hidden = mha__take(arena, (size_t)j->to->shown.entries * (size_t)j->to->shown.tokens, E * sizeof(float));
    j->input = mha__take(arena, rows, wide);
    j->room = mha__take(arena, rows, wide);
    j->logits = mha__take(arena, rows, vocab * sizeof(float));
    j->output = mha__take(arena, rows, vocab * sizeof(float));
}

static mha_status create(const mha_model *m, int64_t count, int64_t top, result **out, mha_error *err)
{
    result *r = mha__calloc(m->ctx, 1, sizeof *r);
    mha__arena arena = {0};
    *out = r;
    if (!r) return mha__no_memory(err, sizeof *r, "a logit lens");
    r->ctx = m->ctx;
    r->shown = (mha_logit_lens){.entries = m->config.layers + 1, .tokens = count, .top = top};
    lay_out_result(&arena, r);
    arena.base = r->memory = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a logit lens");
    arena.used = 0;
    lay_out_result(&arena, r);
    r->shown.top_ids = r->top_ids;
    r->shown.top_probs = r->top_probs;
    r->shown.targets = r->targets;
    r->shown.target_logprobs = r->target_logprobs;
    r->shown.target_ranks = r->target_ranks;
    r->shown.divergences = r->divergences;
    return MHA_OK;
}

/* ---- one entry of one token ---- */

/* Inserts a token into the list of the `top` largest logits; tokens come in ascending order of ids. */
static void insert(int64_t top, int64_t filled, const float *logits, int32_t id, int32_t *ids)
{
    int64_t at = filled < top ? filled : top - 1;
    for (; at > 0 && logits[ids[at - 1]] < logits[id]; at--)
        ids[at] = ids[at - 1];
    ids[at] = id;
}

static void find_top(int64_t vocab, int64_t top, const float *logits, double log_sum, int32_t *ids, double *probs)
{
    for (int64_t v = 0; v < vocab; v++)
        if (v < top || logits[v] > logits[ids[top - 1]]) insert(top, v, logits, (int32_t)v, ids);
    for (int64_t n = 0; n < top; n++)
        probs[n] = exp((double)logits[ids[n]] - log_sum);
}

static void find_target(int64_t vocab, const float *logits, double log_sum, int32_t target, double *logprob,
                        int64_t *rank)
{
    *logprob = NAN;
    *rank = -1;
    if (target == MHA_IGNORE) return;
    *logprob = (double)logits[target] - log_sum;
    *rank = 0;
    for (int64_t v = 0; v < vocab; v++)
        *rank += logits[v] > logits[target] || (v < target && logits[v] == logits[target]);
}

static double log_sum_of(const job *j, const float *logits)
{
    float max;
    const double sum = mha__exponentials(j->kernels, j->m->config.vocab, logits, &max, NULL);
    return (double)max + log(sum);
}

/* Writes the results of entry `entry` for one token. `output` are the logits of the model, with log sum output_sum. */
static void read_row(const job *j, int64_t entry, int64_t token, const float *logits, const float *output,
                     double output_sum)
{
    const int64_t vocab = j->m->config.vocab, top = j->to->shown.top, at = entry * j->to->shown.tokens + token;
    const double log_sum = log_sum_of(j, logits);
    find_top(vocab, top, logits, log_sum, j->to->top_ids + at * top, j->to->top_probs + at * top);
    find_target(vocab, logits, log_sum, j->to->targets[token], &j->to->target_logprobs[at], &j->to->target_ranks[at]);
    j->to->divergences[at] = logits == output ? 0 : mha__kl_of_logits(output, output_sum, logits, log_sum, vocab);
}

/* ---- all entries ---- */

static mha_status find_logits(const job *j, int64_t entry, int64_t first, int64_t rows, float *logits, mha_error *err)
{
    const mha_model *m = j->m;
    const int64_t E = m->config.hidden;
    const float *x = j->hidden + (entry * j->to->shown.tokens + first) * E, *input = NULL;
    if (m->final_norm.weight) MHA__TRY(mha_norm_forward(m->ctx, &m->final_norm, rows, E, x, NULL, j->input, err));
    MHA__TRY(mha__head_input(m, rows, m->final_norm.weight ? j->input : x, j->room, &input, err));
    return mha__head_logits(m, rows, input, logits, err);
}

/* Reads all entries of a token from the logits of the last entry and of entry `entry` of the current rows. */
static void read_rows(const job *j, int64_t entry, int64_t first, int64_t rows, const float *logits)
{
    const int64_t vocab = j->m->config.vocab;
    for (int64_t r = 0; r < rows; r++) {
        const float *output = j->output + r * vocab;
        read_row(j, entry, first + r, logits + r * vocab, output, log_sum_of(j, output));
    }
}

static mha_status read_all(const job *j, mha_error *err)
{
    const int64_t tokens = j->to->shown.tokens, last = j->to->shown.entries - 1;
    for (int64_t first = 0; first < tokens; first += j->rows) {
        const int64_t rows = mha__min64(j->rows, tokens - first);
        MHA__TRY(find_logits(j, last, first, rows, j->output, err));
        read_rows(j, last, first, rows, j->output);
        for (int64_t entry = 0; entry < last; entry++) {
            MHA__TRY(find_logits(j, entry, first, rows, j->logits, err));
            read_rows(j, entry, first, rows, j->logits);
        }
        MHA__TRY(mha__progress(j->m->ctx, "lens", first + rows, tokens, err));
    }
    return MHA_OK;
}

static int keep_hidden(void *user, int64_t entry, const float *x)
{
    const job *j = user;
    const int64_t count = j->to->shown.tokens * j->m->config.hidden;
    memcpy(j->hidden + entry * count, x, (size_t)count * sizeof *x);
    return 0;
}

/* Runs the model without its final norm, so that the last hidden state is that of the residual stream. */
static mha_status run(job *j, const int32_t *ids, mha_error *err)
{
    mha_model bare = *j->m;
    bare.final_norm = (mha_norm){0};
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = j->to->shown.tokens, .ids = ids};
    const mha_model_output out = {.size = sizeof out, .on_hidden = keep_hidden, .user = j};
    MHA__TRY(mha_model_forward(&bare, &in, &out, err));
    return read_all(j, err);
}

static mha_status measure(const mha_model *m, const int32_t *ids, result *to, mha_error *err)
{
    const int64_t rows = mha__min64(to->shown.tokens, mha__max64(1, LOGITS / m->config.vocab));
    job j = {.m = m, .kernels = mha__kernels_f32(mha__ctx_isa(m->ctx)), .to = to, .rows = rows};
    mha__arena arena = {0};
    lay_out_job(&arena, &j);
    void *memory = arena.base = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!memory) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the hidden states of a text");
    arena.used = 0;
    lay_out_job(&arena, &j);
    const mha_status status = run(&j, ids, err);
    mha__free(m->ctx, memory);
    return status;
}

/* ---- arguments ---- */

static mha_status check(const mha_model *m, const int32_t *ids, int64_t count, mha_logit_lens_options *o,
                        mha_error *err)
{
    if (!m || !ids) return mha__fail(err, MHA_ERR_ARG, "mha_logit_lens_measure: model and ids must not be NULL");
    if (count < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_logit_lens_measure: count must be at least 1 (got %lld)",
                         (long long)count);
    if (o->top < 0 || o->top > m->config.vocab)
        return mha__fail(err, MHA_ERR_ARG, "mha_logit_lens_options: top must be from 0 to %lld (got %lld)",
                         (long long)m->config.vocab, (long long)o->top);
    if (o->top == 0) o->top = mha__min64(TOP, m->config.vocab);
    for (int64_t t = 0; o->targets && t < count; t++)
        if (o->targets[t] != MHA_IGNORE && (o->targets[t] < 0 || o->targets[t] >= m->config.vocab))
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_logit_lens_options: targets[%lld] must be from 0 to %lld, or MHA_IGNORE (got %d)",
                             (long long)t, (long long)m->config.vocab - 1, o->targets[t]);
    MHA__TRY(mha__model_not_seq2seq(m, "logit lens: model", err));
    if (m->ranks.ranks)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "logit lens: model must not be divided among processes");
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "logit lens: model must have been opened with its weights");
    return mha__head_check_tokens(m, err);
}

static void set_targets(const mha_model *m, const int32_t *ids, const int32_t *targets, result *r)
{
    const int64_t tokens = r->shown.tokens;
    for (int64_t t = 0; t < tokens; t++)
        r->targets[t] = targets ? targets[t] : !m->info.causal ? ids[t] : t + 1 < tokens ? ids[t + 1] : MHA_IGNORE;
}

mha_status mha_logit_lens_measure(const mha_model *model, const int32_t *ids, int64_t count,
                                  const mha_logit_lens_options *options, mha_logit_lens **out, mha_error *err)
{
    mha_logit_lens_options o;
    result *r = NULL;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_logit_lens_measure: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_logit_lens_options", err));
    MHA__TRY(check(model, ids, count, &o, err));
    mha_status status = create(model, count, o.top, &r, err);
    if (status == MHA_OK) {
        set_targets(model, ids, o.targets, r);
        status = measure(model, ids, r, err);
    }
    if (status == MHA_OK)
        *out = &r->shown;
    else
        mha_logit_lens_free(r ? &r->shown : NULL);
    return status;
}

void mha_logit_lens_free(mha_logit_lens *lens)
{
    result *r = (result *)lens;
    if (!r) return;
    mha__free(r->ctx, r->memory);
    mha__free(r->ctx, r);
}
