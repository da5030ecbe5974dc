/* attribution.h - one estimate of attribution patching while it is computed. */
#ifndef MHA_CIRCUITS_ATTRIBUTION_H
#define MHA_CIRCUITS_ATTRIBUTION_H

#include "circuits/prompt_pair.h"

/* The gradients are those of the run `at`: the base run, or a run between both. */
typedef struct mha__attribution {
    const mha_prompt_pair *pair;
    const mha__run_record *base, *source, *at;
    mha_site site;
    mha_estimate estimate;
    double weight; /* of this run in the mean */
    int64_t heads; /* per layer in `sums`; 1 for sites without heads */
    double *sums;  /* [MHA_CIRCUIT_METRICS, L, heads, T] */
    double *row;   /* [T] scratch */
} mha__attribution;

/* Adds the products of a layer for the sites with heads. dz [T, width] is the gradient of metric m with respect to the
 * heads' outputs (attribution_heads.c). */
void mha__attribute_heads(const mha__attribution *a, int m, int64_t layer, const float *dz);

#endif
