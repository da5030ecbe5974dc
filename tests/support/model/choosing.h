/* choosing.h - small encoders with a layer that selects heads per text, and a reference that computes these models from
 * formulas in double. Shares no code with src/. */
#ifndef TEST_CHOOSING_H
#define TEST_CHOOSING_H

#include "mha/model.h"
#include "mha/train.h"
#include <stdbool.h>

enum { CHOOSING_B = 4, CHOOSING_L = 6, CHOOSING_E = 16, CHOOSING_H = 4, CHOOSING_P = 5, CHOOSING_SCORES = 8 };

/* The sizes in every config of these tests, except for the layer count. */
#define CHOOSING_SIZES                                                                                             \
    "\"model_type\":\"bert\",\"vocab_size\":64,\"hidden_size\":16,\"num_attention_heads\":4,\"intermediate_size\"" \
    ":24,\"max_position_embeddings\":32,\"initializer_range\":0.5,\"layer_norm_eps\":1e-5,"

/* An entry of the config key "mha.attention", and the options that this entry selects. */
typedef struct choosing {
    const char *entry;
    int keep;
    bool softmax, soft; /* gates are softmax or sigmoid values if `soft` is true, otherwise 1 */
    bool through;       /* straight-through estimator: the gradient is not the derivative of the function */
    int options[3];     /* the head counts from which a text selects; 0: `keep` is the head count */
} choosing;

extern const choosing choosing_cases[];
extern const int choosing_count;

/* Returns the config of a model that has only attention layers. `entry` is the entry of one layer, or the entries of
 * `layers` layers. */
const char *choosing_config(const char *entry, int layers);
mha_model *choosing_model(mha_ctx *ctx, const char *config);
/* Returns texts of several lengths. They are padded on the right or, with `holes`, have masked tokens at any position.
 */
mha_model_input choosing_input(bool holes);

/* The reference model of a case: its weights in double, with their checkpoint names. */
typedef struct choosing_naive {
    const choosing *c;
    const char *name[64];
    double *value[64];
    int count;
    double scale;         /* the factor of all gates */
    mha_trainer *trainer; /* owns the names of the weights */
} choosing_naive;

choosing_naive choosing_take(const choosing *c, const mha_model *model);
void choosing_free(choosing_naive *d);
/* Computes the last hidden states x [L, E] of text b, and its router scores. */
void choosing_run(const choosing_naive *d, const mha_model_input *in, int b, double x[CHOOSING_L][CHOOSING_E],
                  double score[CHOOSING_SCORES]);

#endif
