/* prune_job.h - the state of a run of `mha prune`: options, model, texts, kept heads. */
#ifndef CLI_EDIT_PRUNE_JOB_H
#define CLI_EDIT_PRUNE_JOB_H

#include <jansson.h>

#include "edit/held_out_evaluation.h"

/* Values of the options as given; NULL if absent. */
typedef struct prune_options {
    char *heads, *keep, *ratio, *count, *floor, *ridge, *test, *max_increase;
    int per_layer, fill, refit, compatible, search;
} prune_options;

typedef struct prune_job {
    cli_session *session;
    prune_options given;
    importance_scores by; /* values of --by or --scores; empty if heads are chosen jointly or named */
    mha_prune_rule rule;
    double ridge, max_increase;
    mha_model *model;
    const mha_model_info *info;
    held_texts texts;
    uint8_t *keep;       /* [layers, H] 1 = the head is kept */
    double *scores;      /* [layers, H] from --by or --scores; NULL if heads are chosen jointly or named */
    char chosen_by[200]; /* how heads were chosen, for mha.record */
} prune_job;

/* ---- prune_choice.c ---- */

/* Returns true if the heads are chosen on texts. */
bool prune_choice_learns(const prune_job *job);
/* Checks the options that choose heads, before the model is opened. */
int prune_choice_check(prune_job *job);
/* Measures the scores, if heads are chosen by scores, and sets job->chosen_by. */
int prune_choice_measure(prune_job *job);
/* Determines the heads to keep and stores them in job->keep. */
int prune_choice_make(prune_job *job);
/* Returns --fill, --refit, --ridge and --compatible as options of the library. */
mha_prune_options prune_choice_options(const prune_job *job);
/* Logs why the number of `removed` heads differs from --ratio. */
void prune_choice_log(const prune_job *job, int64_t before, int64_t removed);
/* Returns, per layer, the numbers of the heads that are not in `keep`. */
json_t *prune_removed_json(const prune_job *job, const uint8_t *keep);

/* ---- prune_curve.c ---- */

/* Runs the search of mha prune --search. */
int prune_curve(prune_job *job);

#endif
