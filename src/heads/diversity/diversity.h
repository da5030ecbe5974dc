/* diversity.h - comparing heads, inside: what is summed while texts run, and what becomes of it. Public side:
 * mha/diversity.h. */
#ifndef MHA_HEADS_DIVERSITY_DIVERSITY_H
#define MHA_HEADS_DIVERSITY_DIVERSITY_H

#include <stdbool.h>

#include "heads/data/head_data.h"
#include "mha/diversity.h"

struct mha_diversity {
    mha_ctx *ctx;
    int64_t layers, rows;
    int64_t *first;                 /* [layers + 1] heads before each layer */
    double *value[MHA_DIVERSITIES]; /* [N, N], of unique [N]; NULL: not requested */
    double *map, eigenvalues[2];    /* [N, 2]; NULL without js */
    mha_head_merge *merges;         /* [N - 1] */
};

static inline int64_t mha__diversity_width(const mha_diversity *d, int64_t layer)
{
    return d->first[layer + 1] - d->first[layer];
}

/* ---- what is summed: one array, so that it can be kept and read again ---- */

enum { MHA__HALVED = 2 };

typedef struct mha__diversity_sums {
    double *all;
    int64_t count;
    double *js, *clark;          /* [N, N] of mha__mixtures; or NULL */
    double *dot;                 /* [H, H] of each layer: products of maps; or NULL */
    double *mass;                /* [N] of each head's rows: their sum / their keys */
    double *even;                /* [1] the same of even weights: 1 / keys */
    double *gram[MHA__HALVED];   /* [H D, H D] of each layer: contexts of half the tokens; or NULL */
    double *column[MHA__HALVED]; /* [H D] of each layer: their sums */
    double *tokens;              /* [MHA__HALVED] */
} mha__diversity_sums;

/* ---- maps (diversity_maps.c) ---- */

/* A row of a map that is compared. */
typedef struct mha__map_row {
    int64_t sequence, slot; /* where the callback has it: probs [sequence, head, slot, key] */
    int64_t keys;           /* that it sees */
} mha__map_row;

/* The chosen rows of some texts for all heads: head h's elements, row after row, at probs + h stride. */
typedef struct mha__held_maps {
    mha_ctx *ctx;
    const mha_diversity *d;
    float *probs;
    int64_t stride;
    const mha__map_row *rows;
    int64_t row_count;
    int64_t slots, keys; /* of a map that the callback gets */
} mha__held_maps;

/* Takes the maps of a layer; then, with all layers held, adds them up, text by text: the maps are overwritten. */
void mha__held_maps_take(const mha__held_maps *held, int64_t layer, const float *probs);
mha_status mha__held_maps_add(const mha__held_maps *held, const mha__diversity_sums *sums, mha_error *err);

/* The values. MHA_ERR_ARG names a head whose maps are not finite. */
mha_status mha__diversity_of_maps(mha_diversity *d, const mha__diversity_sums *sums, mha_error *err);

/* ---- outputs (diversity_outputs.c) ---- */

/* Adds the contexts of packed texts: text number texts[b] has rows starts[b] .. starts[b + 1] of a->context. `buffer`
 * has room for all rows. */
mha_status mha__diversity_add_contexts(const mha_diversity *d, const mha__diversity_sums *sums,
                                       const mha_model_activations *a, const int64_t *texts, int64_t count,
                                       const int64_t *starts, float *buffer, mha_error *err);

/* The values of outputs, and that of weights. */
mha_status mha__diversity_of_outputs(const mha_model *model, mha_diversity *d, const mha__diversity_sums *sums,
                                     mha_error *err);

/* The outputs of `heads` heads in D coordinates each, n = heads D (unique_output.c): fits, on the products `fit` [n,
 * n] of one half of the data, so many tokens, the regression of each head on all others, and adds to left[h] what it
 * leaves over of the products `test` [n, n] of the other half. Adds nothing where `fit` is 0. */
mha_status mha__unique_outputs(mha_ctx *ctx, int64_t heads, int64_t D, const double *fit, double tokens,
                               const double *test, double *left, mha_error *err);

/* ---- of distances [n, n] ---- */

/* Classical scaling (multidimensional_scaling.c): xy [n, 2]. */
mha_status mha__head_map(mha_ctx *ctx, int64_t n, const double *js, double *xy, double eigenvalues[2], mha_error *err);
/* Average linkage (head_clusters.c): merges [n - 1]. */
mha_status mha__head_clusters(mha_ctx *ctx, int64_t n, const double *js, mha_head_merge *merges, mha_error *err);

#endif
