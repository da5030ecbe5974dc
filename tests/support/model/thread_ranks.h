/* thread_ranks.h - runs the ranks of a training run (mha/train_ranks.h) as threads of the test. */
#ifndef TEST_THREAD_RANKS_H
#define TEST_THREAD_RANKS_H

#include "mha/train_ranks.h"

enum { THREAD_RANKS = 8 };

/* Calls `run` on `ranks` threads, each with the callbacks of its rank, and waits for all threads. The threads must not
 * use cmocka assertions. */
void thread_ranks_run(int ranks, void (*run)(const mha_train_ranks *ranks, void *user), void *user);

#endif
