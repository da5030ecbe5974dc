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

enum { LIVE_FILES = 64, LIVE_LENS = 3 }; /* safetensors files of a checkpoint; tokens per layer of the logit lens */
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
    mha_model_cache *cache[LIVE_SIDES];
    int32_t last[LIVE_SIDES]; /* last generated token */
    mha_logit_lens *lens;     /* NULL until live_lens */
    int64_t lens_at;          /* its token */
} live_state;

extern live_state live;
extern mha_error live_err;

/* Fails with MHA_ERR_ARG and a sentence. */
mha_status live_fail(const char *sentence);
/* Sets the fill of a head with this gate. */
void live_fill_head(int64_t head, float gate);
/* Frees the results of both sides, the caches and the lens. */
void live_runs_free(live_state *state);
/* Computes the logits [vocab] at token `at` from the input of `layer`, with the gates [layers, H] and fills. */
mha_status live_predict(int64_t layer, const float *hidden, const float *gates, const float *fills, float *logits);

#endif
