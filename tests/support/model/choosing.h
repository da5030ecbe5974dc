/* choosing.h - small encoders with a layer that selects heads per text, and the same model computed from formulas in
 * double, independent of src/. */
#ifndef TEST_CHOOSING_H
#define TEST_CHOOSING_H

#include "mha/model.h"
#include "mha/train.h"
#include <stdbool.h>

enum { CHOOSING_B = 4, CHOOSING_L = 6, CHOOSING_E = 16, CHOOSING_H = 4, CHOOSING_P = 5, CHOOSING_SCORES = 8 };

/* Sizes in every config of these tests, except for the layer count. */
#define CHOOSING_SIZES                                                                                             \
    "\"model_type\":\"bert\",\"vocab_size\":64,\"hidden_size\":16,\"num_attention_heads\":4,\"intermediate_size\"" \
    ":24,\"max_position_embeddings\":32,\"initializer_range\":0.5,\"layer_norm_eps\":1e-5,"

/* An entry of "mha.attention", and the options that it selects. */
typedef struct choosing {
    const char *entry;
    int keep;
    bool softmax, soft; /* gates are softmax or sigmoid values if `soft`, else 1 */
    bool through;       /* straight-through: the gradient differs from the derivative of the function */
    int options[3];     /* head counts to select from; 0 = fixed head count */
} choosing;

extern const choosing choosing_cases[];
extern const int choosing_count;

/* Returns a config with attention layers only. `entry` is the entry of one layer, or a list of `layers` entries. */
const char *choosing_config(const char *entry, int layers);
mha_model *choosing_model(mha_ctx *ctx, const char *config);
/* Returns texts of several lengths: padded on the right or, with `holes`, masked anywhere. */
mha_model_input choosing_input(bool holes);

/* Weights in double under their checkpoint names, and the model that they belong to. */
typedef struct choosing_naive {
    const choosing *c;
    const char *name[64];
    double *value[64];
    int count;
    double scale;         /* scale of all gates, [1] */
    mha_trainer *trainer; /* owner of the weight names */
} choosing_naive;

choosing_naive choosing_take(const choosing *c, const mha_model *model);
void choosing_free(choosing_naive *d);
/* Computes the last hidden states x [L, E] of text b, and its scores. */
void choosing_run(const choosing_naive *d, const mha_model_input *in, int b, double x[CHOOSING_L][CHOOSING_E],
                  double score[CHOOSING_SCORES]);

#endif
