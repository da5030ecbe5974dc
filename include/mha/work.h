/* work.h - measurements whose steps are divided among several processes.
 *
 * A measurement of texts (head_data.h) adds up the results of its steps. Because results are integers, the sums do not
 * depend on the order of steps or on their assignment to processes. Each process makes the same call with the same
 * model, data and options, and runs the steps that these callbacks assign to it. All processes get a result bitwise
 * identical to that of a single process. libmha_mpi provides callbacks (mha_cluster_work in cluster.h); a program may
 * supply its own.
 *
 * All callbacks are called on the thread that made the call. If a callback fails, the measurement returns its status
 * and message. */
#ifndef MHA_WORK_H
#define MHA_WORK_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Describes a measurement. Processes may divide it only if all fields are equal. Strings are valid during `begin`. Only
 * the library creates this struct; later versions may add fields at the end. */
typedef struct mha_work_info {
    const char *name;         /* name of the measurement, including all options that affect the result */
    const char *model, *data; /* fingerprints of model and data; the model's includes the ISA */
    const char *state;        /* file name for progress, as passed by the caller; NULL = none */
    int64_t steps;            /* number of steps, numbered from 0; if steps are batches of texts, earlier steps take
                               * longer */
    int64_t values;           /* number of integers in a result */
} mha_work_info;

typedef struct mha_work {
    size_t size; /* sizeof(mha_work) */
    void *user;
    /* Begins the measurement that `info` describes. */
    mha_status (*begin)(void *user, const mha_work_info *info, mha_error *err);
    /* Stores the next step for this process in *step, in ascending order; -1 if no steps are left. */
    mha_status (*next)(void *user, int64_t *step, mha_error *err);
    /* Adds the result of a step, which consists of info.values integers. */
    mha_status (*add)(void *user, int64_t step, const int64_t *values, mha_error *err);
    /* Ends the measurement and stores the sums over the results of all processes in `values`. */
    mha_status (*total)(void *user, int64_t *values, mha_error *err);
} mha_work;

#ifdef __cplusplus
}
#endif
#endif
