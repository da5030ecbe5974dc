/* layer_trial.h - a layer of type double with its input and a loss, for gradient tests. */
#ifndef TEST_TRIAL_H
#define TEST_TRIAL_H

#include "mha/mha.h"
#include <stdbool.h>

enum { B = 2, LQ = 4, LK = 5, TRIAL_MAX = 8192 };

extern mha_error trial_error;

/* A layer, its input, and a weight per output element. The loss is the dot product of outputs and weights. */
typedef struct trial {
    const char *name;
    mha_variant *layer;
    mha_variant_input in;
    int64_t d_in, d_out;
    double query[TRIAL_MAX], key[TRIAL_MAX], value[TRIAL_MAX], past_key[TRIAL_MAX], past_value[TRIAL_MAX],
        output[TRIAL_MAX], weight[TRIAL_MAX];
    mha_trace *trace;
    double step, limit; /* step size and error limit of finite differences */
    int64_t samples;    /* approximate number of elements per tensor to compare with finite differences; 0: all */
} trial;

void trial_draw(mha_rng *rng, double *x, int64_t n);
/* Returns a trial that owns the layer. With `cross`, key and value inputs differ from the query input. */
trial *trial_make(const char *name, mha_status status, mha_variant *layer, int64_t d_in, int64_t d_out, bool cross);
void trial_drop(trial *p);
/* Increases the step of finite differences, so that the f32 rounding errors of gates are small compared with the
 * step. */
void trial_soft_gates(trial *p);
/* Runs the layer and returns the loss. */
double trial_loss(trial *p);
int64_t trial_elements(const mha_named_tensor *t);
/* Returns the gradient of the parameter `name` and sets *count to its number of elements. */
const double *trial_gradient(const trial *p, const char *name, int64_t *count);

/* Creates a layer and declares its trial `p`, for example TRIAL(standard_mha, 4, 4, true, .d_model = 4, ...). */
#define TRIAL(kind, d_in, d_out, cross, ...)                                          \
    mha_variant *layer = NULL;                                                        \
    const mha_##kind##_options o = {.size = sizeof o, .dtype = MHA_F64, __VA_ARGS__}; \
    const mha_status status = mha_##kind##_create(NULL, &o, &layer, &trial_error);    \
    trial *p = trial_make(#kind, status, layer, d_in, d_out, cross)

#endif
