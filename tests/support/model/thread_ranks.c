/* thread_ranks.c - implements thread_ranks.h. Each callback publishes its argument, waits for the other ranks, reads
 * the arguments of all ranks, and waits again. Sums are computed recursively, unlike in libmha_mpi. */
#include "support/model/thread_ranks.h"

#include "support/check.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64 };

typedef struct begun {
    float *values;
    int64_t count;
} begun;

typedef struct group {
    int ranks;
    pthread_barrier_t barrier;
    const void *argument[THREAD_RANKS];
    size_t bytes[THREAD_RANKS];
    void (*run)(const mha_train_ranks *ranks, void *user);
    void *user;
} group;

typedef struct member {
    group *g;
    mha_train_ranks callbacks;
    begun sums[MAX];
    int sum_count;
} member;

static void publish(const member *m, const void *argument, size_t bytes)
{
    m->g->argument[m->callbacks.rank] = argument;
    m->g->bytes[m->callbacks.rank] = bytes;
    pthread_barrier_wait(&m->g->barrier);
}

static void leave(const member *m)
{
    pthread_barrier_wait(&m->g->barrier);
}

static mha_status agree(void *user, mha_status status, int idle, mha_error *err)
{
    const member *m = user;
    mha_error own = *err, first = {0};
    (void)idle;
    own.status = status;
    publish(m, &own, 0);
    for (int r = m->g->ranks - 1; r >= 0; r--) {
        const mha_error *other = m->g->argument[r];
        if (other->status == MHA_OK) continue;
        first.status = other->status;
        snprintf(first.message, sizeof first.message, "rank %d: %.200s", r, other->message);
    }
    leave(m);
    if (first.status != MHA_OK) *err = first;
    return first.status;
}

static mha_status same(void *user, const char *what, const void *data, size_t bytes, mha_error *err)
{
    const member *m = user;
    int differs = 0;
    publish(m, data, bytes);
    for (int r = 1; r < m->g->ranks; r++)
        if (m->g->bytes[r] != m->g->bytes[0] || memcmp(m->g->argument[r], m->g->argument[0], m->g->bytes[0]) != 0)
            differs = r;
    leave(m);
    if (!differs) return MHA_OK;
    snprintf(err->message, sizeof err->message, "rank %d: %s must be the same as on rank 0", differs, what);
    return err->status = MHA_ERR_ARG;
}

static mha_status broadcast(void *user, void *data, size_t bytes, mha_error *err)
{
    const member *m = user;
    (void)err;
    publish(m, data, bytes);
    if (m->callbacks.rank > 0) memcpy(data, m->g->argument[0], bytes);
    leave(m);
    return MHA_OK;
}

static mha_status add_integers(void *user, int64_t *values, int64_t count, mha_error *err)
{
    const member *m = user;
    int64_t *sums = calloc((size_t)count, sizeof *sums);
    (void)err;
    publish(m, values, 0);
    for (int r = 0; r < m->g->ranks; r++)
        for (int64_t n = 0; n < count; n++)
            sums[n] += ((const int64_t *)m->g->argument[r])[n];
    leave(m);
    memcpy(values, sums, (size_t)count * sizeof *sums);
    free(sums);
    return MHA_OK;
}

static double double_of(const group *g, int first, int count, int64_t n)
{
    if (count == 1) return ((const double *)g->argument[first])[n];
    return double_of(g, first, count / 2, n) + double_of(g, first + count / 2, count / 2, n);
}

static float float_of(const group *g, int first, int count, int64_t n)
{
    if (count == 1) return ((const float *)g->argument[first])[n];
    return float_of(g, first, count / 2, n) + float_of(g, first + count / 2, count / 2, n);
}

static mha_status add_doubles(void *user, double *values, int64_t count, mha_error *err)
{
    const member *m = user;
    double *sums = calloc((size_t)count, sizeof *sums);
    (void)err;
    publish(m, values, 0);
    for (int64_t n = 0; n < count; n++)
        sums[n] = double_of(m->g, 0, m->g->ranks, n);
    leave(m);
    memcpy(values, sums, (size_t)count * sizeof *sums);
    free(sums);
    return MHA_OK;
}

