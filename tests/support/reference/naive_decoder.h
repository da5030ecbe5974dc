/* naive_decoder.h - a whole decoder computed directly from its formulas in double: the reference for layers composed
 * by config keys. Shares no code with src/ and does not read a config; the caller describes each layer. */
#ifndef TEST_NAIVE_H
#define TEST_NAIVE_H

#include "mha/io.h"
#include <stdbool.h>

enum { NAIVE_LAYERS = 4, NAIVE_HEADS = 4 };

typedef enum naive_turning { TURN_BY_FAMILY = 0, TURN, TURN_NOT } naive_turning;

typedef struct naive_layer {
    int heads, k_heads, v_heads; /* 0 = same as the decoder */
    int number[NAIVE_HEADS];     /* with `heads`: original number of each head */
    bool alone;                  /* the layer has no feed-forward network */
    int window;                  /* keys to which a row attends, including its own; 0 = all */
    double scale, softcap;       /* 0 = 1 / sqrt(head_dim); 0 = no softcap */
    naive_turning turning;
    bool normed, alibi; /* normed: RMSNorm of each head of q and k; alibi: slopes 2^(-8 (h + 1) / heads) */
} naive_layer;

typedef struct naive_decoder {
    /* If true: LayerNorm, learned positions, tanh-GELU, tied embeddings. Otherwise: RMSNorm, rotary embeddings,
     * SwiGLU, lm_head. */
    bool gpt2;
    int vocab, hidden, layers, heads, kv_heads, head_dim;
    double eps;
    naive_layer layer[NAIVE_LAYERS];
    /* weights under their checkpoint names, [count]; `data` points to doubles */
    mha_named_tensor *weights;
    int64_t count;
} naive_decoder;

/* Converts the f32 weights to doubles; free with naive_free. */
void naive_take(naive_decoder *decoder, const mha_named_tensor *weights, int64_t count);
void naive_free(naive_decoder *decoder);

/* Computes logits [length, vocab] of one sequence. */
void naive_logits(const naive_decoder *decoder, const int32_t *ids, int length, double *logits);
/* Returns the mean cross-entropy of all next tokens over sequences [batch, length]. */
double naive_loss(const naive_decoder *decoder, const int32_t *ids, int batch, int length);

#endif
