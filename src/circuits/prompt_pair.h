/* prompt_pair.h - the struct of a pair of prompts: both runs with their activations, and runs that repeat a run. */
#ifndef MHA_CIRCUITS_PROMPT_PAIR_H
#define MHA_CIRCUITS_PROMPT_PAIR_H

#include "heads/data/measure_state.h"
#include "layer/activation_edit.h"
#include "layer/block/transformer_block.h"
#include "mha/circuits.h"
#include "model/model_struct.h"

/* The activations of one run of T tokens. E is the hidden width. */
typedef struct mha__run_record {
    float *resid;                    /* [layers + 1, T, E] input of each layer, then the output of the last */
    float *mid, *attn_out, *mlp_out; /* [layers, T, E] */
    float *qkv;                      /* [layers, T, qkv_width] q, k and v in the layout of mha__qkv */
    float *z;                        /* [layers, T, z_width] */
    float *maps;                     /* [layers, H, T, T] */
    float *logits;                   /* [vocab] at the position */
    double metrics[MHA_CIRCUIT_METRICS];
    void *memory;
} mha__run_record;

struct mha_prompt_pair {
    const mha_model *model;
    const mha_model_info *info;
    mha_ctx *ctx;
    int64_t length, position, width; /* T, the measured token, and E */
    int64_t qkv_width, z_width;      /* elements per token in the widest layer */
    int32_t answer, wrong;
    char mark[17];         /* fingerprint of the prompts, the noise, the answers and the position */
    double *clean_logprob; /* [vocab] log-probabilities of the clean run */
    mha__run_record run[2];
};

/* Copies of these sizes fit in a batch: about 512 rows. */
int64_t mha__pair_batch(const mha_prompt_pair *pair);

static inline const mha_attn_layer *mha__pair_attn(const mha_prompt_pair *pair, int64_t layer)
{
    return mha__block_attn(pair->model->block[layer]);
}

/* Returns the elements per row of `room` for mha__head_input. */
static inline int64_t mha__head_room(const mha_prompt_pair *pair)
{
    return mha__max64(pair->width, pair->model->config.embed_width);
}

/* Computes the metrics of rows of logits [rows, vocab]: metric m of row n is metrics[m * stride + n]. */
void mha__pair_metrics(const mha_prompt_pair *pair, int64_t rows, const float *logits, double *metrics, int64_t stride);

/* ---- recording a run (record_run.c) ---- */

/* What a recorded run starts from: the input of layer 0 `hidden` [T, E], or ids and noise. */
typedef struct mha__run_start {
    const float *hidden;
    const int32_t *ids;
    const float *noise; /* [T, W] or NULL */
} mha__run_start;

/* Runs the model and keeps its activations, but not its metrics. Free with mha__record_free, also after a failure. */
mha_status mha__record_run(const mha_prompt_pair *pair, const mha__run_start *start, mha__run_record *record,
                           mha_error *err);
void mha__record_free(const mha_prompt_pair *pair, mha__run_record *record);

/* ---- repeating a run (replay.c) ---- */

/* `count` copies of a recorded run in one batch, from a layer on, each with its own changes. */
typedef struct mha__replay {
    const mha_prompt_pair *pair;
    const mha__run_record *base;
    int64_t layer, count;
    bool from_context; /* the layer starts at its context: queries, keys and attention are not computed */
    bool maps;         /* the maps are computed: `probs` in the input that edit.begin receives */
    /* Changes the input of the layer [count, T, E] and, with from_context, its context [count, T, width]; NULL = none
     */
    void (*start)(void *user, float *hidden, float *context);
    mha__site_edit edit; /* its user is passed to `start` too; change must not be NULL */
} mha__replay;

/* Writes metric m of copy n to metrics[m * stride + n]. */
mha_status mha__replay_run(const mha__replay *replay, double *metrics, int64_t stride, mha_error *err);

/* ---- sites (patch_sites.c) ---- */

/* Columns [offset, offset + width) of the rows of a site. */
typedef struct mha__part_span {
    int64_t offset, width;
} mha__part_span;

/* Returns the columns of a part in the array that the edit of its site receives: q, k and v share rows. */
mha__part_span mha__part_columns(const mha_prompt_pair *pair, const mha_patch_part *part);
/* Returns the heads that a site has in a layer: key/value heads for k and v, 0 for sites without heads. */
int64_t mha__site_heads(const mha_prompt_pair *pair, mha_site site, int64_t layer);
/* Returns the heads of results: those of the model. */
int64_t mha__site_max_heads(const mha_prompt_pair *pair, mha_site site);
/* Returns the recorded rows of a part: its first row at the first of its columns, and the row stride. */
const float *mha__part_rows(const mha_prompt_pair *pair, const mha__run_record *record, const mha_patch_part *part,
                            int64_t *stride);
