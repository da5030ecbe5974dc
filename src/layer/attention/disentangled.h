/* disentangled.h - attention with relative position embeddings (DeBERTa, He et al. 2021). A term per pair of tokens is
 * added to the scores:
 *
 *     score(i, j) = scale (q_i k_j + q_i PK[c(i - j)] + k_j PQ[c(i - j)])
 *
 * PK and PQ are projections of a table of embeddings, one row per range of distances. The terms of a call are stored as
 * a bias of H L L floats per sequence, in memory that all layers of a model share: the backward pass computes the terms
 * again, and their gradient takes another H L L floats. */
#ifndef MHA_LAYER_ATTENTION_DISENTANGLED_H
#define MHA_LAYER_ATTENTION_DISENTANGLED_H

#include "layer/attention/attention_layer.h"

/* The rows of the table: `span` rows per sign of the distance. Distances up to buckets / 2 have a row each; greater
 * distances, up to `max`, share rows in logarithmic ranges. buckets 0 = a row per distance. */
typedef struct mha__distances {
    int64_t span, buckets, max;
} mha__distances;

/* Returns the row of a distance, which is the query's position minus the key's. */
int64_t mha__distance_row(const mha__distances *distances, int64_t distance);

typedef struct mha__disentangled_options {
    mha__distances distances;
    const float *table;    /* [2 span, E] */
    mha_matrix key, query; /* project the table to PK and PQ; weight NULL = the term is absent */
    bool separate;         /* key and query are not the layer's own projections of k and q */
} mha__disentangled_options;

typedef struct mha__disentangled {
    mha__distances distances;
    float *table;           /* [2 span, E] */
    float *projected[2];    /* [H, 2 span, D] PK and PQ; NULL = the term is absent */
    mha_linear *product[2]; /* products with PK and PQ, one matrix per head */
    bool separate;
    uint8_t *one_head; /* [2 H - 1] `one_head + H - 1 - h` selects head h of a product */
} mha__disentangled;

/* Adds the terms to a layer or, if the layer has them, computes them again from new weights. */
mha_status mha__disentangled_set(mha_attn_layer *layer, const mha__disentangled_options *options, mha_error *err);
void mha__disentangled_free(mha_attn_layer *layer);

/* Allocates the bias of a call and the other scratch memory of both passes from the arena. */
void mha__disentangled_scratch_take(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call,
                                    mha__attn_scratch *scratch);
/* Returns the view of a bias or of its gradient. */
mha_view mha__disentangled_view(const mha_attn_layer *layer, const mha_layer_input *in, float *bias);

/* A task of both passes: tokens [begin, end) of a sequence of `length` tokens, whose first one is in row first_row. The
 * range is empty after the end of a sequence. */
typedef struct mha__token_block {
    int64_t sequence, first_row, length, begin, end;
} mha__token_block;
enum { MHA__TOKEN_BLOCK = 64 };
mha__token_block mha__token_block_of(const mha_layer_input *in, int64_t longest, int64_t task);
/* Returns the number of tasks; `longest` is the length of the longest sequence. */
int64_t mha__token_blocks(const mha_layer_input *in, int64_t longest);

/* Computes scratch->bias from q and k in trace->qkv. */
void mha__disentangled_fill(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace,
                            const mha__attn_scratch *scratch);
/* Adds the gradients of q and k to scratch->dqkv, and accumulates the gradients of the projections and of the table.
 * Reads the gradient of the bias from scratch->dbias. */
mha_status mha__disentangled_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                                  const mha__attn_trace *trace, const mha__attn_scratch *scratch, mha_error *err);

#endif
