/* prune_job.h - one `mha prune`: what was asked for, the model and its texts, which heads stay, what became of it. */
#ifndef CLI_PRUNE_JOB_H
#define CLI_PRUNE_JOB_H

#include <jansson.h>

#include "command.h"
#include "input.h"

/* As on the command line. */
typedef struct prune_options {
    char *by, *heads, *keep, *ratio, *count, *floor, *ridge, *test, *max_increase;
    int per_layer, fill, refit, compatible, search;
} prune_options;

typedef struct prune_job {
    cli_session *session;
    prune_options given;
    mha_prune_rule rule;
    double ridge, max_increase;
    mha_model *model;
    const mha_model_info *info;
    cli_texts texts, test_texts;
    mha_head_data *data; /* what heads are chosen and fitted on; NULL: none */
    mha_head_data *held; /* what is judged on; NULL: none */
    const char *split;   /* how the two were told apart */
    uint8_t *keep;       /* [layers, H] */
    double *scores;      /* [layers, H] of --by; NULL where heads are chosen together or named */
    int32_t *order;      /* [layers, H] of those chosen together */
    char chosen_by[200]; /* for the record */
} prune_job;

/* ---- prune_texts.c ---- */

/* Reads the texts: those of --test are held out, or else every fourth of -f, or all of them if nothing is chosen or
 * fitted on them. */
int prune_texts_read(prune_job *job, bool learns);

/* ---- prune_choice.c ---- */

/* Are the heads chosen on texts? */
bool prune_choice_learns(const prune_job *job);
/* Checks --by and its like before any work. */
int prune_choice_check(prune_job *job);
/* Measures what heads are chosen by; `most`: for all that could ever go. */
int prune_choice_measure(prune_job *job, bool most);
/* Fills job->keep: `count` heads go, or with -1 as many as the rule says. */
int prune_choice_make(prune_job *job, int64_t count);

/* ---- prune_judge.c ---- */

/* A model after pruning, beside the one before it. */
typedef struct prune_verdict {
    int64_t heads[2], parameters[2], bytes[2], kv_bytes[2]; /* before and after; bytes of the weights */
    bool judged;                                            /* there are texts to judge on */
    mha_comparison apart;
    double speed[2]; /* tokens of those texts per second */
} prune_verdict;

/* Makes the pruned model in memory, and measures it on the texts that were held out. `*pruning` is the caller's. */
int prune_judge(prune_job *job, mha_pruning **pruning, prune_verdict *verdict);
/* How much worse it is: of causal models the loss, of others 1 - the mean cosine. */
double prune_loss_increase(const prune_job *job, const prune_verdict *verdict);
/* The quality alone, as the record has it; and all of it. New references. */
json_t *prune_quality_json(const prune_job *job, const prune_verdict *verdict);
json_t *prune_verdict_json(const prune_job *job, const prune_verdict *verdict);
void prune_print(const prune_job *job, const prune_verdict *verdict);

/* ---- prune_search.c ---- */

/* mha prune --search. */
int prune_search(prune_job *job);

#endif
