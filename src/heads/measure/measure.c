/* measure.c - measures the heads of a model: runs the batches of the data, then the probe texts. */
#include <string.h>

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/data/measure_steps.h"
#include "heads/measure/head_measures.h"
#include "text/tokenizer.h"

/* ---- stored maps ---- */

static mha_status make_maps(mha_heads *heads, mha_error *err)
{
    heads->maps = mha__calloc(heads->ctx, (size_t)heads->layers, sizeof *heads->maps);
    if (!heads->maps) return mha__no_memory(err, (size_t)heads->layers * sizeof *heads->maps, "the maps");
    for (int64_t l = 0; l < heads->layers; l++) {
        size_t bytes;
        const int64_t dims[] = {heads->first[l + 1] - heads->first[l], heads->longest, heads->longest};
        const bool fits = mha__bytes(dims, 3, sizeof(float), &bytes);
        heads->maps[l] = fits ? mha__alloc(heads->ctx, bytes) : NULL;
        if (!heads->maps[l]) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "the maps of a layer");
    }
    return MHA_OK;
}

/* Stores the tokens of the single text. Tokenizes `text` again, truncated as in the data, to get the offsets of its
 * tokens; if `text` is NULL, copies the tokens from the data. */
static mha_status keep_tokens(const mha_model *model, const mha_head_data *data, const char *text, mha_heads *heads,
                              mha_error *err)
{
    if (!text)
        return mha__encoding_of_ids(heads->ctx, mha_head_data_ids(data, 0, NULL), heads->longest, &heads->tokens, err);
    const mha_encode_options how = {.size = sizeof how, .max_tokens = heads->longest};
    return mha_tokenizer_encode(mha_model_tokenizer(model), text, strlen(text), NULL, 0, &how, &heads->tokens, err);
}

/* ---- batches ---- */

static mha_status run_batch(void *user, int64_t batch, mha_error *err)
{
    return mha__heads_pass_run(user, batch, err);
}

static mha_status sum_batches(const mha_model *model, const mha_head_data *data, const char *state,
                              mha__heads_pass *pass, const mha__head_sums *sums, mha_error *err)
{
    const mha__measure measure = {.model = model,
                                  .data = data,
                                  .title = "measure heads",
                                  .options = "statistics of heads, in units of 2^-80",
                                  .state = state,
                                  .steps = mha__head_data_batches(data),
                                  .values = sums->values,
                                  .count = sums->count,
                                  .user = pass,
                                  .run = run_batch,
                                  .spoils = true};
    return mha__measure_run(&measure, err);
}

/* Sums the statistics of all heads over all texts. */
static mha_status measure_texts(const mha_model *model, const mha_head_data *data, const mha_heads_options *options,
                                mha_heads *heads, mha_error *err)
{
    mha__head_sums sums;
    mha__heads_pass *pass = NULL;
    const int64_t count = heads->first[heads->layers];
    mha_status status =
        mha__head_sums_create(heads->ctx, count, heads->longest, mha_head_data_tokens(data), &sums, err);
    if (status == MHA_OK) status = mha__heads_pass_create(model, data, heads, &sums, &pass, err);
    if (status == MHA_OK) status = sum_batches(model, data, options->state, pass, &sums, err);
    for (int64_t h = 0; h < count && status == MHA_OK; h++)
        mha__head_sums_read(&sums, h, &heads->stats[h], heads->received + h * heads->longest);
    mha__heads_pass_free(pass);
    mha__head_sums_free(heads->ctx, &sums);
    return status;
}

static mha_status average_received(const mha_model *model, const mha_head_data *data, mha_heads *heads, mha_error *err)
{
    double *rows = mha__calloc(heads->ctx, (size_t)heads->longest, sizeof *rows);
    if (!rows) return mha__no_memory(err, (size_t)heads->longest * sizeof *rows, "the row counts of positions");
    for (int64_t text = 0; text < mha_head_data_count(data); text++) {
        int64_t n;
        mha_head_data_ids(data, text, &n);
        mha__heads_seen_rows(n, n, mha_model_describe(model)->causal, rows);
    }
    mha__heads_average(heads, rows);
    mha__free(heads->ctx, rows);
    return MHA_OK;
}

