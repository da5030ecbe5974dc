/* encoder_source.h - the source of an encoder-decoder in one pass: checks it, and describes it for the cross-attention
 * of each decoder layer. */
#ifndef MHA_MODEL_FORWARD_ENCODER_SOURCE_H
#define MHA_MODEL_FORWARD_ENCODER_SOURCE_H

#include "model/forward/batch.h"
#include "model/forward/source_store.h"

/* The source of one pass. */
typedef struct mha__cross_pass {
    bool used;             /* the model is an encoder-decoder */
    mha_model_input input; /* a copy of the caller's input of the encoder; size 0 = none, sources are cached */
    mha__sources own;      /* for a pass without a cache */
    mha__sources *store;   /* `own`, or that of the cache */
    int64_t first;         /* sequence of the store that is sequence 0 of the pass */
    mha_layer_source layer;
    mha_attn_plan *plan;
    float *probs;     /* [B, H, L, S] maps of one layer; NULL = not requested */
    float some_probs; /* placeholder for an array that is not allocated yet; not accessed */
} mha__cross_pass;

/* Checks the source of the pass, and the outputs that only encoder-decoders have. */
mha_status mha__cross_read(const mha_model *m, const mha__batch *batch, const mha_model_output *out,
                           mha__cross_pass *pass, mha_error *err);
/* Sets pass->layer without its plan, and batch->layer.source. */
void mha__cross_bind(const mha_model *m, mha__batch *batch, bool maps, mha__cross_pass *pass);
/* Stores lengths and masks of the given source. */
void mha__cross_store_masks(const mha__cross_pass *pass);
/* Runs mha__cross_bind, and creates the plan of the cross-attention. Before memory is allocated, the arrays are
 * placeholders that only mark their presence. */
mha_status mha__cross_describe(const mha_model *m, mha__batch *batch, const mha_model_output *out,
                               mha__cross_pass *pass, mha_error *err);
void mha__cross_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, const mha_model_output *out,
                        mha__cross_pass *pass);
/* Computes and stores the keys and values of all layers from the last hidden states [B S, E] of the encoder. */
mha_status mha__cross_store_keys(const mha_model *m, const mha__cross_pass *pass, const float *hidden, mha_error *err);
/* Sets the keys and values of a layer. */
void mha__cross_turn(const mha_model *m, mha__cross_pass *pass, int64_t layer);
/* Passes the maps of a layer to the caller. */
mha_status mha__cross_show(const mha_model *m, const mha__cross_pass *pass, const mha_model_output *out, int64_t layer,
                           mha_error *err);

#endif
