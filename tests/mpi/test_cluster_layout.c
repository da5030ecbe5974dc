/* test_cluster_layout.c - tests how a sequence is distributed over ranks, and the arguments that attention over it must
 * reject or accept. */
#include "mpi/cluster_case.h"
#include <stdio.h>
#include <string.h>

/* ---- layout ---- */

static void check_layout(void)
{
    way = "layout";
    for (int cp = 1; cp <= 7; cp++)
        for (int64_t length = 0; length < 40000; length = length * 3 + 1) {
            int64_t all = 0, next = 0;
            for (int chunk = 0; chunk < 2 * cp; chunk++) {
                const int rank = chunk < cp ? chunk : 2 * cp - 1 - chunk;
                const mha_cluster_part p = mha_cluster_part_of(length, cp, rank);
                const int n = chunk >= cp;
                CHECK(p.start[n] == next && (p.length[n] % MHA_ATTN_CHUNK == 0 || p.start[n] + p.length[n] == length));
                next += p.length[n];
                all += p.length[n];
            }
            CHECK(all == length);
        }
    const mha_cluster_part none = mha_cluster_part_of(10, 2, 2);
    CHECK(none.length[0] == 0 && none.length[1] == 0 && mha_cluster_part_of(-1, 1, 0).length[0] == 0);
}

/* Given 4,096 positions of which the first 3,072 are one sequence, the most expensive of four chunks is the third, and
 * the cheapest is the last. */
static void check_packed_layout(void)
{
    const int64_t cu[] = {0, 3072, 3328, 3584, 4096}, one[] = {0, 16384}, wrong[] = {0, 9, 8, 8, 8};
    const mha_attn_desc d = {.size = sizeof d, .batch = 4, .causal = 1},
                        single = {.size = sizeof d, .batch = 1, .causal = 1};
    mha_cluster_part parts[4];
    way = "packed layout";
    CHECK(mha_cluster_packed_parts(&d, cu, 2, parts, &err) == MHA_OK);
    const mha_cluster_part want[2] = {{{2048, 3072}, {1024, 1024}}, {{0, 1024}, {1024, 1024}}};
    CHECK(memcmp(parts, want, sizeof want) == 0);
    CHECK(mha_cluster_packed_parts(&single, one, 4, parts, &err) == MHA_OK);
    for (int rank = 0; rank < 4; rank++) {
        const mha_cluster_part zigzag = mha_cluster_part_of(one[1], 4, rank);
        CHECK(memcmp(&parts[rank], &zigzag, sizeof zigzag) == 0);
    }
    CHECK(mha_cluster_packed_parts(&d, wrong, 2, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cu_seqlens must ascend from 0 (got 9 to 8)"));
    CHECK(mha_cluster_packed_parts(&d, cu, 0, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cp must be at least 1 (got 0)"));
    const mha_attn_desc negative = {.size = sizeof d, .batch = -1}, older = {.size = sizeof d.size, .batch = 4};
    CHECK(mha_cluster_packed_parts(&negative, cu, 2, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "batch must be at least 0 (got -1)"));
    CHECK(mha_cluster_packed_parts(&older, wrong, 2, parts, &err) == MHA_OK); /* a struct without the field batch */
    CHECK(mha_cluster_packed_parts(&d, NULL, 2, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cu_seqlens must not be NULL"));
}

/* ---- rejected arguments ---- */

static void check_packed_refusals(void)
{
    float x[16] = {0};
    const int64_t cu[] = {0, 1}, longer[] = {0, 2};
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 1,
                       .heads = 1,
                       .q_len = 1,
                       .kv_len = 1,
                       .head_dim = 4,
                       .inputs = MHA_ATTN_CU_SEQLENS};
    mha_attn_args a = {
        .size = sizeof a, .q.data = x, .k.data = x + 4, .v.data = x + 8, .out.data = x + 12, .cu_seqlens_q = cu};
    way = "packed refusals";
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cu_seqlens_k must not be NULL"));
    a.cu_seqlens_k = longer;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message,
                 "cu_seqlens_k must begin with 0, and sequence 0 must have from 0 to 1 positions (got 0 to 2)"));
    a.cu_seqlens_k = cu;
    d.inputs |= MHA_ATTN_KEEP;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "for packed sequences distributed over ranks (got 0x11)"));
}

static void check_refusals(void)
{
    float x[16] = {0};
    int64_t lens[1] = {9};
    way = "refusals";
    mha_attn_desc d = {.size = sizeof d, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 4};
    mha_attn_args a = {.size = sizeof a, .q.data = x, .k.data = x + 4, .v.data = x + 8, .out.data = x + 12};
    mha_attn_grads g = {.size = sizeof g, .dout.data = x, .out.data = x, .lse.data = x, .dsinks.data = x};
    CHECK(mha_cluster_attention(NULL, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_attention(cluster, ctx, (mha_cluster_mode)9, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "mode must be one of ring, tree, ordered (got 9)"));
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d, &a, NULL, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d, &a, &g, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "outputs must have MHA_ATTN_GRADS (got 0x0)"));
    d.outputs = MHA_ATTN_GRADS;
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d, &a, &g, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "dslopes, dsinks, dgates and row_taylor must be NULL"));
    d.outputs = MHA_ATTN_STATS;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_UNSUPPORTED);
    d.outputs = 0;
    d.inputs = MHA_ATTN_KV_LENS;
    a.kv_lens = lens;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "kv_lens[0] must be from 0 to 1 (got 9)"));
    d.inputs = 0;
    d.head_dim = 0;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    char begins[96];
    snprintf(begins, sizeof begins, "rank %d (%s): head_dim", me->rank, mha_cluster_host(cluster, me->rank));
    CHECK(strncmp(err.message, begins, strlen(begins)) == 0);
}

/* Structs of newer headers must be accepted if their additional fields are zero, and rejected otherwise. */
static void check_newer_structs(void)
{
    float x[5][4] = {{1, 2, 3, 4}, {1, 1, 1, 1}, {2, 3, 5, 7}}, lse = 0;
    const int rows = me->rank == 0;
    way = "newer structs";
    struct {
        mha_attn_desc known;
        int64_t later;
    } d = {.known = {sizeof d, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 4}};
    struct {
        mha_attn_args known;
        int64_t later;
    } a = {.known = {sizeof a, .q.data = x[0], .k.data = x[1], .v.data = x[2], .out.data = x[3], .lse.data = &lse}};
    struct {
        mha_attn_grads known;
        int64_t later;
    } g = {.known = {sizeof g, .dout.data = x[0], .out.data = x[3], .lse.data = &lse, .dv.data = x[4]}};
    d.known.outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_TREE, &d.known, &a.known, &err) == MHA_OK);
    CHECK(!rows || memcmp(x[3], x[2], sizeof x[2]) == 0);
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d.known, &a.known, &g.known, &err) == MHA_OK);
    CHECK(!rows || memcmp(x[4], x[0], sizeof x[0]) == 0);
    g.later = 1;
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d.known, &a.known, &g.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_attn_grads.size must be at most "));
    a.later = 1;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_TREE, &d.known, &a.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_attn_args.size must be at most "));
    d.later = 1;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_TREE, &d.known, &a.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_attn_desc.size must be at most "));
}

int main(void)
{
    int provided, ranks;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    cluster_begin(&(mha_cluster_options){
        .size = sizeof(mha_cluster_options), .cp = ranks, .timeout = 120, .message_bytes = 100000});
    check_layout();
    check_packed_layout();
    check_refusals();
    check_packed_refusals();
    check_newer_structs();
    cluster_end();
    MPI_Finalize();
    return 0;
}
