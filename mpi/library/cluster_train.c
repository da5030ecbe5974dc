/* cluster_train.c - implements the callbacks of mha/train_ranks.h.
 *
 * Gradients are added by recursive halving: rank r first exchanges ranges with rank r ^ 1, each rank sending the range
 * that the other rank keeps, then with rank r ^ 2, and so on. Each addition therefore adds the sums of two sibling
 * subtrees of ranks, and each rank sends and receives about one vector in total. Gathering reverses these steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "library/cluster_struct.h"

enum { PIECE = 1 << 18 }; /* number of values in a piece; a piece is received while the previous piece is added */

typedef struct mha__shared_training {
    mha_train_ranks callbacks;
    bool failed;
    mha_error failure; /* agreed on by all ranks */
    float *pieces;     /* [2, PIECE] */
} mha__shared_training;

/* ---- agreement ---- */

/* Stores a failure that all ranks have agreed on. */
static mha_status agreed(mha_cluster *c, mha_status status, const mha_error *why, mha_error *err)
{
    mha__shared_training *t = c->training;
    t->failed = status != MHA_OK && !c->broken;
    if (status == MHA_OK) return MHA_OK;
    t->failure = *why;
    t->failure.status = status;
    if (err) *err = t->failure;
    return status;
}

/* Agrees with all ranks on a status. With `idle`, ranks other than 0 wait without a timeout, because rank 0 may be
 * busy. */
static mha_status agree(void *user, mha_status status, int idle, mha_error *err)
{
    mha_cluster *c = user;
    mha_error why = err ? *err : (mha_error){0};
    const double timeout = c->timeout;
    if (idle && c->info.rank > 0) c->timeout = INFINITY;
    const mha_status all = mha__cluster_agree_now(c, status, &why);
    c->timeout = timeout;
    return agreed(c, all, &why, err);
}

static mha_status same(void *user, const char *what, const void *data, size_t bytes, mha_error *err)
{
    mha_error why = {0};
    const mha_status status = mha_cluster_same(user, what, data, bytes, &why);
    return agreed(user, status, &why, err);
}

bool mha__cluster_training_leave(mha_cluster *cluster, mha_error *err)
{
    mha__shared_training *t = cluster->training;
    const bool knows = t && t->failed;
    if (knows) {
        *err = t->failure;
        t->failed = false;
    }
    return knows;
}

static mha_status broadcast(void *user, void *data, size_t bytes, mha_error *err)
{
    return mha_cluster_broadcast(user, 0, data, bytes, err);
}

/* ---- small sums ---- */

static mha_status add_integers(void *user, int64_t *values, int64_t count, mha_error *err)
{
    return mha_cluster_sum(user, values, count, err);
}

/* Adds the values of all ranks, pair by pair. Both ranks of a pair compute the same sum, because addition is
 * commutative. */
static mha_status add_doubles(void *user, double *values, int64_t count, mha_error *err)
{
    mha_cluster *c = user;
    double *other = (double *)c->addends;
    for (int64_t at = 0; at < count; at += MHA__ADDENDS) {
        const int64_t piece = mha__least(count - at, MHA__ADDENDS);
        const size_t bytes = (size_t)piece * sizeof *values;
        for (int bit = 1; bit < c->info.ranks; bit *= 2) {
            MHA__TRY(mha__cluster_send(c, values + at, bytes, c->info.rank ^ bit, err));
            MHA__TRY(mha__cluster_receive(c, other, bytes, c->info.rank ^ bit, err));
            MHA__TRY(mha__cluster_wait(c, "sum", err));
            for (int64_t n = 0; n < piece; n++)
                values[at + n] += other[n];
        }
    }
    return MHA_OK;
}

/* ---- gradients ---- */

/* An exchange between two ranks: this rank keeps the range `own` of its vector, and sends the range `others` in
 * pieces. */
typedef struct halving {
    mha_cluster *cluster;
    int peer;
    float *own, *others;
    int64_t own_count, others_count;
} halving;

static int64_t piece_of(int64_t count, int64_t at)
{
    return count - at < 0 ? 0 : count - at < PIECE ? count - at : PIECE;
}

static mha_status start_piece(const halving *h, int64_t n, mha_error *err)
{
    mha_cluster *c = h->cluster;
    const size_t sends = (size_t)piece_of(h->others_count, n * PIECE) * sizeof(float);
    const size_t receives = (size_t)piece_of(h->own_count, n * PIECE) * sizeof(float);
    if (sends) MHA__TRY(mha__cluster_send(c, h->others + n * PIECE, sends, h->peer, err));
    return receives ? mha__cluster_receive(c, c->training->pieces + n % 2 * PIECE, receives, h->peer, err) : MHA_OK;
}

