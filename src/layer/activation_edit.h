/* activation_edit.h - passes the activations inside a forward pass to a function that may read and change them, for
 * circuit measures (src/circuits). Only for passes in f32. */
#ifndef MHA_LAYER_ACTIVATION_EDIT_H
#define MHA_LAYER_ACTIVATION_EDIT_H

#include "mha/layer.h"

/* Where the function is called, in the order of the pass. Arrays have one row per token [B L, width]. */
typedef enum mha__edit_site {
    MHA__EDIT_EMBEDDED,  /* sum of the embeddings, before the embedding norm; layer 0 */
    MHA__EDIT_QKV,       /* q, k and v as the operator reads them: normalized and rotated */
    MHA__EDIT_CONTEXT,   /* output of the operator, with gates and fills */
    MHA__EDIT_ATTN_OUT,  /* output of the output projection, before norms, residual factor and residual */
    MHA__EDIT_RESID_MID, /* after the residual of attention; in a post-norm block, after the norm */
    MHA__EDIT_MLP_OUT,   /* output of feed-forward, before norms, residual factor and residual */
    MHA__EDIT_RESID_POST /* output of the block, before the final norm of the model */
} mha__edit_site;

typedef struct mha__site_edit {
    /* Called before a layer runs; may set `keep` of the layer's input, which must then be set in all layers, and may
     * keep the pointer for the duration of the layer (probs contains the maps at MHA__EDIT_CONTEXT if they are
     * requested). NULL = not called. */
    void (*begin)(void *user, int64_t layer, mha_layer_input *in);
    /* Receives rows [first, first + rows) of a site. The arrays of MHA__EDIT_QKV remain valid until
     * MHA__EDIT_CONTEXT. NULL = not called. */
    void (*change)(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x);
    void *user;
    int64_t layer; /* set by the pass */
} mha__site_edit;

static inline void mha__edited(const mha__site_edit *edit, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    if (edit && edit->change) edit->change(edit->user, edit->layer, site, first, rows, x);
}

#endif
