/* tour_head.h - computes one head on five words, for the tours of one head. All data is sampled from a fixed seed. */
#ifndef CLI_TOUR_TOUR_HEAD_H
#define CLI_TOUR_TOUR_HEAD_H

#include "tour/tour.h"

enum { TOKENS = 5, WIDTH = 4, TOUR_SEED = 123 };

typedef struct tour_head {
    float x[TOKENS * WIDTH];                                          /* one row per word */
    float w_q[WIDTH * WIDTH], w_k[WIDTH * WIDTH], w_v[WIDTH * WIDTH]; /* stored as [in, out] */
    float q[TOKENS * WIDTH], k[TOKENS * WIDTH], v[TOKENS * WIDTH];    /* one row per word */
    float out[TOKENS * WIDTH];                                        /* one row per word */
    float scores[TOKENS * TOKENS], weights[TOKENS * TOKENS];          /* one row per query, one column per key */
} tour_head;

/* The five words, as axis labels of the maps. */
extern const char *const tour_head_words[TOKENS];

/* Initializes words and matrices, and computes q, k and v. */
mha_status tour_head_begin(tour *t, tour_head *h);

/* Returns the description of one head over the five words with scores and weights as outputs; the caller adds the
 * options of a step. */
mha_attn_desc tour_head_desc(void);
/* Runs the operator, which computes the output, the weights, and the scores at the stage desc->scores. */
mha_status tour_head_attend(tour *t, tour_head *h, const mha_attn_desc *desc);

#endif
