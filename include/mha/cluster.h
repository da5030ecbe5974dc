/* cluster.h - several processes, on one machine or on many, that compute one result: libmha_mpi, on top of MPI.
 *
 * MPI starts the processes (ranks), connects them and moves bytes; this library divides the work. It uses the public
 * headers of mha alone, and nothing else of mha needs it or MPI. It is built where `mpicc` is found.
 *
 *     mha_cluster *cluster;
 *     mha_ctx *ctx;
 *     if (mha_cluster_open(NULL, &cluster, &err) != MHA_OK) ...
 *     mha_cluster_ctx_create(cluster, NULL, 0, &ctx, &err);         the ISA that all ranks have
 *     ...
 *     mha_ctx_free(ctx);
 *     mha_cluster_free(cluster);
 *
 * Collective functions must be called by all ranks in the same order, as in MPI; each says that it is collective. All
 * functions must be called on the thread that opened the cluster (MPI_THREAD_FUNNELED).
 *
 * Failures: a message begins with "rank R (HOST): ", the rank that failed. A failed transfer, or a peer that is silent
 * for `timeout` seconds, is MHA_ERR_IO. The cluster cannot be used afterwards: transfers may be under way, and their
 * memory is not freed. Such a program prints the message and calls mha_cluster_abort, which ends all ranks. MPI's own
 * start and end, in mha_cluster_open and mha_cluster_free, wait for every rank without a timeout. */
#ifndef MHA_CLUSTER_H
#define MHA_CLUSTER_H

#include "mha/attn_grads.h"
#include "mha/work.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_cluster mha_cluster;

enum { MHA_CLUSTER_TIMEOUT = 300 }; /* [s] */

typedef struct mha_cluster_options {
    size_t size;
    /* The ranks: MPI_Comm_c2f of a communicator, which is duplicated, with own_comm = 1; else MPI_COMM_WORLD. */
    int own_comm;
    int comm;
    /* Sizes of the grid, see mha_cluster_info. 0 = 1; tp * cp must divide the number of ranks. */
    int tp, cp;
    double timeout; /* [s] without a sign of life from a peer that is waited for; 0 = MHA_CLUSTER_TIMEOUT */
    /* Bytes of the largest message, as MPI counts are int; longer transfers are divided. 0 = 2^30, the maximum. */
    int64_t message_bytes;
    double record_pause; /* [s] between records of a journal, see mha_cluster_work; 0 = 10 */
} mha_cluster_options;

/* Who and where this rank is. The ranks form a grid: groups of tp consecutive ranks share the heads of a layer (tensor
 * parallel), cp such groups share a sequence (context parallel), and dp copies of that share the data:
 * rank = (dp_rank * cp + cp_rank) * tp + tp_rank. Place the ranks of a host consecutively, as mpirun does by default,
 * so that tp groups stay on a host where they fit. */
typedef struct mha_cluster_info {
    int rank, ranks;
    int tp, cp, dp;                /* sizes */
    int tp_rank, cp_rank, dp_rank; /* place of this rank in its groups */
    int hosts, host;               /* number of hosts; index of this rank's host */
    int host_rank, host_ranks;     /* place of this rank among the ranks of its host, and their number */
} mha_cluster_info;

/* Collective. Initializes MPI unless the program has, finds the hosts and lays out the grid. Compares the version of
 * the library and `options` over all ranks. `options` may be NULL. Errors: MHA_ERR_ARG naming the option and its value,
 * or the rank that differs; MHA_ERR_UNSUPPORTED for an MPI without MPI_THREAD_FUNNELED; MHA_ERR_IO, MHA_ERR_MEMORY. */
MHA_API mha_status mha_cluster_open(const mha_cluster_options *options, mha_cluster **out, mha_error *err);
/* Collective. Finalizes MPI if mha_cluster_open initialized it; then MPI cannot be used again in this process. */
MHA_API void mha_cluster_free(mha_cluster *cluster);
/* Not collective. Ends the processes of all ranks, with exit status `code` (1..255). Does not return, unless the
 * cluster is NULL. */
MHA_API void mha_cluster_abort(mha_cluster *cluster, int code);

/* 1 after a failed transfer or a timeout: only mha_cluster_abort and mha_cluster_free may be called then. */
MHA_API int mha_cluster_broken(const mha_cluster *cluster);
MHA_API const mha_cluster_info *mha_cluster_describe(const mha_cluster *cluster);
/* The name of the host that `rank` runs on, as the host calls itself; NULL out of range. */
MHA_API const char *mha_cluster_host(const mha_cluster *cluster, int rank);

/* Collective. Each rank passes its own status, and in `err` (not NULL) the message if that is not MHA_OK. Returns on
 * all ranks the status of the first rank that failed, and its message, which begins with its rank and host. */
MHA_API mha_status mha_cluster_agree(mha_cluster *cluster, mha_status status, mha_error *err);
/* Collective. MHA_ERR_ARG on all ranks unless `bytes` bytes of `data` are the same on all, naming `what` and the first
 * rank that differs from rank 0. Compares a digest: accidental differences are found, not forged ones. */
MHA_API mha_status mha_cluster_same(mha_cluster *cluster, const char *what, const void *data, size_t bytes,
                                    mha_error *err);
/* Collective. Copies `bytes` bytes of `data` from `rank` to all ranks. `bytes` must be the same on all. */
MHA_API mha_status mha_cluster_broadcast(mha_cluster *cluster, int rank, void *data, size_t bytes, mha_error *err);
/* Collective. Returns when `rank` has called it. The other ranks sleep until then, without a timeout. */
MHA_API mha_status mha_cluster_wait_for(mha_cluster *cluster, int rank, mha_error *err);
/* Collective. Replaces each of the `count` integers by its sum over all ranks, modulo 2^64. Integers, because the bits
 * of a sum of floating-point numbers would depend on the number of ranks. */