/* Returns true if the part has the same elements in both runs. */
bool mha__part_equal(const mha_prompt_pair *pair, const mha_patch_part *part);
/* Returns MHA_ERR_UNSUPPORTED if the model does not have the site, and MHA_ERR_ARG for an unknown site. */
mha_status mha__site_check(const mha_prompt_pair *pair, mha_site site, mha_error *err);
/* Returns MHA_ERR_ARG for a granularity that the site does not have. */
mha_status mha__by_fail(mha_site site, mha_patch_by by, mha_error *err);

/* Returns the recorded values of key/value head columns in a row of qkv: v of query head h. */
static inline int64_t mha__value_offset(const mha_attn_layer *attn, int64_t head)
{
    const mha_attn_layer_options *o = &attn->options;
    return (o->heads + o->kv_heads + head / (o->heads / o->kv_heads)) * o->head_dim;
}
static inline int64_t mha__key_offset(const mha_attn_layer *attn, int64_t head)
{
    const mha_attn_layer_options *o = &attn->options;
    return (o->heads + head / (o->heads / o->kv_heads)) * o->head_dim;
}

/* ---- patching parts (patch_run.c) ---- */

/* A part and the rows that replace it; for MHA_SITE_PATTERN rows of the map. */
typedef struct mha__patch {
    mha_patch_part part;
    const float *value;
    int64_t stride;
} mha__patch;

/* Patches that are applied in the same pass. */
typedef struct mha__patch_job {
    const mha__patch *patch;
    int64_t count;
    int64_t to; /* index of the result */
} mha__patch_job;

/* Steps of a list of jobs that can be resumed. */
typedef struct mha__patch_steps {
    const char *what;  /* name of the progress */
    mha__state *state; /* stores the metrics after each batch; NULL = not stored */
    int64_t done;      /* number of finished jobs */
} mha__patch_steps;

/* Runs the jobs, in the order of their first layers, and writes metric m of a job to metrics[m * stride + to]. `source`
 * is the other run. With `steps`, begins after the finished jobs, counts them and reports progress; NULL = runs all,
 * without progress. */
mha_status mha__patch_jobs(const mha_prompt_pair *pair, const mha__run_record *base, const mha__run_record *source,
                           const mha__patch_job *jobs, int64_t count, double *metrics, int64_t stride,
                           mha__patch_steps *steps, mha_error *err);

/* ---- attention knockout (knockout_forward.c) ---- */

/* Sets keep [heads, length, length] of a layer to 0 for the removed edges. Returns true if the layer loses edges. */
bool mha__remove_edges(const mha_attention_edge *edges, int64_t count, int64_t layer, int64_t heads, int64_t length,
                       uint8_t *keep);
/* Returns MHA_ERR_ARG for an edge outside the model or a sequence of `length` tokens. */
mha_status mha__edges_check(const mha_model_info *info, int64_t length, const mha_attention_edge *edges, int64_t count,
                            mha_error *err);

static inline const mha__run_record *mha__base_run(const mha_prompt_pair *pair, mha_patch_direction direction)
{
    return &pair->run[direction == MHA_DENOISE ? MHA_RUN_CORRUPTED : MHA_RUN_CLEAN];
}
static inline const mha__run_record *mha__source_run(const mha_prompt_pair *pair, mha_patch_direction direction)
{
    return &pair->run[direction == MHA_DENOISE ? MHA_RUN_CLEAN : MHA_RUN_CORRUPTED];
}
/* Fills metrics [MHA_CIRCUIT_METRICS, count] with those of a run. */
void mha__fill_metrics(const mha__run_record *run, int64_t count, double *metrics);
/* Returns MHA_ERR_ARG if the model is NULL or has no weights, and MHA_ERR_UNSUPPORTED if its activations cannot be
 * changed. */
mha_status mha__circuits_check(const mha_model *model, const char *function, mha_error *err);
/* Returns MHA_ERR_ARG unless the arguments of a public function are valid. */
mha_status mha__pair_check(const mha_prompt_pair *pair, int direction, const void *out, const char *function,
                           mha_error *err);

#endif
