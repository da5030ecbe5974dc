/* cluster_train.c - implements the callbacks of mha/train_ranks.h; cluster_all_reduce.c adds the gradients. */
#include "library/cluster_train.h"

#include <stdlib.h>

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

/* Agrees with all ranks on a status. With `idle`, ranks other than 0 wait as long as rank 0 reports that it is busy. */
static mha_status agree(void *user, mha_status status, int idle, mha_error *err)
{
    mha_cluster *c = user;
    mha_error why = err ? *err : (mha_error){0};
    c->idle = idle && c->info.rank > 0;
    const mha_status all = mha__cluster_agree_now(c, status, &why);
    c->idle = false;
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
        const int64_t piece = mha__min64(count - at, MHA__ADDENDS);
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

/* ---- collecting on rank 0 ---- */

static mha_status collect(void *user, void *values, size_t size, const int64_t *starts, mha_error *err)
{
    mha_cluster *c = user;
    if (c->info.rank > 0) MHA__TRY(mha__move_range(c, values, size, starts, c->info.rank, 0, true, err));
    for (int rank = 1; c->info.rank == 0 && rank < c->info.ranks; rank++)
        MHA__TRY(mha__move_range(c, values, size, starts, rank, rank, false, err));
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
    if (t) t->pieces = malloc(2 * MHA__GRADIENT_PIECE * sizeof *t->pieces);
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
                                     .add_floats = mha__reduce_scatter,
                                     .gather = mha__all_gather,
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
