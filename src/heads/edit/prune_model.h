/* prune_model.h - a model with heads removed, inside. Public side: mha/prune.h. */
#ifndef MHA_HEADS_EDIT_PRUNE_MODEL_H
#define MHA_HEADS_EDIT_PRUNE_MODEL_H

#include "heads/edit/kept_heads.h"
#include "mha/prune.h"

/* The output projection of one layer, as it will be stored: f32, in the list of tensors. */
typedef struct mha__out_part {
    float *weight;      /* [E, columns], or [columns, E] */
    bool transposed;    /* the latter: Conv1D */
    float *bias;        /* [E]; NULL: there is none */
    int64_t columns;    /* head_dim numbers for each head of the result */
    int64_t *used;      /* [used_count] the columns of heads that stay, ascending */
    int64_t used_count; /* head_dim times the heads that stay */
} mha__out_part;

struct mha_pruning {
    const mha_model *model;
    mha_ctx *ctx;
    uint8_t *keep;          /* [layers, H] */
    mha_named_tensor *list; /* [count] what changes; data and names of `named` are owned */
    int64_t count;
    char **named;       /* [count] names that the source does not have, or NULL */
    mha__out_part *out; /* [layers] weight NULL: the layer's output projection stays as it is */
    char *config;       /* config.json of the result */
    char *entry;        /* of its record: JSON */
    bool add_bias;      /* the result has biases where the source had none */
    bool compatible;
};

/* A new entry of the list, of zeros; there must be room for it. */
mha_status mha__pruning_add(mha_pruning *p, const char *name, int rank, const int64_t *shape, float **data,
                            mha_error *err);

/* Begins the record of what was done, p->entry. */
mha_status mha__record_begin(mha_pruning *p, const mha_prune_options *options, mha_error *err);
/* p->config with the finished record. */
mha_status mha__record_config(const mha_pruning *p, char **text, mha_error *err);
/* Writes the key "refit" of a record, and its value. */
void mha__refit_write(mha__json_writer *w, int64_t tokens, double ridge);

/* Fills the tensors of all layers: heads cut out, or zeroed. Output projections of all layers are listed with
 * `all_out`. */
mha_status mha__pruning_cut(mha_pruning *p, bool all_out, mha_error *err);

/* Adds Wo_h m_h of the removed heads to the output biases. */
mha_status mha__pruning_fill(mha_pruning *p, const mha_head_data *data, mha_error *err);
/* Fits the output projections. */
mha_status mha__pruning_refit(mha_pruning *p, const mha_head_data *data, double ridge, mha_error *err);

/* Mean output of each head over all tokens, [layers, H, head_dim], memory of the context: 0 where a layer has no such
 * head. */
mha_status mha__mean_contexts(const mha_model *model, const mha_head_data *data, double **means, mha_error *err);

#endif