MHA_API mha_status mha_cluster_sum(mha_cluster *cluster, int64_t *values, int64_t count, mha_error *err);

/* Collective. Creates a context for this rank, `options` as for mha_ctx_create. Different ISAs give different bits:
 * where ranks would use different ones, all use the newest that each rank's CPU and options permit, and the log of rank
 * 0 gets a warning that names it and a host without the newer one. With `mixed_isa` = 1 each rank uses its own. The
 * context's callback between tiles drives the transfers of this cluster, which must outlive the context, and then calls
 * options->between_tiles. With threads = 0 and without MHA_THREADS, ranks of one host that are not bound to CPUs
 * divide them. */
MHA_API mha_status mha_cluster_ctx_create(mha_cluster *cluster, const mha_ctx_options *options, int mixed_isa,
                                          mha_ctx **out, mha_error *err);

/* ---- measurements whose steps all ranks share ---- */

/* The callbacks of this cluster for a measurement (work.h), valid until the cluster is freed; NULL for a NULL cluster
 * or without memory. All ranks make the same call, such as
 *
 *     mha_heads_options options = {.size = sizeof options, .work = mha_cluster_work(cluster)};
 *     mha_heads_measure_data(model, data, &options, &heads, &err);
 *
 * Rank 0 hands out the steps, in ascending order, so that no rank idles; results are added as integers, so that all
 * ranks get the bits of one process. At the start the ranks compare model (ISA included), data and options; the one
 * that differs is named.
 *
 * Progress: with a state file FILE, rank R appends its results to FILE.R every `record_pause` seconds. Any number of
 * ranks reads all of them at the start and does not repeat finished steps; a journal that was cut is used up to its
 * last good record. The files must be on a file system that all hosts share.
 *
 * Failures: a rank that fails before or during the measurement calls mha_cluster_agree with its failure. All other
 * ranks then get it from the measurement, as its error, and their next mha_cluster_agree returns it at once. So each
 * rank can call mha_cluster_agree once after the measurement, however it ended. A rank that needs longer than the
 * timeout for one step counts as silent. */
MHA_API const mha_work *mha_cluster_work(mha_cluster *cluster);

/* ---- attention over a sequence that the ranks of a cp group share ---- */

/* The positions that one rank holds: chunk cp_rank and chunk 2 cp - 1 - cp_rank of 2 cp chunks (zig-zag), so that
 * causal attention is the same work on all ranks. Chunks have the same number of MHA_ATTN_CHUNK positions; the last
 * ones may be shorter or empty. The rank's tensors have the first chunk, then the second. All zero for invalid
 * arguments. */
typedef struct mha_cluster_part {
    int64_t start[2], length[2];
} mha_cluster_part;
MHA_API mha_cluster_part mha_cluster_part_of(int64_t length, int cp, int cp_rank);

/* How keys and values reach the rows of other ranks.
 *
 *   ring     they travel from rank to rank, and results are merged as they arrive. The same bits in every run with the
 *            same cp. Memory: twice the keys and values of a rank, and two partial results of its rows
 *   tree     the same, and results are merged in the operator's tree: bitwise identical to one process. Memory: a
 *            partial result of the rank's rows for each subtree of keys (mha_attn_subtree), at least 2 cp
 *   ordered  all keys of one KV head come to all ranks, those of the next head while one is computed: bitwise
 *            identical. Memory: the keys and values of three KV heads of the whole sequence */
typedef enum mha_cluster_mode { MHA_CLUSTER_RING = 0, MHA_CLUSTER_TREE, MHA_CLUSTER_ORDERED } mha_cluster_mode;

/* Collective for the ranks of a cp group. `desc` describes the call over the whole sequence (q_len, kv_len and lengths
 * are those of the whole). `args` has the part of this rank: q, out and lse the rows of mha_cluster_part_of(q_len), k
 * and v the keys of mha_cluster_part_of(kv_len), keep and bias its rows and all keys; the rest is whole. `ctx` comes
 * from mha_cluster_ctx_create, so that transfers progress between tiles.
 *
 * Chunks of keys to which no row of a rank attends (causal, window) are not computed. Supported inputs: keep, bias,
 * lengths, prefix lengths, slopes, sinks, gates; dropout. Outputs: out and lse. Errors: those of mha_attn_plan_create
 * and mha_attn_forward; MHA_ERR_UNSUPPORTED for other inputs and outputs and for q8_0. A rank that fails alone leaves
 * the others waiting, so it must end the job. Allocates its buffers. */
MHA_API mha_status mha_cluster_attention(mha_cluster *cluster, mha_ctx *ctx, mha_cluster_mode mode,
                                         const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err);

/* The backward pass, likewise: dout, out, lse, dlse, dq and dbias have the rows of this rank (dbias all keys), dk and
 * dv its keys; dlse is given on all ranks or on none. dq, dk, dv and dbias are bitwise those of one process that calls
 * mha_attention_backward. For each KV head, the keys and rows of the whole sequence come to all ranks, which compute dq
 * of their rows, and dk and dv of their keys: 7 products instead of 5. With dk or dv, keep and bias must be the same
 * for all rows (stride[2] = 0). MHA_ERR_UNSUPPORTED for dslopes, dsinks, dgates and row_taylor. */
MHA_API mha_status mha_cluster_attention_backward(mha_cluster *cluster, mha_ctx *ctx, const mha_attn_desc *desc,
                                                  const mha_attn_args *args, const mha_attn_grads *grads,
                                                  mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
