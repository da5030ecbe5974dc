/* mha_mpi.c - the program mha-mpi: one of several ranks that run an mha command together. `mha-mpi launch` starts them.
 *
 * `mpirun -np 4 mha-mpi heads -f texts.txt` prints the same bytes as `mha heads -f texts.txt`. */
#include "command.h"
#include "mha/cluster.h"
#include "program/launch.h"
#include "program/mpi_watchdog.h"
#include "program/rank_options.h"
#include "program/shared_texts.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exit statuses. SIGNALED + n: signal n. SILENT: a peer does not respond or a transfer failed; this is EX_TEMPFAIL,
 * because a restart may succeed. */
enum { SIGNALED = 128, SILENT = 75 };

/* Factor of the timeout for the start and the end of MPI. The library's waits, whose messages name the rank, must time
 * out first. */
static const double MPI_STEP = 2;

typedef struct program {
    mha_cluster *cluster;
    rank_options options;
    cli_ranks ranks;
    char label[128];
} program;

static mha_status create_ctx(void *user, const mha_ctx_options *options, mha_ctx **out, mha_error *err)
{
    program *p = user;
    return mha_cluster_ctx_create(p->cluster, options, p->options.mixed_isa, out, err);
}

/* Prints the message and aborts all ranks. Called if this rank cannot continue, for example after a failed transfer. */
static void give_up(program *p, const char *message, int code)
{
    fprintf(stderr, "mha-mpi: %s\n", message);
    fflush(NULL);
    mha_cluster_abort(p->cluster, code);
}

/* Ends all ranks, because this rank failed in a call for which other ranks may still wait. */
static void leave_pass(program *p, const mha_error *message, int code)
{
    char line[sizeof message->message + sizeof p->label];
    const bool named = strncmp(message->message, "rank ", 5) == 0;
    snprintf(line, sizeof line, "%s%s", named ? "" : p->label, message->message);
    give_up(p, line, code > SIGNALED ? code : SILENT);
}

/* Converts an exit code to a status, since ranks exchange statuses. */
static mha_status status_of(int code)
{
    return code == CLI_DONE || code == CLI_NO ? MHA_OK
           : code == CLI_USAGE                ? MHA_ERR_ARG
           : code == CLI_REFUSED              ? MHA_ERR_FORMAT
           : code > SIGNALED                  ? MHA_ERR_CANCELED
                                              : MHA_ERR_IO;
}

/* Returns the exit code of a rank that did not fail, from the status of the failed rank. */
static int code_of(mha_status status)
{
    return status == MHA_ERR_ARG        ? CLI_USAGE
           : status == MHA_ERR_FORMAT   ? CLI_REFUSED
           : status == MHA_ERR_CANCELED ? SIGNALED + SIGTERM /* the signal that the other rank received is not known */
                                        : CLI_FAILED;
}

static int finish(void *user, bool everywhere, int code, mha_error *message)
{
    program *p = user;
    mha_error why = *message;
    if (shared_texts_ended(message)) return code_of(message->status);
    if (code > SIGNALED && !why.message[0])
        snprintf(why.message, sizeof why.message, "stopped by signal %d", code - SIGNALED);
    if (shared_texts_broken()) leave_pass(p, &why, code);
    const mha_error own = why;
    mha_status status = everywhere ? MHA_OK : mha_cluster_wait_for(p->cluster, 0, &why);
    if (status == MHA_OK) status = mha_cluster_agree(p->cluster, status_of(code), &why);
    if (mha_cluster_broken(p->cluster)) leave_pass(p, code > SIGNALED ? &own : &why, code);
    *message = why;
    if (status_of(code) != MHA_OK || status == MHA_OK) return code;
    return code_of(status);
}

static double step_limit(const program *p)
{
    return MPI_STEP * (p->options.timeout > 0 ? p->options.timeout : MHA_CLUSTER_TIMEOUT);
}

/* Fails unless all ranks were started with the same command line. */
static mha_status check_words(program *p, int argc, char **argv, mha_error *err)
{
    size_t bytes = 1, at = 0;
    for (int n = 1; n < argc; n++)
        bytes += strlen(argv[n]) + 1;
    char *words = calloc(1, bytes);
    for (int n = 1; words && n < argc; n++) {
        memcpy(words + at, argv[n], strlen(argv[n]));
        at += strlen(argv[n]) + 1;
    }
    mha_error why = {.status = MHA_ERR_MEMORY, .message = "out of memory for the command line"};
    mha_status status = mha_cluster_agree(p->cluster, words ? MHA_OK : MHA_ERR_MEMORY, &why);
    if (status == MHA_OK) status = mha_cluster_same(p->cluster, "the command line", words, bytes, &why);
    free(words);
    *err = why;
    return status;
}

static int open_program(program *p, int argc, char **argv)
{
    mha_error error = {0};
    const mha_cluster_options options = {.size = sizeof options,
                                         .tp = p->options.tp,
                                         .cp = -1,
                                         .timeout = p->options.timeout,
                                         .record_pause = p->options.record_pause};
    mpi_watchdog_start("start", step_limit(p), SILENT);
    mha_status status = mha_cluster_open(&options, &p->cluster, &error);
    mpi_watchdog_stop();
    if (status == MHA_OK) status = check_words(p, argc, argv, &error);
    if (status != MHA_OK) {
        if (!p->cluster || mha_cluster_describe(p->cluster)->rank == 0) fprintf(stderr, "mha-mpi: %s\n", error.message);
        return status == MHA_ERR_IO ? SILENT : CLI_FAILED;
    }
    const int rank = mha_cluster_describe(p->cluster)->rank;
    if (!mha_cluster_work(p->cluster) || !mha_cluster_train(p->cluster)) {
        give_up(p, "out of memory", SILENT);
        return CLI_FAILED;
    }
    snprintf(p->label, sizeof p->label, "rank %d (%s): ", rank, mha_cluster_host(p->cluster, rank));
    p->ranks = (cli_ranks){.user = p,
                           .rank = rank,
                           .label = p->label,
                           .texts = shared_texts_of(p->cluster, p->options.attention, p->options.tp > 0),
                           .divides_models = p->options.tp > 0,
                           .ctx_create = create_ctx,
                           .finish = finish,
                           .work = mha_cluster_work(p->cluster),
                           .train = mha_cluster_train(p->cluster)};
    /* Only rank 0 writes results. */
    if (rank > 0 && !freopen("/dev/null", "w", stdout)) return CLI_FAILED;
    return CLI_DONE;
}

int main(int argc, char **argv)
{
    static program p;
    if (argc > 1 && strcmp(argv[1], "launch") == 0) return launch(argc - 1, argv + 1);
    const int options = rank_options_read(argc, argv, &p.options);
    if (options < 0) return CLI_USAGE;
    /* Turn colors off, because mpirun gives each rank a terminal even if mpirun's own output is redirected. */
    setenv("NO_COLOR", "1", 1);
    int code = open_program(&p, argc, argv);
    argv[options] = argv[0];
    if (code == CLI_DONE) code = cli_main(argc - options, argv + options, &p.ranks);
    mpi_watchdog_start("end", step_limit(&p), SILENT);
    mha_cluster_free(p.cluster);
    mpi_watchdog_stop();
    return code;
}
