/* work_steps.h - the messages of shared work: rank 0 assigns steps, the other ranks request steps and report their end.
 *
 * Rank 0 answers requests while it computes (between tiles) and while it waits. Every other rank requests its next step
 * before it starts the current step, so the answer usually arrives in time. At the end, all ranks report to rank 0,
 * which thereby detects missing ranks. */
#ifndef MHA_MPI_WORK_STEPS_H
#define MHA_MPI_WORK_STEPS_H

#include "library/cluster_struct.h"
#include "library/work_journal.h"

typedef enum mha__work_stage { IDLE, UNDER_WAY, FAILED } mha__work_stage;

typedef struct mha__shared_work {
    mha_work callbacks;
    mha__work_stage stage;
    mha_error failure; /* agreed on by all ranks; valid in stage FAILED */
    mha_work_info info;
    int64_t *memory; /* one allocation for the four arrays below */
    int64_t *sums;   /* [values] sums of the journals that this rank has read and of its recorded steps */
    int64_t *recent; /* [values] sums since the last record */
    int64_t *steps;  /* [steps] step numbers since the last record */
    int64_t *taken;  /* [steps] non-zero = already in a journal */
    int64_t recent_steps;
    mha__journal journal;
    double recorded, added; /* times of the last record and of the last result */

    bool asked; /* an answer is pending */
    int64_t answer;
    MPI_Request request;
    int64_t next; /* rank 0: the next step to assign */
    bool serves;  /* rank 0: ranks may send requests */
    double heard; /* rank 0: time of the last request or report */
    bool *done;   /* rank 0: [ranks] true for ranks that have reported; a separate allocation */
} mha__shared_work;

/* Requests and reports that a rank sends to rank 0. */
enum { WANTS_STEP, HAS_FINISHED, HAS_FAILED };

/* Rank 0: returns the next step that no rank has and no journal contains; -1 if all steps are assigned. */
int64_t mha__work_assign(mha__shared_work *work);
/* Other ranks: request a step, and wait for the requested step, which is stored in work->answer. */
mha_status mha__work_request(mha_cluster *cluster, mha_error *err);
mha_status mha__work_await_step(mha_cluster *cluster, mha_error *err);
/* Reports HAS_FINISHED or HAS_FAILED to rank 0, and waits until all ranks have reported. */
mha_status mha__work_report(mha_cluster *cluster, int64_t what, mha_error *err);

#endif
