/* layer_problem.h - a layer in double with its inputs and a loss, for what is asked of gradients. */
#ifndef TEST_LAYER_PROBLEM_H
#define TEST_LAYER_PROBLEM_H

#include "mha/mha.h"
#include <stdbool.h>

enum { B = 2, LQ = 4, LK = 5, PROBLEM_MOST = 4096 };

extern mha_error problem_error;

/* A layer with its input and a weight for each number of its output: the loss is their product. */
typedef struct layer_problem {
    const char *name;
    mha_variant *layer;
    mha_variant_input in;
    int64_t d_in, d_out;
    double query[PROBLEM_MOST], key[PROBLEM_MOST], value[PROBLEM_MOST], past_key[PROBLEM_MOST],
        past_value[PROBLEM_MOST], output[PROBLEM_MOST], weight[PROBLEM_MOST];
    mha_trace *trace;
    double step, limit; /* of differences */
} layer_problem;

void problem_draw(mha_rng *rng, double *x, int64_t n);
/* Takes the layer; `cross` gives key and value of their own. */
layer_problem *problem_make(const char *name, mha_status status, mha_variant *layer, int64_t d_in, int64_t d_out,
                            bool cross);
void problem_drop(layer_problem *p);
/* Gates are f32 in the operator: differences must be wider than their rounding. */
void problem_soft_gates(layer_problem *p);
/* Runs the layer: the sum of its output times the weights. */
double problem_loss(layer_problem *p);
int64_t problem_elements(const mha_named_tensor *t);
/* The gradient of a parameter. */
const double *problem_gradient(const layer_problem *p, const char *name, int64_t *count);

/* PROBLEM(standard_mha, 4, 4, true, .d_model = 4, ...) declares `p`. */
#define PROBLEM(kind, d_in, d_out, cross, ...)                                        \
    mha_variant *layer = NULL;                                                        \
    const mha_##kind##_options o = {.size = sizeof o, .dtype = MHA_F64, __VA_ARGS__}; \
    const mha_status status = mha_##kind##_create(NULL, &o, &layer, &problem_error);  \
    layer_problem *p = problem_make(#kind, status, layer, d_in, d_out, cross)

#endif
