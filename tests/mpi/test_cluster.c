/* test_cluster.c - tests clusters on any number of ranks: the grid, collective functions in chunks of 64 bytes,
 * agreement on failures, and the common ISA. With an argument, tests a failure that ends the job:
 *
 *     silent      the last rank sends no data; the other ranks must name it
 *     stopped     the same, but mpirun is stopped before the job is aborted
 *     fail N      the Nth transfer of the last rank fails inside MPI */
#include "mha/cluster.h"
#include "mha/mha.h"
#include <mpi.h>
#include <signal.h>
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

int MPI_Testsome(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)
{
    return fails() ? MPI_ERR_OTHER : PMPI_Testsome(count, requests, done, indices, statuses);
}

/* ---- state of the test ---- */

static mha_cluster *cluster;
static const mha_cluster_info *info;
static mha_error err;

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            printf("FAIL: rank %d: line %d: %s (%s)\n", info ? info->rank : -1, __LINE__, #condition, err.message); \
            fflush(stdout);                                                                                         \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                           \
        }                                                                                                           \
    } while (0)

static void check_refusals(void)
{
    mha_cluster *none;
    const mha_cluster_options size = {.size = 1}, late = {.size = sizeof late, .timeout = -1};
    const mha_cluster_options pieces = {.size = sizeof pieces, .message_bytes = INT64_C(1) << 31};
    CHECK(mha_cluster_open(NULL, NULL, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_open(&size, &none, &err) == MHA_ERR_ARG && !none && strstr(err.message, "size must be"));
    CHECK(mha_cluster_open(&late, &none, &err) == MHA_ERR_ARG);
    CHECK(strcmp(err.message, "mha_cluster_options: timeout must be from 0 to 1e9 (got -1)") == 0);
    CHECK(mha_cluster_open(&pieces, &none, &err) == MHA_ERR_ARG && strstr(err.message, "message_bytes must be"));
    CHECK(mha_cluster_agree(NULL, MHA_OK, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_same(NULL, "x", "", 0, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_broadcast(NULL, 0, NULL, 0, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_wait_for(NULL, 0, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_sum(NULL, NULL, 0, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_ctx_create(NULL, NULL, 0, &(mha_ctx *){NULL}, &err) == MHA_ERR_ARG);
    CHECK(!mha_cluster_describe(NULL) && !mha_cluster_host(NULL, 0) && !mha_cluster_broken(NULL));
    mha_cluster_free(NULL);
    mha_cluster_abort(NULL, 1);
}

/* Structs of newer headers must be accepted if their additional fields are zero, and rejected otherwise. */
static void check_newer_structs(void)
{
    mha_cluster *other;
    mha_ctx *ctx;
    struct {
        mha_cluster_options known;
        int64_t later;
    } open = {.known = {.size = sizeof open}};
    struct {
        mha_ctx_options known;
        int64_t later;
    } context = {.known = {.size = sizeof context, .threads = 1}};
    CHECK(mha_cluster_open(&open.known, &other, &err) == MHA_OK);
    CHECK(mha_cluster_ctx_create(other, &context.known, 0, &ctx, &err) == MHA_OK && mha_ctx_threads(ctx) == 1);
    mha_ctx_free(ctx);
    context.later = 1;
    CHECK(mha_cluster_ctx_create(other, &context.known, 0, &ctx, &err) == MHA_ERR_UNSUPPORTED && !ctx);
    CHECK(strncmp(err.message, "rank ", 5) == 0 && strstr(err.message, "): mha_ctx_options.size must be at most "));
    mha_cluster_free(other);
    open.later = 1;
    CHECK(mha_cluster_open(&open.known, &other, &err) == MHA_ERR_UNSUPPORTED && !other);
}

static void check_grid(void)
{
    int rank, ranks;
    mha_cluster *other;
    char host[64] = "";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gethostname(host, sizeof host - 1);
    CHECK(info->rank == rank && info->ranks == ranks && info->tp == 1 && info->cp == 1 && info->dp == ranks);
    CHECK(info->dp_rank == rank && info->hosts == 1 && info->host == 0 && info->host_rank == rank);
    CHECK(info->host_ranks == ranks && strcmp(mha_cluster_host(cluster, ranks - 1), host) == 0);
    CHECK(!mha_cluster_host(cluster, ranks) && !mha_cluster_host(cluster, -1));

    const mha_cluster_options wrong = {.size = sizeof wrong, .tp = ranks, .cp = 2};
    CHECK(mha_cluster_open(&wrong, &other, &err) == MHA_ERR_ARG && !other);
    CHECK(strstr(err.message, "tp * cp must be a divisor of "));
    const int tp = ranks % 2 == 0 ? 2 : 1;
    const mha_cluster_options grid = {.size = sizeof grid, .tp = tp, .cp = ranks / tp};
    CHECK(mha_cluster_open(&grid, &other, &err) == MHA_OK);
    const mha_cluster_info *g = mha_cluster_describe(other);
    CHECK(g->dp == 1 && g->dp_rank == 0 && g->cp_rank * tp + g->tp_rank == rank && g->tp_rank < tp);
    mha_cluster_free(other);

    const mha_cluster_options differs = {.size = sizeof differs, .timeout = rank == ranks - 1 ? 10 : 20};
    CHECK(mha_cluster_open(&differs, &other, &err) == (ranks > 1 ? MHA_ERR_ARG : MHA_OK));
    if (ranks > 1) CHECK(strstr(err.message, "mha_cluster_options must be the same as on rank 0"));
    mha_cluster_free(other);
}

enum { ELEMENTS = 40000 }; /* elements of a sum that is sent in more than one chunk */
static int64_t numbers[ELEMENTS];

static void check_transfers(void)
{
    for (int from = 0; from < info->ranks; from++)
        for (int64_t count = 0; count <= ELEMENTS / 8; count = count * 8 + 1) {
            for (int64_t n = 0; n < count; n++)
                numbers[n] = info->rank == from ? n * 3 + from : -1;
            CHECK(mha_cluster_broadcast(cluster, from, numbers, (size_t)count * sizeof *numbers, &err) == MHA_OK);
            for (int64_t n = 0; n < count; n++)
                CHECK(numbers[n] == n * 3 + from);
        }
    CHECK(mha_cluster_broadcast(cluster, info->ranks, numbers, 1, &err) == MHA_ERR_ARG);
    for (int64_t n = 0; n < ELEMENTS; n++)
        numbers[n] = n == 7 ? INT64_MAX : n * (info->rank + 1);
    CHECK(mha_cluster_sum(cluster, numbers, ELEMENTS, &err) == MHA_OK);
    for (int64_t n = 0; n < ELEMENTS; n++)
        CHECK(numbers[n] == (n == 7 ? (int64_t)((uint64_t)INT64_MAX * (uint64_t)info->ranks)
                                    : n * info->ranks * (info->ranks + 1) / 2));
    CHECK(mha_cluster_wait_for(cluster, info->ranks - 1, &err) == MHA_OK);
}

static void check_agreement(void)
{
    char text[128];
    for (int failed = 0; failed < info->ranks; failed++) {
        mha_error own = {0};
        const bool mine = info->rank >= failed; /* rank `failed` is the lowest failing rank, which must be reported */
        snprintf(own.message, sizeof own.message, "boom %d", info->rank);
        snprintf(text, sizeof text, "rank %d (%s): boom %d", failed, mha_cluster_host(cluster, failed), failed);
        CHECK(mha_cluster_agree(cluster, mine ? MHA_ERR_FORMAT : MHA_OK, &own) == MHA_ERR_FORMAT);
        CHECK(strcmp(own.message, text) == 0 && own.status == MHA_ERR_FORMAT);
    }
    CHECK(mha_cluster_agree(cluster, MHA_OK, &err) == MHA_OK);
    const int last = info->rank == info->ranks - 1 && info->ranks > 1;
    CHECK(mha_cluster_same(cluster, "the model", "abc", 3, &err) == MHA_OK);
    CHECK(mha_cluster_same(cluster, "the model", last ? "abd" : "abc", 3, &err) ==
          (info->ranks > 1 ? MHA_ERR_ARG : MHA_OK));
    snprintf(text, sizeof text, "rank %d (%s): the model must be the same as on rank 0 (%s)", info->ranks - 1,
             mha_cluster_host(cluster, 0), mha_cluster_host(cluster, 0));
    if (info->ranks > 1) CHECK(strcmp(err.message, text) == 0);
}

/* ---- contexts ---- */

static char logged[256];

static void on_log(void *user, int level, const char *message)
{
    (void)user;
    if (level == 0) snprintf(logged, sizeof logged, "%s", message);
}

static int tiles;

static int on_tile(void *user, int64_t begun, int64_t total)
{
    (void)user, (void)begun, (void)total;
    tiles++;
    return 0;
}

static void check_contexts(void)
{
    const bool last = info->rank == info->ranks - 1;
    mha_ctx *ctx;
    mha_ctx_options o = {.size = sizeof o, .threads = 1, .log = on_log, .between_tiles = on_tile};
    CHECK(mha_cluster_ctx_create(cluster, &o, 0, &ctx, &err) == MHA_OK && logged[0] == 0);
    float x[64] = {1}, out[64];
    const mha_attn_desc desc = {.size = sizeof desc, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 64};
    const mha_attn_args args = {.size = sizeof args, .q.data = x, .k.data = x, .v.data = x, .out.data = out};
    CHECK(mha_attention(ctx, &desc, &args, &err) == MHA_OK && tiles > 0);
    char newest[32];
    snprintf(newest, sizeof newest, "%s", mha_ctx_isa(ctx));
    mha_ctx_free(ctx);

    o.isa = last ? "scalar" : NULL;
    const bool differ = info->ranks > 1 && strcmp(newest, "scalar") != 0;
    CHECK(mha_cluster_ctx_create(cluster, &o, 0, &ctx, &err) == MHA_OK &&
          strcmp(mha_ctx_isa(ctx), "scalar") == (differ || last ? 0 : strcmp(newest, "scalar")));
    mha_ctx_free(ctx);
    CHECK((strstr(logged, "all ranks use scalar") != NULL) == (differ && info->rank == 0));
    CHECK(mha_cluster_ctx_create(cluster, &o, 1, &ctx, &err) == MHA_OK &&
          strcmp(mha_ctx_isa(ctx), last ? "scalar" : newest) == 0);
    mha_ctx_free(ctx);

    o.isa = last ? "z80" : NULL;
    CHECK(mha_cluster_ctx_create(cluster, &o, 0, &ctx, &err) == MHA_ERR_ARG && !ctx);
    snprintf(logged, sizeof logged, "rank %d (", info->ranks - 1);
    CHECK(strncmp(err.message, logged, strlen(logged)) == 0 && strstr(err.message, "z80"));
    CHECK(mha_cluster_ctx_create(cluster, &(mha_ctx_options){.size = 3}, 0, &ctx, &err) == MHA_ERR_ARG);
}

/* ---- failures that end the job ---- */

static bool stops_mpirun;

static int give_up(void)
{
    printf("%s\n", err.message);
    fflush(stdout);
    if (stops_mpirun) kill(getppid(), SIGSTOP);
    mha_cluster_abort(cluster, 75);
    return 1;
}

/* Once a transfer has failed, each function must return the first failure, also for a rank that reports another one. */
static int be_silent(void)
{
    mha_error later = {.message = "canceled"};
    while (info->rank == info->ranks - 1)
        pause(); /* until the job is aborted: only the timeout of another rank can end it */
    if (mha_cluster_sum(cluster, numbers, 1, &err) == MHA_OK) return 0;
    if (!mha_cluster_broken(cluster)) return 1;
    if (mha_cluster_agree(cluster, MHA_ERR_CANCELED, &later) != MHA_ERR_IO) return 1;
    if (strcmp(later.message, err.message) != 0) return 1;
    if (mha_cluster_sum(cluster, numbers, 1, &later) != MHA_ERR_IO || strcmp(later.message, err.message) != 0) return 1;
    return give_up();
}

static int be_broken(int call)
{
    if (info->rank == info->ranks - 1) failing = call;
    if (mha_cluster_sum(cluster, numbers, 16, &err) != MHA_OK) return give_up();
    failing = 0;
    return 0;
}

int main(int argc, char **argv)
{
    stops_mpirun = argc > 1 && strcmp(argv[1], "stopped") == 0;
    const bool silent = stops_mpirun || (argc > 1 && strcmp(argv[1], "silent") == 0);
    const mha_cluster_options options = {.size = sizeof options, .message_bytes = 64, .timeout = silent ? 1 : 30};
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    check_refusals();
    CHECK(mha_cluster_open(&options, &cluster, &err) == MHA_OK);
    info = mha_cluster_describe(cluster);
    int code = 0;
    if (silent) {
        code = be_silent();
    } else if (argc > 2) {
        code = be_broken(atoi(argv[2]));
    } else {
        check_newer_structs();
        check_grid();
        check_transfers();
        check_agreement();
        check_contexts();
    }
    mha_cluster_free(cluster);
    MPI_Finalize();
    return code;
}
