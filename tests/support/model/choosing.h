/* choosing.h - small encoders with a layer that chooses heads per text, and the same model from its formulas in double,
 * independent of src/. */
#ifndef TEST_CHOOSING_H
#define TEST_CHOOSING_H

#include "mha/model.h"
#include "mha/train.h"
#include <stdbool.h>

enum { CHOOSING_B = 4, CHOOSING_L = 6, CHOOSING_E = 16, CHOOSING_H = 4, CHOOSING_P = 5, CHOOSING_SCORES = 8 };

/* The sizes in every config of these tests, without the layer count. */
#define CHOOSING_SIZES                                                                                             \
    "\"model_type\":\"bert\",\"vocab_size\":64,\"hidden_size\":16,\"num_attention_heads\":4,\"intermediate_size\"" \
    ":24,\"max_position_embeddings\":32,\"initializer_range\":0.5,\"layer_norm_eps\":1e-5,"

/* The meaning of an entry of "mha.attention". */
typedef struct choosing {
    const char *entry;
    int keep;
    bool softmax, soft; /* gates: softmax or sigmoid; gates are 1 unless `soft` */
    bool through;       /* straight-through: the gradient differs from the derivative of the function */
    int options[3];     /* head counts; 0 = fixed */
} choosing;

extern const choosing choosing_cases[];
extern const int choosing_count;

/* Returns a config with attention layers only: `entry` for one layer, or a list of `layers` entries. */
const char *choosing_config(const char *entry, int layers);
mha_model *choosing_model(mha_ctx *ctx, const char *config);
/* Returns texts of several lengths: padded on the right or, with `holes`, masked anywhere. */
mha_model_input choosing_input(bool holes);

/* The weights in double under their checkpoint names, and the model they belong to. */
typedef struct choosing_naive {
    const choosing *c;
    const char *name[64];
    double *value[64];
    int count;
    double scale;         /* [1] scale of all gates */
    mha_trainer *trainer; /* owns the names */
} choosing_naive;

choosing_naive choosing_take(const choosing *c, const mha_model *model);
void choosing_free(choosing_naive *d);
/* Computes the last hidden states x [L, E] of text b, and its scores. */
void choosing_run(const choosing_naive *d, const mha_model_input *in, int b, double x[CHOOSING_L][CHOOSING_E],
                  double score[CHOOSING_SCORES]);

#endif
