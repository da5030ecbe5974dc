/* attribution_pass.h - the forward pass of a logit attribution, whose callbacks compute the parts of each layer. */
#ifndef MHA_CIRCUITS_ATTRIBUTION_PASS_H
#define MHA_CIRCUITS_ATTRIBUTION_PASS_H

#include "mha/logit_attribution.h"
#include "model/model_struct.h"

enum { MHA__ATTRIBUTION_ROWS = 256 }; /* rows of the output matrix read at a time */

typedef struct mha__logit_parts {
    mha_logit_attribution shown; /* first, so that a pointer to it is a pointer to the result */
    mha_ctx *ctx;
    double *heads, *sources, *attn_bias, *mlps;
    void *memory;
} mha__logit_parts;

typedef struct mha__attribution_job {
    const mha_model *m;
    mha__logit_parts *to;
    mha_logit_attribution_options o;
    mha__weights weights; /* a copy with its own list of converted tensors */
    double *u, *w;        /* [MHA_LOGIT_TARGETS, E] rows of the output matrix, and directions in the residual stream */
    double *inner;        /* [MHA_LOGIT_TARGETS, E] w through the norm after the attention of a layer */
    double *maps;         /* [MHA_LOGIT_TARGETS, H D] the same through the output projection */
    double *first, *last; /* [E] residual stream at the position: embeddings; input of the current layer */
    double *written;      /* [E] what the attention of the current layer adds */
    float *probs;         /* [H, tokens] attention of the position */
    float *rows;          /* [MHA__ATTRIBUTION_ROWS, E] rows of the output matrix */
    float *logits;        /* [vocab] */
    mha_error *err;
    mha_status status; /* of the callbacks */
} mha__attribution_job;

/* Runs the model and computes all parts. If a callback fails, j->status and j->err have its error. */
mha_status mha__attribution_run(mha__attribution_job *job, const int32_t *ids, mha_error *err);

#endif
