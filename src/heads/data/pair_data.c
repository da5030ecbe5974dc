/* pair_data.c - creates data of source/target pairs. The text of a pair is what the decoder reads and predicts: its
 * first token, then the target. Each token of the text predicts the next one, as in other decoders. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/data/head_data.h"
#include "mha/seq2seq.h"
#include <string.h>

/* ---- targets ---- */

/* Inserts the first token of the decoder before each target. */
static mha_status add_first(const mha_model *model, mha__gather *targets, mha_error *err)
{
    const int64_t total = targets->starts[targets->count], room = total + targets->count;
    int32_t *labels = targets->ids, *ids = mha__alloc(targets->ctx, (size_t)room * sizeof *ids);
    int32_t *types = mha__calloc(targets->ctx, (size_t)room, sizeof *types), *shifted = NULL;
    mha_status status =
        ids && types ? MHA_OK : mha__no_memory(err, (size_t)room * sizeof *ids, "the tokens of targets");
    for (int64_t i = targets->count - 1; i >= 0 && status == MHA_OK; i--) {
        const int64_t from = targets->starts[i], length = mha__gather_length(targets, i);
        shifted = ids + from + i;
        status = mha_model_shift_labels(model, labels + from, 1, length, shifted, err);
        memcpy(shifted + 1, labels + from, (size_t)length * sizeof *ids);
    }
    mha__free(targets->ctx, status == MHA_OK ? targets->ids : ids);
    mha__free(targets->ctx, status == MHA_OK ? targets->types : types);
    if (status != MHA_OK) return status;
    targets->ids = ids;
    targets->types = types;
    for (int64_t i = 0; i <= targets->count; i++)
        targets->starts[i] += i;
    return MHA_OK;
}

/* Returns the maximum number of tokens of a target: with the first token, it must fit the positions of the decoder. */
static int64_t max_labels(const mha_model *model, int64_t max_tokens)
{
    const int64_t max = mha_model_describe(model)->max_positions - 1;
    return max > 0 && (max_tokens == 0 || max_tokens > max) ? max : max_tokens;
}

/* ---- creation ---- */

static mha_status check(const mha_model *model, const mha_head_data_options *o, mha_error *err)
{
    const mha_model *encoder = mha_model_encoder(model);
    const mha_model_info *info = mha_model_describe(model);
    if (!encoder)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_head_data: model must be an encoder-decoder for source/target pairs (got %s)",
                         info->family);
    if (mha_model_describe(encoder)->feature_bins)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_head_data: sources of pairs must be texts (got %s, whose sources are audio)",
                         info->family);
    if (o->segments) return mha__fail(err, MHA_ERR_ARG, "mha_head_data_options: segments must be NULL for pairs");
    return MHA_OK;
}

/* Builds the data from the collected labels and sources, if `status` is MHA_OK. */
static mha_status finish(const mha_model *model, mha__gather *targets, mha__gather *sources, mha_status status,
                         const mha_head_data_options *o, mha_head_data **out, mha_error *err)
{
    if (status == MHA_OK) status = add_first(model, targets, err);
    if (status == MHA_OK) status = mha__head_data_make(model, targets, sources, o, out, err);
    mha__gather_free(targets);
    mha__gather_free(sources);
    return status;
}

mha_status mha_head_data_of_pairs(const mha_model *model, const char *const *sources, const char *const *targets,
                                  int64_t count, const mha_head_data_options *options, mha_head_data **out,
                                  mha_error *err)
{
    mha_head_data_options own;
    mha_work work;
    MHA__TRY(mha__head_data_read(model, count, sources ? (const void *)targets : NULL, options, &own, &work, out, err));
    MHA__TRY(check(model, &own, err));
    if (!mha_model_tokenizer(model))
        return mha__fail(err, MHA_ERR_ARG, "model must have a tokenizer (got a model opened with no_tokenizer)");
    mha__gather s = {.ctx = mha_model_ctx(model), .count = count}, t = s;
    mha_status status = mha__gather_texts(&s, mha_model_encoder(model), sources, own.max_tokens, err);
    if (status == MHA_OK) status = mha__gather_texts(&t, model, targets, max_labels(model, own.max_tokens), err);
    return finish(model, &t, &s, status, &own, out, err);
}

mha_status mha_head_data_of_id_pairs(const mha_model *model, const int32_t *source_ids, const int64_t *source_starts,
                                     const int32_t *ids, const int64_t *starts, int64_t count,
                                     const mha_head_data_options *options, mha_head_data **out, mha_error *err)
{
    mha_head_data_options own, max;
    mha_work work;
    const bool given = source_ids && source_starts && ids && starts;
    MHA__TRY(mha__head_data_read(model, count, given ? ids : NULL, options, &own, &work, out, err));
    MHA__TRY(check(model, &own, err));
    max = own;
    max.max_tokens = max_labels(model, own.max_tokens);
    mha__gather s = {.ctx = mha_model_ctx(model), .count = count}, t = s;
    mha_status status = mha__gather_ids(&s, mha_model_encoder(model), source_ids, source_starts, &own, err);
    if (status == MHA_OK) status = mha__gather_ids(&t, model, ids, starts, &max, err);
    return finish(model, &t, &s, status, &own, out, err);
}
