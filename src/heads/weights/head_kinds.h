/* head_kinds.h - the kinds of heads that a measure covers, and their place in its arrays. A measure of an
 * encoder-decoder covers the heads of the decoder, of the cross-attention and of the encoder, in this order; other
 * models have one kind. */
#ifndef MHA_HEADS_WEIGHTS_HEAD_KINDS_H
#define MHA_HEADS_WEIGHTS_HEAD_KINDS_H

#include "heads/weights/head_weights.h"

typedef struct mha__head_set {
    mha_head_kind kind;
    const mha_model *model;         /* the model, or its encoder */
    int64_t layers, heads, width;   /* layers, H, and the head width D */
    const int64_t *heads_per_layer; /* [layers] */
    int64_t first;                  /* index of the first head in arrays [total] of all kinds */
    int64_t cell;                   /* index of its first element in arrays of head outputs, D per head */
} mha__head_set;

typedef struct mha__head_sets {
    mha__head_set set[MHA_HEAD_KINDS]; /* [count] set n has kind n */
    int count;
    int64_t total, cells; /* heads, and elements of their outputs, of all kinds: sums of layers H, and of layers H D */
} mha__head_sets;

mha__head_sets mha__head_sets_of(const mha_model *model);
/* Returns the kind that contains index n of arrays [total]. */
const mha__head_set *mha__head_set_at(const mha__head_sets *sets, int64_t n);

/* One layer of a kind of heads. */
typedef struct mha__head_row {
    const mha__head_set *set;
    int64_t layer;
    int64_t first, count; /* index of its first head in arrays [total], and number of its heads */
} mha__head_row;

/* Returns the number of layers of all kinds, and layer `row` of them. */
int64_t mha__head_row_count(const mha__head_sets *sets);
mha__head_row mha__head_row_of(const mha__head_sets *sets, int64_t row);

/* Returns true if the layer that contains index n has this head. */
static inline bool mha__head_set_has(const mha__head_set *set, int64_t n)
{
    return (n - set->first) % set->heads < set->heads_per_layer[(n - set->first) / set->heads];
}

/* Returns the location of a head in the tensor as stored, or as loaded (mha__head_part_loaded). */
mha__head_part mha__head_set_part(const mha__head_set *set, int64_t layer, mha__projection which, int64_t head);
mha__head_part mha__head_set_loaded(const mha__head_set *set, int64_t layer, mha__projection which, int64_t head);

#endif
