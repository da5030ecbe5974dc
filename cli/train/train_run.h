/* train_run.h - the state of a training run: model, data, log, folder. */
#ifndef CLI_TRAIN_TRAIN_RUN_H
#define CLI_TRAIN_TRAIN_RUN_H

#include "train/train_inputs.h"
#include "train/train_settings.h"
#include <jansson.h>

/* A range of the sequences of the data. */
typedef struct train_span {
    const mha_train_data *data;
    int64_t first, count; /* first sequence and number of sequences */
} train_span;

/* A prompt of --sample. */
typedef struct train_prompt {
    const char *text;
    mha_encoding *tokens; /* tokens of the text; without tokens, the prompt is the end token */
    mha_prompt prompt;
    int64_t max; /* maximum number of new tokens */
} train_prompt;

typedef struct train_run {
    cli_session *s;
    train_settings t;
    const char *name;       /* last path component of -o */
    mha_train_store *store; /* store of the checkpoint folder, -o */
    train_form form;
    mha_train_data *data, *held;  /* data: training data; held: data of --eval, or NULL */
    train_span learn, evaluation; /* disjoint ranges of sequences to train on and to evaluate on */
    train_prompt *prompts;        /* [t.sample.count] prompts of --sample */
    mha_train_sample *samples;    /* [t.sample.count] newest sample of each prompt */
    mha_train_log *log;
    mha_trainer *trainer;
    mha_model *teacher;           /* model of --teacher; NULL if not given */
    char teacher_digest[17];      /* digest of the teacher's config and weights */
    bool resumed;                 /* true if the run resumes from the existing checkpoint */
    json_t *was;                  /* training.json of the resumed checkpoint, until the first step; otherwise NULL */
    double start;                 /* cli_seconds() minus the seconds of earlier runs */
    int64_t begun;                /* steps taken by earlier runs */
    bool own_export;              /* true if the --export folder may be replaced */
    long long was_heads, was_end; /* --heads and --gates-end of the checkpoint */

    /* Input of a step: [accumulate] batches of [batch, length] ids. */
    mha_train_batch *batches;
    mha_model_input *inputs;
    int32_t *ids, *labels; /* token ids; labels of encoders */
    int64_t *starts;       /* [accumulate, batch + 1] if each text is a sequence; otherwise NULL */
} train_run;

static inline const mha_train_record *train_run_last(const train_run *run)
{
    return mha_train_log_record(run->log, mha_train_log_count(run->log) - 1);
}

/* Opens the run up to its first step. The caller must free *run even after an error. All functions that return int
 * return an exit code unless stated otherwise. */
int train_run_open(cli_session *s, bool resume, const char *config, train_run *run);
int train_run_free(train_run *run);

/* The first function resolves --teacher to an absolute path; the second opens the teacher (train_teacher.c). */
int train_run_find_teacher(train_run *run);
int train_run_open_teacher(train_run *run);
/* Checks that the teacher and the model have the same tokens, if both have a tokenizer. */
int train_run_check_teacher(const train_run *run, const mha_model *model);

/* Copies a sequence to slot `place` of the batches. For encoders, masks random tokens, which depend on `index`: the
 * index of the sequence since the start of the run, negative for held-out sequences (train_batch.c). */
int train_batch_put(train_run *run, const mha_train_data *data, int64_t sequence, int64_t index, int64_t place);
/* Copies all sequences of a step, which depend only on its number. The second function returns their token count. */
int train_batch_fill(train_run *run, int64_t step);
int64_t train_batch_tokens(const train_run *run);

/* Trains until all steps are taken or a signal arrives; saves checkpoints at intervals and at the end. */
int train_run_steps(train_run *run);

/* The first function splits the data into training and held-out sequences; the second computes the mean loss on the
 * held-out sequences (train_eval.c). Without held-out sequences or after a signal, *loss is unchanged. */
int train_run_split(train_run *run);
int train_run_evaluate(train_run *run, double *loss);

/* The first function tokenizes the prompts of --sample. The second generates continuations, prints them to stderr and
 * stores them, owned by the run, as the samples of `r`; after a signal, it stores none (train_sample.c). */
int train_run_prompts(train_run *run);
int train_run_sample(train_run *run, mha_train_record *r);
void train_run_free_prompts(train_run *run);

/* If gates are added to a resumed run, sets the default of --gates-start to the steps already taken (train_gates.c). */
int train_run_join_gates(train_run *run);
/* Restores --heads and --gates-end of the checkpoint if its gates are frozen. */
void train_run_keep_settled(train_run *run);
/* Write the gates of each layer to stdout or to a JSON object; without gates, do nothing. */
int train_run_put_gates(const train_run *run);
int train_run_add_gates(const train_run *run, json_t *result);

/* Returns true on the rank of mha-mpi that writes files and evaluates; always true in mha (train_processes.c). */
bool train_run_leads(const train_run *run);
/* Collective: waits until all ranks have called this function. Fails if a rank has failed before the call. */
int train_run_sync(const train_run *run);
/* Collective: checks that all ranks read the same data. */
int train_run_compare_ranks(const train_run *run);
/* Checks the number of ranks, and that they do not read texts from stdin, which only rank 0 has. */
int train_run_check_ranks(const train_run *run);
/* Collective: sets *stopped to true if a signal has stopped any rank. */
int train_run_stopped(const train_run *run, bool *stopped);

/* Reports an error of a store or a log. The message names --force and --resume instead of the library's fields
 * `overwrite` and `resume` (train_outputs.c). */
int train_run_refuse(const cli_session *s, const mha_error *error);

/* Checks that -o, --export and --log may be written and are not inputs of the run. `export` and `log` are the paths in
 * training.json, or NULL (train_outputs.c). */
int train_places_check(train_run *run, const char *export, const char *log);

/* Saves a checkpoint (train_save.c). */
int train_run_save(train_run *run);
/* Writes the model to the --export folder; does nothing without --export. */
int train_run_export(const train_run *run);
/* Returns true if a folder is an export of this run. */
bool train_run_is_export(const train_run *run, const char *folder);
/* Returns true if `path` is a symbolic link. */
bool train_run_is_link(const char *path);
/* Returns the path of a file in the folder of the run, in static memory. */
const char *train_run_path(const cli_session *s, const char *name);
/* The first function reads the settings of the checkpoint; the second compares its data, its teacher and the type of
 * its moments with those of this run. */
int train_run_load(train_run *run);
int train_run_compare(const train_run *run);
/* Logs the settings that differ from the checkpoint. */
int train_run_tell_changes(train_run *run);

#endif
