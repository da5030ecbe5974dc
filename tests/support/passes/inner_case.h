/* inner_case.h - small models of four families, inputs of every kind, and attention probabilities computed from the
 * formula in double: the reference for tests of activations and their gradients. */
#ifndef TEST_INNER_CASE_H
#define TEST_INNER_CASE_H

#include "support/model/model_case.h"
#include <stdbool.h>

enum { INNER_B = 3, INNER_L = 23, INNER_H = 4, INNER_LAYERS = 4, INNER_WIDEST = 96, INNER_FAMILIES = 4 };
enum { INNER_ENCODER = 0, INNER_DECODER = 1, INNER_SLIDING = 2 };

/* The parameters of the attention formula for a model, as in its config.json. */
typedef struct inner_family {
    const char *folder, *weight, *bias; /* the folder, and the tensor names of an output projection */
    bool transposed, causal;
    double divisor, softcap;    /* scores are divided by sqrt(divisor); 0: D */
    int window, windowed_every; /* layers 0, n, 2 n ... (n = windowed_every) attend to `window` keys; 0: all keys */
} inner_family;
extern const inner_family inner_families[INNER_FAMILIES];

mha_model *inner_open(mha_ctx *ctx, int family, mha_dtype dtype);

/* Kinds of inputs: three sequences of equal or different lengths, padded, masked, packed, with gates, or with fills.
 * The memory of an input is static. */
enum { INNER_PLAIN, INNER_PADDED, INNER_HOLES, INNER_LEFT, INNER_PACKED, INNER_GATED, INNER_FILLED, INNER_INPUTS };
mha_model_input inner_input(int kind);

int64_t inner_rows(const mha_model_input *in);
bool inner_is_real(const mha_model_input *in, int64_t row);
/* Stores the sequence of a row in *b, and the range of rows of that sequence in *first and *end. */
void inner_sequence(const mha_model_input *in, int64_t row, int64_t *b, int64_t *first, int64_t *end);
/* Returns the gate of head h of a layer for the sequence of this row. */
double inner_gate(const mha_model_input *in, int64_t layer, int64_t row, int64_t h);

/* Computes p[j], the probability with which head h of row `row` attends to row j, from the activations q and k; 0 if j
 * is masked. The row itself must not be masked. */
void inner_probs(const inner_family *f, const mha_model_input *in, const mha_model_activations *a, int64_t row,
                 int64_t h, double *p);

/* Returns a copy of the activations passed to on_activations. The caller must free the copy with inner_release. */
mha_model_activations inner_keep(const mha_model_activations *a, int64_t width);
void inner_release(mha_model_activations *a);

/* All data that the callbacks of a forward pass received. */
typedef struct inner_seen {
    int64_t width, rows, calls, next;
    mha_model_activations a[INNER_LAYERS]; /* copies of the activations of each layer */
    float *hidden[INNER_LAYERS + 1], *last;
} inner_seen;
/* A callback of mha_model_output whose user pointer is an inner_seen. */
int inner_keep_activations(void *user, const mha_model_activations *a);
/* Runs a forward pass; if `shown` is true, with callbacks that copy their data. Free with inner_seen_free. */
inner_seen inner_run(const mha_model *model, const mha_model_input *in, bool shown);
void inner_seen_free(inner_seen *s);
/* Fails unless the rows of unmasked tokens are bitwise identical in a and b. */
void inner_same_rows(const mha_model_input *in, const float *a, const float *b, int64_t width);

#endif
