/* feed_forward_backward.h - forward pass with a trace and backward pass of a block's feed-forward part, for a chunk of
 * rows. */
#ifndef MHA_LAYER_BLOCK_FEED_FORWARD_BACKWARD_H
#define MHA_LAYER_BLOCK_FEED_FORWARD_BACKWARD_H

#include "layer/block/feed_forward.h"
#include "layer/linear/linear.h"

typedef struct mha__feed_slots {
    mha__grad_slot up, gate, down;
} mha__feed_slots;

typedef struct mha__feed_part_slots {
    mha__feed_slots feed; /* for all tokens */
    mha__grad_slot router, shared_gate;
    mha__feed_slots *expert; /* [count]; NULL without experts */
} mha__feed_part_slots;

/* Activations that the forward pass stores. */
typedef struct mha__feed_trace {
    float *up, *gate; /* [rows, I] before the activation; gate is NULL without a gated activation */
    /* `up` contains the activation's derivative instead of its input, so that repeated backward passes do not recompute
     * it */
    bool slopes;
} mha__feed_trace;

typedef struct mha__experts_trace {
    mha__feed_trace feed; /* [rows chosen, I] grouped by expert within each chunk */
    mha__routes routes;   /* probs, expert and share of all rows */
    float *share;         /* [rows] weights of the shared feed-forward; NULL without a gate */
} mha__experts_trace;

/* Scratch memory for a chunk; `wide`, `other` and `dwide` fit the widest feed-forward of the part. */
typedef struct mha__feed_work {
    float *wide, *other, *dwide; /* [chunk, I] */
    void *left;                  /* rounded input of `up` and `gate`, if they round it */
    mha__routes group;           /* order and start */
    float *in, *dy, *out;        /* [chunk, E] rows of one expert */
    float *dshare;               /* [chunk chosen] gradients of the weights */
    float *part;                 /* [chunk] gradients of the weights of one group */
    float *dlogits;              /* [chunk, count] */
} mha__feed_work;

/* A chunk: rows [first, first + rows) of a call. */
typedef struct mha__feed_call {
    mha_ctx *ctx;
    const mha__mlp *feed;        /* up is NULL if there are only experts */
    const mha__experts *experts; /* NULL = none */
    int64_t hidden, first, rows;
    const mha__feed_trace *trace;
    const mha__experts_trace *experts_trace;
    const mha__feed_work *work;
} mha__feed_call;

void mha__feed_trace_take(mha__arena *arena, const mha__mlp *feed, const mha__experts *experts, size_t rows,
                          bool learns, mha__feed_trace *trace, mha__experts_trace *experts_trace);
void mha__feed_work_take(mha__arena *arena, const mha__mlp *feed, const mha__experts *experts, size_t chunk,
                         mha__feed_work *work);

/* Runs feed-forward for the rows x [rows, E] of the chunk and stores its trace; computes the output only if y is not
 * NULL. */
mha_status mha__feed_keep(const mha__feed_call *call, const float *x, float *y, mha_error *err);
/* Computes dx from dy, both [rows, E], and accumulates the gradients of weights. x is read only for the gradients of
 * weights. */
mha_status mha__feed_back(const mha__feed_call *call, const mha__feed_part_slots *slots, const float *x,
                          const float *dy, float *dx, mha_error *err);
/* Returns true if a gradient of weights requires the input of feed-forward. */
bool mha__feed_learns(const mha__feed_part_slots *slots);

#endif
