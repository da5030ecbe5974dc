/* test_cluster_train.c - tests the callbacks of mha_cluster_train on any number of ranks, with messages of 64 and 8192
 * bytes: sums over ranks must equal sums that each rank computes alone. Also tests gathered ranges and failures. With
 * an argument, tests a failure that ends the job:
 *     silent      the last rank does not take part in a sum
 *     fail N      the Nth transfer of the last rank fails inside MPI */
#include "mha/cluster.h"
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- wrappers of MPI functions: call number `failing` of the last rank fails (0: no call) ---- */

static int failing, calls;

static int fails(void)
{
    return failing > 0 && ++calls == failing;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    return fails() ? MPI_ERR_OTHER : PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    return fails() ? MPI_ERR_OTHER : PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    return fails() ? MPI_ERR_OTHER : PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

/* ---- state of the test ---- */

static mha_cluster *cluster;
static const mha_cluster_info *info;
static const mha_train_ranks *train;
static mha_error err;

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            printf("FAIL: rank %d: line %d: %s (%s)\n", info ? info->rank : -1, __LINE__, #condition, err.message); \
            fflush(stdout);                                                                                         \
            mha_cluster_abort(cluster, 1);                                                                          \
        }                                                                                                           \
    } while (0)

/* ---- values of a rank, which every rank can compute ---- */

static double value_of(int rank, int64_t n)
{
    uint64_t x = (uint64_t)n * 0x9E3779B97F4A7C15u + (uint64_t)rank * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 29)) * 0x94D049BB133111EBu;
    return (double)(int64_t)x * 0x1p-60;
}

static double double_of(int first, int count, int64_t n)
{
    if (count == 1) return value_of(first, n);
    return double_of(first, count / 2, n) + double_of(first + count / 2, count - count / 2, n);
}

static float float_of(int first, int count, int64_t n)
{
    if (count == 1) return (float)value_of(first, n);
    return float_of(first, count / 2, n) + float_of(first + count / 2, count / 2, n);
}

static float *own_values(int64_t count)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    CHECK(values);
    for (int64_t n = 0; n < count; n++)
        values[n] = (float)value_of(info->rank, n);
    return values;
}

/* Splits `count` elements into one range per rank, of different lengths; the range of rank 1 is empty. */
static void find_starts(int64_t count, int64_t *starts)
{
    for (int rank = 0; rank <= info->ranks; rank++)
        starts[rank] =
            rank == 2 && info->ranks > 2 ? starts[1] : count * rank * rank / ((int64_t)info->ranks * info->ranks);
}

/* ---- sums and ranges ---- */

static void check_floats(int64_t count)
{
    int64_t starts[16];
    float *values = own_values(count);
    find_starts(count, starts);
    CHECK(train->add_floats(train->user, values, starts, &err) == MHA_OK);
    for (int64_t n = starts[info->rank]; n < starts[info->rank + 1]; n++)
        CHECK(values[n] == float_of(0, info->ranks, n));
    CHECK(train->gather(train->user, values, sizeof *values, starts, &err) == MHA_OK);
    for (int64_t n = 0; n < count; n++)
        CHECK(values[n] == float_of(0, info->ranks, n));
    free(values);
}

static void check_collect(int64_t count)
{
    int64_t starts[16];
    float *values = own_values(count);
    find_starts(count, starts);
    CHECK(train->collect(train->user, values, sizeof *values, starts, &err) == MHA_OK);
    for (int rank = 0; rank < info->ranks; rank++)
        for (int64_t n = starts[rank]; n < starts[rank + 1]; n++)
            CHECK(values[n] == (float)value_of(info->rank == 0 ? rank : info->rank, n));
    free(values);
}

static void check_small_sums(int64_t count)
{
    double *values = malloc((size_t)count * sizeof *values);
    int64_t integer = 1 + info->rank;
    CHECK(values);
    for (int64_t n = 0; n < count; n++)
        values[n] = value_of(info->rank, n);
    CHECK(train->add_doubles(train->user, values, count, &err) == MHA_OK);
    for (int64_t n = 0; n < count; n++)
        CHECK(values[n] == double_of(0, info->ranks, n));
    CHECK(train->add_integers(train->user, &integer, 1, &err) == MHA_OK);
    CHECK(integer == info->ranks * (info->ranks + 1) / 2);
    free(values);
}

/* Tests several concurrent sums. */
static void check_begun(int64_t count)
{
    float *values = own_values(count);
    for (int64_t part = 3; part >= 0; part--) {
        const int64_t first = count * part / 4, end = count * (part + 1) / 4;
        CHECK(train->start(train->user, values + first, end - first, &err) == MHA_OK);
    }
    CHECK(train->finish(train->user, &err) == MHA_OK);
    for (int64_t n = 0; n < count; n++)
        CHECK(fabs((double)values[n] - double_of(0, info->ranks, n)) < 1e-5);
    free(values);
}

