/* head_selection.h - heads that an attention layer selects per sequence (mha_layer_choice), forward and backward; and
 * the mean token of a sequence. For a layer without a selection, the mha__attn_choice functions do nothing. */
#ifndef MHA_LAYER_SELECTION_HEAD_SELECTION_H
#define MHA_LAYER_SELECTION_HEAD_SELECTION_H

#include "layer/arena.h"
#include "layer/attention/attention_layer.h"

/* The number of sequences of a call, and the first row of sequence n; a sequence with its padding ends at the first row
 * of sequence n + 1. */
int64_t mha__layer_sequences(const mha_layer_input *in);
int64_t mha__layer_first_row(const mha_layer_input *in, int64_t n);
/* The row after the last token of sequence n, without padding. */
int64_t mha__layer_end_row(const mha_layer_input *in, int64_t n);

/* to [E] = the mean of the tokens of sequence n, without padding; zeros if it has no tokens. */
void mha__attn_mean(const mha_attn_layer *layer, const mha_layer_input *in, const void *x, int64_t n, double *to);
/* dx [B L, E] += the gradient of each token from dmean [sequences, E], the gradients of the means. */
void mha__attn_mean_back(const mha_attn_layer *layer, const mha_layer_input *in, const double *dmean, void *dx);

/* head_selection_create.c */
mha_status mha__attn_choice_check(const mha_attn_layer_options *o, mha_error *err);
/* Copies the scorers' weights, of the layer's reals: [S, E or P] and [P, E], with their biases. Called again after they
 * have changed, it allocates nothing and returns MHA_OK. */
mha_status mha__attn_choice_keep(mha_attn_layer *layer, const mha__matrix *score, const mha__matrix *hidden,
                                 mha_error *err);

void mha__chosen_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in, mha__chosen *chosen);
/* Selects heads from x [B L, E]. */
void mha__attn_choose(const mha_attn_layer *layer, const mha_layer_input *in, const void *x, const mha__chosen *chosen);
/* Sets the operator's gates and the heads that it computes. */
void mha__chosen_bind(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                      mha_attn_args *args);
/* The call's own gate of head h in sequence n; 1 without gates. */
double mha__call_gate(const mha_layer_input *in, int64_t n, int64_t h);

/* head_selection_backward.c */
void mha__choice_grads_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            mha__choice_grads *grads);
/* From grads->dgates: accumulates into the slots of the scorers, fills grads->dmean, and writes dgates [sequences, H],
 * the gradients of the call's own gates (data NULL = not wanted). */
void mha__attn_choice_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                           const mha__choice_grads *grads, const mha__attn_slots *slots, mha_view dgates);

#endif
