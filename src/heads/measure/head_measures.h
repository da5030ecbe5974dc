/* head_measures.h - internals of the result of a measurement. Public header: mha/heads.h. */
#ifndef MHA_HEADS_MEASURE_HEAD_MEASURES_H
#define MHA_HEADS_MEASURE_HEAD_MEASURES_H

#include "heads/data/head_data.h"
#include "heads/measure/head_sums.h"

struct mha_heads {
    mha_ctx *ctx;
    int64_t layers, longest; /* longest: tokens of the longest text */
    mha_head_thresholds limits;
    int64_t *first;         /* [layers + 1] number of heads before each layer */
    mha__head_stats *stats; /* [heads of all layers] */
    double *received;       /* [heads of all layers, longest] sums during the measurement, then means */
    mha_encoding *tokens;   /* if keep_maps: tokens of the single text */
    float **maps;           /* if keep_maps: [layers], each [heads, longest, longest] */
};

/* Creates an empty result for counts[l] heads in layer l. *out may be partly created after a failure: free it. */
mha_status mha__heads_create(mha_ctx *ctx, int64_t layers, const int64_t *counts, int64_t longest, mha_heads **out,
                             mha_error *err);

/* Convert the sums of the weights that positions receive to means. rows [longest], initially 0, counts the rows of all
 * texts that attend to each position: mha__heads_seen_rows adds the rows of a text of `tokens` keys, and
 * mha__heads_average divides by the counts. */
void mha__heads_seen_rows(int64_t tokens, int64_t queries, bool causal, double *rows);
void mha__heads_average(mha_heads *heads, const double *rows);

/* Adds rows of probabilities to the sums (measure_batch.c). A pass is created once for all batches, which have at most
 * `texts` texts and `tokens` tokens each. */
typedef struct mha__heads_pass mha__heads_pass;
mha_status mha__heads_pass_create(const mha_model *model, const mha_head_data *data, mha_heads *heads,
                                  mha__head_sums *sums, int64_t texts, int64_t tokens, mha__heads_pass **out,
                                  mha_error *err);
void mha__heads_pass_free(mha__heads_pass *pass);
/* Announces that sequence b of the next batch, whose tokens begin at `start`, is text `number` of the data. */
void mha__heads_pass_text(mha__heads_pass *pass, int64_t b, int64_t start, int64_t number);
/* on_rows callback of a forward pass of the announced batch; user = the pass. */
void mha__heads_pass_rows(void *pass, int64_t layer, const mha_attn_rows *rows);
/* Runs a batch of the data. */
mha_status mha__heads_pass_run(mha__heads_pass *pass, int64_t batch, mha_error *err);

/* A measurement of heads whose forward passes are run by the caller: measure.c, or a measurement of importance. */
typedef struct mha__heads_job {
    const mha_model *model;
    const mha_head_data *data;
    mha_heads_options options;
    mha_heads *heads;
    mha__head_sums sums;
    mha__heads_pass *pass;
} mha__heads_job;

/* Checks options and data. */
mha_status mha__heads_check(const mha_model *model, const mha_head_data *data, const mha_heads_options *given,
                            mha_heads_options *own, mha_error *err);
/* Opens a measurement for batches of at most `texts` texts and `tokens` tokens, with options that were checked. After
 * the passes, mha__heads_finish computes the result from the sums and runs the probe texts. mha__heads_close frees the
 * memory, except that of the result if `out` is not NULL; call it also after a failure. */
mha_status mha__heads_open(const mha_model *model, const mha_head_data *data, const mha_heads_options *options,
                           int64_t texts, int64_t tokens, mha__heads_job *run, mha_error *err);
mha_status mha__heads_finish(mha__heads_job *run, mha_error *err);
void mha__heads_close(mha__heads_job *run, mha_heads **out);

/* Adds the scores of the probe texts, either `wanted` or sampled from `seed`, between the special tokens of `frame` or
 * of `wanted`. Does nothing (the scores stay NAN) if no texts are given and the model's maximum length or vocabulary
 * is too small to sample them. */
mha_status mha__heads_probe(const mha_model *model, mha_heads *heads, const mha__frame *frame,
                            const mha_head_probe *wanted, uint64_t seed, mha_error *err);
/* Checks the fields of `wanted`: before the measurement, because the probe texts run after it. */
mha_status mha__heads_probe_check(const mha_model *model, const mha__frame *frame, const mha_head_probe *wanted,
                                  mha_error *err);

#endif
