/* train_run.h - a training as it runs: the model, the data, the log, and where all of it is kept. */
#ifndef CLI_TRAIN_RUN_H
#define CLI_TRAIN_RUN_H

#include "train_data.h"
#include "train_log.h"
#include "train_settings.h"

typedef struct train_run {
    cli_session *s;
    train_settings t;
    train_data data;
    train_log log;
    mha_trainer *trainer;
    bool goes_on;  /* from the checkpoint that is there */
    double start;  /* cli_seconds() less those of earlier runs */
    int64_t begun; /* steps that this run did not take */

    /* What a step reads: [accumulate] batches of [batch, length] ids. */
    mha_train_batch *batches;
    mha_model_input *inputs;
    int32_t *ids, *labels; /* labels for encoders */
} train_run;

/* Everything up to the first step. Free in any case. Returns an exit code, as the others. */
int train_run_open(cli_session *s, bool resume, const char *config, train_run *run);
void train_run_free(train_run *run);

/* Steps until all are taken or a signal came; checkpoints on the way, and the last one. */
int train_run_steps(train_run *run);

/* A checkpoint of what there is (train_save.c). */
int train_run_save(train_run *run);
/* A file in the folder of the run: its path in static memory. */
const char *train_run_path(const cli_session *s, const char *name);
/* Settings, and whether the data are those of the checkpoint. */
int train_run_load(train_run *run);
int train_run_compare(const train_run *run);

#endif
