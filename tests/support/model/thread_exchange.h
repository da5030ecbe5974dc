/* thread_exchange.h - ranks of a divided model (mha/model_ranks.h) that are threads of the test. */
#ifndef TEST_THREAD_EXCHANGE_H
#define TEST_THREAD_EXCHANGE_H

#include "mha/model_ranks.h"

/* Runs `run` on `ranks` threads, each with its own struct, and waits for all of them. The threads must not use
 * assertions. Messages whose size differs between sender and receiver fail the exchange. */
void thread_exchange_run(int ranks, void (*run)(const mha_model_ranks *ranks, void *user), void *user);

#endif
