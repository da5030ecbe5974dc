/* cluster.c - opens and closes a cluster: MPI, hosts and grid. */
#include "library/cluster_struct.h"
#include "mha/mha.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ABORT_SECONDS = 10 };
static const double RECORD_PAUSE = 10; /* [s] */
static const int64_t BYTES_MAX = INT64_C(1) << 30;

/* ---- options ---- */

static mha_status check_seconds(const char *name, double value, mha_error *err)
{
    if (value >= 0 && value <= 1e9) return MHA_OK;
    return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "mha_cluster_options: %s must be from 0 to 1e9 (got %g)", name,
                             value);
}

static mha_status read_options(const mha_cluster_options *given, mha_cluster_options *own, mha_error *err)
{
    MHA__TRY(mha__cluster_read(NULL, own, sizeof *own, given, "mha_cluster_options", err));
    MHA__TRY(check_seconds("timeout", own->timeout, err));
    MHA__TRY(check_seconds("record_pause", own->record_pause, err));
    if (own->message_bytes < 0 || own->message_bytes > BYTES_MAX)
        return mha__cluster_fail(NULL, err, MHA_ERR_ARG,
                                 "mha_cluster_options: message_bytes must be from 0 to %lld (got %lld)",
                                 (long long)BYTES_MAX, (long long)own->message_bytes);
    if (own->timeout == 0) own->timeout = MHA_CLUSTER_TIMEOUT;
    if (own->record_pause == 0) own->record_pause = RECORD_PAUSE;
    if (own->message_bytes == 0) own->message_bytes = BYTES_MAX;
    if (own->tp == 0) own->tp = 1;
    if (own->cp == 0) own->cp = 1;
    if (own->cp < 0) own->cp = -1; /* -1 = all ranks, whose number is not known yet */
    return MHA_OK;
}

/* ---- MPI ---- */

