/* test_work.c - tests mha_work, which distributes the steps of a measurement over ranks. Every step must run once, and
 * all ranks must get the exact sums, even after any rank has failed at any point. Another number of ranks must be able
 * to read the journals, and a truncated journal must be read up to its last complete record. */
#include "mha/cluster.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 60, VALUES = 3 };

static mha_cluster *cluster;
static const mha_cluster_info *me;
static const mha_work *work;
static mha_error err;
static char state[64]; /* the path of the journals without the rank, the same on all ranks */

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            printf("FAIL: rank %d: line %d: %s (%s)\n", me->rank, __LINE__, #condition, err.message); \
            fflush(stdout);                                                                           \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                             \
        }                                                                                             \
    } while (0)

static mha_work_info info = {.name = "numbers", .model = "m", .data = "d", .steps = STEPS, .values = VALUES};

/* The point at which a rank fails: before the first step, in the middle of a step, or after the last step. */
typedef enum place { NOWHERE, BEFORE, IN_THE_MIDDLE, AT_THE_END } place;

/* Runs one measurement as the library does. Adds the steps of this rank to *taken. */
static mha_status run(place fails, int64_t *sums, int64_t *taken, mha_error *e)
{
    const mha_status mine = MHA_ERR_FORMAT;
    if (fails == BEFORE) return mine;
    mha_status status = work->begin(work->user, &info, e);
    for (int64_t step = -1, last = -1; status == MHA_OK; last = step) {
        status = work->next(work->user, &step, e);
        if (status != MHA_OK || step < 0) break;
        CHECK(step > last && step < STEPS);
        const int64_t values[VALUES] = {step, 1, INT64_C(1) << step};
        if (fails == IN_THE_MIDDLE) return mine;
        status = work->add(work->user, step, values, e);
        ++*taken;
    }
    if (fails != NOWHERE) return mine; /* if other ranks are faster, this rank may have had no step in which to fail */
    return status == MHA_OK ? work->total(work->user, sums, e) : status;
}

static void check_sums(const int64_t *sums)
{
    CHECK(sums[0] == STEPS * (STEPS - 1) / 2 && sums[1] == STEPS && sums[2] == (INT64_C(1) << STEPS) - 1);
}

/* Runs the remaining steps, checks the sums, and returns the number of steps that all ranks ran. */
static int64_t run_whole(void)
{
    int64_t sums[VALUES] = {0}, taken = 0;
    CHECK(run(NOWHERE, sums, &taken, &err) == MHA_OK);
    check_sums(sums);
    CHECK(mha_cluster_agree(cluster, MHA_OK, &err) == MHA_OK);
    CHECK(mha_cluster_sum(cluster, &taken, 1, &err) == MHA_OK);
    return taken;
}

static void check_failures(void)
{
    char begins[128];
    for (int rank = 0; rank < me->ranks; rank++)
        for (place p = BEFORE; p <= AT_THE_END; p++) {
            int64_t sums[VALUES] = {0}, taken = 0;
            mha_error e = {0};
            const bool mine = me->rank == rank;
            const mha_status status = run(mine ? p : NOWHERE, sums, &taken, &e);
            if (mine) strcpy(e.message, "boom");
            CHECK(status == MHA_ERR_FORMAT);
            CHECK(mha_cluster_agree(cluster, status, &e) == MHA_ERR_FORMAT);
            snprintf(begins, sizeof begins, "rank %d (%s): boom", rank, mha_cluster_host(cluster, rank));
            CHECK(strcmp(e.message, begins) == 0);
            CHECK(run_whole() == STEPS); /* without journals, the next run must repeat all steps */
        }
}

static void check_differences(void)
{
    int64_t sums[VALUES], taken = 0;
    mha_error e = {0};
    if (me->ranks == 1) return;
    info.model = me->rank == me->ranks - 1 ? "other" : "m";
    CHECK(run(NOWHERE, sums, &taken, &e) == MHA_ERR_ARG && taken == 0);
    CHECK(strstr(e.message, "): the model and the CPU instruction set must be the same as on rank 0 ("));
    CHECK(mha_cluster_agree(cluster, MHA_ERR_ARG, &e) == MHA_ERR_ARG);
    info.model = "m";
    CHECK(run_whole() == STEPS);
}

