/* model_ranks.c - exchanges data for a model whose weights are divided among the ranks of a tp group. */
#include "library/cluster_struct.h"
#include "mha/cluster_model.h"

/* Starts all transfers, receives first, and waits once for all of them. */
static mha_status transfer(mha_cluster *c, const void *const *send, const size_t *send_bytes, void *const *receive,
                           const size_t *receive_bytes, mha_error *err)
{
    const int tp = c->info.tp, me = c->info.tp_rank, first = c->info.rank - me;
    for (int rank = 0; rank < tp; rank++)
        if (rank != me) MHA__TRY(mha__cluster_receive(c, receive[rank], receive_bytes[rank], first + rank, err));
    for (int rank = 0; rank < tp; rank++)
        if (rank != me) MHA__TRY(mha__cluster_send(c, send[rank], send_bytes[rank], first + rank, err));
    return mha__cluster_wait(c, "exchanging parts of a layer", err);
}

/* A failure breaks the cluster, because messages that have started would write to memory that the pass frees. */
static mha_status exchange(void *user, const void *const *send, const size_t *send_bytes, void *const *receive,
                           const size_t *receive_bytes, mha_error *err)
{
    mha_error why = {0};
    const mha_status status = transfer(user, send, send_bytes, receive, receive_bytes, &why);
    if (status == MHA_OK) return MHA_OK;
    mha__cluster_keep_failure(user, &why);
    if (err) *err = why;
    return status;
}

const mha_model_ranks *mha_cluster_model_ranks(mha_cluster *cluster)
{
    if (!cluster) return NULL;
    cluster->model_ranks = (mha_model_ranks){.size = sizeof cluster->model_ranks,
                                             .rank = cluster->info.tp_rank,
                                             .ranks = cluster->info.tp,
                                             .exchange = exchange,
                                             .user = cluster};
    return &cluster->model_ranks;
}