static mha_status start_mpi(mha_cluster *c, mha_error *err)
{
    int initialized = 0, finalized = 0, provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized)
        return mha__cluster_fail(NULL, err, MHA_ERR_UNSUPPORTED, "MPI was finalized and cannot be used again");
    if (initialized)
        MPI_Query_thread(&provided);
    else
        MHA__TRY(
            mha__cluster_check(c, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread", err));
    c->finalizes = !initialized;
    if (provided < MPI_THREAD_FUNNELED)
        return mha__cluster_fail(NULL, err, MHA_ERR_UNSUPPORTED, "MPI must support MPI_THREAD_FUNNELED");
    return MHA_OK;
}

static mha_status take_ranks(mha_cluster *c, const mha_cluster_options *o, mha_error *err)
{
    const MPI_Comm given = o->own_comm ? MPI_Comm_f2c((MPI_Fint)o->comm) : MPI_COMM_WORLD;
    MHA__TRY(mha__cluster_check(c, MPI_Comm_dup(given, &c->comm), "MPI_Comm_dup", err));
    MHA__TRY(
        mha__cluster_check(c, MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", err));
    MHA__TRY(mha__cluster_check(c, MPI_Comm_rank(c->comm, &c->info.rank), "MPI_Comm_rank", err));
    return mha__cluster_check(c, MPI_Comm_size(c->comm, &c->info.ranks), "MPI_Comm_size", err);
}

/* ---- hosts ---- */

static mha_status make_tables(mha_cluster *c, mha_error *err)
{
    const size_t ranks = (size_t)c->info.ranks;
    c->gathered = calloc(ranks, sizeof *c->gathered);
    c->addends = malloc(MHA__ADDENDS * sizeof *c->addends);
    c->hosts = calloc(ranks, sizeof *c->hosts);
    if (c->gathered && c->addends && c->hosts) return MHA_OK;
    return mha__cluster_no_memory(NULL, err, ranks * sizeof *c->hosts, "the host names");
}

/* Collects the host names of all ranks, 8 bytes per gather. */
static mha_status gather_names(mha_cluster *c, mha_error *err)
{
    enum { WORDS = MHA__HOST_NAME / sizeof(int64_t) };
    char name[MHA__HOST_NAME] = "";
    int64_t words[WORDS];
    if (gethostname(name, sizeof name - 1) != 0) snprintf(name, sizeof name, "unknown host");
    for (char *p = name; *p; p++)
        if (*p < ' ' || *p > '~') *p = '?';
    memcpy(words, name, sizeof words);
    for (int n = 0; n < WORDS; n++) {
        const int64_t *all;
        MHA__TRY(mha__cluster_gather(c, words[n], &all, err));
        for (int rank = 0; rank < c->info.ranks; rank++)
            memcpy(c->hosts[rank] + (size_t)n * sizeof *words, &all[rank], sizeof *words);
    }
    return MHA_OK;
}

/* Finds the host of each rank: ranks that share memory are on one host. Hosts are numbered by their lowest rank. */
static mha_status find_hosts(mha_cluster *c, mha_error *err)
{
    MPI_Comm host;
    const int64_t *first;
    int leader = c->info.rank;
    MHA__TRY(mha__cluster_check(c,
                                MPI_Comm_split_type(c->comm, MPI_COMM_TYPE_SHARED, c->info.rank, MPI_INFO_NULL, &host),
                                "MPI_Comm_split_type", err));
    int result = MPI_Comm_rank(host, &c->info.host_rank);
    if (result == MPI_SUCCESS) result = MPI_Comm_size(host, &c->info.host_ranks);
    if (result == MPI_SUCCESS) result = MPI_Bcast(&leader, 1, MPI_INT, 0, host);
    MPI_Comm_free(&host);
    MHA__TRY(mha__cluster_check(c, result, "cannot find the ranks of a host", err));
    MHA__TRY(mha__cluster_gather(c, leader, &first, err));
    for (int rank = 0; rank < c->info.ranks; rank++) {
        c->info.hosts += first[rank] == rank;
        c->info.host += first[rank] == rank && rank < leader;
    }
    return MHA_OK;
}

/* ---- the grid ---- */

static mha_status lay_out_grid(mha_cluster *c, const mha_cluster_options *o, mha_error *err)
{
    mha_cluster_info *i = &c->info;
    const int cp = o->cp < 0 && o->tp > 0 ? i->ranks / o->tp : o->cp;
    if (o->tp < 1 || cp < 1 || o->tp > i->ranks || cp > i->ranks / o->tp || i->ranks % (o->tp * cp) != 0)
        return mha__cluster_fail(c, err, MHA_ERR_ARG,
                                 "mha_cluster_options: tp * cp must be a divisor of %d, the rank count (got %d * %d)",
                                 i->ranks, o->tp, o->cp);
    i->tp = o->tp;
    i->cp = cp;
    i->dp = i->ranks / (i->tp * i->cp);
    i->tp_rank = i->rank % i->tp;
    i->cp_rank = i->rank / i->tp % i->cp;
    i->dp_rank = i->rank / (i->tp * i->cp);
    return MHA_OK;
}

/* Fails unless all ranks have the same version and options. Compares the values of the fields, because padding bytes
 * may differ. */
static mha_status compare(mha_cluster *c, const mha_cluster_options *o, mha_error *err)
{
    const double values[] = {o->tp, o->cp, o->timeout, o->record_pause, (double)o->message_bytes};
    MHA__TRY(mha_cluster_same(c, "the version of mha", mha_version(), strlen(mha_version()), err));
    return mha_cluster_same(c, "mha_cluster_options", values, sizeof values, err);
}

/* ---- opening and closing ---- */

static mha_status open_cluster(mha_cluster *c, const mha_cluster_options *o, mha_error *err)
{
    c->timeout = o->timeout;
    c->record_pause = o->record_pause;
    c->message_bytes = o->message_bytes;
    MHA__TRY(start_mpi(c, err));
    MHA__TRY(take_ranks(c, o, err));
    MHA__TRY(make_tables(c, err));
    MHA__TRY(gather_names(c, err));
    MHA__TRY(find_hosts(c, err));
    MHA__TRY(compare(c, o, err));
    return lay_out_grid(c, o, err);
}

mha_status mha_cluster_open(const mha_cluster_options *options, mha_cluster **out, mha_error *err)
{
    mha_cluster_options own = {0};
    if (!out) return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(read_options(options, &own, err));
    mha_cluster *cluster = calloc(1, sizeof *cluster);
    if (!cluster) return mha__cluster_no_memory(NULL, err, sizeof *cluster, "a cluster");
    cluster->comm = MPI_COMM_NULL;
    const mha_status status = open_cluster(cluster, &own, err);
    if (status == MHA_OK)
        *out = cluster;
    else
        mha_cluster_free(cluster);
    return status;
}

/* Frees a cluster. A broken cluster does not finalize MPI, because MPI_Finalize would wait for pending messages. */
void mha_cluster_free(mha_cluster *cluster)
{
    if (!cluster) return;
    if (!cluster->broken && cluster->comm != MPI_COMM_NULL) MPI_Comm_free(&cluster->comm);
    if (!cluster->broken && cluster->finalizes) MPI_Finalize();
    while (cluster->hooks) {
        mha__hook *next = cluster->hooks->next;
        free(cluster->hooks);
        cluster->hooks = next;
    }
    mha__cluster_work_free(cluster);
    mha__cluster_training_free(cluster);
    mha__cluster_transfers_free(cluster);
    free(cluster->hosts);
    free(cluster->addends);
    free(cluster->gathered);
    free(cluster);
}

/* MPI_Abort waits until mpirun ends the job: forever if mpirun hangs. SIGALRM then ends this rank. */
void mha_cluster_abort(mha_cluster *cluster, int code)
{
    if (!cluster) return;
    (void)signal(SIGALRM, SIG_DFL);
    alarm(ABORT_SECONDS);
    MPI_Abort(cluster->comm, code);
}

int mha_cluster_broken(const mha_cluster *cluster)
{
    return cluster && cluster->broken;
}

const mha_cluster_info *mha_cluster_describe(const mha_cluster *cluster)
{
    return cluster ? &cluster->info : NULL;
}

const char *mha_cluster_host(const mha_cluster *cluster, int rank)
{
    return cluster && rank >= 0 && rank < cluster->info.ranks ? cluster->hosts[rank] : NULL;
}
