/* train_open.c - opens a training run: settings, model, data, trainer and log, up to the first step. */
#include "input/input.h"
#include "memory.h"
#include "output.h"
#include "session.h"
#include "train/train_model.h"
#include "train/train_run.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- settings ---- */

static int read_settings(train_run *run, const char *config)
{
    int code = run->resumed ? train_run_load(run) : CLI_DONE;
    char *export = run->t.export ? strdup(run->t.export) : NULL, *log = run->t.log ? strdup(run->t.log) : NULL;
    if (code == CLI_DONE && config) code = train_settings_load(run->s, config, &run->t);
    if (code == CLI_DONE) code = train_settings_take_options(run->s, &run->t);
    if (code == CLI_DONE) code = train_settings_check(run->s, &run->t);
    if (code == CLI_DONE) code = train_run_check_ranks(run);
    if (code == CLI_DONE && run->resumed) code = train_run_join_gates(run);
    if (code == CLI_DONE) code = train_run_find_teacher(run);
    if (code == CLI_DONE) code = train_places_check(run, export, log);
    free(export);
    free(log);
    return code;
}

/* ---- model and data ---- */

static int open_new(train_run *run, mha_model **model)
{
    const int code = train_model_open(run->s, &run->t, model);
    if (code != CLI_DONE) return code;
    const mha_model_info *info = mha_model_describe(*model);
    if (info->image_channels || mha_model_vision(*model))
        return cli_error(run->s, CLI_REFUSED, "%s must read text (got %s, which reads images)",
                         cli_shown(run->s->model_name), info->family);
    if (run->teacher || info->logits) return code;
    return cli_error(run->s, CLI_REFUSED, "%s has no language-model head, so its training requires --teacher",
                     cli_shown(run->s->model_name));
}

/* Opens the model. In a resumed run it has no weights, because the trainer reads them from the checkpoint. */
static int open_model(train_run *run, mha_model **model)
{
    cli_session *s = run->s;
    if (!run->resumed) return open_new(run, model);
    mha_error error = {0};
    const mha_model_options how = {
        .size = sizeof how, .no_weights = 1, .no_tokenizer = access(train_run_path(s, "tokenizer.json"), F_OK) != 0};
    s->model = s->model_name = s->options.out;
    return mha_model_open(s->ctx, s->options.out, &how, model, &error) == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

static int open_data(train_run *run, const mha_model *model)
{
    train_settings *t = &run->t;
    const mha_train_data_options *o = &run->form.data;
    const train_list *paths = t->file.count ? &t->file : &t->tokens;
    int code = train_form_find(run->s, t, model, &run->form);
    if (code != CLI_DONE) return code;
    code = t->file.count ? train_inputs_texts(run->s, o, paths, t->documents, &run->data)
                         : train_inputs_ids(run->s, o, paths, &run->data);
    if (code == CLI_DONE) t->length = mha_train_data_describe(run->data)->length;
    return code;
}

static int open_trainer(train_run *run, const mha_model *model)
{
    mha_error error = {0};
    mha_train_options o = train_settings_options_of(&run->t);
    o.teacher = run->teacher;
    o.distill = train_settings_distill_of(&run->t);
    if (run->s->ranks) o.ranks = run->s->ranks->train;
    const mha_status status = !run->resumed ? mha_trainer_create(model, &o, &run->trainer, &error)
                              : run->store
                                  ? mha_train_store_resume(run->store, &o, &run->trainer, &error)
                                  : mha_trainer_resume(run->s->ctx, run->s->options.out, &o, &run->trainer, &error);
    if (status == MHA_ERR_ARG) return cli_usage(run->s, "%s", error.message);
    if (status != MHA_OK) return cli_refuse(run->s, &error);
    run->form.data.tokenizer = mha_model_tokenizer(mha_trainer_model(run->trainer));
    return train_run_prompts(run);
}

/* Sets the defaults that depend on the model and the teacher. */
static int fit_models(train_run *run, const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model),
                         *teacher = run->teacher ? mha_model_describe(run->teacher) : NULL;
    int code = train_run_check_teacher(run, model);
    if (code == CLI_DONE) code = train_settings_fit_model(run->s, &run->t, info, teacher);
    if (code == CLI_DONE && teacher) /* a resumed run opens the model without weights, so info->logits is unknown */
        train_settings_fit_teacher(&run->t, teacher->logits && (run->resumed || info->logits));
    return code;
}

