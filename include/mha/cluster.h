/* cluster.h - computes one result with several processes, on one machine or several: libmha_mpi, built on MPI.
 *
 * MPI starts the processes (ranks), connects them and transfers data; this library divides the work. It uses only the
 * public headers of mha; no other part of mha depends on libmha_mpi or MPI. libmha_mpi is built if `mpicc` is found.
 *
 *     mha_cluster *cluster;
 *     mha_ctx *ctx;
 *     if (mha_cluster_open(NULL, &cluster, &err) != MHA_OK) ...
 *     mha_cluster_ctx_create(cluster, NULL, 0, &ctx, &err);         uses an ISA that all ranks support
 *     ...
 *     mha_ctx_free(ctx);
 *     mha_cluster_free(cluster);
 *
 * Collective functions must be called by all ranks in the same order, as in MPI; their comments begin with
 * "Collective". All functions must be called on the thread that opened the cluster (MPI_THREAD_FUNNELED).
 *
 * Failures: an error message begins with "rank R (HOST): ", which names the rank that failed. A failed transfer, or a
 * peer that is silent for `timeout` seconds, is MHA_ERR_IO. The cluster cannot be used afterwards, because transfers
 * may still be in progress; their memory is not freed. The program should then print the message and call
 * mha_cluster_abort, which aborts all ranks. MPI's own initialization and finalization, in mha_cluster_open and
 * mha_cluster_free, wait for every rank without a timeout. */
#ifndef MHA_CLUSTER_H
#define MHA_CLUSTER_H

#include "mha/attn_grads.h"
#include "mha/train_ranks.h"
#include "mha/work.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_cluster mha_cluster;

enum { MHA_CLUSTER_TIMEOUT = 300 }; /* [s] default timeout */

typedef struct mha_cluster_options {
    size_t size;
    /* own_comm = 1: use a duplicate of the communicator with the MPI_Comm_c2f handle `comm`; 0: use MPI_COMM_WORLD. */
    int own_comm;
    int comm;
    /* Sizes of the grid (see mha_cluster_info); 0 = 1. tp * cp must divide the number of ranks. cp = -1 means the
     * number of ranks divided by tp. */
    int tp, cp;
    double timeout; /* [s] how long this rank waits for a silent peer; 0 = MHA_CLUSTER_TIMEOUT */
    /* [bytes] maximum size of a message, because MPI counts are int; longer transfers are split. 0 = 2^30, the
     * maximum. */
    int64_t message_bytes;
    double record_pause; /* [s] interval between records of a journal (see mha_cluster_work); 0 = 10 */
} mha_cluster_options;

/* The position of this rank in the cluster. The ranks form a grid: the heads of a layer are distributed over tp
 * consecutive ranks (tensor parallel), a sequence over cp such groups (context parallel), and the data over dp copies
 * of these cp groups: rank = (dp_rank * cp + cp_rank) * tp + tp_rank. Assign consecutive ranks to each host, as mpirun
 * does by default, so that a tp group runs on a single host if that host has enough CPUs. Only the library creates this
 * struct; later versions may add fields at the end. */
typedef struct mha_cluster_info {
    int rank, ranks;
    int tp, cp, dp;                /* dimensions of the grid */
    int tp_rank, cp_rank, dp_rank; /* index of this rank in its groups */
    int hosts, host;               /* number of hosts; index of this rank's host */
    int host_rank, host_ranks;     /* index of this rank on its host; number of ranks on that host */
} mha_cluster_info;

/* Collective. Initializes MPI unless the program has already initialized it, and determines the hosts and the grid.
 * Checks that the library version and `options` are the same on all ranks. `options` may be NULL. Errors: MHA_ERR_ARG
 * naming the option and its value, or the rank that differs; MHA_ERR_UNSUPPORTED for an MPI without
 * MPI_THREAD_FUNNELED; MHA_ERR_IO, MHA_ERR_MEMORY. */
MHA_API mha_status mha_cluster_open(const mha_cluster_options *options, mha_cluster **out, mha_error *err);
/* Collective. Finalizes MPI if mha_cluster_open initialized it; MPI cannot be used again in this process afterwards. */
MHA_API void mha_cluster_free(mha_cluster *cluster);
/* Not collective. Aborts all ranks with exit status `code` (1..255). Does not return unless `cluster` is NULL. If
 * MPI_Abort does not end this rank within 10 s, because mpirun does not respond, SIGALRM ends it. */
MHA_API void mha_cluster_abort(mha_cluster *cluster, int code);

/* Returns 1 after a failed transfer or a timeout; afterwards, only mha_cluster_abort and mha_cluster_free may be
 * called. */
MHA_API int mha_cluster_broken(const mha_cluster *cluster);
MHA_API const mha_cluster_info *mha_cluster_describe(const mha_cluster *cluster);
/* Returns the name of the host that `rank` runs on, as the host reports it; NULL if `rank` is out of range. */
MHA_API const char *mha_cluster_host(const mha_cluster *cluster, int rank);

