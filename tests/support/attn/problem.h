/* problem.h - a description with its data: made at random or to order, run on a context, compared with the truth. */
#ifndef TEST_PROBLEM_H
#define TEST_PROBLEM_H

#include "support/attn/tensor.h"
#include "support/reference/ref.h"
#include <math.h>

enum { PROBLEM_ISAS = 8, PROBLEM_BATCH = 8, PROBLEM_HEADS = 16 };

/* Guards (tensor.h). */
#define TEST_POISON ((double)NAN)
#define TEST_CANARY (-12345.0)

/* Which statistic each tensor of `stats` is. */
enum { ROW_ENTROPY, ROW_MAX, ROW_ARGMAX, ROW_DISTANCE, RECEIVED, TOP_PROB, TOP_KEY, PROBLEM_STATS };

/* Layouts of all arguments; zero is contiguous. */
typedef struct problem_layouts {
    tensor_layout q, k, v, out, keep, bias, lse, probs, slopes, sinks, gates, block_keep, dropout_keep, scores, stats;
} problem_layouts;

typedef struct problem {
    mha_attn_desc desc;
    mha_attn_args args; /* filled by problem_bind from the tensors and lengths */
    tensor q, k, v, out, keep, bias, lse, probs, slopes, sinks, gates, block_keep, dropout_keep, scores;
    tensor stats[PROBLEM_STATS];
    mha_attn_stats stats_views;
    int64_t q_lens[PROBLEM_BATCH], kv_lens[PROBLEM_BATCH], offsets[PROBLEM_BATCH], prefix_lens[PROBLEM_BATCH];
    int64_t cu_q[PROBLEM_BATCH + 1], cu_k[PROBLEM_BATCH + 1]; /* of packed sequences: see packed.h */
    uint64_t dropout_seed;
    int32_t head_list[PROBLEM_HEADS];
    int32_t *table; /* [batch][table_width], with k and v in pages: see paged.h */
    int64_t table_width;
    bool short_weights; /* the plan that ran last rounds weights to bf16, by its own word */
} problem;

/* Memory for everything `desc` names, inputs filled from the seed: the same numbers in every layout. Lengths and
 * offsets are random too. `layouts` may be NULL. Free with problem_free. */
void problem_make(problem *p, const mha_attn_desc *desc, const problem_layouts *layouts, uint64_t seed);
/* A random description with random data in random layouts; the pair (seed, number) fixes it. */
void problem_random(problem *p, uint64_t seed, uint64_t number);
/* The same without pages and q8_0, and with just these outputs. */
void problem_random_for(problem *p, uint32_t outputs, uint64_t seed, uint64_t number);
/* Points args at the tensors and lengths again, after one of them was changed. */
void problem_bind(problem *p);
void problem_free(problem *p);

/* One line for people: sizes and features. Returns `text`. */
const char *problem_text(const problem *p, char *text, size_t capacity);

/* Plans, allocates exactly the workspace that the plan names between two guards, fills it with NaN, runs, and checks
 * the guards of workspace and outputs. Fails the running test with `err` or a sentence if anything goes wrong. */
void problem_run(mha_ctx *ctx, problem *p);
/* The same, for those who expect a failure: returns false with a sentence in why[capacity] instead. */
bool problem_try(mha_ctx *ctx, problem *p, char *why, size_t capacity);

/* False, with a sentence in why[capacity], if an output is further from the truth than ref.h allows. `worst`, if not
 * NULL, receives the largest error in units of its limit. */
bool problem_near(const problem *p, const ref_result *truth, const ref_result *plain, double *worst, char *why,
                  size_t capacity);

/* All outputs have the same bits in both. */
bool problem_same_bits(const problem *a, const problem *b);

/* Contexts for every ISA of this machine, oldest first, or for the one that MHA_ISA names; returns how many. Fails the
 * running test if one cannot be made. */
int problem_contexts(mha_ctx *ctx[PROBLEM_ISAS], int threads);
void problem_contexts_free(mha_ctx *ctx[PROBLEM_ISAS], int count);

#endif
