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
void mha__attn_mean(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, int64_t n, double *to);
/* dx [B L, E] += the gradient of each token from dmean [sequences, E], the gradients of the means. */
void mha__attn_mean_back(const mha_attn_layer *layer, const mha_layer_input *in, const double *dmean, float *dx);

/* head_selection_create.c */
mha_status mha__attn_choice_check(const mha_attn_layer_options *o, mha_error *err);
/* Copies the scorer's weights; `keep` copies them again after they have changed. */
mha_status mha__attn_choice_create(mha_attn_layer *layer, const mha_attn_layer_options *o, mha_error *err);
void mha__attn_choice_keep(mha_attn_layer *layer, const mha_attn_layer_options *o);

/* What each sequence of a call selected. S is the number of scores: one per head or per option. Arrays are [sequences,
 * S] unless noted. */
typedef struct mha__chosen {
    double *mean;   /* [sequences, E] */
    double *hidden; /* [sequences, P] or NULL */
    double *soft;   /* trained gates (selection_gates.h) */
    double *gate;   /* gate of each head, or of the option for all its heads; 0 = not selected */
    float *gates;   /* gate times the call's own gate: what the operator reads */
    uint8_t *kept;  /* 1 or 0 */
    int32_t *list;  /* indices of the selected scores, ascending */
} mha__chosen;

void mha__chosen_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in, mha__chosen *chosen);
/* Selects heads from x [B L, E] and sets the operator's gates. */
void mha__attn_choose(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, const mha__chosen *chosen,
                      mha_attn_args *args);
/* Sets the operator's gates and the heads that it computes. */
void mha__chosen_bind(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                      mha_attn_args *args);
/* The call's own gate of head h in sequence n; 1 without gates. */
float mha__call_gate(const mha_layer_input *in, int64_t n, int64_t h);

/* Gradients of the backward pass (head_selection_backward.c). */
typedef struct mha__choice_grads {
    float *dgates;   /* [sequences, S] gradients of the operator's gates */
    double *dscore;  /* [sequences, S] */
    double *dhidden; /* [sequences, P] or NULL */
    double *dmean;   /* [sequences, E] */
} mha__choice_grads;

/* Where weight gradients are accumulated; NULL = not wanted. */
typedef struct mha__choice_slots {
    float *dscore, *dscore_bias;   /* [S, E or P], [S] */
    float *dhidden, *dhidden_bias; /* [P, E], [P] */
} mha__choice_slots;

void mha__choice_grads_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            mha__choice_grads *grads);
/* From grads->dgates: accumulates into the slots, fills grads->dmean, and writes dgates [sequences, H], the gradients
 * of the call's own gates (data NULL = not wanted). */
void mha__attn_choice_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                           const mha__choice_grads *grads, const mha__choice_slots *slots, mha_view dgates);

#endif
