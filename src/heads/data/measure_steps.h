/* measure_steps.h - runs a measure over texts step by step: in this process, resumed from a state file, or divided
 * among the processes of mha_head_data_options.work.
 *
 * The result of a step is an array of integers that depends only on model, data, options and step; the result of the
 * measure is the sum over all steps. The order of the steps, and the process that ran them, therefore do not matter.
 * Values that are real numbers are summed in fixed point (math/fixed_sum.h). Values that belong to one step are stored
 * in a place of their own, which is 0 in all other steps. */
#ifndef MHA_HEADS_DATA_MEASURE_STEPS_H
#define MHA_HEADS_DATA_MEASURE_STEPS_H

#include <stdbool.h>

#include "mha/head_data.h"

typedef struct mha__measure {
    const mha_model *model;
    const mha_head_data *data;
    const char *title;   /* of the progress */
    const char *options; /* everything that the result depends on besides model and data, as text */
    const char *state;   /* file name for progress, see mha_heads_options; NULL = none */
    int64_t steps;
    int64_t *values; /* [count] zeros; the sums after the call */
    int64_t count;
    void *user;
    mha_status (*run)(void *user, int64_t step, mha_error *err); /* adds the result of a step to `values` */
    bool spoils; /* a cancelled `run` may have changed `values`: they are not saved then */
    /* Returns the progress before a step, or after the last one for step = steps, in the same unit as `whole`. NULL =
     * the steps are the batches of `data`, and the progress is counted in tokens. */
    int64_t (*before)(const void *user, int64_t step);
    int64_t whole; /* not used without `before` */
    /* Checks the values that a state file contained after `done` steps. NULL = any values are valid. */
    mha_status (*check)(const void *user, int64_t done, mha_error *err);
    /* Returns true if the values converged, so that the later steps need not run: for a single process, after every
     * step. NULL = never. */
    bool (*ended)(const void *user);
} mha__measure;

/* Runs all steps and reports progress. In each process, steps run in ascending order. */
mha_status mha__measure_run(const mha__measure *measure, mha_error *err);

#endif
