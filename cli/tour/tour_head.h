/* tour_head.h - computes one head on the words of a text, for the tours of one head: a head whose data is sampled, or a
 * head of a model. */
#ifndef CLI_TOUR_TOUR_HEAD_H
#define CLI_TOUR_TOUR_HEAD_H

#include "tour/tour.h"

enum { TOUR_HEAD_WIDTH = 4, TOUR_HEAD_SEED = 123 }; /* values of the walk-through */

typedef struct tour_head {
    int64_t tokens, distinct, in, width; /* width: of the head; in: of x */
    const char *text;
    const char *const *words;   /* [tokens] axis labels of the maps */
    float *x;                   /* [tokens, in] */
    float *w_q, *w_k, *w_v;     /* [in, width] */
    float *b_q, *b_k, *b_v;     /* [width] biases of a head of a model; NULL = none */
    float *q, *k, *v, *out;     /* [tokens, width] */
    float *scores, *weights;    /* [tokens, tokens] one row per query, one column per key */
    const float *model_context; /* [tokens, width] the output in the model; NULL = none */
    const char *model_name;     /* "layer 3 of gpt2-tiny"; NULL = the data is sampled */
    int64_t head;               /* number of the head in the layer of the model */
} tour_head;

/* Samples words and matrices, or with tour.choice.model_chosen reads a head of the model, and computes q, k and v.
 * `causal`: the tour shows causal attention; a layer of the other kind is an error. */
mha_status tour_head_begin(tour *t, tour_head *h, bool causal);

/* Returns the description of one head over the words with scores and weights as outputs; the caller adds the options of
 * a step. */
mha_attn_desc tour_head_desc(const tour_head *h);
/* Runs the operator, which computes the output, the weights, and the scores at the stage desc->scores. */
mha_status tour_head_attend(tour *t, tour_head *h, const mha_attn_desc *desc);

/* Returns a sentence that compares the output with that of the model; "" for sampled data. Fails if they differ
 * (tour_model_compare). */
const char *tour_head_compare(tour *t, const tour_head *h);

#endif