/* Collective. Each rank passes its own status and, if the status is not MHA_OK, the message in `err` (not NULL). On all
 * ranks, returns the status of the first rank that failed, with its message prefixed by its rank and host. */
MHA_API mha_status mha_cluster_agree(mha_cluster *cluster, mha_status status, mha_error *err);
/* Collective. Checks that the `bytes` bytes of `data` are identical on all ranks; otherwise returns MHA_ERR_ARG on all
 * ranks, naming `what` and the first rank that differs from rank 0. Compares digests, which detect accidental
 * differences but not forged ones. */
MHA_API mha_status mha_cluster_same(mha_cluster *cluster, const char *what, const void *data, size_t bytes,
                                    mha_error *err);
/* Collective. Copies `bytes` bytes of `data` from `rank` to all ranks. `bytes` must be the same on all ranks. */
MHA_API mha_status mha_cluster_broadcast(mha_cluster *cluster, int rank, void *data, size_t bytes, mha_error *err);
/* Collective. Waits until `rank` has called this function. The other ranks sleep until then, without a timeout. */
MHA_API mha_status mha_cluster_wait_for(mha_cluster *cluster, int rank, mha_error *err);
/* Collective. Replaces each of the `count` integers with its sum over all ranks, modulo 2^64. Only integers are
 * supported, because floating-point sums would depend on the number of ranks. */
MHA_API mha_status mha_cluster_sum(mha_cluster *cluster, int64_t *values, int64_t count, mha_error *err);

/* Collective. Creates a context for this rank; `options` are those of mha_ctx_create. Results differ between ISAs, so
 * if ranks would use different ISAs, all ranks use the newest ISA that every rank's CPU and options permit. Rank 0 then
 * logs a warning that names this ISA and a host that does not support a newer one. With `mixed_isa` = 1, each rank uses
 * its own ISA. The context's between_tiles callback drives the transfers of this cluster and then calls
 * options->between_tiles, so the cluster must outlive the context. If threads is 0 and MHA_THREADS is unset, ranks on
 * one host that are not bound to CPUs divide the CPUs among themselves. */
MHA_API mha_status mha_cluster_ctx_create(mha_cluster *cluster, const mha_ctx_options *options, int mixed_isa,
                                          mha_ctx **out, mha_error *err);

/* ---- measurements divided among all ranks ---- */

/* Returns the callbacks of this cluster for a measurement (work.h), valid until the cluster is freed; NULL if the
 * cluster is NULL or out of memory. All ranks must make the same call, such as
 *
 *     mha_head_data_options options = {.size = sizeof options, .work = mha_cluster_work(cluster)};
 *     mha_head_data_of_texts(model, texts, count, &options, &data, &err);
 *     mha_heads_measure_data(model, data, NULL, &heads, &err);
 *
 * Rank 0 assigns the steps to the ranks one by one, in ascending order, so that no rank idles. Results are added as
 * integers, so all ranks get a result bitwise identical to that of one process. At the start, the ranks compare model,
 * ISA, data and options; an error names what differs.
 *
 * Progress: with a state file FILE, rank R appends its results to FILE.R every `record_pause` seconds. At the start,
 * the ranks together read all journals, regardless of how many ranks wrote them, and finished steps are not repeated. A
 * truncated journal is used up to its last valid record. The files must be on a file system that all hosts share.
 *
 * Failures: a rank that fails before or during the measurement must call mha_cluster_agree with its error. On all
 * other ranks, the measurement then returns this error, and their next mha_cluster_agree returns it immediately.
 * Each rank can therefore call mha_cluster_agree once after the measurement, whether or not it succeeded. A rank
 * that needs longer than the timeout for one step counts as silent. */
MHA_API const mha_work *mha_cluster_work(mha_cluster *cluster);

/* ---- a training run divided among all ranks ---- */

/* Returns the callbacks of this cluster for a training run (train.h), valid until the cluster is freed; NULL if the
 * cluster is NULL or out of memory. The number of ranks must be a power of two. All ranks must make the same calls:
 *
 *     mha_train_options options = {.size = sizeof options, .workers = 8, .ranks = mha_cluster_train(cluster)};
 *     mha_trainer_create(model, &options, &trainer, &err);
 *     mha_trainer_step(trainer, batches, count, &report, &err);
 *
 * The gradients are added in the tree of the virtual workers, so the weights are bitwise identical for any number of
 * ranks up to `workers`. With MHA_REDUCE_FAST, MPI adds them during the backward pass (MPI_Iallreduce). Per step, a
 * rank sends and receives about one vector of all gradients (two with MHA_REDUCE_FAST) and one vector of all weights.
 *
 * Failures are those of mha_cluster_work: a rank that fails outside these functions must call mha_cluster_agree with
 * its error. The other ranks get this error from their next step or save. Each rank may call mha_cluster_agree once
 * after any failure. A rank that needs longer than the timeout for the batches of a step counts as silent. Between two
 * steps, and before a save, the other ranks wait as long as rank 0 computes; rank 0 counts as silent if it runs no call
 * on its context (mha_cluster_ctx_create) for the timeout, for example while it writes files. */