/* ---- failures ---- */

static void check_failures(void)
{
    char expected[128];
    const int failed = info->ranks - 1;
    snprintf(expected, sizeof expected, "rank %d (%s): boom", failed, mha_cluster_host(cluster, failed));
    mha_error own = {.status = MHA_ERR_MEMORY, .message = "boom"};

    /* One rank fails in the trainer. The next agreement must return this failure immediately, and only once. */
    err = info->rank == failed ? own : (mha_error){0};
    CHECK(train->agree(train->user, info->rank == failed ? MHA_ERR_MEMORY : MHA_OK, 1, &err) == MHA_ERR_MEMORY);
    CHECK(strcmp(err.message, expected) == 0);
    err = (mha_error){0};
    CHECK(mha_cluster_agree(cluster, MHA_OK, &err) == MHA_ERR_MEMORY && strcmp(err.message, expected) == 0);
    CHECK(mha_cluster_agree(cluster, MHA_OK, &err) == MHA_OK);

    /* One rank fails outside the trainer while the other ranks wait in it. All ranks must return this failure. */
    err = info->rank == failed ? own : (mha_error){0};
    const mha_status status = info->rank == failed ? mha_cluster_agree(cluster, MHA_ERR_MEMORY, &err)
                                                   : train->agree(train->user, MHA_OK, 0, &err);
    CHECK(status == MHA_ERR_MEMORY && strcmp(err.message, expected) == 0);
    if (info->rank != failed) CHECK(mha_cluster_agree(cluster, MHA_OK, &err) == MHA_ERR_MEMORY);
    err = (mha_error){0};
    CHECK(train->agree(train->user, MHA_OK, 0, &err) == MHA_OK);

    const bool differs = info->rank == failed && failed > 0;
    const mha_status same = train->same(train->user, "the text", differs ? "b" : "a", 1, &err);
    CHECK(same == (failed > 0 ? MHA_ERR_ARG : MHA_OK));
    CHECK(train->agree(train->user, MHA_OK, 0, &err) == MHA_OK);
}

static void open_cluster(int64_t message_bytes, double timeout)
{
    const mha_cluster_options options = {.size = sizeof options, .message_bytes = message_bytes, .timeout = timeout};
    CHECK(mha_cluster_open(&options, &cluster, &err) == MHA_OK);
    info = mha_cluster_describe(cluster);
    train = mha_cluster_train(cluster);
}

static void check_all(int64_t message_bytes)
{
    open_cluster(message_bytes, 30);
    CHECK(train && train == mha_cluster_train(cluster) && train->rank == info->rank && train->ranks == info->ranks);
    const int64_t more = message_bytes > 64 ? 600000 : 3000; /* gradients of more than one message */
    if ((info->ranks & (info->ranks - 1)) == 0) {
        check_floats(more);
        check_floats(1);
        check_floats(0);
        check_small_sums(message_bytes > 64 ? 20000 : 100);
        check_collect(more);
    }
    check_begun(message_bytes > 64 ? 100000 : 1000);
    check_failures();
}

/* ---- failures that end the job ---- */

static int give_up(void)
{
    printf("%s\n", err.message);
    fflush(stdout);
    mha_cluster_abort(cluster, 75);
    return 1;
}

static int be_silent(void)
{
    float values[8] = {0};
    open_cluster(0, 1);
    while (info->rank == info->ranks - 1)
        pause(); /* until the job is aborted: only the timeout of another rank can end it */
    const bool done =
        train->start(train->user, values, 8, &err) == MHA_OK && train->finish(train->user, &err) == MHA_OK;
    return done ? 0 : give_up();
}

static mha_status transfer(float *values, const int64_t *starts)
{
    const mha_status sums = train->add_floats(train->user, values, starts, &err);
    if (sums != MHA_OK) return sums;
    const mha_status all = train->gather(train->user, values, sizeof *values, starts, &err);
    if (all != MHA_OK) return all;
    const mha_status begun = train->start(train->user, values, 8, &err);
    return begun == MHA_OK ? train->finish(train->user, &err) : begun;
}

static int be_broken(int call)
{
    float values[8] = {0};
    int64_t starts[16];
    open_cluster(0, 30);
    find_starts(8, starts);
    if (info->rank == info->ranks - 1) failing = call;
    if (transfer(values, starts) != MHA_OK) return give_up();
    failing = 0;
    mha_cluster_free(cluster);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2) return be_broken(atoi(argv[2]));
    if (argc > 1) return be_silent();
    CHECK(!mha_cluster_train(NULL));
    check_all(64);
    mha_cluster *small = cluster;
    check_all(8192);
    mha_cluster_free(cluster);
    mha_cluster_free(small);
    return 0;
}
