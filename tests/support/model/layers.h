/* layers.h - creates layers with weights from one seed, and runs them on shared inputs; a failed run fails the test. */
#ifndef TEST_LAYERS_H
#define TEST_LAYERS_H

#include "mha/mha.h"

enum { B = 3, LQ = 5, LK = 7, E = 24, LAYER_MAX = B * LK * E };

extern mha_error err;
extern float query[LAYER_MAX], key[LAYER_MAX], value[LAYER_MAX], out[LAYER_MAX], other[LAYER_MAX];

/* A setup function for cmocka, which fills query, key and value with random values. */
int layer_inputs(void **state);

/* Initializes the parameters of the layer *made and returns it; fails the running test unless `status` is MHA_OK. */
mha_variant *layer_drawn(mha_status status, mha_variant **made);
/* Declares and creates a layer, for example LAYER(layer, standard_mha, .d_model = E, .num_heads = 4). */
#define LAYER(name, kind, ...)                                                 \
    mha_variant *name = NULL;                                                  \
    do {                                                                       \
        const mha_##kind##_options o = {.size = sizeof o, __VA_ARGS__};        \
        name = layer_drawn(mha_##kind##_create(NULL, &o, &name, &err), &name); \
    } while (0)

mha_trace *layer_trace(void);
void layer_run(const mha_variant *layer, const mha_variant_input *in, float *y, mha_trace *trace);
/* Returns a cross-attention input of B samples with LQ queries and LK keys. */
mha_variant_input layer_cross(void);
const mha_named_tensor *layer_parameter(const mha_variant *layer, const char *name);

#endif
