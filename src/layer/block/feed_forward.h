/* feed_forward.h - the feed-forward part of a block: one feed-forward for all tokens, or experts of which each token
 * uses a few, with or without an additional shared feed-forward. Experts that no token of a chunk chose are not
 * computed. */
#ifndef MHA_LAYER_BLOCK_FEED_FORWARD_H
#define MHA_LAYER_BLOCK_FEED_FORWARD_H

#include "base/arena.h"
#include "layer/block/clamped_swiglu.h"
#include "mha/layer.h"
#include <stdbool.h>

/* y = down(act(up(x))), y = down(act(gate(x)) * up(x)), or y = down(clamped_swiglu(gate(x), up(x))). */
typedef struct mha__mlp {
    mha_linear *gate, *up, *down; /* gate is NULL without a gated activation; up is NULL if there is no feed-forward */
    int64_t width;                /* I */
    mha_activation activation;
    mha__clamped_swiglu clamped;
} mha__mlp;

/* The matrices of a feed-forward part; `out` is not read. */
typedef struct mha__feed_options {
    int64_t width;
    mha_activation activation;
    mha__clamped_swiglu clamped; /* with limit > 0, requires a gate, and `activation` is not read */
    mha_matrix gate, up, down;   /* gate.weight NULL = none */
} mha__feed_options;

mha_status mha__feed_create(mha_ctx *ctx, int64_t hidden, const mha__feed_options *options, mha__mlp *feed,
                            mha_error *err);
/* Creates a feed-forward part without `down`; only mha__feed_middle may be called on it. */
mha_status mha__feed_create_middle(mha_ctx *ctx, int64_t hidden, const mha__feed_options *options, mha__mlp *feed,
                                   mha_error *err);
void mha__feed_repack(mha__mlp *feed, int64_t hidden, const mha__feed_options *options);
void mha__feed_free(mha__mlp *feed);

/* Scratch memory for one call. */
typedef struct mha__feed_scratch {
    float *wide;  /* [rows, I]; bf16 if `down` reads bf16 */
    float *gated; /* [rows, I]; NULL without a gate */
    void *left;   /* rounded input of the linear layers: of `up` and `gate`, then of `down` */
} mha__feed_scratch;

void mha__feed_lay_out(mha__arena *arena, const mha__mlp *feed, size_t rows, mha__feed_scratch *scratch);
/* Computes the input of `down` in scratch->wide; x as in mha__feed_run. */
void mha__feed_middle(mha_ctx *ctx, const mha__mlp *feed, const mha__feed_scratch *scratch, int64_t rows,
                      const float *x);
/* Computes y [rows, E]; if x is NULL, its elements are already in scratch->left, rounded to bf16. */
void mha__feed_run(mha_ctx *ctx, const mha__mlp *feed, const mha__feed_scratch *scratch, int64_t rows, const float *x,
                   float *y);

/* ---- experts ---- */

enum { MHA__EXPERTS_MAX = 1024 }; /* maximum number of experts in a layer */

/* Rows per chunk in blocks with experts; large, because each expert's weights are read once per chunk. */
enum { MHA__EXPERT_ROWS = 2048 };

/* Experts of a layer. The router's matrix and that of the shared gate are always multiplied in f32, so that the choice
 * does not depend on the type of the other weights. Cost per row: 2 E count operations for the router, and 6 E I for
 * each chosen expert. Memory: the packed weights of all experts, and for a chunk of R rows 4 R (2 E + 2 I + count +
 * 3 chosen) bytes; a trace has 4 (2 I chosen + count + 2 chosen) bytes per row. */
typedef struct mha__experts_options {
    int64_t count, chosen;          /* experts, and experts per token; count 0 = none */
    bool normalized;                /* divide the weights of the chosen experts by their sum */
    bool sigmoid;                   /* scores are sigmoids instead of a softmax (expert_routing.c), with the fields: */
    int64_t groups, kept_groups;    /* number of groups, of equal size and at least two experts, and of kept groups */
    double factor;                  /* factor of all weights of experts */
    const float *correction;        /* [count] added to the scores for the choice */
    mha_matrix router;              /* E -> count */
    mha_matrix shared_gate;         /* E -> 1: the shared feed-forward is multiplied by the sigmoid of the output;
                                     * weight NULL = it is added as it is */
    const mha__feed_options *feeds; /* [count] with equal widths, and with gates */
} mha__experts_options;

