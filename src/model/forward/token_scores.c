/* token_scores.c - computes the log-probability of each token of a text, given the preceding tokens. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "layer/loss/logits_softmax.h"
#include "mha/generate.h"
#include "mha/seq2seq.h"
#include "model/forward/model_cache.h"
#include "model/forward/pooler_logits.h"
#include <math.h>

enum { PIECE = 64 }; /* tokens whose logits are in memory at a time */

/* Returns log p of `id` under the softmax of one row of logits. */
static double log_prob(const mha__kernels *kernels, const float *logits, int64_t vocab, int32_t id)
{
    float top;
    const double sum = mha__exponentials(kernels, vocab, logits, &top, NULL);
    return (double)logits[id] - (double)top - log(sum);
}

/* `source` is the input of the encoder, or NULL. */
static mha_status score_pieces(const mha_model *model, const mha_model_input *source, const int32_t *ids, int64_t count,
                               mha_model_cache *cache, float *logits, float *logprob, mha_error *err)
{
    const mha__kernels *kernels = mha__kernels_f32(mha__ctx_isa(model->ctx));
    const int64_t vocab = model->config.vocab;
    for (int64_t at = 0; at + 1 < count; at += PIECE) {
        const int64_t length = mha__min64(PIECE, count - 1 - at);
        const mha_model_input input = {.size = sizeof input,
                                       .batch = 1,
                                       .length = length,
                                       .ids = ids + at,
                                       .cache = cache,
                                       .source = at == 0 ? source : NULL};
        const mha_model_output output = {.size = sizeof output, .logits = logits};
        MHA__TRY(mha_model_forward(model, &input, &output, err));
        for (int64_t i = 0; i < length; i++)
            logprob[at + i] = (float)log_prob(kernels, logits + i * vocab, vocab, ids[at + i + 1]);
    }
    return MHA_OK;
}

static mha_status check_hidden(const mha_model *model, const float *hidden, const int32_t *next, int64_t rows,
                               const float *logprob, mha_error *err)
{
    if (rows < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_score_hidden: rows must be at least 0 (got %lld)",
                         (long long)rows);
    if (!model || (rows > 0 && (!hidden || !next || !logprob)))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_score_hidden: model, hidden, next and logprob must not be NULL");
    if (!model->info.causal)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "model must be a decoder to score tokens (got %s)",
                         model->info.family);
    for (int64_t i = 0; i < rows; i++)
        if (next[i] < 0 || next[i] >= model->config.vocab)
            return mha__fail(err, MHA_ERR_ARG, "mha_model_score_hidden: next[%lld] must be from 0 to %lld (got %d)",
                             (long long)i, (long long)model->config.vocab - 1, next[i]);
    return mha__head_check_tokens(model, err);
}

mha_status mha_model_score_hidden(const mha_model *model, const float *hidden, const int32_t *next, int64_t rows,
                                  float *logprob, mha_error *err)
{
    MHA__TRY(check_hidden(model, hidden, next, rows, logprob, err));
    if (rows == 0) return MHA_OK;
    const mha__kernels *kernels = mha__kernels_f32(mha__ctx_isa(model->ctx));
    const int64_t vocab = model->config.vocab;
    const int64_t max = mha__min64(PIECE, rows);
    const size_t bytes = (size_t)max * (size_t)(vocab + model->config.hidden) * sizeof(float);
    float *logits = mha__alloc(model->ctx, bytes), *room = logits ? logits + max * vocab : NULL;
    const float *x = NULL;
    mha_status status = logits ? MHA_OK : mha__no_memory(err, bytes, "the logits of a part of a text");
    for (int64_t at = 0; at < rows && status == MHA_OK; at += PIECE) {
        const int64_t count = mha__min64(PIECE, rows - at);
        status = mha__head_input(model, count, hidden + at * model->config.hidden, room, &x, err);
        if (status == MHA_OK) status = mha__head_logits(model, count, x, logits, err);
        for (int64_t i = 0; i < count && status == MHA_OK; i++)
            logprob[at + i] = (float)log_prob(kernels, logits + i * vocab, vocab, next[at + i]);
    }
    mha__free(model->ctx, logits);
    return status;
}

/* Checks the arguments of a function that scores `count` tokens, at least `min`. */
static mha_status check(const char *function, const mha_model *model, const int32_t *ids, int64_t count, int64_t min,
                        const float *logprob, mha_error *err)
{
    if (!model || (count > 0 && (!ids || !logprob)))
        return mha__fail(err, MHA_ERR_ARG, "%s: model, ids and logprob must not be NULL", function);
    if (count < min || count >= INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "%s: count must be from %lld to 2^31-2 (got %lld)", function, (long long)min,
                         (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= model->config.vocab)
            return mha__fail(err, MHA_ERR_ARG, "%s: ids[%lld] must be from 0 to %lld (got %d)", function, (long long)i,
                             (long long)model->config.vocab - 1, ids[i]);
    return MHA_OK;
}

static mha_status score(const mha_model *model, const mha_model_input *source, const int32_t *ids, int64_t count,
                        float *logprob, mha_error *err)
{
    mha_model_cache *cache = NULL;
    const mha_model_cache_options o = {
        .size = sizeof o, .tokens = count, .source_tokens = source ? mha__max64(1, source->length) : 0};
    MHA__TRY(mha_model_cache_create(model, &o, &cache, err));
    const size_t bytes = (size_t)mha__min64(PIECE, count) * (size_t)model->config.vocab * sizeof(float);
    float *logits = mha__alloc(model->ctx, bytes);
    const mha_status status = logits ? score_pieces(model, source, ids, count, cache, logits, logprob, err)
                                     : mha__no_memory(err, bytes, "the logits of a part of a text");
    mha__free(model->ctx, logits);
    mha_model_cache_free(cache);
    return status;
}

mha_status mha_model_score(const mha_model *model, const int32_t *ids, int64_t count, float *logprob, mha_error *err)
{
    if (model) MHA__TRY(mha__model_reads_ids(model, "mha_model_score: model", err));
    MHA__TRY(check("mha_model_score", model, ids, count, 2, logprob, err));
    MHA__TRY(mha__model_not_seq2seq(model, "mha_model_score: model", err));
    return score(model, NULL, ids, count, logprob, err);
}

mha_status mha_model_score_target(const mha_model *model, const int32_t *source, int64_t source_count,
                                  const int32_t *ids, int64_t count, float *logprob, mha_error *err)
{
    MHA__TRY(check("mha_model_score_target", model, ids, count, 0, logprob, err)); /* before labels are replaced */
    if (!source) return mha__fail(err, MHA_ERR_ARG, "mha_model_score_target: source must not be NULL");
    if (!model->encoder)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_model_score_target: model must be an encoder-decoder (got %s)",
                         model->info.family);
    MHA__TRY(mha__head_check_tokens(model, err));
    if (count == 0) return MHA_OK;
    const mha_model_input encoded = {.size = sizeof encoded, .batch = 1, .length = source_count, .ids = source};
    const size_t bytes = (size_t)(count + 1) * sizeof *ids;
    int32_t *all = mha__alloc(model->ctx, bytes);
    if (!all) return mha__no_memory(err, bytes, "the tokens of a text");
    all[count] = ids[count - 1];
    mha_status status = mha_model_shift_labels(model, ids, 1, count, all, err);
    if (status == MHA_OK) status = score(model, &encoded, all, count + 1, logprob, err);
    mha__free(model->ctx, all);
    return status;
}
