/* choosing.h - small encoders whose layer chooses heads for each text, and the same from its formulas in double. Shares
 * nothing with src/. */
#ifndef TEST_CHOOSING_H
#define TEST_CHOOSING_H

#include "mha/model.h"
#include "mha/train.h"
#include <stdbool.h>

enum { CHOOSING_B = 4, CHOOSING_L = 6, CHOOSING_E = 16, CHOOSING_H = 4, CHOOSING_P = 5, CHOOSING_SCORES = 8 };

/* Sizes of every config here, without layers. */
#define CHOOSING_SIZES                                                                                             \
    "\"model_type\":\"bert\",\"vocab_size\":64,\"hidden_size\":16,\"num_attention_heads\":4,\"intermediate_size\"" \
    ":24,\"max_position_embeddings\":32,\"initializer_range\":0.5,\"layer_norm_eps\":1e-5,"

/* What an entry of "mha.attention" says, and what that means. */
typedef struct choosing {
    const char *entry;
    int keep;
    bool softmax, soft; /* gates: softmax or sigmoid; 1 where they are not soft */
    bool through;       /* straight-through: the gradient is not that of the function */
    int options[3];     /* numbers of heads; 0 = they do not change */
} choosing;

extern const choosing choosing_cases[];
extern const int choosing_count;

/* Attention alone; `entry` of one layer, or a list of so many. */
const char *choosing_config(const char *entry, int layers);
mha_model *choosing_model(mha_ctx *ctx, const char *config);
/* Texts of several lengths: padded on the right, or, with `holes`, anywhere. */
mha_model_input choosing_input(bool holes);

/* Weights in double under their names in the checkpoint, and what they are of. */
typedef struct choosing_naive {
    const choosing *c;
    const char *name[64];
    double *value[64];
    int count;
    double scale;         /* [1] of all gates */
    mha_trainer *trainer; /* its names live as long */
} choosing_naive;

choosing_naive choosing_take(const choosing *c, const mha_model *model);
void choosing_free(choosing_naive *d);
/* The last states x [L, E] of text b, and its scores. */
void choosing_run(const choosing_naive *d, const mha_model_input *in, int b, double x[CHOOSING_L][CHOOSING_E],
                  double score[CHOOSING_SCORES]);

#endif