/* ---- public functions ---- */

static mha_status check(const mha_model *model, int64_t count, const mha_heads_options *options, mha_error *err)
{
    if (!model) return mha__fail(err, MHA_ERR_ARG, "model must not be NULL");
    if (options->keep_maps && count != 1)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_heads_options: keep_maps must be 0 unless there is one text (got %lld texts)",
                         (long long)count);
    if (options->keep_maps && options->state)
        return mha__fail(err, MHA_ERR_ARG, "mha_heads_options: state must be NULL if keep_maps is set");
    return MHA_OK;
}

/* Runs all parts of a measurement. `text` is the text whose tokens are stored with the maps; NULL if only its token IDs
 * are known. */
static mha_status measure(const mha_model *model, const mha_head_data *data, const char *text,
                          const mha_heads_options *options, mha_heads *heads, mha_error *err)
{
    if (options->keep_maps) MHA__TRY(make_maps(heads, err));
    if (options->keep_maps) MHA__TRY(keep_tokens(model, data, text, heads, err));
    MHA__TRY(measure_texts(model, data, options, heads, err));
    MHA__TRY(average_received(model, data, heads, err));
    if (options->no_probe) return MHA_OK;
    return mha__heads_probe(model, heads, mha__head_data_frame(data), &options->probe, options->seed, err);
}

static mha_status measure_data(const mha_model *model, const mha_head_data *data, const char *text,
                               const mha_heads_options *options, mha_heads **out, mha_error *err)
{
    mha_heads *heads;
    const mha_model_info *info = mha_model_describe(model);
    mha_status status = mha__heads_create(mha_model_ctx(model), info->layers, info->heads_per_layer,
                                          mha__head_data_longest(data), &heads, err);
    if (status == MHA_OK) status = mha__head_thresholds_read(&options->thresholds, &heads->limits, err);
    if (status == MHA_OK) status = measure(model, data, text, options, heads, err);
    if (status == MHA_OK)
        *out = heads;
    else
        mha_heads_free(heads);
    return status;
}

mha_status mha_heads_measure_data(const mha_model *model, const mha_head_data *data, const mha_heads_options *options,
                                  mha_heads **out, mha_error *err)
{
    mha_heads_options own;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_heads_options", err));
    if (!data) return mha__fail(err, MHA_ERR_ARG, "data must not be NULL");
    if (own.max_tokens != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_heads_options: max_tokens must be 0 for data (got %lld)",
                         (long long)own.max_tokens);
    MHA__TRY(check(model, mha_head_data_count(data), &own, err));
    MHA__TRY(mha__head_data_alone(data, err));
    MHA__TRY(mha__head_data_same_kind(model, data, err));
    if (own.keep_maps && mha__head_data_work(data))
        return mha__fail(err, MHA_ERR_ARG, "mha_heads_options: keep_maps must be 0 for data with work");
    return measure_data(model, data, NULL, &own, out, err);
}

mha_status mha_heads_measure(const mha_model *model, const char *const *texts, int64_t count,
                             const mha_heads_options *options, mha_heads **out, mha_error *err)
{
    mha_heads_options own;
    mha_head_data *data;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_heads_options", err));
    const mha_head_data_options how = {.size = sizeof how, .max_tokens = own.max_tokens};
    MHA__TRY(check(model, own.keep_maps && count > 0 ? count : 1, &own, err));
    MHA__TRY(mha_head_data_of_texts(model, texts, count, &how, &data, err));
    const mha_status status = measure_data(model, data, texts[0], &own, out, err);
    mha_head_data_free(data);
    return status;
}
