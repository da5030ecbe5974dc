/* plan_train.h - `mha plan --measure --train`: trains a small model for each variant of multi-head attention. */
#ifndef CLI_PLAN_PLAN_TRAIN_H
#define CLI_PLAN_PLAN_TRAIN_H

#include "command.h"

/* The options under "Training:". */
extern const struct poptOption plan_train_options[];

enum { PLAN_SEEDS = 1000, PLAN_TRAIN_LAYERS = 1024, PLAN_TRAIN_SEQ = 1 << 24 }; /* maxima of training runs */

typedef struct plan_training {
    mha_head_layout_options layout;
    bool encoder;
    int64_t steps, seeds;
    double rate;
    const mha_train_data_info *data, *held_out; /* held_out: NULL without --eval */
    mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
    bool chosen[MHA_HEAD_LAYOUT_VARIANTS];  /* variants of --variants */
    bool trained[MHA_HEAD_LAYOUT_VARIANTS]; /* chosen and not refused */
    mha_layout_trial *trials;               /* [MHA_HEAD_LAYOUT_VARIANTS, seeds] */
} plan_training;

/* Returns the trial of a variant with a seed. */
static inline mha_layout_trial *plan_trial(const plan_training *t, int variant, int64_t seed)
{
    return &t->trials[variant * t->seeds + seed];
}

/* Returns true if --train was given. */
bool plan_train_given(void);
/* Returns the minimum number of tokens per sequence: encoders also require [CLS] and [SEP]. */
int plan_train_min_seq(void);
/* Returns CLI_USAGE if an option of the group was given without --train. */
int plan_train_absent(const cli_session *session);
/* Trains the models and prints the results. `layout` has the given sizes of the models, and 0 for others. */
int plan_train(cli_session *session, mha_head_layout_options layout);

/* Writes the result as --json, --csv or a table. Returns an exit code. */
int plan_train_print(cli_session *session, const plan_training *result);

#endif
