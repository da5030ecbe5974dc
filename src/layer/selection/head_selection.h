/* head_selection.h - selection of heads per sequence in an attention layer (mha_layer_choice), forward and backward,
 * and the mean of the tokens of a sequence. The mha__attn_choice functions do nothing for a layer without a
 * selection. */
#ifndef MHA_LAYER_SELECTION_HEAD_SELECTION_H
#define MHA_LAYER_SELECTION_HEAD_SELECTION_H

#include "base/arena.h"
#include "layer/attention/attention_layer.h"

/* Return the number of sequences in a call, and the first row of sequence n. A sequence including its padding ends at
 * the first row of sequence n + 1. */
int64_t mha__layer_sequences(const mha_layer_input *in);
int64_t mha__layer_first_row(const mha_layer_input *in, int64_t n);
/* Returns the row after the last token of sequence n, padding excluded. */
int64_t mha__layer_end_row(const mha_layer_input *in, int64_t n);

/* Sets `to` [E] to the mean of the tokens of sequence n, padding excluded, or to zeros if the sequence has no
 * tokens. */
void mha__attn_mean(const mha_attn_layer *layer, const mha_layer_input *in, const void *x, int64_t n, double *to);
/* Adds to dx [B L, E] the gradient of each token, from dmean [sequences, E], the gradients of the means. */
void mha__attn_mean_back(const mha_attn_layer *layer, const mha_layer_input *in, const double *dmean, void *dx);

/* Checks the options of a selection. Defined, like mha__attn_choice_keep, in head_selection_create.c. */
mha_status mha__attn_choice_check(const mha_attn_layer_options *o, mha_error *err);
/* Copies the weights of the scorers and their biases; elements have the layer's real type. `score` is [S, P], or [S, E]
 * without `hidden`; `hidden` is [P, E]. When called again after the weights have changed, allocates nothing and returns
 * MHA_OK. */
mha_status mha__attn_choice_keep(mha_attn_layer *layer, const mha__matrix *score, const mha__matrix *hidden,
                                 mha_error *err);

void mha__chosen_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in, mha__chosen *chosen);
/* Scores and selects the heads for each sequence from the mean of its tokens; x is [B L, E]. */
void mha__attn_choose(const mha_attn_layer *layer, const mha_layer_input *in, const void *x, const mha__chosen *chosen);
/* Sets the operator's gates and, if heads are skipped, the block mask that selects the kept heads. */
void mha__chosen_bind(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                      mha_attn_args *args);
/* Returns the caller's gate of head h in sequence n; 1 if the caller passes no gates. */
double mha__call_gate(const mha_layer_input *in, int64_t n, int64_t h);

/* Allocates the gradients of a selection. Defined, like mha__attn_choice_back, in head_selection_backward.c. */
void mha__choice_grads_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            mha__choice_grads *grads);
/* Backpropagates grads->dgates: adds to the slots of the scorers, sets grads->dmean, and writes dgates [sequences, H],
 * the gradients of the caller's gates, unless its data is NULL. */
void mha__attn_choice_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                           const mha__choice_grads *grads, const mha__attn_slots *slots, mha_view dgates);

#endif
