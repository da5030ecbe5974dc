/* host_layouts.h - plans the hosts for a model: lists the ways to divide one job among several hosts, with the
 * predicted memory and time per host, and finds the smallest that fits. It needs neither weights nor MPI; the jobs
 * themselves run in mha-mpi (docs/cluster.md).
 *
 *     mha_host_model model = {.size = sizeof model};
 *     mha_host_options options = {.size = sizeof options, .hosts = 8, .memory = 64LL << 30, .job = MHA_HOSTS_GENERATE};
 *     mha_host_layout rows[MHA_HOST_LAYOUTS];
 *     mha_host_choice choice;
 *     MHA_CHECK(mha_host_model_of_config(NULL, config_json, &model, &err));
 *     MHA_CHECK(mha_host_network_find("100gbe", &options.network, &err));
 *     MHA_CHECK(mha_host_speed_measure(NULL, &options.speed, &err));
 *     MHA_CHECK(mha_host_layouts(&model, &options, rows, &choice, &err));
 *
 * Each host runs one process (rank). The hosts form the grid of mha_cluster_info (cluster.h): the weights are divided
 * among tp hosts (heads of a layer, columns of its feed-forward, tokens of the vocabulary, each in 8 groups), the
 * tokens of a text among cp, and texts or batches among dp. A layout uses tp * cp * dp hosts. Pipelines of layers are
 * not supported.
 *
 * Time follows the alpha-beta model: a message of S bytes takes latency + S / bandwidth. An allreduce among P hosts
 * takes the shorter of ceil(log2 P) (latency + S / bandwidth), by recursive doubling, and 2 ceil(log2 P) latency +
 * 2 S (P - 1) / (P bandwidth), by reduce-scatter and all-gather. Computation takes the longer of its operations /
 * speed.flops and the bytes that it reads / speed.bandwidth. */
#ifndef MHA_HOST_LAYOUTS_H
#define MHA_HOST_LAYOUTS_H

#include "mha/head_layouts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the model ---- */

/* Shape of a model. `layers`, `hidden`, `heads`, `head_dim` and layer_weights have no default. */
typedef struct mha_host_model {
    size_t size;
    int64_t layers, hidden;            /* number of layers, 1..65536; width E, 1..2^20 */
    int64_t heads, kv_heads, head_dim; /* heads, head_dim: 1..2^20; kv_heads must divide `heads`, 0 = heads */
    int64_t feed_forward;              /* width of the feed-forward; 0 = 4 E */
    int gated;                         /* 1 = the feed-forward has a gate */
    int bidirectional;                 /* 1 = all tokens attend to each other, as in encoders */
    int64_t layer_weights;             /* elements of the matrices of all layers */
    int64_t output_weights;            /* elements of the output matrix (logits); 0 = no logits */
    int64_t word_weights;              /* elements of the word embeddings, which are stored in f32 */
    int64_t other_weights;             /* elements of norms, biases and other tables, which are stored in f32 */
    int tied;                          /* 1 = the output matrix is the word embeddings, stored twice */
    int undivided;                     /* 1 = the weights cannot be divided among hosts (model_ranks.h), so tp is 1 */
    int64_t cached_width;              /* elements that the cache stores per token and layer, 0..2^21; 0 = 2 kv_heads
                                          head_dim. In latent attention: kv_lora_rank + qk_rope_head_dim */
} mha_host_model;

/* Reads the shape from the content of config.json (model.h); no weights are needed. A pruned layer counts like a layer
 * with all heads. Errors: those of mha_model_open for config.json. */
MHA_API mha_status mha_host_model_of_config(mha_ctx *ctx, const char *config_json, mha_host_model *model,
                                            mha_error *err);
/* The shape of a planned model (head_layouts.h) with kv_heads key/value heads (0 = heads), a feed-forward part of
 * width 4 E without a gate, and tied embeddings. If options->parameters is 0, they are counted from the shape. */
MHA_API mha_status mha_host_model_of_layout(const mha_head_layout_options *options, int64_t kv_heads,
                                            mha_host_model *model, mha_error *err);

/* ---- hosts, network and job ---- */

typedef struct mha_host_network {
    double latency;   /* [s] latency of a message between two hosts (alpha), 0..10 */
    double bandwidth; /* [bytes/s] data rate between two hosts in one direction, 1..1e15 */
} mha_host_network;

/* X(key, latency [s], bandwidth [bytes/s], description): figures that MPI messages achieve, not nominal ones */
#define MHA_HOST_NETWORK_MAP(X)                     \
    X("1gbe", 50e-6, 0.117e9, "1 Gbit/s Ethernet")  \
    X("10gbe", 30e-6, 1.15e9, "10 Gbit/s Ethernet") \
    X("100gbe", 15e-6, 11e9, "100 Gbit/s Ethernet") \
    X("ib100", 2e-6, 12e9, "100 Gbit/s InfiniBand") \
    X("ib400", 1.5e-6, 48e9, "400 Gbit/s InfiniBand")

enum { MHA_HOST_NETWORKS = 5 };
/* Return the key, such as "1gbe", and the description of a network, 0 <= network < MHA_HOST_NETWORKS; NULL if out of
 * range. */
MHA_API const char *mha_host_network_key(int network);
MHA_API const char *mha_host_network_help(int network);
/* Finds a network by its key, or parses "LATENCY:BANDWIDTH" in seconds and bytes per second, such as "50e-6:117e6".
 * Errors: MHA_ERR_ARG with a message that contains the text. */
