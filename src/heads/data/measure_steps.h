/* measure_steps.h - runs a measure over texts step by step: in one process, possibly resumed from a state file, or
 * distributed over the processes of mha_head_data_options.work.
 *
 * The result of a step is an array of integers that depends only on model, data, options and step; the result of the
 * measure is the sum over all steps. The order of the steps, and the process that ran them, therefore do not matter.
 * Real values are summed in fixed point (math/fixed_sum.h). A value that belongs to one step has its own element of the
 * array. This element is 0 in all other steps. */
#ifndef MHA_HEADS_DATA_MEASURE_STEPS_H
#define MHA_HEADS_DATA_MEASURE_STEPS_H

#include "mha/head_data.h"
#include <stdbool.h>

typedef struct mha__measure {
    const mha_model *model;
    const mha_head_data *data;
    const char *title;   /* title of progress reports */
    const char *options; /* everything that the result depends on besides model and data, as text */
    const char *state;   /* state file, see mha_heads_options; NULL = no file */
    int64_t steps;
    int64_t *values; /* [count] zeros before the call, the sums after the call */
    int64_t count;
    void *user;
    mha_status (*run)(void *user, int64_t step, mha_error *err); /* adds the result of a step to `values` */
    bool spoils; /* true = a canceled `run` may leave incomplete `values`, which must not be saved */
    /* Returns the progress before a step (step = steps: after the last step), in the same unit as `whole`. NULL = the
     * steps are the batches of `data`, and progress is counted in tokens. */
    int64_t (*before)(const void *user, int64_t step);
    int64_t whole; /* the progress after the last step; not used if `before` is NULL */
    /* Checks the values that a state file contained after `done` steps. NULL = any values are valid. */
    mha_status (*check)(const void *user, int64_t done, mha_error *err);
    /* Called after every step, in a single process only; returns true if the values have converged and the remaining
     * steps are not needed. NULL = all steps run. */
    bool (*ended)(const void *user);
} mha__measure;

/* Runs all steps and reports progress. In each process, steps run in ascending order. */
mha_status mha__measure_run(const mha__measure *measure, mha_error *err);

#endif
