/* sequence.c - causal attention over a sequence divided among ranks (mha_cluster_attention), for sequence.py.
 *
 *     mpirun -np P bench_sequence [LENGTH [ROUNDS]]
 *
 * Prints one JSON object of times in seconds on the slowest rank, each the minimum over the rounds: `ring` is the time
 * of mha_cluster_attention; `transfers` is the time to pass the keys around the ring without computation; `contiguous`
 * is the time of a ring with one contiguous chunk of rows and keys per rank instead of two zig-zag chunks, whose
 * transfers also progress between tiles; `sum` is the time of an MPI_Allreduce of 8 bytes. */
#include "clock.h"
#include "mha/cluster.h"
#include "mha/mha.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, WIDTH = 64, LENGTH = 16384, ROUNDS = 3, SUMS = 2000 };

static mha_cluster *cluster;
static const mha_cluster_info *me;
static mha_ctx *ctx;
static int64_t length;          /* of the sequence */
static float *q, *k, *v, *out;  /* [HEADS, length, WIDTH], of which a rank uses its rows or keys */
static float *coming;           /* keys and values received from the previous rank */
static MPI_Request requests[2]; /* transfers of the contiguous ring */
static mha_error err;

static void check(mha_status status)
{
    if (status == MHA_OK) return;
    fprintf(stderr, "bench_sequence: %s\n", err.message);
    exit(1);
}

static int poll_transfers(void *user, int64_t begun, int64_t total)
{
    int done;
    (void)user, (void)begun, (void)total;
    MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
    return 0;
}

/* Returns the number of floats in the keys and values of one rank. */
static int64_t held(void)
{
    return 2 * HEADS * WIDTH * (length / me->ranks);
}

/* Computes the attention of `rows` rows, which begin at position `row`, to `keys` keys, which begin at position `key`.
 * The content of the tensors does not change the time. */
static void attend(int64_t row, int64_t rows, int64_t key, int64_t keys)
{
    const int64_t offset = row - key;
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = HEADS,
                             .q_len = rows,
                             .kv_len = keys,
                             .head_dim = WIDTH,
                             .causal = 1,
                             .align = MHA_ALIGN_OFFSETS};
    const mha_attn_args a = {.size = sizeof a,
                             .q = {.data = q},
                             .k = {.data = k},
                             .v = {.data = v},
                             .out = {.data = out},
                             .offsets = &offset};
    if (rows > 0 && keys > 0) check(mha_attention(ctx, &d, &a, &err));
}

/* ---- what is measured ---- */

static void start_transfers(int step)
{
    const int next = (me->rank + 1) % me->ranks, before = (me->rank + me->ranks - 1) % me->ranks;
    MPI_Irecv(coming, (int)held(), MPI_FLOAT, before, step, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(k, (int)held(), MPI_FLOAT, next, step, MPI_COMM_WORLD, &requests[1]);
}

static void transfer(void)
{
    for (int step = 0; step + 1 < me->ranks; step++) {
        start_transfers(step);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static void ring(void)
{
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = HEADS,
                             .q_len = length,
                             .kv_len = length,
                             .head_dim = WIDTH,
                             .causal = 1};
    const mha_attn_args a = {
        .size = sizeof a, .q = {.data = q}, .k = {.data = k}, .v = {.data = v}, .out = {.data = out}};
    check(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err));
}

static void contiguous(void)
{
    const int64_t rows = length / me->ranks;
    for (int step = 0; step < me->ranks; step++) {
        const int from = (me->rank - step + me->ranks) % me->ranks;
        if (step + 1 < me->ranks) start_transfers(step);
        if (from <= me->rank) attend(me->rank * rows, rows, from * rows, rows);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static void sum(void)
{
    double value = 1, total;
    for (int n = 0; n < SUMS; n++)
        MPI_Allreduce(&value, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* ---- times ---- */

/* Returns the time of work() on the slowest rank; all ranks begin together. */
static double slowest(void (*work)(void))
{
    double max = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = clock_seconds(CLOCK_MONOTONIC);
    work();
    const double seconds = clock_seconds(CLOCK_MONOTONIC) - begin;
    MPI_Allreduce(&seconds, &max, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return max;
}

static void run(int rounds)
{
    void (*const works[])(void) = {ring, transfer, contiguous, sum};
    double min[4] = {1e300, 1e300, 1e300, 1e300};
    for (int round = 0; round < rounds; round++)
        for (int n = 0; n < 4; n++) {
            const double seconds = slowest(works[n]);
            min[n] = seconds < min[n] ? seconds : min[n];
        }
    if (me->rank == 0)
        printf("{\"ring\": %.6f, \"transfers\": %.6f, \"contiguous\": %.6f, \"sum\": %.9f}\n", min[0], min[1], min[2],
               min[3] / SUMS);
}

static float *random_floats(int64_t count)
{
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t n = 0; data && n < count; n++)
        data[n] = (float)(n * 7919 % 1009) / 1009 - 0.5F;
    return data;
}

int main(int argc, char **argv)
{
    int ranks = 1, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    length = argc > 1 ? atol(argv[1]) : LENGTH;
    if (length < 1 || length % (2 * ranks * (int64_t)MHA_ATTN_CHUNK)) {
        fprintf(stderr, "bench_sequence: LENGTH must be a multiple of %d (got %lld)\n", 2 * ranks * MHA_ATTN_CHUNK,
                (long long)length);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const mha_cluster_options o = {.size = sizeof o, .cp = ranks};
    const mha_ctx_options one = {.size = sizeof one, .threads = 1, .between_tiles = poll_transfers};
    requests[0] = requests[1] = MPI_REQUEST_NULL;
    check(mha_cluster_open(&o, &cluster, &err));
    me = mha_cluster_describe(cluster);
    check(mha_cluster_ctx_create(cluster, &one, 0, &ctx, &err));
    q = random_floats(HEADS * WIDTH * length);
    k = random_floats(2 * HEADS * WIDTH * length); /* k and v are contiguous for transfers */
    v = k ? k + HEADS * WIDTH * length : NULL;
    out = random_floats(HEADS * WIDTH * length);
    coming = random_floats(held());
    if (!q || !k || !out || !coming) return fputs("bench_sequence: out of memory\n", stderr), 1;
    run(argc > 2 ? atoi(argv[2]) : ROUNDS);
    mha_ctx_free(ctx);
    mha_cluster_free(cluster);
    free(q);
    free(k);
    free(out);
    free(coming);
    MPI_Finalize();
    return 0;
}
