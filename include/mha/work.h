/* work.h - a measurement whose steps are shared by several processes.
 *
 * A measurement (heads.h) adds the results of its steps: integers, so that the order of the steps and the process that
 * took them do not matter. Each process makes the same call with the same model, data and options, and with these
 * callbacks takes some of the steps; all processes get the same result, bitwise that of one process. libmha_mpi
 * provides callbacks (mha_cluster_work in cluster.h); a program may bring its own.
 *
 * All callbacks are called on the thread that made the call. A callback that fails returns a status and its message,
 * and ends the measurement with them. */
#ifndef MHA_WORK_H
#define MHA_WORK_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is shared. Processes that differ in any of it must not share. Strings are valid during `begin`. */
typedef struct mha_work_info {
    const char *name;         /* what is measured, and everything besides model and data that the results depend on */
    const char *model, *data; /* fingerprints of both; the model's covers the ISA, too */
    const char *state;        /* file name that the caller gave for the progress of the work; NULL = none */
    int64_t steps;            /* numbered from 0; earlier ones take longer */
    int64_t values;           /* integers in a result */
} mha_work_info;

typedef struct mha_work {
    void *user;
    /* Begins a measurement. */
    mha_status (*begin)(void *user, const mha_work_info *info, mha_error *err);
    /* *step gets the next step for this process, each higher than the last, or -1 if none are left. */
    mha_status (*next)(void *user, int64_t *step, mha_error *err);
    /* Takes the result of a step: info.values integers. */
    mha_status (*add)(void *user, int64_t step, const int64_t *values, mha_error *err);
    /* Ends the measurement: `values` gets the sums of all results, of all processes. */
    mha_status (*total)(void *user, int64_t *values, mha_error *err);
} mha_work;

#ifdef __cplusplus
}
#endif
#endif
