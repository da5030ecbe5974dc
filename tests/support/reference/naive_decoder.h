/* naive_decoder.h - computes a complete decoder directly from its formulas in double, as the reference for models whose
 * layers differ by config keys. Shares no code with src/ and does not read a config; the caller describes each layer.
 */
#ifndef TEST_NAIVE_H
#define TEST_NAIVE_H

#include "mha/io.h"
#include <stdbool.h>

enum { NAIVE_LAYERS = 4, NAIVE_HEADS = 4 };

typedef enum naive_turning { TURN_BY_FAMILY = 0, TURN, TURN_NOT } naive_turning;

typedef struct naive_layer {
    int heads, k_heads, v_heads; /* 0: the head count of the decoder */
    int number[NAIVE_HEADS];     /* if `heads` is not 0: the original number of each head */
    bool alone;                  /* true if the layer has no feed-forward network */
    int window;                  /* number of keys to which a row attends, including its own key; 0: all */
    double scale, softcap;       /* scale 0: 1 / sqrt(head_dim); softcap 0: no softcap */
    naive_turning turning;
    bool normed, alibi; /* normed: RMSNorm of each head of q and k; alibi: slopes 2^(-8 (h + 1) / heads) */
} naive_layer;

typedef struct naive_decoder {
    /* true: LayerNorm, learned position embeddings, tanh-GELU, tied embeddings; false: RMSNorm, rotary position
     * embeddings, SwiGLU, lm_head */
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
/* Returns the mean cross-entropy of the next tokens in ids [batch, length]. */
double naive_loss(const naive_decoder *decoder, const int32_t *ids, int batch, int length);

#endif
