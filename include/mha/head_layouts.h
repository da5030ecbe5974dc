/* head_layouts.h - planning the heads of a model that does not exist yet: which head layouts a width allows, what each
 * costs in parameters, operations, cache and time on this machine, and which one to take.
 *
 * Counts are those of the layers as published walk-throughs write them, all projections E -> E unless keys and values
 * are shared. `parameters` are of one layer's attention; operations, cache and times of all layers together.
 *
 *     mha_plan_options model = {.size = sizeof model, .d_model = 768, .layers = 12, .vocab = 50257, .seq = 1024};
 *     mha_plan_row rows[MHA_PLAN_LAYOUTS];
 *     int count;
 *     MHA_CHECK(mha_plan_layouts(&model, rows, &count, &err));
 */
#ifndef MHA_HEAD_LAYOUTS_H
#define MHA_HEAD_LAYOUTS_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, text) */
#define MHA_PLAN_VARIANT_MAP(X)                                                                  \
    X(MHA_PLAN_MHA, "mha", "each query head has its own keys and values")                        \
    X(MHA_PLAN_PRUNED, "pruned", "the least important heads are removed permanently")            \
    X(MHA_PLAN_DYNAMIC, "dynamic", "a predictor picks the heads that each sequence runs")        \
    X(MHA_PLAN_GQA, "gqa", "groups of query heads share one key and value head")                 \
    X(MHA_PLAN_MQA, "mqa", "all query heads share one key and value head")                       \
    X(MHA_PLAN_MOE, "moe", "heads are experts, of which a router picks top_k for each sequence") \
    X(MHA_PLAN_ADAPTIVE, "adaptive", "a predictor picks the number of heads for each sequence")

typedef enum mha_plan_variant {
#define MHA__X(name, key, text) name,
    MHA_PLAN_VARIANT_MAP(MHA__X)
#undef MHA__X
        MHA_PLAN_VARIANTS
} mha_plan_variant;

/* "mha" ..., and what it is; NULL out of range. */
MHA_API const char *mha_plan_variant_key(mha_plan_variant variant);
MHA_API const char *mha_plan_variant_help(mha_plan_variant variant);

/* The model. Only d_model has no default. */
typedef struct mha_plan_options {
    size_t size;
    int64_t d_model;    /* E, 1..2^20 */
    int64_t heads;      /* of the variants, divides E; 0 = of a width near 64, near 128 from E = 2048 on */
    int64_t layers;     /* 1..65536; 0 = E / 128, at least 12 */
    int64_t vocab;      /* 1..2^31; 0 = 32000 */
    int64_t seq, batch; /* tokens of a sequence, 1..2^32, 0 = 2048; sequences, 1..2^20, 0 = 1 */
    mha_dtype dtype;    /* of keys and values: f32 (default), bf16 or f16 */
    int64_t parameters; /* of the whole model; 0 = estimated: layers 12 E^2 + vocab E */
    double prune;       /* share of heads that pruning takes, above 0, below 1; 0 = 0.25 */
    int64_t experts;    /* of the mixture of experts, 1..2^20; 0 = heads */
    int64_t top_k;      /* experts that run, at most `experts`; 0 = 2, or 1 if there is only one */
} mha_plan_options;

/* Numbers in the projections of one layer. `extra` is what else a variant has: predictor or router. */
typedef struct mha_plan_parameters {
    int64_t q, k, v, out, extra, total;
} mha_plan_parameters;

typedef struct mha_plan_row {
    mha_plan_variant variant;
    const char *left_out;    /* why the model has no such variant; NULL = it has, and the rest is set */
    const char *refused;     /* why this library would not run it; NULL = it would */
    int64_t heads, head_dim; /* query heads that a sequence runs (of a mixture: experts), and their width */
    int64_t kv_groups;       /* query heads that share a key/value head */
    int64_t kv_heads;        /* key/value heads in the cache */
    mha_plan_parameters weights, biases;
    double reduction;                   /* 1 - weights.total / (4 E^2); below 0 for more */
    double project_flops, attend_flops; /* of a causal prefill of all sequences */
    int64_t kv_bytes;                   /* keys and values of all sequences */
    double prefill, decode;             /* seconds, by mha_plan_measure */
} mha_plan_row;

/* Checks the options and sets the defaults. The other functions do the same, so this is for showing them. Errors:
 * MHA_ERR_ARG, naming the field and its value. */
MHA_API mha_status mha_plan_resolve(const mha_plan_options *options, mha_plan_options *resolved, mha_error *err);

/* All layouts of 1, 2, 4, 8, 12, 16, 24, 32 and 64 heads in groups of 1, 2, 4 and 8 that divide evenly: *count rows,
 * those with the fewest parameters first. Their variant is mha, gqa or mqa. Errors: MHA_ERR_ARG for the options, and
 * for a cache of more bytes than can be counted. */
enum { MHA_PLAN_LAYOUTS = 36 };
MHA_API mha_status mha_plan_layouts(const mha_plan_options *options, mha_plan_row rows[MHA_PLAN_LAYOUTS], int *count,
                                    mha_error *err);

/* One row for each variant of options->heads heads. GQA: groups nearest 4, nearest 8 for a large model. What does not
 * run is not counted in operations and cache: heads that are pruned, not picked, or no chosen expert. Moe: experts
 * with q, k, v and an output projection to E of their own, then one E -> E. Adaptive: a choice of three
 * numbers of heads. */
MHA_API mha_status mha_plan_variants(const mha_plan_options *options, mha_plan_row rows[MHA_PLAN_VARIANTS],
                                     mha_error *err);

/* Measures a row on this machine: projections (f32) and causal attention of one layer, times the layers. `prefill` is
 * one pass over all tokens of all sequences, `decode` one more token of each with a cache of seq tokens. Predictors and
 * routers, which run once a sequence, are left out. Takes about `seconds`, but at least two passes of each. Allocates 7
 * E^2 floats, the cache of one layer and some rows. Errors: MHA_ERR_UNSUPPORTED for a row that is refused. */
MHA_API mha_status mha_plan_measure(mha_ctx *ctx, const mha_plan_options *options, mha_plan_row *row, double seconds,
                                    mha_error *err);

/* What to take, after the rule of thumb of the walk-throughs: below 100 million parameters plain heads, or light
 * pruning; to 10 billion grouped heads; above, grouped heads and experts. */
typedef struct mha_plan_advice {
    mha_plan_variant variant;
    int64_t heads, kv_heads;
    int64_t experts, top_k; /* of a large model: as in the options; 0 = none */
    int64_t parameters;     /* of the model: as given, else estimated */
    char reason[512];       /* sentences */
} mha_plan_advice;

MHA_API mha_status mha_plan_advise(const mha_plan_options *options, mha_plan_advice *advice, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
