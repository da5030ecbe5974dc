/* measure_state.c - stores the sums of a measure in a file, and reads them to resume it. The fingerprint of the data
 * covers the tokens and their division into batches. */
#include "heads/data/measure_state.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/error.h"
#include "io/tensor_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* minimum pause between writes [s], and its minimum ratio to the duration of a write */
static const double PAUSE = 1, PATIENCE = 20;
static const char FORMAT[] = "mha.state.1";

/* ---- state file ---- */

static mha_status check_same(const mha__state *s, const mha_file *file, const char *key, const char *mine,
                             mha_error *err)
{
    const char *theirs = mha__metadata_find(file, key, NULL);
    mha__quoted path;
    if (theirs && strcmp(theirs, mine) == 0) return MHA_OK;
    mha__quote(&path, s->of.path, strlen(s->of.path));
    if (!theirs || strcmp(key, "format") == 0)
        return mha__fail(err, MHA_ERR_ARG, "%s: must be a state file of a measurement", path.text);
    if (strcmp(key, "options") == 0)
        return mha__fail(err, MHA_ERR_ARG, "%s: state must be from a run with the same options (got %s, not \"%s\")",
                         path.text, mha__quote(&(mha__quoted){0}, theirs, strlen(theirs)), mine);
    return mha__fail(err, MHA_ERR_ARG, "%s: state must be from a run with the same model and data (got %s)", path.text,
                     strcmp(key, "model") == 0 ? "another model (or on another ISA)" : "other data");
}

static mha_status read_done(const mha__state *s, const mha_file *file, int64_t *done, mha_error *err)
{
    const char *text = mha__metadata_find(file, "done", NULL);
    char *end = NULL;
    *done = text ? strtoll(text, &end, 10) : -1;
    if (text && end != text && *end == 0 && *done >= 0 && *done <= s->of.steps) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: \"done\" in the metadata must be from 0 to %lld (got %s)",
                     mha__quote(&(mha__quoted){0}, s->of.path, strlen(s->of.path)), (long long)s->of.steps,
                     text ? mha__quote(&(mha__quoted){0}, text, strlen(text)) : "nothing");
}

/* Checks the format, options, data and model of a state file, and reads the number of finished steps. */
static mha_status check_file(const mha__state *s, const mha_file *file, int64_t *done, mha_error *err)
{
    const char *const pairs[][2] = {
        {"format", FORMAT}, {"options", s->of.options}, {"data", s->of.mark}, {"model", s->model}};
    for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++)
        MHA__TRY(check_same(s, file, pairs[n][0], pairs[n][1], err));
    return read_done(s, file, done, err);
}

static mha_status read_file(const mha__state *s, int64_t *done, mha_error *err)
{
    mha_file *file;
    const mha_file_options options = {.size = sizeof options,
                                      .no_map = 1}; /* not mapped, because the file is replaced later */
    MHA__TRY(mha_file_open(s->ctx, s->of.path, &options, &file, err));
    mha_status status = check_file(s, file, done, err);
    if (status == MHA_OK) status = mha_tensors_read(file, s->sums, s->count, err);
    mha_file_free(file);
    return status;
}

static mha_status put_sums(const mha__state *s, mha_tensors_writer *writer, const mha_tensor *list, mha_error *err)
{
    for (int64_t n = 0; n < s->count; n++)
        MHA__TRY(mha_tensors_writer_put(writer, n, s->sums[n].data, (size_t)list[n].elements * sizeof(double), err));
    return mha_tensors_writer_finish(writer, err);
}

static mha_status write_list(const mha__state *s, int64_t done, mha_tensor *list, mha_error *err)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)done);
    const mha_metadata strings[] = {{.key = "format", .value = FORMAT},
                                    {.key = "options", .value = s->of.options},
                                    {.key = "model", .value = s->model},
                                    {.key = "data", .value = s->of.mark},
                                    {.key = "done", .value = number}};
    const mha_tensors_writer_options options = {.size = sizeof options,
                                                .overwrite = 1,
                                                .metadata = strings,
                                                .metadata_count = sizeof strings / sizeof *strings};
    mha_tensors_writer *writer;
    for (int64_t n = 0; n < s->count; n++) {
        const mha_named_tensor *sum = &s->sums[n];
        list[n] =
            (mha_tensor){.name = sum->name, .dtype = sum->dtype, .rank = sum->rank, .shape = sum->shape, .elements = 1};
        for (int i = 0; i < sum->rank; i++)
            list[n].elements *= sum->shape[i];
    }
    MHA__TRY(mha_tensors_writer_create(s->ctx, s->of.path, list, s->count, &options, &writer, err));
    const mha_status status = put_sums(s, writer, list, err);
    mha_tensors_writer_free(writer);
    return status;
}

/* ---- opening and saving ---- */

mha_status mha__state_open(mha__state *state, const mha_model *model, const mha__state_of *of,
                           const mha_named_tensor *sums, int64_t count, int64_t *done, mha_error *err)
{
    *state = (mha__state){.ctx = mha_model_ctx(model), .of = *of, .sums = sums, .count = count};
    *done = 0;
    if (!of->path) return MHA_OK;
    MHA__TRY(mha_model_fingerprint(model, state->model, err));
    state->kept = mha__now(CLOCK_MONOTONIC);
    return mha__source_exists(NULL, of->path) ? read_file(state, done, err) : MHA_OK;
}

mha_status mha__state_save(mha__state *state, int64_t done, mha_error *err)
{
    const double begin = mha__now(CLOCK_MONOTONIC);
    const size_t bytes = (size_t)state->count * sizeof(mha_tensor);
    if (!state->of.path) return MHA_OK;
    mha_tensor *list = mha__alloc(state->ctx, bytes);
    if (!list) return mha__no_memory(err, bytes, "the state of a measure");
    const mha_status status = write_list(state, done, list, err);
    mha__free(state->ctx, list);
    state->kept = mha__now(CLOCK_MONOTONIC);
    state->took = state->kept - begin;
    return status;
}

mha_status mha__state_keep(mha__state *state, int64_t done, mha_error *err)
{
    const double since = mha__now(CLOCK_MONOTONIC) - state->kept, pause = state->took * PATIENCE;
    const bool due = done >= state->of.steps || since >= (pause > PAUSE ? pause : PAUSE);
    return due ? mha__state_save(state, done, err) : MHA_OK;
}