MHA_API mha_status mha_host_network_find(const char *text, mha_host_network *network, mha_error *err);

/* The speed that a model reaches on one host with all its threads. */
typedef struct mha_host_speed {
    double flops;     /* [1/s] rate of operations in matrix products, 1..1e18; a multiply-add is two operations */
    double bandwidth; /* [bytes/s] rate of reading weights from memory, 1..1e15 */
} mha_host_speed;

/* Measures this machine with machine_peak.h: `flops` is 3/4 of mha_machine_peak_fma, `bandwidth` is
 * mha_machine_peak_read of 64 MiB. Takes about 0.3 s and allocates 64 MiB. */
MHA_API mha_status mha_host_speed_measure(mha_ctx *ctx, mha_host_speed *speed, mha_error *err);

/* X(name, key, text): the jobs, whose commands in mha-mpi have the same names */
#define MHA_HOST_JOB_MAP(X)                                                               \
    X(MHA_HOSTS_HEADS, "heads", "statistics of heads over `batch` texts of `seq` tokens") \
    X(MHA_HOSTS_SCORE, "score", "a pass over a text of `seq` tokens, `batch` times")      \
    X(MHA_HOSTS_GENERATE, "generate", "the next token of `batch` texts of `seq` tokens")  \
    X(MHA_HOSTS_TRAIN, "train", "a training step of `workers` batches of `batch` x `seq` tokens")

typedef enum mha_host_job {
#define MHA__X(name, key, text) name,
    MHA_HOST_JOB_MAP(MHA__X)
#undef MHA__X
        MHA_HOST_JOBS
} mha_host_job;

/* Return the key, such as "score", and the description of a job; NULL if out of range. */
MHA_API const char *mha_host_job_key(mha_host_job job);
MHA_API const char *mha_host_job_help(mha_host_job job);

typedef struct mha_host_options {
    size_t size;
    int64_t hosts;            /* number of hosts, 1..65536 */
    int64_t memory;           /* [bytes] memory of one host that its process may use, at least 1 */
    mha_host_network network; /* not read if hosts is 1 */
    mha_host_speed speed;
    mha_host_job job;
    int64_t seq, batch; /* tokens per text, 1..2^32, 0 = 2048; number of texts, 1..2^32, 0 = 1 */
    /* Virtual workers of a training run (train.h), a power of two up to 65536; 0 = the largest up to `hosts` */
    int64_t workers;
    mha_dtype dtype;    /* type of the packed weights: f32 (default), bf16, f16 or q8_0 */
    mha_dtype kv_dtype; /* type of cached keys and values: f32, bf16 or f16; default: bf16 if dtype is
                           bf16 or q8_0, else f32 */
    mha_dtype moments;  /* type of the moments of a training run (train.h): f32 (default) or bf16 */
} mha_host_options;

/* ---- layouts ---- */

/* Predictions for one layout. Memory and time are those of the host with the most. Memory excludes pages of the model
 * file, which the system can drop, and the code and buffers of the program and of MPI (about 50 MB). */
typedef struct mha_host_layout {
    int64_t tp, cp, dp;
    const char *refused; /* reason why mha-mpi does not support the layout; NULL = supported */
    int fits;            /* 1 if `bytes` is at most options->memory */
    double weights;      /* [bytes] packed matrices and tables; training: weights, their packed form and gradients */
    double cache;        /* [bytes] cached keys and values of `generate`, and of `score` if the text is not divided */
    double activations;  /* [bytes] activations of a pass */
    double exchange;     /* [bytes] buffers for messages and for partial results */
    double optimizer;    /* [bytes] moments of `train`, and gradient sums that are not yet merged */
    double bytes;        /* [bytes] sum of the five fields above */
    double compute;      /* [s] computation */
    double hidden;       /* [s] messages during the computation, included in `compute` */
    double exposed;      /* [s] messages during which the host waits */
    double seconds;      /* [s] time of the job: compute + exposed */
    double tokens_per_second; /* throughput of all hosts together */
} mha_host_layout;

/* Predicts memory and time of one layout, even if mha-mpi does not support it. Errors: MHA_ERR_ARG for invalid fields,
 * naming the field and its value, and if tp, cp or dp is below 1 or their product exceeds options->hosts. */
MHA_API mha_status mha_host_layout_predict(const mha_host_model *model, const mha_host_options *options, int64_t tp,
                                           int64_t cp, int64_t dp, mha_host_layout *layout, mha_error *err);

typedef struct mha_host_choice {
    int count;    /* number of rows */
    int smallest; /* index of the row with the fewest hosts among those that fit, on ties the fastest; -1 = none */
    int fastest;  /* index of the row with the most tokens per second among those that fit; -1 = none */
    /* Job `score`: the number of tokens per host from which the exchange of keys is hidden behind the attention: bytes
     * of a key element * flops / (query heads per key head * bandwidth), half of that if bidirectional. 0 for other
     * jobs. */
    double hiding_tokens;
} mha_host_choice;

/* Lists the supported layouts of the job, sorted by hosts, then tp: powers of two, all hosts, and the smallest layout
 * that fits. */
enum { MHA_HOST_LAYOUTS = 128 };
MHA_API mha_status mha_host_layouts(const mha_host_model *model, const mha_host_options *options,
                                    mha_host_layout rows[MHA_HOST_LAYOUTS], mha_host_choice *choice, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
