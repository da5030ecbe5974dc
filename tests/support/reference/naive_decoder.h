/* naive_decoder.h - a whole decoder straight from its formulas in double: the expected values of layers that a config
 * composes. Shares nothing with src/ and reads no config: the caller describes each layer again. */
#ifndef TEST_NAIVE_H
#define TEST_NAIVE_H

#include "mha/io.h"
#include <stdbool.h>

enum { NAIVE_LAYERS = 4, NAIVE_HEADS = 4 };

typedef enum naive_turning { TURN_BY_FAMILY = 0, TURN, TURN_NOT } naive_turning;

typedef struct naive_layer {
    int heads, k_heads, v_heads; /* 0 = as the decoder has it */
    int number[NAIVE_HEADS];     /* with `heads`: which of the decoder's each is */
    bool alone;                  /* attention without a feed-forward part */
    int window;                  /* keys that a row sees, itself included; 0 = all */
    double scale, softcap;       /* 0 = 1 / sqrt(head_dim), none */
    naive_turning turning;
    bool normed, alibi; /* RMSNorm of each head of q and k; slopes 2^(-8 (h + 1) / heads) */
} naive_layer;

typedef struct naive_decoder {
    bool gpt2; /* LayerNorm, learned positions, tanh-GELU, tied; else RMSNorm, rotation, SwiGLU, lm_head */
    int vocab, hidden, layers, heads, kv_heads, head_dim;
    double eps;
    naive_layer layer[NAIVE_LAYERS];
    /* [count] weights in double under their names in the checkpoint: `data` is of doubles */
    mha_named_tensor *weights;
    int64_t count;
} naive_decoder;

/* Copies the weights, f32, into doubles; naive_free frees them. */
void naive_take(naive_decoder *decoder, const mha_named_tensor *weights, int64_t count);
void naive_free(naive_decoder *decoder);

/* logits [length, vocab] of one sequence. */
void naive_logits(const naive_decoder *decoder, const int32_t *ids, int length, double *logits);
/* Mean over sequences [batch, length] of the cross entropy of every next token. */
double naive_loss(const naive_decoder *decoder, const int32_t *ids, int batch, int length);

#endif
