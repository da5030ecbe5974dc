/* head_layouts.h - plans the attention heads of a new model. Lists the head layouts that are possible for a model
 * width, with their cost in parameters, operations, cache and time on this machine, and recommends one.
 *
 * All projections are E -> E, as in the PyTorch walk-throughs (docs/tours.md), unless keys and values are shared.
 * `parameters` counts the attention of one layer; operations, cache and times cover all layers.
 *
 *     mha_head_layout_options model = {
 *         .size = sizeof model, .d_model = 768, .layers = 12, .vocab = 50257, .seq = 1024};
 *     mha_head_layout rows[MHA_HEAD_LAYOUTS];
 *     int count;
 *     MHA_CHECK(mha_head_layouts(&model, rows, &count, &err)); */
#ifndef MHA_HEAD_LAYOUTS_H
#define MHA_HEAD_LAYOUTS_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, text) */
#define MHA_HEAD_LAYOUT_VARIANT_MAP(X)                                                                   \
    X(MHA_HEAD_LAYOUT_MHA, "mha", "each query head has its own keys and values")                         \
    X(MHA_HEAD_LAYOUT_PRUNED, "pruned", "the least important heads are removed permanently")             \
    X(MHA_HEAD_LAYOUT_DYNAMIC, "dynamic", "a predictor selects the heads that run for each sequence")    \
    X(MHA_HEAD_LAYOUT_GQA, "gqa", "each group of query heads shares one key/value head")                 \
    X(MHA_HEAD_LAYOUT_MQA, "mqa", "all query heads share one key/value head")                            \
    X(MHA_HEAD_LAYOUT_MOE, "moe", "heads are experts; a router selects top_k of them for each sequence") \
    X(MHA_HEAD_LAYOUT_ADAPTIVE, "adaptive", "a predictor selects the number of heads for each sequence")

typedef enum mha_head_layout_variant {
#define MHA__X(name, key, text) name,
    MHA_HEAD_LAYOUT_VARIANT_MAP(MHA__X)
#undef MHA__X
        MHA_HEAD_LAYOUT_VARIANTS
} mha_head_layout_variant;

/* Return the key, such as "mha", and the description of a variant; NULL if out of range. */
MHA_API const char *mha_head_layout_variant_key(mha_head_layout_variant variant);
MHA_API const char *mha_head_layout_variant_help(mha_head_layout_variant variant);

/* Options of the planned model. Only d_model has no default. */
typedef struct mha_head_layout_options {
    size_t size;
    int64_t d_model;    /* E, 1..2^20 */
    int64_t heads;      /* query heads; must divide E; 0 = chosen for a head width near 64, or near 128 if E >= 2048 */
    int64_t layers;     /* number of layers, 1..65536; 0 = E / 128, at least 12 */
    int64_t vocab;      /* vocabulary size, 1..2^31; 0 = 32000 */
    int64_t seq, batch; /* tokens per sequence, 1..2^32, 0 = 2048; number of sequences, 1..2^20, 0 = 1 */
    mha_dtype dtype;    /* type of keys and values: f32 (default), bf16 or f16 */
    int64_t parameters; /* parameters of the whole model; 0 = estimated as layers 12 E^2 + vocab E */
    double prune;       /* fraction of heads that are pruned, above 0, below 1; 0 = 0.25 */
    int64_t experts;    /* number of experts in MoE, 1..2^20; 0 = heads */
    int64_t top_k;      /* experts per sequence, at most `experts`; 0 = 2, or 1 if `experts` is 1 */
} mha_head_layout_options;

/* Number of elements in the projections of one layer. `extra` counts the other parameters of a variant: predictor or
 * router. */
typedef struct mha_head_layout_parameters {
    int64_t q, k, v, out, extra, total;
} mha_head_layout_parameters;

typedef struct mha_head_layout {
    mha_head_layout_variant variant;
    const char *left_out;    /* reason why the model cannot have this variant; NULL = all other fields are set */
    const char *refused;     /* reason why this library does not support the variant; NULL = supported */
    int64_t heads, head_dim; /* query heads (MoE: experts) that run per sequence, and their width */
    int64_t kv_groups;       /* query heads per key/value head */
    int64_t kv_heads;        /* key/value heads in the cache */
    mha_head_layout_parameters weights, biases;
    double reduction;                   /* 1 - weights.total / (4 E^2); negative if the variant has more weights than 4
                                         * E^2 */
    double project_flops, attend_flops; /* operations of a causal prefill of all sequences */
    int64_t kv_bytes;                   /* size of the cached keys and values of all sequences [bytes] */
    double prefill, decode;             /* time [s], set by mha_head_layout_measure */
} mha_head_layout;

/* Checks the options and replaces zeros with the defaults, for display. All other functions of this header do this
 * internally. Errors: MHA_ERR_ARG, naming the field and its value. */
MHA_API mha_status mha_head_layout_resolve(const mha_head_layout_options *options, mha_head_layout_options *resolved,
                                           mha_error *err);

/* Lists all layouts with 1, 2, 4, 8, 12, 16, 24, 32 or 64 query heads, in groups of 1, 2, 4 or 8, whose sizes divide
 * evenly. Writes *count rows, sorted by ascending number of parameters. Their variant is mha, gqa or mqa. Errors:
 * MHA_ERR_ARG for invalid options, and for a cache whose size overflows. */
enum { MHA_HEAD_LAYOUTS = 36 };
MHA_API mha_status mha_head_layouts(const mha_head_layout_options *options, mha_head_layout rows[MHA_HEAD_LAYOUTS],
                                    int *count, mha_error *err);

/* Writes one row per variant, with options->heads query heads. GQA: the group size is near 4, or near 8 for a large
 * model. Operations and cache exclude heads that do not run: pruned heads, unselected heads and unselected experts.
 * MoE: each expert has its own q, k, v and an output projection to E, followed by one projection E -> E. Adaptive:
 * selects one of three head counts. */
MHA_API mha_status mha_head_layout_variants(const mha_head_layout_options *options,
                                            mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS], mha_error *err);

/* Measures the speed of a row on this machine: the time of projections (f32) and causal attention of one layer, times
 * the number of layers. `prefill` is one pass over all tokens of all sequences; `decode` is one more token per sequence
 * with a cache of seq tokens. Predictors and routers, which run once per sequence, are not measured. Takes about
 * `seconds`, but at least two passes of each kind. Allocates 7 E^2 floats, the cache of one layer and a few rows.
 * Errors: MHA_ERR_UNSUPPORTED for a variant that this library cannot run. */
MHA_API mha_status mha_head_layout_measure(mha_ctx *ctx, const mha_head_layout_options *options, mha_head_layout *row,
                                           double seconds, mha_error *err);

/* The recommended layout, according to the rule of thumb in the walk-throughs: below 100 million parameters, multi-head
 * attention or light pruning; up to 10 billion, grouped-query attention; above that, grouped-query attention and
 * experts. */
typedef struct mha_head_layout_advice {
    mha_head_layout_variant variant;
    int64_t heads, kv_heads;
    int64_t experts, top_k; /* for a large model, as in mha_head_layout_options; 0 = none */
    int64_t parameters;     /* parameters of the model, as given or estimated */
    char reason[512];       /* explanation, in sentences */
} mha_head_layout_advice;

MHA_API mha_status mha_head_layout_advise(const mha_head_layout_options *options, mha_head_layout_advice *advice,
                                          mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