static void add_piece(const halving *h, int64_t n)
{
    const int64_t count = piece_of(h->own_count, n * PIECE);
    const float *restrict received = h->cluster->training->pieces + n % 2 * PIECE;
    float *restrict own = count > 0 ? h->own + n * PIECE : NULL;
    for (int64_t i = 0; i < count; i++)
        own[i] += received[i];
}

static mha_status exchange(const halving *h, mha_error *err)
{
    const int64_t most = h->own_count > h->others_count ? h->own_count : h->others_count;
    const int64_t pieces = (most + PIECE - 1) / PIECE;
    MHA__TRY(start_piece(h, 0, err));
    for (int64_t n = 0; n < pieces; n++) {
        MHA__TRY(mha__cluster_wait(h->cluster, "sum of gradients", err));
        if (n + 1 < pieces) MHA__TRY(start_piece(h, n + 1, err));
        add_piece(h, n);
    }
    return MHA_OK;
}

static mha_status add_floats(void *user, float *values, const int64_t *starts, mha_error *err)
{
    mha_cluster *c = user;
    const int rank = c->info.rank, ranks = c->info.ranks;
    for (int bit = 1; bit < ranks; bit *= 2)
        for (int own = rank % (2 * bit); own < ranks; own += 2 * bit) {
            const int others = own ^ bit;
            const halving h = {.cluster = c,
                               .peer = rank ^ bit,
                               .own = values + starts[own],
                               .others = values + starts[others],
                               .own_count = starts[own + 1] - starts[own],
                               .others_count = starts[others + 1] - starts[others]};
            MHA__TRY(exchange(&h, err));
        }
    return MHA_OK;
}

/* ---- gathering ---- */

/* Starts sending range `range` of the values to `peer`, or receiving it from `peer`. */
static mha_status move(mha_cluster *c, void *values, size_t size, const int64_t *starts, int range, int peer,
                       bool sends, mha_error *err)
{
    char *data = (char *)values + (size_t)starts[range] * size;
    const size_t bytes = (size_t)(starts[range + 1] - starts[range]) * size;
    return sends ? mha__cluster_send(c, data, bytes, peer, err) : mha__cluster_receive(c, data, bytes, peer, err);
}

static mha_status gather(void *user, void *values, size_t size, const int64_t *starts, mha_error *err)
{
    mha_cluster *c = user;
    const int rank = c->info.rank, ranks = c->info.ranks;
    for (int bit = ranks / 2; bit > 0; bit /= 2) {
        for (int own = rank % (2 * bit); own < ranks; own += 2 * bit) {
            MHA__TRY(move(c, values, size, starts, own, rank ^ bit, true, err));
            MHA__TRY(move(c, values, size, starts, own ^ bit, rank ^ bit, false, err));
        }
        MHA__TRY(mha__cluster_wait(c, "gathering", err));
    }
    return MHA_OK;
}

static mha_status collect(void *user, void *values, size_t size, const int64_t *starts, mha_error *err)
{
    mha_cluster *c = user;
    if (c->info.rank > 0) MHA__TRY(move(c, values, size, starts, c->info.rank, 0, true, err));
    for (int rank = 1; c->info.rank == 0 && rank < c->info.ranks; rank++)
        MHA__TRY(move(c, values, size, starts, rank, rank, false, err));
    return mha__cluster_wait(c, "collecting moments", err);
}

/* ---- sums by MPI ---- */

static mha_status start(void *user, float *values, int64_t count, mha_error *err)
{
    return mha__cluster_add(user, values, count, err);
}

static mha_status finish(void *user, mha_error *err)
{
    return mha__cluster_wait(user, "sum of gradients", err);
}

/* ---- the callbacks ---- */

const mha_train_ranks *mha_cluster_train(mha_cluster *cluster)
{
    if (!cluster) return NULL;
    if (cluster->training) return &cluster->training->callbacks;
    mha__shared_training *t = calloc(1, sizeof *t);
    if (t) t->pieces = malloc(2 * PIECE * sizeof *t->pieces);
    if (!t || !t->pieces) {
        free(t);
        return NULL;
    }
    t->callbacks = (mha_train_ranks){.size = sizeof t->callbacks,
                                     .user = cluster,
                                     .rank = cluster->info.rank,
                                     .ranks = cluster->info.ranks,
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
    cluster->training = t;
    return &t->callbacks;
}

void mha__cluster_training_free(mha_cluster *cluster)
{
    if (!cluster->training || cluster->broken) return; /* if the cluster is broken, MPI may still write to the pieces */
    free(cluster->training->pieces);
    free(cluster->training);
}
