/* weight_circuits.h - the result of mha_weight_circuits_measure, and the steps of the measurement. */
#ifndef MHA_CIRCUITS_WEIGHT_CIRCUITS_H
#define MHA_CIRCUITS_WEIGHT_CIRCUITS_H

#include "circuits/weights/weight_layer.h"
#include "mha/weight_circuits.h"

enum { MHA__COMPOSITIONS = MHA_CIRCUITS - MHA_CIRCUIT_COMPOSE_Q };

struct mha_weight_circuits {
    mha_ctx *ctx;
    int64_t layers, heads, head_dim;
    int64_t *layer_heads; /* [layers] */
    uint32_t what;        /* measures that were computed */
    double baseline;
    const char *reason[MHA_CIRCUITS]; /* NULL = defined */
    /* NULL = not computed */
    double *singular[MHA_CIRCUIT_OV + 1];   /* [layers, heads, D] */
    double *copying, *centred, *trace;      /* [layers, heads] */
    double *composition[MHA__COMPOSITIONS]; /* [layers heads, layers heads] sender, receiver */
    void *memory;
};

static inline bool mha__circuit_wanted(const mha_weight_circuits *c, mha_circuit_kind what)
{
    return c->what >> what & 1;
}

static inline bool mha__circuit_composes(const mha_weight_circuits *c)
{
    return c->what >> MHA_CIRCUIT_COMPOSE_Q != 0;
}

/* The matrix between word embeddings and output matrix that copying scores need: with the folded output matrix U,
 * between = E^T U. */
typedef struct mha__copying {
    double *between;       /* [E, E]; NULL = not needed */
    double *words, *means; /* [E] sum of the word embeddings; mean of U */
} mha__copying;

/* Computes the matrix. Free it even after a failure. */
mha_status mha__copying_create(const mha_model *model, bool folded, mha__copying *out, mha_error *err);
void mha__copying_free(const mha_model *model, mha__copying *copying);
/* Number of doubles of scratch for mha__copying_score. */
int64_t mha__copying_room(const mha_weight_circuits *c, int64_t hidden);
/* Computes the scores of head n = layer heads + head from its rows v and o [D, E]. Returns false if the weights are not
 * finite. */
bool mha__copying_score(mha_weight_circuits *c, const mha__copying *copying, int64_t hidden, int64_t n, const double *v,
                        const double *o, double *room);

/* What heads write and read, in the orthonormal basis of each circuit's inner side: |W_QK^T W_OV| = |read written^T|.
 * These products are computed in f32. */
typedef struct mha__composition {
    float *written;                 /* [heads, D, E] of the current layer */
    float *read[MHA__COMPOSITIONS]; /* the same */
    mha_linear **sender;            /* [layers] x written^T of the layers so far */
    double *norm_qk, *norm_ov;      /* [layers, heads] */
    float *product;                 /* [heads D, heads D] */
} mha__composition;

mha_status mha__composition_create(const mha_model *model, const mha_weight_circuits *c, mha__composition *out,
                                   mha_error *err);
void mha__composition_free(const mha_model *model, const mha_weight_circuits *c, mha__composition *composition);
/* Computes the composition of the heads of a layer with those of all earlier layers, and keeps what they write. */
mha_status mha__composition_layer(const mha_model *model, mha_weight_circuits *c, mha__composition *composition,
                                  int64_t layer, mha_error *err);

/* Sets the reasons of measures that are not defined for the model. Fails for models without circuits. */
mha_status mha__circuit_support(const mha_model *model, bool folded, const char *reason[MHA_CIRCUITS], mha_error *err);

#endif