static int open_both(train_run *run)
{
    mha_model *model = NULL;
    int code = train_run_open_teacher(run); /* first, because opening a model sets its name in the session */
    if (code == CLI_DONE) code = open_model(run, &model);
    if (code == CLI_DONE) code = fit_models(run, model);
    if (code == CLI_DONE) code = open_data(run, model);
    if (code == CLI_DONE) code = train_run_split(run);
    if (code == CLI_DONE) code = train_settings_fit_data(run->s, &run->t, run->learn.count);
    if (code == CLI_DONE && run->resumed) code = train_run_compare(run);
    if (code == CLI_DONE) code = open_trainer(run, model);
    mha_model_free(model);
    return code;
}

/* ---- memory and log ---- */

static int take_memory(train_run *run)
{
    const train_settings *t = &run->t;
    const bool masks = run->form.masks, apart = run->form.data.texts_apart;
    const size_t batches = (size_t)t->accumulate, sequences = (size_t)t->batch, length = (size_t)t->length;
    /* Each factor is bounded, so the product of two factors fits in size_t; calloc checks the last product. */
    run->batches = calloc(batches, sizeof *run->batches);
    run->inputs = calloc(batches, sizeof *run->inputs);
    run->ids = calloc(batches * sequences, length * sizeof *run->ids);
    if (masks) run->labels = calloc(batches * sequences, length * sizeof *run->labels);
    if (apart) run->starts = calloc(batches, (sequences + 1) * sizeof *run->starts);
    if (!run->batches || !run->inputs || !run->ids || (masks && !run->labels) || (apart && !run->starts))
        return cli_error(run->s, CLI_FAILED, "out of memory for %lld x %lld sequences of %lld tokens", t->accumulate,
                         t->batch, t->length);
    for (size_t n = 0; n < batches; n++) {
        run->inputs[n] = (mha_model_input){.size = sizeof *run->inputs,
                                           .batch = t->batch,
                                           .length = t->length,
                                           .ids = run->ids + n * sequences * length,
                                           .starts = apart ? run->starts + n * (sequences + 1) : NULL};
        run->batches[n] =
            (mha_train_batch){.input = &run->inputs[n], .labels = masks ? run->labels + n * sequences * length : NULL};
    }
    return CLI_DONE;
}

static int create_log(train_run *run)
{
    mha_error error = {0};
    return mha_train_log_create(run->s->ctx, &run->log, &error) == MHA_OK ? CLI_DONE : cli_fail(run->s, &error);
}

/* Creates a log that begins at the step of the checkpoint. */
static int begin_log(train_run *run)
{
    mha_error error = {0};
    const mha_train_record now = {.size = sizeof now,
                                  .step = run->begun,
                                  .loss = NAN,
                                  .rate = NAN,
                                  .norm = NAN,
                                  .eval_loss = NAN,
                                  .open_heads = NAN};
    const int code = create_log(run);
    if (code != CLI_DONE) return code;
    return mha_train_log_add(run->log, &now, &error) == MHA_OK ? CLI_DONE : cli_fail(run->s, &error);
}

/* Reads the log of the checkpoint and opens it for appending. If the log is a symbolic link, it is only read; the next
 * checkpoint replaces the link with a file. */
static int resume_log(train_run *run, const char *path)
{
    mha_error error = {0};
    const cli_session *s = run->s;
    const mha_status status = mha_train_log_read(s->ctx, path, run->begun, &run->log, &error);
    if (status == MHA_ERR_FORMAT)
        return cli_error(s, CLI_REFUSED, "%s; repair the log, or move it away to begin a new log at step %lld",
                         error.message, (long long)run->begun);
    if (status != MHA_OK) return cli_refuse(s, &error);
    if (mha_train_log_write_to(run->log, path, 0, &error) == MHA_OK) return CLI_DONE;
    if (!train_run_is_link(path)) return cli_fail(s, &error);
    cli_say(s, "%s; logging resumes at the next checkpoint", error.message);
    return CLI_DONE;
}

/* Creates a new log, because the log of the checkpoint does not exist. */
static int replace_log(train_run *run, const char *path)
{
    cli_say(run->s, "%s does not exist: the log begins at step %lld", cli_shown(path), (long long)run->begun);
    return begin_log(run);
}

