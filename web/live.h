/* live.h - the state of the module live.wasm, and the functions that its files share.
 *
 * The module serves one page: a model, a text, and two sides of it. Side LIVE_CLEAN is the model as it is; side
 * LIVE_CHANGED is the model with the gates and fills that the page has set. Exported functions return 0 or a status of
 * mha/types.h, unless they return a value; live_error then returns the sentence. Memory that a function returns belongs
 * to the module and is valid until the next run, or until another text is encoded or another model opened. */
#ifndef WEB_LIVE_H
#define WEB_LIVE_H

#include "mha/mha.h"
#include <stdbool.h>

#define LIVE_EXPORT(name) __attribute__((export_name(#name)))

enum {
    LIVE_FILES = 64,   /* safetensors files of a checkpoint */
    LIVE_LENS = 3,     /* tokens per layer of the logit lens */
    LIVE_EDGES = 64,   /* removed edges */
    LIVE_WRITTEN = 256 /* tokens of a continuation */
};
typedef enum live_side { LIVE_CLEAN = 0, LIVE_CHANGED, LIVE_SIDES } live_side;

/* Results of a forward pass over the text, in one block of memory. N tokens, H heads in a layer that is not pruned. */
typedef struct live_run {
    float *maps;    /* [layers, H, N, N] attention probabilities */
    float *hidden;  /* [layers + 1, N, E] input of each layer, and the last hidden state */
    float *context; /* [layers, N, H D] outputs of the heads; NULL unless they were requested */
    float *logits;  /* [vocab] at the chosen token; NULL without logits */
    void *memory;
} live_run;

typedef struct live_state {
    mha_ctx *ctx;
    mha_model *model;
    mha_file *file[LIVE_FILES];
    void *data[LIVE_FILES]; /* contents of the files */
    int files;
    const mha_model_info *info;
    int64_t heads, width;   /* heads of an unpruned layer; H D */
    mha_encoding *encoding; /* the tokens of the text */
    int32_t *ids;           /* [count] */
    int64_t count;
    int64_t at; /* the token whose prediction is shown */
    live_run run[LIVE_SIDES];
    float *gates; /* [layers, H] */
    float *means; /* [layers, H, D] what replaces the output of a head that is off: zeros, or its mean in the text */
    float *fills; /* [layers, H, D] (1 - gate) means */
    mha_attention_edge edges[LIVE_EDGES]; /* [edge_count] removed on side LIVE_CHANGED */
    int edge_count;
    mha_model_cache *cache[LIVE_SIDES]; /* NULL for a side with removed edges */
    int32_t last[LIVE_SIDES];           /* last generated token */
    int32_t *written;                   /* [written_count] text and continuation of a side with removed edges */
    int64_t written_count;
    mha_logit_lens *lens;  /* NULL until live_lens */
    int64_t lens_at;       /* its token */
    int32_t *corrupted;    /* [count] the second text; NULL until live_corrupted */
    mha_prompt_pair *pair; /* NULL until live_pair */
    double *effects;       /* results of the last live_patch */
} live_state;

extern live_state live;
extern mha_error live_err;

/* Fails with MHA_ERR_ARG and a sentence, formatted as by printf. */
mha_status live_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Fails unless the text has this token. */
mha_status live_check_token(int64_t token);
/* Sets the fill of a head with this gate. */
void live_fill_head(int64_t head, float gate);
/* Frees the results of both sides, the caches and the lens. */
void live_runs_free(live_state *state);
/* Frees the second text and the results of patching. */
void live_pair_free(live_state *state);
/* mha_model_forward without the removed edges of a side. */
mha_status live_pass(live_side side, const mha_model_input *in, const mha_model_output *out);
/* Computes the logits [vocab] of a side at token live.at from the input of `layer`, with the gates [layers, H] and
 * fills. */
mha_status live_predict(live_side side, int64_t layer, const float *hidden, const float *gates, const float *fills,
                        float *logits);

#endif
