/* measure.c - measures the heads of a model: runs the batches of the data, then the probe texts. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/data/measure_steps.h"
#include "heads/measure/head_measures.h"
#include "text/tokenizer.h"
#include <string.h>

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

static mha_status sum_batches(mha__heads_job *r, mha_error *err)
{
    const mha__measure measure = {.model = r->model,
                                  .data = r->data,
                                  .title = "measure heads",
                                  .options = "statistics of heads, in units of 2^-80",
                                  .state = r->options.state,
                                  .steps = mha__head_data_batches(r->data),
                                  .values = r->sums.values,
                                  .count = r->sums.count,
                                  .user = r->pass,
                                  .run = run_batch,
                                  .spoils = true};
    return mha__measure_run(&measure, err);
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

/* ---- steps of a measurement ---- */

mha_status mha__heads_open(const mha_model *model, const mha_head_data *data, const mha_heads_options *options,
                           int64_t texts, int64_t tokens, mha__heads_job *run, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t longest = mha__head_data_longest(data);
    mha_ctx *ctx = mha_model_ctx(model);
    *run = (mha__heads_job){.model = model, .data = data, .options = *options};
    if (!options->no_probe) MHA__TRY(mha__heads_probe_check(model, mha__head_data_frame(data), &options->probe, err));
    MHA__TRY(mha__heads_create(ctx, info->layers, info->heads_per_layer, longest, &run->heads, err));
    MHA__TRY(mha__head_thresholds_read(&options->thresholds, &run->heads->limits, err));
    const int64_t count = run->heads->first[info->layers];
    MHA__TRY(mha__head_sums_create(ctx, count, longest, mha_head_data_tokens(data), &run->sums, err));
    return mha__heads_pass_create(model, data, run->heads, &run->sums, texts, tokens, &run->pass, err);
}

mha_status mha__heads_finish(mha__heads_job *run, mha_error *err)
{
    mha_heads *heads = run->heads;
    for (int64_t h = 0; h < run->sums.heads; h++)
        mha__head_sums_read(&run->sums, h, &heads->stats[h], heads->received + h * heads->longest);
    MHA__TRY(average_received(run->model, run->data, heads, err));
    if (run->options.no_probe) return MHA_OK;
    return mha__heads_probe(run->model, heads, mha__head_data_frame(run->data), &run->options.probe, run->options.seed,
                            err);
}

void mha__heads_close(mha__heads_job *run, mha_heads **out)
{
    if (!run->model) return; /* not opened */
    mha_ctx *ctx = mha_model_ctx(run->model);
    mha__heads_pass_free(run->pass);
    mha__head_sums_free(ctx, &run->sums);
    if (out)
        *out = run->heads;
    else
        mha_heads_free(run->heads);
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

mha_status mha__heads_check(const mha_model *model, const mha_head_data *data, const mha_heads_options *given,
                            mha_heads_options *own, mha_error *err)
{
    MHA__TRY(mha__options_read(own, sizeof *own, given, "mha_heads_options", err));
    if (!data) return mha__fail(err, MHA_ERR_ARG, "data must not be NULL");
    if (own->max_tokens != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_heads_options: max_tokens must be 0 for data (got %lld)",
                         (long long)own->max_tokens);
    MHA__TRY(check(model, mha_head_data_count(data), own, err));
    MHA__TRY(mha__head_data_alone(data, err));
    MHA__TRY(mha__head_data_matches(model, data, err));
    if (own->keep_maps && mha__head_data_work(data))
        return mha__fail(err, MHA_ERR_ARG, "mha_heads_options: keep_maps must be 0 for data with work");
    return MHA_OK;
}

/* Measures the data. `text` is the text whose tokens are stored with the maps; NULL if only its token IDs are known. */
static mha_status measure(const mha_model *model, const mha_head_data *data, const char *text,
                          const mha_heads_options *options, mha_heads **out, mha_error *err)
{
    mha__heads_job run;
    mha_status status = mha__heads_open(model, data, options, mha__head_data_batch_texts(data),
                                        mha__head_data_batch_tokens(data), &run, err);
    if (status == MHA_OK && options->keep_maps) status = make_maps(run.heads, err);
    if (status == MHA_OK && options->keep_maps) status = keep_tokens(model, data, text, run.heads, err);
    if (status == MHA_OK) status = sum_batches(&run, err);
    if (status == MHA_OK) status = mha__heads_finish(&run, err);
    mha__heads_close(&run, status == MHA_OK ? out : NULL);
    return status;
}

mha_status mha_heads_measure_data(const mha_model *model, const mha_head_data *data, const mha_heads_options *options,
                                  mha_heads **out, mha_error *err)
{
    mha_heads_options own;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__heads_check(model, data, options, &own, err));
    return measure(model, data, NULL, &own, out, err);
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
    const mha_status status = measure(model, data, texts[0], &own, out, err);
    mha_head_data_free(data);
    return status;
}