static int open_log(train_run *run)
{
    if (!train_run_leads(run)) return run->resumed ? begin_log(run) : create_log(run);
    const cli_session *s = run->s;
    const char *path = train_run_path(s, "training.jsonl");
    mha_error error = {0};
    const bool exists = access(path, F_OK) == 0 || errno != ENOENT;
    const int code = !run->resumed ? create_log(run) : exists ? resume_log(run, path) : replace_log(run, path);
    if (code != CLI_DONE) return code;
    run->start = cli_seconds() - (run->resumed ? train_run_last(run)->seconds : 0);
    if (!run->t.log || mha_train_log_write_to(run->log, run->t.log, s->options.force, &error) == MHA_OK)
        return CLI_DONE;
    return train_run_refuse(s, &error);
}

/* ---- opening and closing ---- */

/* Closes the log and the store when the program exits because memory is exhausted. */
static void close_files(void *user)
{
    train_run *run = user;
    mha_train_log_free(run->log);
    mha_train_store_close(run->store, NULL);
}

static int open_store(train_run *run, bool resume)
{
    const cli_session *s = run->s;
    mha_error error = {0};
    const mha_train_store_options o = {.size = sizeof o, .resume = resume, .overwrite = s->options.force};
    const char *slash = strrchr(s->options.out, '/');
    run->name = slash ? slash + 1 : s->options.out;
    if (train_run_leads(run) && mha_train_store_open(s->ctx, s->options.out, &o, &run->store, &error) != MHA_OK)
        return train_run_refuse(s, &error);
    cli_memory_at_end(close_files, run);
    const int code = train_run_sync(run); /* opening the store may restore a checkpoint */
    if (code != CLI_DONE) return code;
    run->resumed = resume && access(train_run_path(s, "training.json"), F_OK) == 0;
    return CLI_DONE;
}

static int keep_checkpoints(const train_run *run)
{
    mha_error error = {0};
    if (!train_run_leads(run)) return CLI_DONE;
    const mha_status status = mha_train_store_keep(run->store, run->t.keep > 0 ? run->t.keep : 0, &error);
    return status == MHA_OK ? CLI_DONE : train_run_refuse(run->s, &error);
}

static int check_steps(const train_run *run)
{
    const cli_session *s = run->s;
    const long long begun = run->begun;
    if (begun > run->t.steps)
        return cli_usage(s, "%s: --steps must be at least the %lld steps of the checkpoint (got %lld)",
                         cli_shown(s->options.out), begun, run->t.steps);
    if (begun == run->t.steps)
        cli_say(s, "%s: all %lld steps are complete; to continue, give a larger --steps", cli_shown(s->options.out),
                begun);
    return CLI_DONE;
}

int train_run_open(cli_session *s, bool resume, const char *config, train_run *run)
{
    *run = (train_run){.s = s, .was_heads = -1, .was_end = -1};
    train_settings_none(&run->t);
    int code = open_store(run, resume);
    if (code == CLI_DONE) code = read_settings(run, config);
    if (code == CLI_DONE) code = open_both(run);
    if (code == CLI_DONE) code = take_memory(run);
    if (code != CLI_DONE) return code;
    run->begun = mha_trainer_step_count(run->trainer);
    if (run->resumed) {
        code = check_steps(run);
        if (code != CLI_DONE) return code;
        train_run_keep_settled(run);
        code = train_run_tell_changes(run);
        if (code != CLI_DONE) return code;
    }
    code = train_run_compare_ranks(run); /* all ranks have checked the outputs, which rank 0 now begins to write */
    if (code == CLI_DONE) code = keep_checkpoints(run);
    return code == CLI_DONE ? open_log(run) : code;
}

int train_run_free(train_run *run)
{
    mha_error error = {0};
    cli_memory_at_end(NULL, NULL);
    const mha_status closed = mha_train_store_close(run->store, &error);
    const int code = closed == MHA_OK ? CLI_DONE : cli_fail(run->s, &error);
    mha_train_log_free(run->log);
    json_decref(run->was);
    mha_trainer_free(run->trainer);
    mha_model_free(run->teacher);
    mha_train_data_free(run->data);
    mha_train_data_free(run->held);
    train_run_free_prompts(run);
    train_settings_free(&run->t);
    free(run->batches);
    free(run->inputs);
    free(run->ids);
    free(run->labels);
    free(run->starts);
    return code;
}
