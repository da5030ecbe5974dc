/* thread_ranks.h - ranks of a training run (mha/train_ranks.h) that are threads of the test. */
#ifndef TEST_THREAD_RANKS_H
#define TEST_THREAD_RANKS_H

#include "mha/train_ranks.h"

enum { THREAD_RANKS = 8 };

/* Runs `run` on `ranks` threads, each with its callbacks, and waits for all of them. The threads must not use
 * assertions. */
void thread_ranks_run(int ranks, void (*run)(const mha_train_ranks *ranks, void *user), void *user);

#endif