MHA_API const mha_train_ranks *mha_cluster_train(mha_cluster *cluster);

/* ---- attention over a sequence divided among the ranks of a cp group ---- */

/* The positions of one rank: chunk cp_rank and chunk 2 cp - 1 - cp_rank of 2 cp chunks (zig-zag), so that causal
 * attention requires the same work on all ranks. All chunks have the same length, a multiple of MHA_ATTN_CHUNK, but the
 * last chunks may be shorter or empty. The rank's tensors contain the first chunk, then the second. All fields are 0
 * for invalid arguments. */
typedef struct mha_cluster_part {
    int64_t start[2], length[2];
} mha_cluster_part;
MHA_API mha_cluster_part mha_cluster_part_of(int64_t length, int cp, int cp_rank);

/* Sets parts[0..cp - 1] to the positions of the ranks for packed sequences (MHA_ATTN_CU_SEQLENS), whose last chunks do
 * not necessarily require the most work. The chunks are those of mha_cluster_part_of for the length cu_seqlens[batch],
 * but they are paired by cost: the most expensive chunk with the cheapest, and so on. The cost of a chunk is the number
 * of keys that desc->causal and desc->window allow its rows to attend to, if rows and keys have the same lengths. The
 * full chunks of a single sequence are paired as by mha_cluster_part_of. `cu_seqlens` [batch + 1] are those of the rows
 * or of the keys; equal arrays give equal parts. Errors: MHA_ERR_ARG naming the field and its value, MHA_ERR_MEMORY. */
MHA_API mha_status mha_cluster_packed_parts(const mha_attn_desc *desc, const int64_t *cu_seqlens, int cp,
                                            mha_cluster_part *parts, mha_error *err);

/* How keys and values are exchanged between ranks.
 *
 *   ring     keys and values are passed from rank to rank, and partial results are merged as soon as they are computed.
 *            Bitwise reproducible for a given cp. Memory: twice the keys and values of a rank, and two partial results
 *            of its rows
 *   tree     like ring, but partial results are merged in the operator's tree: bitwise identical to one process.
 *            Memory: like ring, but with one partial result of the rank's rows per subtree of keys (mha_attn_subtree)
 *            that is not merged yet: 3 with 4 ranks, growing slowly with cp
 *   ordered  all ranks receive all keys of one KV head at a time, while the previous head is computed: bitwise
 *            identical to one process. Memory: the keys and values of three KV heads of the whole sequence */
typedef enum mha_cluster_mode { MHA_CLUSTER_RING = 0, MHA_CLUSTER_TREE, MHA_CLUSTER_ORDERED } mha_cluster_mode;

/* Collective over the ranks of a cp group. `desc` describes the call over the whole sequence (q_len, kv_len and lengths
 * included). `args` contains this rank's part: for q, out and lse, the rows of mha_cluster_part_of(q_len); for k and v,
 * the keys of mha_cluster_part_of(kv_len); for keep and bias, the rank's rows and all keys. All other inputs cover the
 * whole sequence. Packed sequences are divided by mha_cluster_packed_parts instead, once for cu_seqlens_q and once for
 * cu_seqlens_k; all modes then compute the call as `ordered`. `ctx` must be created by mha_cluster_ctx_create, so that
 * transfers progress between tiles.
 *
 * Key chunks that no row of a rank attends to (causal, window) are skipped. Supported inputs: keep, bias, lengths,
 * prefix lengths, slopes, sinks, gates; dropout; and packed sequences, without keep, bias and lengths. Outputs: out
 * and lse. Errors: those of mha_attn_plan_create and mha_attn_forward; MHA_ERR_UNSUPPORTED for other inputs and
 * outputs and for q8_0. If one rank fails, the other ranks keep waiting, so the failed rank must call
 * mha_cluster_abort. The function allocates its buffers. */
MHA_API mha_status mha_cluster_attention(mha_cluster *cluster, mha_ctx *ctx, mha_cluster_mode mode,
                                         const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err);

/* Runs the backward pass of mha_cluster_attention: dout, out, lse, dlse, dq and dbias contain the rows of this rank
 * (dbias with all keys), dk and dv its keys. dlse must be passed on all ranks or on none. dq, dk, dv and dbias are
 * bitwise identical to those of one process that calls mha_attention_backward. For each KV head, all ranks receive the
 * keys and rows of the whole sequence and compute dq of their rows, and dk and dv of their keys: 7 products instead of
 * 5. With dk or dv, keep and bias must be the same for all rows (stride[2] = 0). MHA_ERR_UNSUPPORTED for dslopes,
 * dsinks, dgates and row_taylor. */
MHA_API mha_status mha_cluster_attention_backward(mha_cluster *cluster, mha_ctx *ctx, const mha_attn_desc *desc,
                                                  const mha_attn_args *args, const mha_attn_grads *grads,
                                                  mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
