/* train_run.h - a training as it runs: the model, the data, the log, and where all of it is kept. */
#ifndef CLI_TRAIN_TRAIN_RUN_H
#define CLI_TRAIN_TRAIN_RUN_H

#include <jansson.h>

#include "train/train_inputs.h"
#include "train/train_settings.h"

/* Some of the sequences of data. */
typedef struct train_span {
    const mha_train_data *data;
    int64_t first, count; /* 0: none */
} train_span;

/* A text to go on with. */
typedef struct train_prompt {
    const char *text;
    mha_encoding *tokens; /* NULL: the end token, where the text is empty */
    mha_prompt prompt;
    int64_t most; /* new tokens that there is room for */
} train_prompt;

typedef struct train_run {
    cli_session *s;
    train_settings t;
    const char *name;       /* the last part of -o */
    mha_train_store *store; /* the folder of -o */
    train_form form;
    mha_train_data *data, *held; /* held: of --eval, or NULL */
    train_span learn, judge;     /* never the same sequences */
    train_prompt *prompts;       /* [t.sample.count] */
    mha_train_sample *samples;   /* [t.sample.count]: the newest text of each prompt */
    mha_train_log *log;
    mha_trainer *trainer;
    mha_model *teacher;           /* or NULL */
    char teacher_digest[17];      /* of its config and weights */
    bool goes_on;                 /* from the checkpoint that is there */
    json_t *was;                  /* its training.json, until the first step; else NULL */
    double start;                 /* cli_seconds() less those of earlier runs */
    int64_t begun;                /* steps that this run did not take */
    bool own_export;              /* what is at --export may be replaced */
    long long was_heads, was_end; /* --heads and --gates-end of the checkpoint */

    /* What a step reads: [accumulate] batches of [batch, length] ids. */
    mha_train_batch *batches;
    mha_model_input *inputs;
    int32_t *ids, *labels; /* labels for encoders */
    int64_t *starts;       /* [accumulate, batch + 1] of texts that are sequences; else NULL */
} train_run;

static inline const mha_train_record *train_run_last(const train_run *run)
{
    return mha_train_log_record(run->log, mha_train_log_count(run->log) - 1);
}

/* Everything up to the first step. Free in any case. Both return an exit code, as the others. */
int train_run_open(cli_session *s, bool resume, const char *config, train_run *run);
int train_run_free(train_run *run);

/* The folder of --teacher, if there is one, as an absolute path; then the model (train_teacher.c). */
int train_run_find_teacher(train_run *run);
int train_run_open_teacher(train_run *run);
/* Where both have a tokenizer: the tokens of the teacher are those of the model. */
int train_run_check_teacher(const train_run *run, const mha_model *model);

/* Reads a sequence into the batches, `place` sequences after the first; for encoders, masks tokens of it, selected by
 * `index`, its number since the start of the run, negative for held-out sequences (train_batch.c). */
int train_batch_put(train_run *run, const mha_train_data *data, int64_t sequence, int64_t index, int64_t place);
/* Reads all sequences of a step, which are a function of its number alone. Then: how many tokens were read. */
int train_batch_fill(train_run *run, int64_t step);
int64_t train_batch_tokens(const train_run *run);

/* Steps until all are taken or a signal came; checkpoints on the way, and the last one. */
int train_run_steps(train_run *run);

/* Sequences that are learned from and those that are not, said of the data (train_eval.c); the mean loss on the latter.
 * Both leave alone what is not asked for; a signal ends the measure, and leaves *loss alone. */
int train_run_split(train_run *run);
int train_run_evaluate(train_run *run, double *loss);

/* The tokens of --sample; the texts that continue them, also on stderr, as samples of the record, which the run keeps
 * until it generates the next ones; none after a signal (train_sample.c). */
int train_run_prompts(train_run *run);
int train_run_sample(train_run *run, mha_train_record *r);
void train_run_free_prompts(train_run *run);

/* Gates that join in as a run goes on: where, if nothing is said, is behind the steps taken (train_gates.c). */
int train_run_join_gates(train_run *run);
/* Where the gates of the checkpoint are settled, what they were told stays, too. */
void train_run_keep_settled(train_run *run);
/* The gates of each layer, on stdout or into an object; nothing where there are none. */
int train_run_put_gates(const train_run *run);
int train_run_add_gates(const train_run *run, json_t *result);

/* Reports an error of a store or a log. Where the library requires the field `overwrite` or `resume`, options of this
 * program take its place (train_outputs.c). */
int train_run_refuse(const cli_session *s, const mha_error *error);

/* May the folder, --export and --log be written, and is what is read none of them? `export` and `log` are those that
 * training.json names, or NULL (train_outputs.c). */
int train_places_check(train_run *run, const char *export, const char *log);

/* A checkpoint of what there is (train_save.c). */
int train_run_save(train_run *run);
/* The model alone, where --export wants it. Is a folder such a model, of the checkpoint that the run continues? */
int train_run_export(const train_run *run);
bool train_run_is_export(const train_run *run, const char *folder);
/* A file in the folder of the run: its path in static memory. */
const char *train_run_path(const cli_session *s, const char *name);
/* Settings, and whether data and teacher are those of the checkpoint. */
int train_run_load(train_run *run);
int train_run_compare(const train_run *run);
/* Says which settings are others than those of the checkpoint. */
int train_run_tell_changes(train_run *run);

#endif
