/* edit_struct.h - internals of an edited model, shared by pruning and regrouping. Public header: mha/model_edit.h. */
#ifndef MHA_HEADS_EDIT_EDIT_STRUCT_H
#define MHA_HEADS_EDIT_EDIT_STRUCT_H

#include "io/json/json_write.h"
#include "mha/head_data.h"
#include "mha/model_edit.h"
#include "model/model_struct.h"

/* The output projection of one layer of the edited model. `weight` and `bias` are the f32 data of tensors in the edit's
 * list. */
typedef struct mha__out_part {
    float *weight;      /* [E, columns], or [columns, E] if transposed */
    bool transposed;    /* true for a Conv1D weight */
    float *bias;        /* [E]; NULL = no bias */
    int64_t columns;    /* head_dim times the number of heads in the edited model */
    int64_t *used;      /* [used_count] the columns that belong to remaining heads, ascending */
    int64_t used_count; /* head_dim times the number of remaining heads */
} mha__out_part;

struct mha_model_edit {
    const mha_model *model; /* the source; may be one side of an encoder-decoder, or one tower */
    mha_ctx *ctx;
    mha_named_tensor *list; /* [count] changed tensors; their data and `own_names` are owned */
    int64_t count, max;     /* max: capacity of both lists */
    char **own_names;       /* [count] names of tensors that the source model lacks; NULL for all other tensors */
    /* Output projections; weight NULL = unchanged: [layers], and for the decoder of an encoder-decoder also those of
     * the cross-attention [layers] and of the encoder [encoder layers] (mha__edit_out). */
    mha__out_part *out;
    char *config; /* config.json of the edited model */
    char *entry;  /* the record entry of this edit, as JSON */
};

/* Returns the output projections of the layers of a kind of heads. */
mha__out_part *mha__edit_out(const mha_model_edit *edit, mha_head_kind kind);

/* Creates an edit without changes, with space for all attention tensors. */
mha_status mha__edit_create(const mha_model *model, mha_model_edit **out, mha_error *err);
/* Stores the edit in *out if `status` is MHA_OK, else frees it. */
mha_status mha__edit_finish(mha_model_edit *edit, mha_status status, mha_model_edit **out);
/* Appends a tensor, filled with zeros. */
mha_status mha__edit_new_tensor(mha_model_edit *edit, const char *name, int rank, const int64_t *shape, float **data,
                                mha_error *err);

/* Returns the part of an opened edit that corresponds to the source: `whole`, or its encoder or image tower. */
mha_model *mha__edit_side(const mha_model_edit *edit, mha_model *whole);

/* Returns an error for a model whose heads cannot be removed or regrouped: its norms cover all heads of a layer, or its
 * layers share their tensors. */
mha_status mha__edit_check_norms(const mha_model *model, mha_error *err);
/* Checks for both pruning and regrouping. In this order, they reject: a `compatible` result if config.json has `key`,
 * which only this project supports (NULL if config.json has no key of this project); a layer that selects heads for
 * each text; a model without weights; scores [H] of a layer that are not finite. */
mha_status mha__edit_check_compatible(const char *key, mha_error *err);
mha_status mha__edit_check_selection(const mha_model *model, int64_t layer, mha_error *err);
mha_status mha__edit_check_weights(const mha_model *model, mha_error *err);
mha_status mha__edit_check_scores(const mha_model *model, const double *scores, int64_t layer, mha_error *err);

/* ---- refit_outputs.c ---- */

/* Fits the output projections of the edited model, so that it reproduces the source model on the texts. */
mha_status mha__edit_refit(mha_model_edit *edit, const mha_head_data *data, double ridge, mha_error *err);

/* ---- edit_record.c ---- */

void mha__record_text(mha__json_writer *w, const char *key, const char *value);
/* Writes the last fields of an entry, which describe the refit on the data `refit` (NULL = no refit) with `ridge`, and
 * stores the entry in the edit. */
mha_status mha__record_end(mha_model_edit *edit, mha__json_writer *w, const mha_head_data *refit, double ridge,
                           bool compatible, mha_error *err);
/* Sets *text to edit->config with the finished record; the caller frees it. */
mha_status mha__record_config(const mha_model_edit *edit, char **text, mha_error *err);

#endif
