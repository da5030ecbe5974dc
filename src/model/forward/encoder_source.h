/* encoder_source.h - the source of an encoder-decoder in one pass: checks it, and describes it for the cross-attention
 * of each decoder layer. */
#ifndef MHA_MODEL_FORWARD_ENCODER_SOURCE_H
#define MHA_MODEL_FORWARD_ENCODER_SOURCE_H

#include "model/forward/batch.h"
#include "model/forward/source_store.h"

/* The source of one pass. */
typedef struct mha__cross_pass {
    bool used; /* the model is an encoder-decoder */
    /* A copy of the caller's input of the encoder; size 0 = none, sources are cached. With packed sequences, batch is 1
     * and length the total length. */
    mha_model_input input;
    int64_t sequences;    /* number of sequences of the source */
    const float *encoded; /* [B S, E] the caller's last hidden states of the encoder, which then does not run */
    mha__sources own;     /* for a pass without a cache */
    mha__sources *store;  /* `own`, or that of the cache */
    int64_t first;        /* sequence of the store that is sequence 0 of the pass */
    mha_layer_source layer;
    mha_attn_plan *plan; /* plan of the layer `planned` and of all layers of the same shape with as many maps */
    const mha_attn_layer *planned;
    int64_t maps; /* heads of the current layer whose maps are requested */
    int64_t planned_maps;
    const mha_model_output *out;       /* the caller's outputs */
    mha_layer_activations activations; /* those of the current layer; context NULL = not requested */
    float *probs;                      /* [B, H, L, S] maps of one layer; NULL = not requested */
    int32_t *heads;                    /* [H] heads of those maps; NULL = all */
    float some_probs;                  /* placeholders for arrays that are not allocated yet; not accessed */
    int32_t some_heads;
} mha__cross_pass;

/* Checks the source of the pass, and the outputs that only encoder-decoders have. */
mha_status mha__cross_read(const mha_model *m, const mha__batch *batch, const mha_model_output *out,
                           mha__cross_pass *pass, mha_error *err);
/* Returns the input of the encoder. */
mha_model_input mha__cross_encoder_input(const mha__cross_pass *pass);
/* Sets pass->layer and batch->layer.source. Before memory is allocated, the arrays are placeholders that only mark
 * their presence. */
void mha__cross_bind(const mha_model *m, mha__batch *batch, mha__cross_pass *pass);
/* Sets the gates and fills of the heads of a layer, if the pass has some for cross-attention. */
void mha__cross_turn_gates(const mha_model *m, const mha__batch *batch, mha__cross_pass *pass, int64_t layer);
/* Stores lengths and masks of the given source. */
void mha__cross_store_masks(const mha__cross_pass *pass);
void mha__cross_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, const mha_model_output *out,
                        mha__cross_pass *pass);
/* Computes and stores the keys and values of all layers from the last hidden states [B S, E] of the encoder. */
mha_status mha__cross_store_keys(const mha_model *m, const mha__cross_pass *pass, const float *hidden, mha_error *err);
/* Sets the keys, values and requested maps of a layer, and the plan of its cross-attention. */
mha_status mha__cross_turn(const mha_model *m, mha__batch *batch, mha__cross_pass *pass, int64_t layer, mha_error *err);
/* Passes the maps and activations of a layer to the caller. */
mha_status mha__cross_show(const mha_model *m, const mha__batch *batch, const mha__cross_pass *pass, int64_t layer,
                           mha_error *err);

#endif
