/* batch.h - a validated batch of token ids, with positions, lengths and angles. Used by the plain forward pass and by
 * the forward pass that records activations. */
#ifndef MHA_MODEL_FORWARD_BATCH_H
#define MHA_MODEL_FORWARD_BATCH_H

#include "base/arena.h"
#include "model/model_struct.h"

typedef struct mha__batch {
    mha_model_input in;     /* with packed sequences: batch is 1, length the total length */
    int64_t sequences;      /* number of sequences in the caller's input */
    mha_layer_input layer;  /* input of every block */
    bool right_padded;      /* each row of the mask is ones followed by zeros */
    int32_t *positions;     /* [B L] positions of the tokens */
    int64_t *turns;         /* [L] positions of one sequence, for rotation */
    int32_t *zeros;         /* [B L] token types if the caller passes none */
    float *patches;         /* [L, elements of a patch] patches of one image; NULL for models of token ids */
    int64_t *lengths;       /* [B] number of tokens without padding */
    const float *relative;  /* the model's table of relative positions; if NULL, bias is unused */
    int64_t relative_heads; /* H of `bias` */
    /* [B, H, W] biases of the layer bias_layer by distance (mha__relative_fill); B is 1 without a cache */
    float *bias;
    int64_t bias_layer; /* layer whose biases are in `bias`; -1 = none */
    int64_t *past;      /* [sequences] cached tokens before the call, if the model has biases; NULL = none */
    int64_t max_past;   /* the same of the sequence with most cached tokens */
    /* With in.shard, the batch has only the shard's tokens. shard_ids and shard_types (may be NULL) are their ids and
     * types, and `shard` is passed to the layers. */
    int32_t *shard_ids, *shard_types;
    mha_layer_shard shard;
    int64_t shard_end; /* largest position of the whole sequence */
    struct {
        float *cos, *sin; /* [B L, rotary_dim / 2] factors for each rotated pair */
    } angles[2];          /* angles of config.rope and of config.local_rope; NULL if no layer has this rotation */
} mha__batch;

/* Returns the largest number of tokens in a sequence. */
int64_t mha__batch_max_tokens(const mha_model *m);
/* Returns the number of cached tokens of sequence b of the call, to which the first layer adds those of the call. */
int64_t mha__batch_past(const mha__batch *batch, int64_t b);
/* Copies the caller's struct and checks everything except the ids. */
mha_status mha__batch_read(const mha_model *m, mha__batch *batch, const mha_model_input *input, mha_error *err);
/* Allocates the arrays of the batch from the arena. */
void mha__batch_lay_out(mha__arena *arena, const mha_model *m, mha__batch *batch);
/* Sets batch->layer. Before memory is allocated, `lengths` is a placeholder that only marks the array as present. */
void mha__batch_describe(mha__batch *batch, const int64_t *lengths);
/* Sets the fields of batch->layer for one layer: cache, gates, fills, context, angles and biases. */
void mha__batch_turn(mha__batch *batch, const mha_model *m, int64_t layer);
/* Computes the positions, lengths and angles of the batch. */
mha_status mha__batch_fill(const mha_model *m, mha__batch *batch, mha_error *err);

/* Computes x [B L, width of the embeddings]: the sum of word embeddings, scaled if the family scales them, types and
 * positions; in models of images, of the class token and projected patches, and positions. This is the input of the
 * embedding norm, of mha__batch_map or, without both, of the first layer. Checks the ids. */
mha_status mha__batch_embed(const mha_model *m, const mha__batch *batch, float *x, mha_error *err);
/* Computes y [B L, E], the map of the embeddings x, in families that have a map; in OPT, adds the positions. */
mha_status mha__batch_map(const mha_model *m, const mha__batch *batch, const float *x, float *y, mha_error *err);

/* Return the number of rows and of keys in one attention map (model.h). */
int64_t mha__batch_map_rows(const mha__batch *batch);
int64_t mha__batch_map_keys(const mha__batch *batch);

/* Return the row of a sequence's first token, and of its last real token (the first token if none is real). */
int64_t mha__batch_first(const mha__batch *batch, int64_t b);
int64_t mha__batch_last(const mha__batch *batch, int64_t b);

#endif
