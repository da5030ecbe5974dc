/* cluster_case.h - the cluster of all ranks in tests of operations on distributed sequences, and checks that end the
 * job of all ranks. */
#ifndef TEST_CLUSTER_CASE_H
#define TEST_CLUSTER_CASE_H

#include "mha/cluster.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static mha_cluster *cluster;
static mha_ctx *ctx;
static const mha_cluster_info *me;
static mha_error err;
static const char *way = "start"; /* what is being tested */

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            printf("FAIL: rank %d: %s: line %d: %s (%s)\n", me->rank, way, __LINE__, #condition, err.message); \
            fflush(stdout);                                                                                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                      \
        }                                                                                                      \
    } while (0)

/* Opens the cluster and its context. */
static inline void cluster_begin(const mha_cluster_options *options)
{
    if (mha_cluster_open(options, &cluster, &err) != MHA_OK) {
        printf("FAIL: %s\n", err.message);
        exit(1);
    }
    me = mha_cluster_describe(cluster);
    CHECK(mha_cluster_ctx_create(cluster, NULL, 0, &ctx, &err) == MHA_OK);
}

static inline void cluster_end(void)
{
    mha_ctx_free(ctx);
    mha_cluster_free(cluster);
}

#endif
