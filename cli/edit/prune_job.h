/* prune_job.h - the state of a run of `mha prune`: options, model, texts, kept heads. */
#ifndef CLI_EDIT_PRUNE_JOB_H
#define CLI_EDIT_PRUNE_JOB_H

#include "edit/held_out_evaluation.h"
#include <jansson.h>

/* Values of the options as given; NULL if absent. */
typedef struct prune_options {
    char *heads, *keep, *part, *ratio, *count, *floor, *ridge, *test, *max_increase;
    int per_layer, fill, refit, compatible, search;
} prune_options;

typedef struct prune_job {
    cli_session *session;
    prune_options given;
    importance_scores by; /* values of --by or --scores; empty if heads are chosen jointly or named */
    mha_prune_rule rule;
    double ridge, max_increase;
    mha_model *opened;
    const mha_model *model; /* `opened`, or the part of it that --part names */
    const mha_model_info *info;
    held_texts texts;
    head_part part[MHA_HEAD_KINDS]; /* [parts] */
    uint8_t *keep[MHA_HEAD_KINDS];  /* per part, [layers, H]: 1 = the head is kept */
    int parts;
    double *scores; /* [layers, H] of all parts, from --by or --scores; NULL if heads are chosen jointly or named */
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
/* Logs why the number of removed heads differs from --ratio, which applies to the heads of `model`. */
void prune_choice_log(const prune_job *job);

/* ---- prune_parts.c ---- */

/* Finds the parts of the opened model; all heads are kept. */
int prune_parts_find(prune_job *job);
void prune_parts_free(prune_job *job);
/* Sets all entries of the list of a part, or of the lists of all parts, to `value`. */
void prune_part_fill(prune_job *job, int part, uint8_t value);
void prune_parts_fill(prune_job *job, uint8_t value);
/* Returns the number of heads, and of layers, of all parts. */
int64_t prune_parts_heads(const prune_job *job, int64_t *layers);
/* Returns the number of removed heads. */
int64_t prune_parts_removed(const prune_job *job);
/* Returns the part whose name and a dot are at *at, and advances *at past the dot; without a name, the first part. */
int prune_part_named(const prune_job *job, const char **at);
/* Sets the entry for the head number `at`. Returns CLI_USAGE if the model has no such head, or if the entry is set. */
int prune_part_set(prune_job *job, int part, const char *option, mha_model_head at, uint8_t value);
/* Returns the list of a part in a point of --search. */
const uint8_t *prune_part_point(const prune_job *job, int part, const mha_prune_point *point);
/* Prints the --heads option that removes the heads of a point. */
void prune_parts_print_option(const prune_job *job, const mha_prune_point *point);
/* Prints the numbers of the removed heads, per layer. */
void prune_parts_print(const prune_job *job);
/* Returns, per layer, the numbers of the heads that are removed or, unless `point` is NULL, that a point of --search
 * removes; for several parts, in an object. */
json_t *prune_parts_json(const prune_job *job, const mha_prune_point *point);

/* ---- prune_curve.c ---- */

/* Runs the search of mha prune --search. */
int prune_curve(prune_job *job);

#endif