typedef struct mha__experts {
    int64_t count, chosen, hidden;
    bool normalized, sigmoid;
    int64_t groups, kept_groups;
    double factor;
    float *correction; /* [count]; NULL without sigmoid */
    mha_linear *router, *shared_gate;
    mha__mlp feed[]; /* [count] */
} mha__experts;

mha_status mha__experts_create(mha_ctx *ctx, int64_t hidden, const mha__experts_options *options,
                               mha__experts **experts, mha_error *err);
void mha__experts_repack(mha__experts *experts, const mha__experts_options *options);
void mha__experts_free(mha_ctx *ctx, mha__experts *experts);

/* The choice of experts for the rows of a chunk. */
typedef struct mha__routes {
    float *probs;    /* [rows, count] softmax or sigmoids of the router's logits */
    int32_t *expert; /* [rows, chosen] the experts with the highest probabilities; of equal probabilities, the first */
    float *share;    /* [rows, chosen] weights of these experts */
    int32_t *order;  /* [rows chosen] places in `expert`, grouped by expert, ascending within a group */
    int64_t *start;  /* [count + 1] first index of each expert in `order` */
} mha__routes;

/* Allocates the arrays that only one chunk needs (order, start), or all arrays. */
void mha__routes_group_lay_out(mha__arena *arena, const mha__experts *experts, size_t rows, mha__routes *routes);
void mha__routes_lay_out(mha__arena *arena, const mha__experts *experts, size_t rows, mha__routes *routes);
/* Computes probs, expert and share of the rows. */
void mha__experts_route(mha_ctx *ctx, const mha__experts *experts, int64_t rows, const float *x,
                        const mha__routes *routes);
/* Computes the gradient of the router's logits of one row [count] from the gradient of its weights [chosen]. */
void mha__experts_route_back(const mha__experts *experts, const mha__routes *routes, int64_t row, const float *dshare,
                             float *dlogits);
/* Computes order and start from `expert`. */
void mha__experts_group(const mha__experts *experts, int64_t rows, const mha__routes *routes);

/* Copies the rows of x that chose expert e to `to`, in the order of their group, each multiplied by the row's weight if
 * `weighted` is set. */
void mha__experts_gather(mha_ctx *ctx, const mha__experts *experts, const mha__routes *routes, int64_t e,
                         const float *x, bool weighted, float *to);
/* Adds the rows of a group to the rows that chose the expert. */
void mha__experts_scatter(mha_ctx *ctx, const mha__experts *experts, const mha__routes *routes, int64_t e,
                          const float *from, bool weighted, float *y);
/* Computes share [rows] = sigmoid(shared_gate(x)). */
void mha__shared_share(const mha__experts *experts, int64_t rows, const float *x, float *share);
/* Multiplies each row of y by its share. */
void mha__scale_rows(int64_t rows, int64_t width, const float *share, float *y);

typedef struct mha__experts_scratch {
    mha__routes routes;
    mha__feed_scratch feed;
    float *in, *out; /* [rows, E] rows of one expert */
    float *share;    /* [rows] weights of the shared feed-forward; NULL without a gate */
} mha__experts_scratch;

void mha__experts_lay_out(mha__arena *arena, const mha__experts *experts, size_t rows, mha__experts_scratch *scratch);
/* Computes y [rows, E]: the weighted sum of the chosen experts, plus the shared feed-forward if shared->up is set. */
void mha__experts_run(mha_ctx *ctx, const mha__experts *experts, const mha__experts_scratch *scratch,
                      const mha__mlp *shared, const mha__feed_scratch *shared_scratch, int64_t rows, const float *x,
                      float *y);

#endif
