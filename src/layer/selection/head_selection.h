/* head_selection.h - heads that an attention layer chooses for each sequence (mha_layer_choice), there and back; and
 * the mean token of a sequence. For a layer without a choice what is called mha__attn_choice does nothing. */
#ifndef MHA_LAYER_SELECTION_HEAD_SELECTION_H
#define MHA_LAYER_SELECTION_HEAD_SELECTION_H

#include "layer/arena.h"
#include "layer/attention/attention_layer.h"

/* Sequences of a call, and the first row of one; that of the next is where it ends, padding included. */
int64_t mha__layer_sequences(const mha_layer_input *in);
int64_t mha__layer_first_row(const mha_layer_input *in, int64_t n);
/* Where the tokens of sequence n end, without padding. */
int64_t mha__layer_end_row(const mha_layer_input *in, int64_t n);

/* to [E] = the mean over the real tokens of sequence n; zeros if there are none. */
void mha__attn_mean(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, int64_t n, double *to);
/* dx [B L, E] += the gradient of each token from those of the means, dmean [sequences, E]. */
void mha__attn_mean_back(const mha_attn_layer *layer, const mha_layer_input *in, const double *dmean, float *dx);

/* head_selection_create.c */
mha_status mha__attn_choice_check(const mha_attn_layer_options *o, mha_error *err);
/* Takes the weights of the scores; `keep` once more, after they have changed. */
mha_status mha__attn_choice_create(mha_attn_layer *layer, const mha_attn_layer_options *o, mha_error *err);
void mha__attn_choice_keep(mha_attn_layer *layer, const mha_attn_layer_options *o);

/* What the sequences of a call have chosen. S scores: of heads, or of options. Arrays are [sequences, S] where nothing
 * else is said. */
typedef struct mha__chosen {
    double *mean;   /* [sequences, E] */
    double *hidden; /* [sequences, P] or NULL */
    double *soft;   /* trained gates (selection_gates.h) */
    double *gate;   /* of each head, or of all heads of the option; 0 = not chosen */
    float *gates;   /* the same times the gates of the call: the operator's */
    uint8_t *kept;  /* 1 or 0 */
    int32_t *list;  /* the kept ones in ascending order */
} mha__chosen;

void mha__chosen_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in, mha__chosen *chosen);
/* Chooses by x [B L, E], and gives the operator the gates. */
void mha__attn_choose(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, const mha__chosen *chosen,
                      mha_attn_args *args);
/* Gives the operator the gates, and which heads it computes. */
void mha__chosen_bind(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                      mha_attn_args *args);
/* The gate of a call for head h of sequence n; 1 where it has none. */
float mha__call_gate(const mha_layer_input *in, int64_t n, int64_t h);

/* Gradients on the way back (head_selection_backward.c). */
typedef struct mha__choice_grads {
    float *dgates;   /* [sequences, S] of the operator's gates */
    double *dscore;  /* [sequences, S] */
    double *dhidden; /* [sequences, P] or NULL */
    double *dmean;   /* [sequences, E] */
} mha__choice_grads;

/* Where gradients of the weights are added; NULL = not wanted. */
typedef struct mha__choice_slots {
    float *dscore, *dscore_bias;   /* [S, E or P], [S] */
    float *dhidden, *dhidden_bias; /* [P, E], [P] */
} mha__choice_slots;

void mha__choice_grads_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            mha__choice_grads *grads);
/* From grads->dgates: adds to the slots, fills grads->dmean, and dgates [sequences, H], those of the call's own gates
 * (data NULL = not wanted). */
void mha__attn_choice_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                           const mha__choice_grads *grads, const mha__choice_slots *slots, mha_view dgates);

#endif
