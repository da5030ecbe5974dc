/* regroup_model.h - internals of regrouping to shared keys and values. Public header: mha/regroup.h.
 *
 *   regroup_model.c    the call; regroup_options.c checks its options, regroup_config.c writes its result
 *   regroup_layer.c    the new projections of one layer
 *   regroup_weights.c  the projections of a layer, read from the checkpoint's tensors and listed as new ones
 *   regroup_moments.c  second moments of queries, keys and values over the texts
 *   regroup_fit.c      the shared head of a group
 *   regroup_groups.c   which heads share a group */
#ifndef MHA_HEADS_EDIT_REGROUP_MODEL_H
#define MHA_HEADS_EDIT_REGROUP_MODEL_H

#include "heads/edit/edit_struct.h"
#include "heads/edit/keep_list.h"
#include "mha/regroup.h"

/* The projections of a layer in double. A row of q, k or v has E weights, then the bias. */
typedef struct mha__projections {
    int64_t width, head_dim, heads, k_heads, v_heads; /* E, D, H; head counts of the k and v tensors */
    double *q, *k, *v;                                /* [heads D, E + 1] */
    double *o;                                        /* [E, H D] */
} mha__projections;

/* mha__projections_read reads the projections of `layer`; mha__projections_make allocates zeros with the dimensions of
 * `like` but other key and value head counts. Free with mha__projections_free. */
mha_status mha__projections_read(const mha_model *model, int64_t layer, mha__projections *out, mha_error *err);
mha_status mha__projections_make(mha_ctx *ctx, const mha__projections *like, int64_t k_heads, int64_t v_heads,
                                 mha__projections *out, mha_error *err);
void mha__projections_free(mha_ctx *ctx, mha__projections *p);
/* Adds the tensors of the layer to the edit's list, and its output projection to edit->out. The heads of k and of v are
 * repeated to give `copies` heads; 0 = not repeated. */
mha_status mha__projections_list(mha_model_edit *edit, int64_t layer, const mha__projections *from, int64_t copies,
                                 mha_error *err);

/* Sums over all tokens of products of query, key and value elements, as they are passed to the attention operator. NULL
 * = not requested. */
typedef struct mha__moments {
    int64_t tokens;
    double **queries, **keys, **values; /* [layers]: [H, D, D], [Hkv D, Hkv D], [Hkv D, Hkv D] */
    double **mean;                      /* [layers]: [Hkv D] sums of the keys */
} mha__moments;

mha_status mha__moments_sum(const mha_model *model, const mha_head_data *data, bool keys, bool values,
                            mha__moments *out, mha_error *err);
void mha__moments_free(mha_ctx *ctx, mha__moments *m, int64_t layers);

/* The products of the keys or the values of a layer, and the weighting matrices that define the cost of sharing. */
typedef struct mha__shared {
    mha_ctx *ctx;
    int64_t heads, head_dim, stored; /* H, D, Hkv */
    double *gram;                    /* [Hkv D, Hkv D] products of the heads' elements over tokens */
    double *root, *back;             /* [H, D, D] S_h, the root of head h's weighting matrix, and its inverse */
} mha__shared;

/* Computes root and back, where S_h^2 = squares[h] / divisor + damping I. Overwrites `squares` [H, D, D]. */
mha_status mha__shared_roots(mha__shared *s, double *squares, double divisor, double damping, mha_error *err);
void mha__shared_free(mha__shared *s);
/* Computes the shared head of the `count` listed heads: maps [count, D, D] = P_h^T S_h and backs = P_h^T S_h^-1, where
 * P_h are the rows of head h in the D leading eigenvectors. */
mha_status mha__shared_fit(const mha__shared *s, const int32_t *heads, int64_t count, double *maps, double *backs,
                           mha_error *err);
/* Adds to cost [H, H], for each pair of heads, the squared error if D directions represent both heads, as a fraction of
 * the total over all heads. */
mha_status mha__shared_pairs(const mha__shared *s, double *cost, mha_error *err);

/* Finds the order [heads] of heads that minimizes the cost of the pairs of heads in the same group. For n = 0 and 1,
 * there are counts[n] groups with the costs [heads, heads] costs[n] (NULL = no cost). Units of `unit` neighbors stay
 * together. */
void mha__order_find(int64_t heads, int64_t unit, const int64_t counts[2], double *const costs[2], int32_t *order);

/* The state of one call of mha_regroup. */
typedef struct mha__regroup {
    const mha_model *model;
    mha_regroup_options o;
    mha_model_edit *edit;
    mha__moments moments;
    int32_t *order;  /* [layers, H] the previous position of each head */
    double *weights; /* [layers, H] weight of each head; NULL without scores */
    bool ordered;    /* true if at least one head has moved */
    bool listed;     /* true if config.json of the source has a list of heads */
} mha__regroup;

/* Checks and completes the options. */
mha_status mha__regroup_check(mha__regroup *r, mha_error *err);
/* Computes the weights of heads from their scores. */
mha_status mha__regroup_weigh(mha__regroup *r, mha_error *err);
/* Returns the number of key (or value) heads of a regrouped layer; if `asked` is 0, the `had` heads of the source. */
int64_t mha__regroup_count(int64_t asked, int32_t had);
/* Returns true if regrouping reduces the number of key (or value) heads of any layer. */
bool mha__regroup_shrinks(const mha__regroup *r, bool keys);
/* Returns the number of key heads, which is also the number of value heads, that a `compatible` result stores; 0 if not
 * `compatible`. */
int64_t mha__regroup_copies(const mha__regroup *r, int64_t layer);
/* Writes config.json and the record of the regrouped model. */
mha_status mha__regroup_config(mha__regroup *r, mha_error *err);

/* The input and the result of regrouping one layer. */
typedef struct mha__regroup_job {
    const mha_model *model;
    const mha_regroup_options *o;
    const mha__moments *moments;
    int64_t layer, keys, values; /* keys, values: head counts after regrouping */
    const double *weights;       /* [H] weight of each head; NULL = equal weights */
    int32_t *order;              /* [H] output: the previous position of each head */
} mha__regroup_job;
mha_status mha__regroup_layer(const mha__regroup_job *job, const mha__projections *from, mha__projections *to,
                              mha_error *err);

#endif