/* Sums elements first .. end - 1 over all ranks; with `clear`, sets all other elements to NaN. */
static void add_range(const member *m, float *values, int64_t first, int64_t end, int64_t count, bool clear)
{
    float *sums = calloc((size_t)count + 1, sizeof *sums);
    publish(m, values, 0);
    for (int64_t n = first; n < end; n++)
        sums[n] = float_of(m->g, 0, m->g->ranks, n);
    leave(m);
    for (int64_t n = 0; n < count; n++)
        if (n >= first && n < end)
            values[n] = sums[n];
        else if (clear)
            values[n] = (float)NAN;
    free(sums);
}

static mha_status add_floats(void *user, float *values, const int64_t *starts, mha_error *err)
{
    const member *m = user;
    (void)err;
    add_range(m, values, starts[m->callbacks.rank], starts[m->callbacks.rank + 1], starts[m->g->ranks], true);
    return MHA_OK;
}

static mha_status gather_to(const member *m, bool here, void *values, size_t size, const int64_t *starts)
{
    publish(m, values, 0);
    for (int r = 0; here && r < m->g->ranks; r++)
        if (r != m->callbacks.rank)
            memcpy((char *)values + (size_t)starts[r] * size,
                   (const char *)m->g->argument[r] + (size_t)starts[r] * size,
                   (size_t)(starts[r + 1] - starts[r]) * size);
    leave(m);
    return MHA_OK;
}

static mha_status gather(void *user, void *values, size_t size, const int64_t *starts, mha_error *err)
{
    (void)err;
    return gather_to(user, true, values, size, starts);
}

static mha_status collect(void *user, void *values, size_t size, const int64_t *starts, mha_error *err)
{
    const member *m = user;
    (void)err;
    return gather_to(m, m->callbacks.rank == 0, values, size, starts);
}

static mha_status start(void *user, float *values, int64_t count, mha_error *err)
{
    member *m = user;
    (void)err;
    if (m->sum_count == MAX) return MHA_ERR_MEMORY;
    m->sums[m->sum_count++] = (begun){values, count};
    return MHA_OK;
}

/* Completes all sums that were begun. As in MPI, all ranks must have begun the same sums. */
static mha_status finish(void *user, mha_error *err)
{
    member *m = user;
    int64_t counts[MAX];
    for (int n = 0; n < m->sum_count; n++)
        counts[n] = m->sums[n].count;
    const mha_status status = same(user, "the sums", counts, (size_t)m->sum_count * sizeof *counts, err);
    if (status != MHA_OK) return status;
    for (int n = 0; n < m->sum_count; n++)
        add_range(m, m->sums[n].values, 0, m->sums[n].count, m->sums[n].count, false);
    m->sum_count = 0;
    return MHA_OK;
}

static void *run_member(void *arg)
{
    const member *m = arg;
    m->g->run(&m->callbacks, m->g->user);
    return NULL;
}

void thread_ranks_run(int ranks, void (*run)(const mha_train_ranks *ranks, void *user), void *user)
{
    static member members[THREAD_RANKS];
    pthread_t threads[THREAD_RANKS];
    group g = {.ranks = ranks, .run = run, .user = user};
    pthread_barrier_init(&g.barrier, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        members[r] = (member){.g = &g};
        members[r].callbacks = (mha_train_ranks){.size = sizeof members[r].callbacks,
                                                 .user = &members[r],
                                                 .rank = r,
                                                 .ranks = ranks,
                                                 .agree = agree,
                                                 .same = same,
                                                 .broadcast = broadcast,
                                                 .add_integers = add_integers,
                                                 .add_doubles = add_doubles,
                                                 .add_floats = add_floats,
                                                 .gather = gather,
                                                 .collect = collect,
                                                 .start = start,
                                                 .finish = finish};
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&g.barrier);
}
