/* ranks.c - runs a model whose weights are divided among ranks (mha/model_ranks.h). Compares the memory with the
 * formula in that header, and the time per token with the alpha-beta model of the exchanges.
 *
 *     bench_ranks FOLDER create [WIDTH [LAYERS]]    saves a llama with random weights, in bf16
 *     mpirun -np P bench_ranks FOLDER [TOKENS]
 *
 * Prints one row: the memory, and its smallest and largest difference from the formula over the ranks; the median time
 * per token; the time of the same passes without exchanges, on the slowest rank; the difference of both times; and the
 * predicted difference, which is alpha per exchange plus the bytes of the busiest direction divided by the bandwidth.
 * Alpha and bandwidth are measured with messages between ranks 0 and 1. */
#include "clock.h"
#include "mha/cluster_model.h"
#include "mha/model_create.h"
#include "mha/model_save.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 16, TOKENS = 64, PINGS = 300, LARGE = 4 << 20, HEAD_DIM = 64, VOCAB = 32000 };

static mha_cluster *cluster;
static const mha_cluster_info *me;
static const mha_model_ranks *transport;
static int silent;               /* 1 = exchanges return at once */
static int64_t exchanges, moved; /* exchanges, and bytes of their busiest direction */
static mha_error err;

static void check(mha_status status)
{
    if (status == MHA_OK) return;
    fprintf(stderr, "bench_ranks: %s\n", err.message);
    exit(1);
}

static mha_status exchange(void *user, const void *const *send, const size_t *send_bytes, void *const *receive,
                           const size_t *receive_bytes, mha_error *e)
{
    int64_t out = 0, in = 0;
    for (int rank = 0; rank < me->tp; rank++) {
        out += (int64_t)send_bytes[rank];
        in += (int64_t)receive_bytes[rank];
    }
    exchanges++;
    moved += out > in ? out : in;
    return silent ? MHA_OK : transport->exchange(user, send, send_bytes, receive, receive_bytes, e);
}

/* ---- the model ---- */

static int create(const char *folder, long width, long layers)
{
    char config[512];
    mha_model *model = NULL;
    const mha_model_save_options o = {.size = sizeof o, .dtype = MHA_BF16, .overwrite = 1};
    snprintf(config, sizeof config,
             "{\"model_type\":\"llama\",\"hidden_size\":%ld,\"num_hidden_layers\":%ld,\"num_attention_heads\":%ld,"
             "\"num_key_value_heads\":%ld,\"head_dim\":%d,\"intermediate_size\":%ld,\"vocab_size\":%d,"
             "\"tie_word_embeddings\":false}",
             width, layers, width / HEAD_DIM, width / HEAD_DIM / 4, HEAD_DIM, width * 11 / 4, VOCAB);
    check(mha_model_create(NULL, config, NULL, &model, &err));
    check(mha_model_save(model, folder, &o, &err));
    mha_model_free(model);
    return 0;
}

/* Returns the peak of this process's memory in bytes. */
static double peak(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    if (file) fclose(file);
    return 1024.0 * (double)kib;
}

/* Returns the formula of mha/model_ranks.h for a llama in f32 whose files are bf16. */
static double formula(const mha_model *model, int64_t tokens)
{
    const mha_model_info *i = mha_model_describe(model);
    const double f = (double)mha_model_ranks_range(8, me->tp, me->tp_rank).count / 8, width = (double)i->hidden;
    const double kv = (double)i->kv_bytes_per_token / (double)i->layers / 8; /* columns of k, with copied heads */
    const double own = f * (double)(2 * i->heads * i->head_dim + 3 * i->intermediate) + 2 * kv;
    const double layer = width * own, table = f * width * (double)i->vocab;
    const double cache = (double)(tokens * i->kv_bytes_per_token);
    return 4 * ((double)i->layers * layer + 2 * table) + 6 * layer + cache + 4 * 128 * 7 * width;
}

/* ---- time ---- */

static double seconds(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Computes a token after `past` tokens of the cache; returns the seconds. */
static double step(const mha_model *model, mha_model_cache *cache, int64_t past, float *logits)
{
    int32_t ids[PROMPT];
    const int64_t length = past ? 1 : PROMPT;
    for (int n = 0; n < length; n++)
        ids[n] = (int32_t)((past + n) * 7919 % VOCAB);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = ids, .cache = cache};
    const mha_model_output out = {.size = sizeof out, .last_logits = logits};
    const double begin = seconds();
    check(mha_model_forward(model, &in, &out, &err));
    return seconds() - begin;
}

