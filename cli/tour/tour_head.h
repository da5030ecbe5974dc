/* tour_head.h - five words on their way through one head, step by step with the operator: what the tours of one head
 * share. Everything comes from the seed. */
#ifndef CLI_TOUR_TOUR_HEAD_H
#define CLI_TOUR_TOUR_HEAD_H

#include "tour/tour.h"

enum { TOKENS = 5, WIDTH = 4, TOUR_SEED = 123 };

typedef struct tour_head {
    float x[TOKENS * WIDTH];                                          /* a row for each word */
    float w_q[WIDTH * WIDTH], w_k[WIDTH * WIDTH], w_v[WIDTH * WIDTH]; /* [in, out] */
    float q[TOKENS * WIDTH], k[TOKENS * WIDTH], v[TOKENS * WIDTH];    /* a row for each word */
    float out[TOKENS * WIDTH];                                        /* a row for each word */
    float scores[TOKENS * TOKENS], weights[TOKENS * TOKENS];          /* row: query, column: key */
} tour_head;

/* The five words, for the axes of their maps. */
extern const char *const tour_head_words[TOKENS];

/* Words, matrices, q k v. */
mha_status tour_head_begin(tour *t, tour_head *h);

/* One head over the five words, with scores and weights as outputs; the caller adds what a step is about. */
mha_attn_desc tour_head_desc(void);
/* Runs it: output, weights, and scores at the stage that `desc` names. */
mha_status tour_head_attend(tour *t, tour_head *h, const mha_attn_desc *desc);

#endif
