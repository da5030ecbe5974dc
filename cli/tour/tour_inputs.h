/* tour_inputs.h - sampled queries, keys and values for the tours of the plain layer and of its variants. */
#ifndef CLI_TOUR_TOUR_INPUTS_H
#define CLI_TOUR_TOUR_INPUTS_H

#include "tour/tour.h"

/* Queries, keys and values, with their sizes. */
typedef struct tour_inputs {
    float *query, *key, *value, *output;
    int64_t batch, q_len, kv_len, width, heads;
    mha_mask keep;
} tour_inputs;

/* Replaces width and heads with the chosen values, and allocates the arrays. */
mha_status tour_inputs_begin(tour *t, tour_inputs *x);
/* Returns the width of a head. */
int64_t tour_inputs_head_dim(const tour_inputs *x);
/* Initializes the current layer from the chosen seed, or `seed`, then the inputs, and runs the layer. With `load`, the
 * layer has the weights of the chosen file. */
mha_status tour_inputs_run(tour *t, uint64_t seed, tour_inputs *x, bool load);

/* Makes plain multi-head attention the current layer. */
mha_status tour_plain_layer(tour *t, int64_t width, int64_t heads);
/* Begins the inputs, and counts parameters and flops of plain multi-head attention at their size. */
mha_status tour_count_plain(tour *t, tour_inputs *x, tour_count *count);

/* Adds the output to the last step, and compares the counts of the layer with `plain`. */
void tour_show_output(tour *t, const tour_inputs *x, tour_count plain, const char *name);

#endif
