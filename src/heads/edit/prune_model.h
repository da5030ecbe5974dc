/* prune_model.h - internals of pruning. Public header: mha/prune.h. */
#ifndef MHA_HEADS_EDIT_PRUNE_MODEL_H
#define MHA_HEADS_EDIT_PRUNE_MODEL_H

#include "heads/edit/edit_struct.h"
#include "heads/edit/keep_list.h"

enum { MHA__PRUNE_PARTS = 3 };

struct mha__prune_job;
/* Returns the kind of heads of a part, relative to the model of the job; MHA_HEAD_KINDS for a part of the other side,
 * which does not change. */
mha_head_kind mha__prune_kind(const struct mha__prune_job *job, const mha__keep *part);

typedef struct mha__prune_job {
    const mha_model *model;
    mha_model_edit *edit;
    /* [parts] The heads of the model; in an encoder-decoder also those of the other side and of the cross-attention,
     * even if all of them are kept, since config.json describes them together. */
    mha__keep part[MHA__PRUNE_PARTS];
    int parts;
    bool compatible; /* true = keep the tensor shapes of the unpruned model */
    bool add_bias;   /* true = add output biases, which the source lacks */
} mha__prune_job;

/* Builds the changed tensors of all layers, in which removed heads are cut out or zeroed. If `all_out` is set, also
 * adds the output projections of unchanged layers of the model. */
mha_status mha__prune_tensors(const mha__prune_job *job, bool all_out, mha_error *err);

/* ---- mean_fill.c ---- */

/* Adds the mean outputs of the removed heads, Wo_h m_h, to the output biases. */
mha_status mha__mean_fill(const mha__prune_job *job, const mha_head_data *data, mha_error *err);
/* Computes *means [layers, H, head_dim], kind after kind (head_kinds.h): the mean output of each head over all tokens,
 * 0 for heads that a layer lacks. The caller frees *means with the context's allocator. */
mha_status mha__mean_contexts(const mha_model *model, const mha_head_data *data, double **means, mha_error *err);

#endif