/* ---- journals ---- */

static const char *journal(int rank)
{
    static char path[96];
    snprintf(path, sizeof path, "%s.%d", state, rank);
    return path;
}

static off_t size_of(int rank)
{
    struct stat about = {0};
    CHECK(stat(journal(rank), &about) == 0);
    return about.st_size;
}

static void barrier(void)
{
    CHECK(mha_cluster_wait_for(cluster, 0, &err) == MHA_OK);
    CHECK(mha_cluster_agree(cluster, MHA_OK, &err) == MHA_OK);
}

static void check_journals(void)
{
    info.state = state;
    CHECK(run_whole() == STEPS);
    CHECK(run_whole() == 0); /* all steps must be read from the journals */

    /* a journal is truncated within its last record: the steps of this record must run again */
    const off_t whole = size_of(me->ranks - 1);
    barrier();
    if (me->rank == 0) CHECK(truncate(journal(me->ranks - 1), whole - 5) == 0);
    barrier();
    const int64_t again = run_whole();
    CHECK(again >= 0 && again < STEPS && (me->ranks > 1 || again > 0));
    CHECK(run_whole() == 0);

    /* a record with a modified byte must be ignored, so its steps must run again */
    if (me->rank == 0) {
        FILE *file = fopen(journal(0), "r+");
        CHECK(file && fseek(file, -3, SEEK_END) == 0 && fputc(77, file) == 77 && fclose(file) == 0);
    }
    barrier();
    const int64_t repeated = run_whole();
    CHECK(repeated >= 0 && repeated < STEPS);

    /* a journal of other data must be rejected on all ranks, and its file must not be changed */
    const off_t before = size_of(0);
    int64_t sums[VALUES], taken = 0;
    mha_error e = {0};
    info.data = "other";
    CHECK(run(NOWHERE, sums, &taken, &e) == MHA_ERR_ARG && taken == 0);
    CHECK(strstr(e.message, "journal must belong to a run with the same model, data and options (got other data)"));
    CHECK(mha_cluster_agree(cluster, MHA_ERR_ARG, &e) == MHA_ERR_ARG);
    CHECK(size_of(0) == before);
    info.data = "d";

    /* a file that is not a journal must be rejected */
    barrier();
    if (me->rank == 0) {
        FILE *file = fopen(journal(0), "w");
        CHECK(file &&
              fputs("an unrelated file, longer than the header of a journal, which must not be changed", file) >= 0);
        CHECK(fclose(file) == 0);
    }
    barrier();
    CHECK(run(NOWHERE, sums, &taken, &e) == MHA_ERR_ARG && strstr(e.message, "file must be a journal of shared work"));
    CHECK(mha_cluster_agree(cluster, MHA_ERR_ARG, &e) == MHA_ERR_ARG);
    CHECK(size_of(0) == 81);
    barrier();
    remove(journal(me->rank));
    info.state = "/nonexistent/folder/state";
    CHECK(run(NOWHERE, sums, &taken, &e) == MHA_ERR_IO && strstr(e.message, "state.0: cannot be opened: "));
    CHECK(mha_cluster_agree(cluster, MHA_ERR_IO, &e) == MHA_ERR_IO);
    info.state = NULL;
}

int main(void)
{
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    const mha_cluster_options options = {.size = sizeof options, .timeout = 30, .record_pause = 1e-9};
    if (mha_cluster_open(&options, &cluster, &err) != MHA_OK) return printf("%s\n", err.message), 1;
    me = mha_cluster_describe(cluster);
    work = mha_cluster_work(cluster);
    CHECK(work && !mha_cluster_work(NULL));
    snprintf(state, sizeof state, "/tmp/mha-work.%ld", (long)getpid());
    CHECK(mha_cluster_broadcast(cluster, 0, state, sizeof state, &err) == MHA_OK);
    CHECK(run_whole() == STEPS);
    check_failures();
    check_differences();
    check_journals();
    mha_cluster_free(cluster);
    MPI_Finalize();
    return 0;
}