/* Measures the time of a one-way message between ranks 0 and 1; the other ranks wait. */
static double message(int bytes, int rounds)
{
    double *times = malloc((size_t)rounds * sizeof *times), result;
    char *data = calloc(1, (size_t)bytes);
    for (int n = 0; n < rounds && me->rank < 2 && me->tp > 1; n++) {
        const double begin = seconds();
        for (int turn = 0; turn < 2; turn++)
            if (me->rank == turn)
                MPI_Send(data, bytes, MPI_BYTE, 1 - turn, 0, MPI_COMM_WORLD);
            else
                MPI_Recv(data, bytes, MPI_BYTE, turn, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        times[n] = (seconds() - begin) / 2;
    }
    qsort(times, (size_t)rounds, sizeof *times, by_time);
    result = me->tp > 1 ? times[rounds / 2] : 0;
    MPI_Bcast(&result, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    free(data);
    free(times);
    return result;
}

/* Returns the largest value of all ranks. */
static double largest(double value)
{
    double max = 0;
    MPI_Allreduce(&value, &max, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return max;
}

static void run(const char *folder, int64_t tokens)
{
    mha_ctx *ctx = NULL;
    mha_model *model = NULL;
    mha_model_cache *cache = NULL;
    const mha_ctx_options one = {.size = sizeof one, .threads = 1};
    check(mha_cluster_ctx_create(cluster, &one, 0, &ctx, &err));
    transport = mha_cluster_model_ranks(cluster);
    mha_model_ranks ranks = *transport;
    ranks.exchange = exchange;
    const double before = peak();
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .ranks = &ranks};
    const mha_model_cache_options room = {.size = sizeof room, .tokens = PROMPT + 2 * tokens};
    check(mha_model_open(ctx, folder, &o, &model, &err));
    check(mha_model_cache_create(model, &room, &cache, &err));
    float *logits = malloc(VOCAB * sizeof *logits);
    double *times = malloc((size_t)(2 * tokens) * sizeof *times);
    step(model, cache, 0, logits);
    exchanges = moved = 0;
    for (int64_t n = 0; n < 2 * tokens; n++) { /* exchanging and silent passes alternate */
        silent = n % 2;
        if (!silent) MPI_Barrier(MPI_COMM_WORLD);
        times[n / 2 + (silent ? tokens : 0)] = step(model, cache, PROMPT + n, logits);
    }
    qsort(times, (size_t)tokens, sizeof *times, by_time);
    qsort(times + tokens, (size_t)tokens, sizeof *times, by_time);
    const double alpha = message(8, PINGS), beta = (message(LARGE, 20) - alpha) / LARGE;
    const double token = largest(times[tokens / 2]), alone = largest(times[tokens + tokens / 2]);
    const double predicted = largest((double)exchanges * alpha + (double)moved * beta) / (double)(2 * tokens);
    const double used = peak() - before, want = formula(model, PROMPT + 2 * tokens), apart = used / want - 1;
    const double max = largest(apart), min = -largest(-apart);
    if (me->rank == 0)
        printf("%d ranks: memory of rank 0 %.0f MB, formula %.0f MB, difference of ranks %+.1f to %+.1f %%; per token "
               "%.2f ms, without exchanges %.2f ms, difference %.3f ms; %lld exchanges, alpha %.1f us, %.2f GB/s: "
               "predicted %.3f ms\n",
               me->tp, used / 1e6, want / 1e6, 100 * min, 100 * max, 1e3 * token, 1e3 * alone, 1e3 * (token - alone),
               (long long)(exchanges / (2 * tokens)), 1e6 * alpha, beta > 0 ? 1e-9 / beta : 0.0, 1e3 * predicted);
    free(times);
    free(logits);
    mha_model_cache_free(cache);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    if (argc < 2) return fprintf(stderr, "usage: bench_ranks FOLDER [TOKENS | create [WIDTH [LAYERS]]]\n"), 2;
    if (argc > 2 && strcmp(argv[2], "create") == 0)
        return create(argv[1], argc > 3 ? atol(argv[3]) : 1024, argc > 4 ? atol(argv[4]) : 16);
    int ranks = 1, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const mha_cluster_options o = {.size = sizeof o, .tp = ranks};
    check(mha_cluster_open(&o, &cluster, &err));
    me = mha_cluster_describe(cluster);
    run(argv[1], argc > 2 ? atol(argv[2]) : TOKENS);
    mha_cluster_free(cluster);
    MPI_Finalize();
    return 0;
}
