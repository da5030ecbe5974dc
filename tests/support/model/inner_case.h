/* inner_case.h - small models of four kinds, inputs of every kind, and what attention does inside of them straight from
 * the formula, in double: the truth for tests of activations and of their gradients. */
#ifndef TEST_INNER_CASE_H
#define TEST_INNER_CASE_H

#include "support/model/model_case.h"
#include <stdbool.h>

enum { INNER_B = 3, INNER_L = 23, INNER_H = 4, INNER_LAYERS = 4, INNER_WIDEST = 96, INNER_FAMILIES = 4 };
enum { INNER_ENCODER = 0, INNER_DECODER = 1, INNER_SLIDING = 2 };

/* What the formula needs of each model, as its config.json has it. */
typedef struct inner_family {
    const char *folder, *weight, *bias; /* of the output projection of a layer */
    bool transposed, causal;
    double divisor, softcap;    /* scores are divided by the root of it; 0 = D */
    int window, windowed_every; /* keys that layers 0, n, 2 n ... see, their own included; 0 = all */
} inner_family;
extern const inner_family inner_families[INNER_FAMILIES];

mha_model *inner_open(mha_ctx *ctx, int family, mha_dtype dtype);

/* Inputs of every kind, in memory of this file: three sequences, some shorter, with gates, with fills beside them. */
enum { INNER_PLAIN, INNER_PADDED, INNER_HOLES, INNER_LEFT, INNER_PACKED, INNER_GATED, INNER_FILLED, INNER_INPUTS };
mha_model_input inner_input(int kind);

int64_t inner_rows(const mha_model_input *in);
bool inner_is_real(const mha_model_input *in, int64_t row);
/* The sequence that a row is of, and its rows. */
void inner_sequence(const mha_model_input *in, int64_t row, int64_t *b, int64_t *first, int64_t *end);
/* Head h of a layer for the sequence of this row. */
double inner_gate(const mha_model_input *in, int64_t layer, int64_t row, int64_t h);

/* Probabilities of head h for one row, from q and k: p[j] of row j of the call, 0 where it is not seen. Rows of masked
 * tokens are not asked for. */
void inner_probs(const inner_family *f, const mha_model_input *in, const mha_model_activations *a, int64_t row,
                 int64_t h, double *p);

/* A copy of what on_activations shows; freed with inner_release. */
mha_model_activations inner_keep(const mha_model_activations *a, int64_t width);
void inner_release(mha_model_activations *a);

#endif
