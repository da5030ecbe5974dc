/* thread_exchange.c - see thread_exchange.h. Every exchange publishes the arguments of a rank, waits for the others,
 * copies their messages, and waits again. */
#include "support/model/thread_exchange.h"

#include "support/check.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct group {
    int ranks;
    pthread_barrier_t barrier;
    const void *const *send[MHA_RANK_GROUPS];
    const size_t *bytes[MHA_RANK_GROUPS];
    void (*run)(const mha_model_ranks *ranks, void *user);
    void *user;
} group;

typedef struct member {
    group *g;
    mha_model_ranks ranks;
} member;

static mha_status exchange(void *user, const void *const *send, const size_t *send_bytes, void *const *receive,
                           const size_t *receive_bytes, mha_error *err)
{
    const member *m = user;
    const int me = m->ranks.rank;
    mha_status status = MHA_OK;
    m->g->send[me] = send;
    m->g->bytes[me] = send_bytes;
    pthread_barrier_wait(&m->g->barrier);
    for (int r = 0; r < m->g->ranks; r++) {
        if (r == me) continue;
        if (m->g->bytes[r][me] != receive_bytes[r]) {
            snprintf(err->message, sizeof err->message, "rank %d sends %zu bytes to rank %d, which expects %zu", r,
                     m->g->bytes[r][me], me, receive_bytes[r]);
            status = err->status = MHA_ERR_IO;
        } else if (receive_bytes[r] > 0) {
            memcpy(receive[r], m->g->send[r][me], receive_bytes[r]);
        }
    }
    pthread_barrier_wait(&m->g->barrier);
    return status;
}

static void *run(void *arg)
{
    const member *m = arg;
    m->g->run(&m->ranks, m->g->user);
    return NULL;
}

void thread_exchange_run(int ranks, void (*of)(const mha_model_ranks *ranks, void *user), void *user)
{
    group g = {.ranks = ranks, .run = of, .user = user};
    pthread_t thread[MHA_RANK_GROUPS];
    member members[MHA_RANK_GROUPS];
    assert_int_equal(pthread_barrier_init(&g.barrier, NULL, (unsigned)ranks), 0);
    for (int r = 0; r < ranks; r++) {
        members[r] = (member){&g, {sizeof members[r].ranks, r, ranks, exchange, &members[r]}};
        assert_int_equal(pthread_create(&thread[r], NULL, run, &members[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    pthread_barrier_destroy(&g.barrier);
}
