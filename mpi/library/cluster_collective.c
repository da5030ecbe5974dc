/* cluster_collective.c - the functions that all ranks call together: sums, broadcasts, agreement and comparison.
 *
 * Sums move up a binomial tree to rank 0, and broadcasts move down such a tree; both take log2(ranks) steps. */
#include "library/cluster_struct.h"
#include "library/work_journal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- broadcast ---- */

mha__group mha__cp_group(const mha_cluster *cluster)
{
    const mha_cluster_info *i = &cluster->info;
    return (mha__group){i->dp_rank * i->cp * i->tp + i->tp_rank, i->tp, i->cp, i->cp_rank};
}

mha_status mha__group_broadcast(mha_cluster *cluster, const mha__group *group, int root, void *data, size_t bytes,
                                mha_error *err)
{
    const int count = group->count;
    const int me = (group->me - root + count) % count; /* this rank's number, counted from `root` */
    int bit = 1;
    while (bit < count && !(me & bit))
        bit *= 2;
    if (me > 0) {
        const int from = mha__group_rank(group, (me - bit + root) % count);
        MHA__TRY(mha__cluster_receive(cluster, data, bytes, from, err));
        MHA__TRY(mha__cluster_wait(cluster, "broadcast", err));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        const int to = mha__group_rank(group, (me + bit + root) % count);
        if (me + bit < count) MHA__TRY(mha__cluster_send(cluster, data, bytes, to, err));
    }
    return mha__cluster_wait(cluster, "broadcast", err);
}

mha_status mha_cluster_broadcast(mha_cluster *cluster, int rank, void *data, size_t bytes, mha_error *err)
{
    if (!cluster) return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "cluster must not be NULL");
    const int ranks = cluster->info.ranks;
    if (rank < 0 || rank >= ranks)
        return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "rank must be from 0 to %d (got %d)", ranks - 1, rank);
    if (!data && bytes > 0) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "data must not be NULL");
    return mha__group_broadcast(cluster, &(mha__group){0, 1, ranks, cluster->info.rank}, rank, data, bytes, err);
}

mha_status mha_cluster_wait_for(mha_cluster *cluster, int rank, mha_error *err)
{
    char sign = 0;
    if (!cluster) return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "cluster must not be NULL");
    const double timeout = cluster->timeout;
    cluster->timeout = INFINITY;
    const mha_status status = mha_cluster_broadcast(cluster, rank, &sign, sizeof sign, err);
    cluster->timeout = timeout;
    return status;
}

/* ---- sum ---- */

static void add(int64_t *to, const int64_t *from, int64_t count)
{
    for (int64_t n = 0; n < count; n++)
        to[n] = (int64_t)((uint64_t)to[n] + (uint64_t)from[n]);
}

/* Adds the sums of the subtrees below this rank to `values`, and sends the result to the parent rank. */
static mha_status sum_to_first(mha_cluster *c, int64_t *values, int64_t count, mha_error *err)
{
    const size_t bytes = (size_t)count * sizeof *values;
    for (int bit = 1; bit < c->info.ranks; bit *= 2) {
        const bool sends = c->info.rank & bit;
        const int peer = sends ? c->info.rank - bit : c->info.rank + bit;
        if (peer >= c->info.ranks) continue;
        MHA__TRY(sends ? mha__cluster_send(c, values, bytes, peer, err)
                       : mha__cluster_receive(c, c->addends, bytes, peer, err));
        MHA__TRY(mha__cluster_wait(c, "sum", err));
        if (sends) break;
        add(values, c->addends, count);
    }
    return MHA_OK;
}

/* Sums the values in pieces, through a fixed buffer, because an allocation could fail on one rank while the other ranks
 * wait. */
mha_status mha_cluster_sum(mha_cluster *cluster, int64_t *values, int64_t count, mha_error *err)
{
    if (!cluster) return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "cluster must not be NULL");
    if (count < 0)
        return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "count must be at least 0 (got %lld)", (long long)count);
    if (!values && count > 0) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "values must not be NULL");
    for (int64_t at = 0; at < count; at += MHA__ADDENDS) {
        const int64_t piece = mha__min64(count - at, MHA__ADDENDS);
        MHA__TRY(sum_to_first(cluster, values + at, piece, err));
        MHA__TRY(mha_cluster_broadcast(cluster, 0, values + at, (size_t)piece * sizeof *values, err));
    }
    return MHA_OK;
}

mha_status mha__cluster_gather(mha_cluster *cluster, int64_t own, const int64_t **all, mha_error *err)
{
    memset(cluster->gathered, 0, (size_t)cluster->info.ranks * sizeof *cluster->gathered);
    cluster->gathered[cluster->info.rank] = own;
    *all = cluster->gathered;
    return mha_cluster_sum(cluster, cluster->gathered, cluster->info.ranks, err);
}

/* ---- agreement ---- */

static int first_failed(const int64_t *all, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        if (all[rank] != MHA_OK) return rank;
    return -1;
}

/* Prepends rank and host to this rank's message, unless it already begins with them. */
static void name_rank(const mha_cluster *c, mha_error *err)
{
    char prefix[MHA__HOST_NAME + 32];
    snprintf(prefix, sizeof prefix, "rank %d (%s): ", c->info.rank, c->hosts[c->info.rank]);
    if (strncmp(err->message, prefix, strlen(prefix)) != 0)
        mha__cluster_fail(c, err, err->status, "%s", err->message[0] ? err->message : mha_status_text(err->status));
}

mha_status mha__cluster_agree_now(mha_cluster *cluster, mha_status status, mha_error *err)
{
    mha_error own = *err;
    const int64_t *all;
    own.status = status;
    MHA__TRY(mha__cluster_gather(cluster, status, &all, err));
    const int failed = first_failed(all, cluster->info.ranks);
    if (failed < 0) return MHA_OK;
    if (failed == cluster->info.rank) name_rank(cluster, &own);
    MHA__TRY(mha_cluster_broadcast(cluster, failed, &own, sizeof own, err));
    *err = own;
    return own.status;
}

mha_status mha_cluster_agree(mha_cluster *cluster, mha_status status, mha_error *err)
{
    if (!cluster || !err) return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "cluster and err must not be NULL");
    if (!cluster->broken && mha__cluster_work_leave(cluster, err)) return err->status;
    if (!cluster->broken && mha__cluster_training_leave(cluster, err)) return err->status;
    if (cluster->broken) {
        *err = cluster->failure; /* `status` and *err may only report its consequence, such as a canceled call */
        return err->status;
    }
    return mha__cluster_agree_now(cluster, status, err);
}

/* ---- comparison ---- */

mha_status mha_cluster_same(mha_cluster *cluster, const char *what, const void *data, size_t bytes, mha_error *err)
{
    if (!cluster) return mha__cluster_fail(NULL, err, MHA_ERR_ARG, "cluster must not be NULL");
    if (!what || (!data && bytes > 0))
        return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "what and data must not be NULL");
    const uint64_t own[2] = {mha__digest(MHA__DIGEST_START, data, bytes), bytes};
    uint64_t first[2] = {own[0], own[1]};
    mha_error why = {0};
    mha_status status = MHA_OK;
    MHA__TRY(mha_cluster_broadcast(cluster, 0, first, sizeof first, err));
    if (memcmp(own, first, sizeof own) != 0)
        status = mha__cluster_fail(cluster, &why, MHA_ERR_ARG, "%s must be the same as on rank 0 (%s)", what,
                                   cluster->hosts[0]);
    status = mha__cluster_agree_now(cluster, status, &why);
    if (status != MHA_OK && err) *err = why;
    return status;
}
