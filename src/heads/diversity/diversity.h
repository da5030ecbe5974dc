/* diversity.h - internals of head comparison: the sums over texts, and the values computed from them. Public header:
 * mha/diversity.h. */
#ifndef MHA_HEADS_DIVERSITY_DIVERSITY_H
#define MHA_HEADS_DIVERSITY_DIVERSITY_H

#include "heads/data/head_data.h"
#include "math/fixed_sum.h"
#include "mha/diversity.h"
#include <stdbool.h>

struct mha_diversity {
    mha_ctx *ctx;
    int64_t layers, head_dim, rows;
    int64_t *first;                 /* [layers + 1] number of heads before each layer */
    double *value[MHA_DIVERSITIES]; /* [N, N] for all N heads; for unique, [N]; NULL = not requested */
    double *map, eigenvalues[2];    /* map: [N, 2]; NULL unless js is requested */
    mha_head_merge *merges;         /* [N - 1] */
};

static inline int64_t mha__diversity_width(const mha_diversity *d, int64_t layer)
{
    return d->first[layer + 1] - d->first[layer];
}

/* ---- sums ---- */

enum { MHA__HALVED = 2 };

/* The sums over all texts, in double. js and clark are the input of mha__mixtures; only their lower triangles are
 * valid. */
typedef struct mha__diversity_sums {
    double *js, *clark; /* [N, N]; or NULL */
    double *dot;        /* [H, H] per layer: products of maps; or NULL */
    double *mass;       /* [N] sum of a head's attention weights, each divided by the number of keys in its row */
    double *even;       /* [1] the value of `mass` for uniform weights: sum over rows of 1 / number of keys */
    double *gram[MHA__HALVED];   /* [H D, H D] per layer: products of contexts, per half of the tokens; or NULL */
    double *column[MHA__HALVED]; /* [H D] per layer: column sums of the contexts */
    double *tokens;              /* [MHA__HALVED] number of tokens */
} mha__diversity_sums;

/* The sums of mha__diversity_sums while texts are being added: views of the integer array `all`. Of symmetric matrices,
 * only the lower triangles are stored. */
typedef struct mha__diversity_tally {
    mha__fixed *all;
    int64_t count;
    mha__fixed *js, *clark, *dot, *mass, *even, *gram[MHA__HALVED], *column[MHA__HALVED], *tokens;
    double *text; /* [N, N] or [H D], the larger one: zeros; scratch for the sums of one text */
} mha__diversity_tally;

enum { MHA__DIVERSITY_OF_OUTPUTS = 1 << MHA_DIVERSITY_CKA | 1 << MHA_DIVERSITY_UNIQUE };

/* (diversity_sums.c) Allocates the sums of the measures `what`, all zero. The caller frees `all` and `text`, also after
 * a failure. */
mha_status mha__diversity_tally_create(const mha_diversity *d, uint32_t what, mha__diversity_tally *tally,
                                       mha_error *err);
/* Converts the sums to double, in newly allocated *memory, which the caller frees. */
mha_status mha__diversity_read(const mha_diversity *d, const mha__diversity_tally *tally, mha__diversity_sums *sums,
                               void **memory, mha_error *err);

/* ---- maps (diversity_maps.c) ---- */

/* One row of the attention maps to compare. */
typedef struct mha__map_row {
    int64_t sequence, slot; /* position in the callback's array: probs [sequence, head, slot, key] */
    int64_t keys;           /* number of its unmasked keys */
} mha__map_row;

/* The selected map rows of the texts of one pass, for all heads: the elements of head h, row after row, start at probs
 * + h stride. */
typedef struct mha__held_maps {
    mha_ctx *ctx;
    const mha_diversity *d;
    float *probs;
    int64_t stride;
    const mha__map_row *rows;
    int64_t row_count;
    int64_t slots, keys; /* dimensions of a map in the callback */
    int64_t *starts;     /* [texts + 1] scratch: the first element of each text */
} mha__held_maps;

/* mha__held_maps_take copies the maps of a layer. Once the maps of all layers are stored, mha__held_maps_add adds them
 * to the sums, text by text, and overwrites the maps. */
void mha__held_maps_take(const mha__held_maps *held, int64_t layer, const float *probs);
mha_status mha__held_maps_add(const mha__held_maps *held, const mha__diversity_tally *sums, mha_error *err);

/* Computes the measures that compare maps. Errors: MHA_ERR_ARG, naming a head whose maps are not finite. */
mha_status mha__diversity_of_maps(mha_diversity *d, const mha__diversity_sums *sums, mha_error *err);

/* ---- outputs (diversity_outputs.c) ---- */

/* Adds the contexts of packed texts: text texts[b] has rows starts[b] .. starts[b + 1] of a->context. `buffer` has
 * space for all rows, `runs` [count + 1] for the rows of each text in `buffer`. */
mha_status mha__diversity_add_contexts(const mha_diversity *d, const mha__diversity_tally *sums,
                                       const mha_model_activations *a, const int64_t *texts, int64_t count,
                                       const int64_t *starts, float *buffer, int64_t *runs, mha_error *err);

/* Computes the measures that compare outputs, and the measures that compare output projections. */
mha_status mha__diversity_of_outputs(const mha_model *model, mha_diversity *d, const mha__diversity_sums *sums,
                                     mha_error *err);

/* Regresses the output of each of `heads` heads, D coordinates per head, on the outputs of all other heads
 * (unique_output.c). With n = heads D, the regression is fitted to the products `fit` [n, n] of one half of the data
 * (`tokens` tokens). Adds to left[h] the squared residual on the products `test` [n, n] of the other half; adds nothing
 * if `fit` is 0. */
mha_status mha__unique_outputs(mha_ctx *ctx, int64_t heads, int64_t D, const double *fit, double tokens,
                               const double *test, double *left, mha_error *err);

/* ---- plane map and clusters from distances [n, n] ---- */

/* Computes the plane map xy [n, 2] by classical scaling (multidimensional_scaling.c). */
mha_status mha__head_map(mha_ctx *ctx, int64_t n, const double *js, double *xy, double eigenvalues[2], mha_error *err);
/* Computes the merges [n - 1] by average linkage (head_clusters.c). */
mha_status mha__head_clusters(mha_ctx *ctx, int64_t n, const double *js, mha_head_merge *merges, mha_error *err);

#endif
