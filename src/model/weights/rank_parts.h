/* rank_parts.h - the part of a model that one of several processes stores (mha/model_ranks.h): reads it from the files.
 * model_struct.h declares the functions that compare the models of all processes. */
#ifndef MHA_MODEL_WEIGHTS_RANK_PARTS_H
#define MHA_MODEL_WEIGHTS_RANK_PARTS_H

#include "model/model_struct.h"

/* The heads and feed-forward columns of a layer that this process computes. A process without heads computes one head
 * that no product reads, so that its cache counts tokens; the same applies to columns. */
typedef struct mha__layer_part {
    int64_t head, heads;
    int64_t k_heads, v_heads, kv_heads; /* head counts, copies included; kv_heads as in mha__config */
    int64_t column, columns;
} mha__layer_part;
mha__layer_part mha__layer_part_of(const mha_model *model, int64_t layer);

/* Like mha__weights_part for a role whose rows are tokens; finds only the rows of this process. */
mha_status mha__rank_vocabulary(mha__weights *weights, const mha_model_ranks *ranks, mha__role role, mha_matrix *part,
                                mha_error *err);
/* Creates the block of a layer from this process's parts of its tensors. `weights` is a copy of model->outer. */
mha_status mha__rank_block(mha_model *model, int64_t layer, mha__weights *weights, mha_error *err);

#endif
