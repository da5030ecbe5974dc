/* route.h - heads per sequence, inside: a router's numbers, and what a pass needs to follow it. Public side:
 * mha/route.h. */
#ifndef MHA_MODEL_ROUTE_H
#define MHA_MODEL_ROUTE_H

#include "mha/route.h"
#include "model/forward/batch.h"

struct mha_router {
    mha_ctx *ctx;
    int64_t layers, hidden;
    int64_t *units;          /* [layers] U */
    double **weight, **bias; /* [layers] of [U, E] and [U] */
    mha_named_tensor *list;  /* [2 layers] the same as f32, as it is stored */
    char (*name)[40];        /* [2 layers] */
    void *memory;            /* of all that */
};

/* Memory for a router of this model, its numbers not filled in; a list without data in it. */
mha_status mha__router_allocate(const mha_model *model, mha_router **out, mha_error *err);
/* The list's data have been filled in: the same in double. */
void mha__router_widen(mha_router *router);
/* Units of a layer of the model. */
int64_t mha__router_units(const mha_model *model, int64_t layer);
/* MHA_ERR_ARG if the router is that of a model of another shape. */
mha_status mha__router_check(const mha_router *router, const mha_model *model, mha_error *err);

/* What one pass keeps. */
typedef struct mha__routed {
    mha_layer_route layer; /* of the layer at hand */
    uint8_t *kept;         /* [layers, sequences, H]; with a cache its own */
    uint8_t *decided;      /* [sequences] */
    int64_t step, first;   /* sequences of a layer in `kept`, and the first of this pass */
    uint8_t some;          /* stands for arrays that do not exist yet, and is not touched */
} mha__routed;

void mha__routed_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, mha__routed *routed);
/* Which sequences have decided already. */
void mha__routed_begin(const mha_model *m, const mha__batch *batch, mha__routed *routed);
/* Turns batch->layer to what this layer's router needs. */
void mha__routed_turn(const mha_model *m, mha__batch *batch, mha__routed *routed, int64_t layer, uint8_t *kept);
/* Copies what a layer has decided to out [layers, B, H]. */
void mha__routed_show(const mha_model *m, const mha__batch *batch, const mha__routed *routed, int64_t layer,
                      uint8_t *out);

#endif
