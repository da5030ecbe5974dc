/* taps_case.h - forward passes that copy all attention data passed to their callbacks, and checks of these copies. */
#ifndef TEST_TAPS_CASE_H
#define TEST_TAPS_CASE_H

#include "mha/model.h"
#include <stdbool.h>

enum { TAPS_B = 3, TAPS_L = 23, TAPS_TOKENS = TAPS_B * TAPS_L, TAPS_LAYERS = 4, TAPS_H = 4, TAPS_TOP = 3 };

enum { TAPS_ENCODER, TAPS_DECODER, TAPS_SLIDING, TAPS_MODELS };
extern const char *const taps_models[TAPS_MODELS];
extern int32_t taps_ids[TAPS_TOKENS];
extern const int64_t taps_starts[TAPS_B + 1]; /* of the sequences of TAPS_PACKED */

/* Setup function for cmocka, which fills taps_ids. */
int taps_setup(void **state);

/* The inputs of passes without a cache. */
enum { TAPS_PLAIN, TAPS_PADDED, TAPS_HOLES, TAPS_LEFT, TAPS_PACKED, TAPS_GATED, TAPS_INPUTS };
mha_model_input taps_input(int kind);
/* Returns true if token i of sequence b is not masked. */
bool taps_is_real(const mha_model_input *in, int64_t b, int64_t i);

/* The data that the callbacks received. */
typedef struct taps {
    int64_t sequences, rows, keys; /* dimensions of a map */
    int64_t all;                   /* total number of rows in all sequences */
    int64_t layers, heads;
    int calls[TAPS_LAYERS], stats_calls;
    float *maps[TAPS_LAYERS]; /* [sequences, selected heads, rows, keys] */
    float *entropy[TAPS_LAYERS], *max[TAPS_LAYERS], *distance[TAPS_LAYERS], *received[TAPS_LAYERS],
        *top_prob[TAPS_LAYERS];
    int64_t *argmax[TAPS_LAYERS], *top_key[TAPS_LAYERS];
    float *hidden; /* last hidden states [all, E] */
} taps;

/* Callbacks of mha_model_output whose user pointer is a `taps`. */
int taps_keep_maps(void *user, int64_t layer, int64_t heads, const float *probs);
int taps_keep_stats(void *user, const mha_model_stats *stats);

/* Returns a `taps` with the dimensions of the results for this input, without data. */
taps taps_shape(const mha_model *model, const mha_model_input *in);
/* Flags of the requested data; TAPS_ALONE excludes the last hidden states, so that the pass ends after the attention of
 * the last layer. */
enum { TAPS_MAPS = 1, TAPS_STATS = 2, TAPS_ALONE = 4 };
/* Runs a pass that requests the data `what`, with the maps of `count` listed heads, or of all heads. Free with
 * taps_release. */
taps taps_run(const mha_model *model, const mha_model_input *in, unsigned what, const mha_model_head *list,
              int64_t count);
void taps_release(taps *s);

/* Fail the running test unless two arrays, or the last hidden states of unmasked tokens, are bitwise identical. */
void taps_same(const void *a, const void *b, int64_t count, size_t size);
void taps_same_hidden(const mha_model *model, const mha_model_input *in, const taps *a, const taps *b);
/* Fails the running test unless the statistics of all rows agree with the maps within `limit`. past[b] is the number of
 * cached keys of sequence b, or NULL without a cache. */
void taps_check_stats(const mha_model_input *in, const taps *s, const int64_t *past, double limit);

#endif
