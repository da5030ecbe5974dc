/* live_patch.c - activation patching between the text, which is the clean prompt, and a corrupted text. */
#include "live.h"
#include <stdlib.h>
#include <string.h>

void live_pair_free(live_state *s)
{
    mha_prompt_pair_free(s->pair);
    free(s->effects);
    free(s->corrupted);
    s->pair = NULL;
    s->effects = NULL;
    s->corrupted = NULL;
}

/* Encodes the corrupted text. Returns MHA_ERR_ARG unless it has as many tokens as the text. */
LIVE_EXPORT(live_corrupted) mha_status live_corrupted(const char *text, size_t bytes)
{
    mha_encoding *e = NULL;
    live_pair_free(&live);
    mha_status status = live_check_token(0);
    if (status == MHA_OK)
        status = mha_tokenizer_encode(mha_model_tokenizer(live.model), text, bytes, NULL, 0, NULL, &e, &live_err);
    if (status != MHA_OK) return status;
    if (e->count != live.count)
        status = live_fail("corrupted text must have as many tokens as the text, %lld (got %lld)",
                           (long long)live.count, (long long)e->count);
    else if (!(live.corrupted = malloc((size_t)live.count * sizeof *live.corrupted)))
        status = live_fail("out of memory for the corrupted text");
    else
        memcpy(live.corrupted, e->ids, (size_t)live.count * sizeof *live.corrupted);
    mha_encoding_free(e);
    return status;
}

/* Returns the ids [count] of the corrupted text. */
LIVE_EXPORT(live_corrupted_ids) const int32_t *live_corrupted_ids(void)
{
    return live.corrupted;
}

/* Returns the token of an answer, or -1 unless the text is one token. */
LIVE_EXPORT(live_answer) int live_answer(const char *text, size_t bytes)
{
    const mha_encode_options plain = {.size = sizeof plain, .no_special = 1};
    mha_encoding *e = NULL;
    if (mha_tokenizer_encode(mha_model_tokenizer(live.model), text, bytes, NULL, 0, &plain, &e, &live_err)) return -1;
    const int64_t count = e->count;
    const int id = count == 1 ? e->ids[0] : -1;
    mha_encoding_free(e);
    if (count != 1)
        live_fail("answer must be one token, with its leading space (got \"%.40s\", %lld tokens)", text,
                  (long long)count);
    return id;
}

/* Runs both texts, to measure two answers at a token. */
LIVE_EXPORT(live_pair) mha_status live_pair(int answer, int wrong, int at)
{
    const int64_t position = at;
    mha_prompt_pair_free(live.pair);
    live.pair = NULL;
    if (!live.corrupted) return live_fail("live_pair must follow live_corrupted");
    const mha_prompt_pair_options options = {.size = sizeof options,
                                             .clean = live.ids,
                                             .corrupted = live.corrupted,
                                             .length = live.count,
                                             .answer = answer,
                                             .wrong = wrong,
                                             .position = &position};
    return mha_prompt_pair_create(live.model, &options, &live.pair, &live_err);
}

/* Returns the logits [vocab] of a run of the pair, 0 = clean, 1 = corrupted. */
LIVE_EXPORT(live_pair_logits) const float *live_pair_logits(int run)
{
    return mha_prompt_pair_logits(live.pair, (mha_prompt_run)run);
}

/* Returns metric m of a run of the pair. */
LIVE_EXPORT(live_pair_metric) double live_pair_metric(int run, int m)
{
    double metrics[MHA_CIRCUIT_METRICS] = {0};
    mha_prompt_pair_metrics(live.pair, (mha_prompt_run)run, metrics, NULL);
    return m >= 0 && m < MHA_CIRCUIT_METRICS ? metrics[m] : 0;
}

/* Returns dimension n of the results of live_patch; 1 beyond the last, and 0 if the site does not have the
 * granularity. */
LIVE_EXPORT(live_patch_shape) int live_patch_shape(int site, int by, int n)
{
    int64_t shape[3] = {1, 1, 1};
    const int rank = mha_patch_shape(live.pair, (mha_site)site, (mha_patch_by)by, shape);
    return rank == 0 ? 0 : n < rank ? (int)shape[n] : 1;
}

/* Returns the number of passes that live_patch runs. */
LIVE_EXPORT(live_patch_passes) double live_patch_passes(int site, int by, int direction)
{
    return (double)mha_patch_passes(live.pair, (mha_site)site, (mha_patch_by)by, (mha_patch_direction)direction);
}

/* Patches every part of a site. Returns the metrics [MHA_CIRCUIT_METRICS, shape] of these runs, or NULL. */
LIVE_EXPORT(live_patch) const double *live_patch(int site, int by, int direction)
{
    size_t count = MHA_CIRCUIT_METRICS;
    if (!live.pair) return live_fail("live_patch must follow live_pair"), NULL;
    for (int n = 0; n < 3; n++)
        count *= (size_t)live_patch_shape(site, by, n);
    free(live.effects);
    live.effects = calloc(count + 1, sizeof *live.effects);
    if (!live.effects) return live_fail("out of memory for the effects of patching"), NULL;
    const mha_status status =
        mha_patch(live.pair, (mha_site)site, (mha_patch_by)by, (mha_patch_direction)direction, live.effects, &live_err);
    return status == MHA_OK ? live.effects : NULL;
}
