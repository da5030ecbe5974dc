/* train_run.h - a training as it runs: the model, the data, the log, and where all of it is kept. */
#ifndef CLI_TRAIN_TRAIN_RUN_H
#define CLI_TRAIN_TRAIN_RUN_H

#include <jansson.h>
#include <limits.h>

#include "train/train_inputs.h"
#include "train/train_log.h"
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
    const char *name; /* the last part of -o */
    int parent;       /* the folder that it lies in, opened */
    train_form form;
    mha_train_data *data, *held; /* held: of --eval, or NULL */
    train_span learn, judge;     /* never the same sequences */
    train_prompt *prompts;       /* [t.sample.count] */
    train_log log;
    mha_trainer *trainer;
    mha_model *teacher;           /* or NULL */
    char teacher_digest[17];      /* of its config and weights */
    bool goes_on;                 /* from the checkpoint that is there */
    json_t *was;                  /* its training.json, until the first step; else NULL */
    double start;                 /* cli_seconds() less those of earlier runs */
    int64_t begun;                /* steps that this run did not take */
    int lock;                     /* descriptor of the file that keeps other trainings away; -1 = none */
    bool own_export;              /* what is at --export may be replaced */
    int64_t saved;                /* step of the checkpoint in the folder; -1: it holds none of this training */
    long long told;               /* step of the last folder that --keep has looked at */
    long long was_heads, was_end; /* --heads and --gates-end of the checkpoint */

    /* What a step reads: [accumulate] batches of [batch, length] ids. */
    mha_train_batch *batches;
    mha_model_input *inputs;
    int32_t *ids, *labels; /* labels for encoders */
    int64_t *starts;       /* [accumulate, batch + 1] of texts that are sequences; else NULL */
} train_run;

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

/* The tokens of --sample; what the model writes on, [{prompt, text}], also to stderr; NULL after a signal
 * (train_sample.c). */
int train_run_prompts(train_run *run);
int train_run_sample(train_run *run, int64_t step, json_t **samples);
void train_run_free_prompts(train_run *run);

/* Gates that join in as a run goes on: where, if nothing is said, is behind the steps taken (train_gates.c). */
int train_run_join_gates(train_run *run);
/* Where the gates of the checkpoint are settled, what they were told stays, too. */
void train_run_keep_settled(train_run *run);
/* The gates of each layer, on stdout or into an object; nothing where there are none. */
int train_run_put_gates(const train_run *run);
int train_run_add_gates(const train_run *run, json_t *result);

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
/* The folder is this training's alone, or that is refused; train_run_free lets it go (train_lock.c). Is a training on
 * another folder in `parent` under way? */
int train_lock_take(train_run *run);
int train_lock_free(train_run *run);
bool train_lock_held(int parent, const char *folder);
/* --keep (train_retention.c): refuses what an earlier training left, but for --force; removes it, once a checkpoint of
 * this one is there; the name for the checkpoint that is replaced, NULL = none; removes those that are too many. */
int train_keep_begin(const train_run *run);
int train_keep_none(train_run *run);
int train_keep_name(train_run *run, char entry[NAME_MAX + 1], const char **name);
int train_keep_end(train_run *run);
/* To go on: gives the folder the checkpoint back that a killed program had only renamed. To begin: refuses to do so
 * beside one. */
int train_keep_restore(const train_run *run, bool resume);
/* The step of a state, training.safetensors; -1: it has none, or cannot be read, as *error then says. */
long long train_keep_step(const cli_session *s, const char *path, mha_error *error);
/* Settings, and whether data and teacher are those of the checkpoint. */
int train_run_load(train_run *run);
int train_run_compare(const train_run *run);
/* Says which settings are others than those of the checkpoint. */
int train_run_tell_changes(train_run *run);

#endif
