/* ablation.h - what texts lose when heads are off: set to zero, or to their mean over some data.
 *
 * A stream is what a group of texts has come to at one layer: the states that the layer reads, and what its output
 * projection would read. With a head of that layer off, all below is as it was, and so is the rest of its own
 * attention: columns of the context are changed, and the pass continues from there. So one head costs an output
 * projection, a feed-forward part and the layers above; and the layers below are run once for all.
 */
#ifndef MHA_HEADS_IMPORTANCE_ABLATION_H
#define MHA_HEADS_IMPORTANCE_ABLATION_H

#include "heads/data/batch_packer.h"
#include "mha/importance.h"

/* What of each text is compared with the whole model. */
typedef enum mha__ablation_measure {
    MHA__ABLATION_DISTANCE, /* 1 - cos of sentence vectors */
    MHA__ABLATION_TOKENS,   /* sum of the cross entropy of labels, or of the tokens themselves */
    MHA__ABLATION_PAIRS     /* its terms of the loss of pairs; all a, then all b */
} mha__ablation_measure;

typedef struct mha__stream {
    int64_t layer;
    float *hidden, *next; /* [tokens, E] what `layer` reads, and what the next one does */
    float *context;       /* [tokens, heads D] of this layer */
} mha__stream;

typedef struct mha__ablation {
    mha_ctx *ctx;
    const mha_model *model;
    const mha_model_info *info;
    mha__ablation_measure measure;
    double scale;        /* of pairs */
    const double *means; /* [layers, H, D] what a head becomes; NULL = zeros */
    mha__packer *packer;

    const int64_t *text; /* [texts] the group */
    int64_t texts, most; /* most: tokens of a batch */
    mha__stream base;    /* the whole model */
    mha__stream other;   /* with a head of a lower layer off; memory only for pairs of heads */
    float *changed;      /* [most, H D] */
    float *last;         /* [most, E] */
    float *logits;       /* [chunk, vocab] */
    float *room;         /* [chunk, E] */
    double *unit, *full; /* [texts, E] sentence vectors, and those of the whole model */
    double *value;       /* [texts] of the last evaluation */
    double *whole;       /* [texts] of the whole model */
    int64_t terms;       /* labels that the last evaluation has met */
    void *memory;
} mha__ablation;

/* Room for groups of `texts` texts with `tokens` tokens; the fields above `text` are filled in. `two`: with `other`.
 * Freed with mha__ablation_free, also after a failure. */
mha_status mha__ablation_create(mha__ablation *a, int64_t texts, int64_t tokens, bool two, mha_error *err);
void mha__ablation_free(mha__ablation *a);

/* The whole model for a group: `whole`, and the base stream at layer 0, with its context. */
mha_status mha__ablation_begin(mha__ablation *a, const int64_t *text, int64_t texts, mha_error *err);
/* `to` (which may be `from` itself where nothing is off) becomes the stream of the next layer, with its context; heads
 * `off` [count] of this layer are off. There must be a next layer. */
mha_status mha__ablation_step(mha__ablation *a, mha__stream *from, const int64_t *off, int64_t count, mha__stream *to,
                              mha_error *err);
/* Fills `value`, with these heads of the stream's layer off. */
mha_status mha__ablation_run(mha__ablation *a, const mha__stream *s, const int64_t *off, int64_t count, mha_error *err);

/* ablation_loss.c. One batch: from its last states. All of them: value, or, for the whole model, `whole`. */
mha_status mha__ablation_take(mha__ablation *a, const mha__packed *batch, mha_error *err);
mha_status mha__ablation_finish(mha__ablation *a, double *value, mha_error *err);
/* Rows of logits at a time. */
int64_t mha__ablation_chunk(const mha__ablation *a);
/* What `value` - `whole` of a text counts for in the difference of the loss (or distance), as a mean over `units`. */
double mha__ablation_share(const mha__ablation *a, int64_t units);

#endif
