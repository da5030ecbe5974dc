/* path.h - direct paths through the residual stream: what a sender changes in it, and what a receiver computes from the
 * changed stream. */
#ifndef MHA_CIRCUITS_PATH_H
#define MHA_CIRCUITS_PATH_H

#include "circuits/prompt_pair.h"

/* A path of a pair of prompts, with room for one sender and one receiver at a time. */
typedef struct mha__path {
    const mha_prompt_pair *pair;
    const mha__run_record *base, *source;
    float *write;  /* [T, E] change of the residual stream by the sender */
    float *hidden; /* [T, E] residual stream of the base run plus the change */
    float *qkv;    /* [T, qkv_width] queries, keys and values of the receiver's layer */
    float *mlp;    /* [T, E] feed-forward output of the receiver's layer */
    float *wo;     /* [E, D] the sender's columns of the output projection */
} mha__path;

/* Allocates the arrays. Returns MHA_ERR_UNSUPPORTED, naming `function`, if the family has no direct paths. Call
 * mha__path_close in any case. */
mha_status mha__path_open(const mha_prompt_pair *pair, mha_patch_direction direction, const char *function,
                          mha__path *path, mha_error *err);
void mha__path_close(mha__path *path);

/* ---- senders (path_write.c): set `write` ---- */

/* Set *changes to false, and leave `write` undefined, if the sender has the same output in both runs. */
mha_status mha__path_from_head(const mha__path *path, int64_t layer, int64_t head, bool *changes, mha_error *err);
void mha__path_from_mlp(const mha__path *path, int64_t layer, bool *changes);
void mha__path_from_embedding(const mha__path *path, bool *changes);

/* ---- receivers (path_read.c): compute what they read from the changed stream ---- */

/* Sets `qkv` from resid_pre plus the change; in a parallel block also `mlp`. */
mha_status mha__path_to_layer(const mha__path *path, int64_t layer, mha_error *err);
/* Sets `mlp` from resid_mid plus the change. Not for parallel blocks. */
mha_status mha__path_to_mlp(const mha__path *path, int64_t layer, mha_error *err);
/* Sets `hidden` to the final residual stream plus the change. */
void mha__path_to_logits(const mha__path *path);

#endif
