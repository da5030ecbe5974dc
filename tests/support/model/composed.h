/* composed.h - decoders whose layers are composed with the config keys mha.feed_forward and mha.attention, and their
 * results on two texts. */
#ifndef TEST_COMPOSED_H
#define TEST_COMPOSED_H

#include "mha/train.h"
#include "support/model/model_case.h"
#include "support/reference/naive_decoder.h"

enum { B = 2, L = 12, V = 64, LAYERS = 3, HEADS = 4 };

/* The sizes in every config of these tests. */
#define COMPOSED_SIZES                                                                                             \
    "\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":3,\"num_attention_heads\":4,\"head_dim\":8,"       \
    "\"max_position_embeddings\":48,\"intermediate_size\":40,\"n_inner\":40,\"initializer_range\":0.2,\"rms_norm_" \
    "eps\":1e-5,"

/* Keys to add to the config of a family, and the expected options of each layer. */
typedef struct composed {
    const char *keys;
    naive_layer layer[LAYERS];
} composed;

enum { COMPOSED_CASES = 8 };
extern const composed composed_cases[COMPOSED_CASES];

/* Returns the config of a case, which is valid until the next call. */
const char *composed_config(const composed *c, bool gpt2);
/* Creates a trainer of the model; fails the running test on error. */
mha_trainer *composed_trainer(const mha_model *model);

/* Writes the ids [B, L] of the two texts. */
void composed_texts(int32_t *ids);
/* Returns the logits [B, L, V] with gates [layers, B, H], or without gates if `gates` is NULL. The caller must free
 * them. */
float *composed_logits(const mha_model *model, const float *gates);
/* Fails the running test unless `a` and `b` are bitwise identical. */
void composed_same(const float *a, const float *b, int64_t count, const char *what);

#endif
