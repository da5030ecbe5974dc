/* host_cost.h - shared declarations of host planning. */
#ifndef MHA_HEADS_PLAN_HOST_COST_H
#define MHA_HEADS_PLAN_HOST_COST_H

#include "mha/host_layouts.h"
#include <stdbool.h>

/* Tensor parallelism adds the products of MHA__TP_GROUPS column groups in a fixed tree, so this is the maximum number
 * of ranks. */
enum { MHA__TP_GROUPS = 8, MHA__TP_ROWS = 128 /* tokens per message */ };

/* A layout of a checked job. Sizes are those of the rank with the most work. */
typedef struct mha__host_job {
    const mha_host_model *model; /* with defaults set */
    const mha_host_options *o;   /* with defaults set */
    int64_t tp, cp, dp;
    double share;           /* fraction of each matrix that a rank stores */
    double heads, kv_heads; /* query heads and key/value heads of a rank */
    bool divided;           /* true if the tokens of a text are divided */
    double tokens;          /* tokens of a text that a rank computes */
    double piece;           /* tokens that a rank computes in one pass */
    double pairs;           /* (query, key) pairs in which the query is one of these tokens */
} mha__host_job;

/* Copy the caller's struct, check the copy, and set the defaults. */
mha_status mha__host_model_check(const mha_host_model *given, mha_host_model *model, mha_error *err);
mha_status mha__host_options_check(const mha_host_options *given, mha_host_options *options, mha_error *err);

/* Computes how a layout divides the job; tp, cp and dp must be at least 1. */
mha__host_job mha__host_divide(const mha_host_model *model, const mha_host_options *options, int64_t tp, int64_t cp,
                               int64_t dp);
/* Set the bytes and the seconds of a row. */
void mha__host_memory(const mha__host_job *job, mha_host_layout *row);
void mha__host_time(const mha__host_job *job, mha_host_layout *row);

/* Returns log2 of the number of ranks, rounded up. */
int mha__host_steps(int64_t ranks);
/* Returns the bytes of an element of the keys and values that hosts exchange. */
double mha__host_key_bytes(const mha_host_options *options);
/* Returns the number of parameters of the whole model. */
double mha__host_parameters(const mha_host_model *model);
/* Returns the bytes of the packed matrices of a rank. */
double mha__host_packed_bytes(const mha__host_job *job);

#endif
