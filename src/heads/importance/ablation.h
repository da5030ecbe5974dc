/* ablation.h - measures the loss of texts when heads are switched off: their outputs are replaced by zeros, or by their
 * means over some data.
 *
 * A stream is the state of a group of texts at one layer: the input of the layer, and the input of its output
 * projection. Switching off a head of that layer affects neither the earlier layers nor the other heads of its
 * attention. Only columns of the context change, and the pass continues from the context. Evaluating one head therefore
 * requires only the output projection and the feed-forward part of its layer, and the later layers. The earlier layers
 * run once for all heads. */
#ifndef MHA_HEADS_IMPORTANCE_ABLATION_H
#define MHA_HEADS_IMPORTANCE_ABLATION_H

#include "heads/data/batch_packer.h"
#include "heads/weights/head_kinds.h"
#include "mha/importance.h"

/* The value of each text that is compared with its value in the whole model. */
typedef enum mha__ablation_measure {
    MHA__ABLATION_DISTANCE, /* 1 - cos of text embeddings */
    MHA__ABLATION_TOKENS,   /* sum of the cross entropy of the labels; without labels, of the tokens */
    MHA__ABLATION_PAIRS     /* terms of the pair loss of each text; the group has all texts a, then all texts b */
} mha__ablation_measure;

typedef struct mha__stream {
    int64_t layer;
    float *hidden, *next; /* [tokens, E] input of `layer`, and of the next layer */
    float *context;       /* [tokens, heads D] input of this layer's output projection */
} mha__stream;

typedef struct mha__ablation {
    mha_ctx *ctx;
    const mha_model *model;
    const mha_model_info *info;
    mha__ablation_measure measure;
    double scale;        /* scale of the cosines in the loss of pairs */
    const double *means; /* [layers, H, D] replacement of a head's output; NULL = zeros */
    mha__packer *packer;

    const int64_t *text; /* [texts] the texts of the group, as indices into the data */
    int64_t texts, max;  /* max: maximum number of tokens per batch */
    mha__stream base;    /* stream of the whole model */
    mha__stream other;   /* stream with a head of an earlier layer switched off; only allocated for pairs of heads */
    float *changed;      /* [most, H D] */
    float *last;         /* [most, E] */
    float *logits;       /* [chunk, vocab] */
    float *room;         /* [chunk, E] */
    double *unit, *full; /* [texts, E] text embeddings of the last pass, and of the whole model */
    double *value;       /* [texts] result of the last evaluation */
    double *whole;       /* [texts] result of the whole model */
    void *memory;
} mha__ablation;

/* Allocates memory for groups of `texts` texts with `tokens` tokens; the fields above `text` must be set. If `two` is
 * set, `other` is also allocated. Free with mha__ablation_free, also after a failure. */
mha_status mha__ablation_create(mha__ablation *a, int64_t texts, int64_t tokens, bool two, mha_error *err);
void mha__ablation_free(mha__ablation *a);

/* Runs the whole model on a group of texts. Sets `whole`, and sets `base` to the stream at layer 0, with its
 * context. */
mha_status mha__ablation_begin(mha__ablation *a, const int64_t *text, int64_t texts, mha_error *err);
/* Advances a stream to the next layer. This layer must exist. Runs the layer of `from` with the heads `off` [count]
 * switched off, and sets `to` to the stream of the next layer, with its context. `to` may equal `from` if `count` is
 * 0. */
mha_status mha__ablation_step(mha__ablation *a, mha__stream *from, const int64_t *off, int64_t count, mha__stream *to,
                              mha_error *err);
/* Computes `value` with the heads `off` [count] of the stream's layer switched off. */
mha_status mha__ablation_run(mha__ablation *a, const mha__stream *s, const int64_t *off, int64_t count, mha_error *err);

/* (ablation_pairs.c) The heads of an encoder-decoder that are switched off one at a time, on pairs. */
typedef struct mha__pair_heads {
    const mha__head_sets *sets;
    int64_t texts; /* number of pairs of the group */
    /* Receives each batch with its results in mha__ablation_value: first of the whole model (n = -1), then with head n
     * switched off. */
    mha_status (*take)(void *user, const mha__packed *batch, int64_t n, mha_error *err);
    void *user;
} mha__pair_heads;
/* Runs a group of pairs `text`, batch by batch; `a` must be created without tokens. */
mha_status mha__ablation_pairs(mha__ablation *a, const int64_t *text, const mha__pair_heads *heads, mha_error *err);

/* (ablation_loss.c) mha__ablation_take computes the results of one batch from its last hidden states.
 * mha__ablation_finish writes the results of all batches to `value`; the caller passes a->value or, for the whole
 * model, a->whole. */
mha_status mha__ablation_take(mha__ablation *a, const mha__packed *batch, mha_error *err);
mha_status mha__ablation_finish(mha__ablation *a, double *value, mha_error *err);
/* Returns the value of a text whose results are computed; not for the loss of pairs. */
double mha__ablation_value(const mha__ablation *a, int64_t text);
/* Returns the number of rows of logits computed at a time. */
int64_t mha__ablation_chunk(const mha__ablation *a);

#endif
