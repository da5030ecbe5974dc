/* problem.h - an attention call with a random or given description, and its data; runs the call in a context and
 * compares the results with a reference. */
#ifndef TEST_PROBLEM_H
#define TEST_PROBLEM_H

#include "support/attn/tensor.h"
#include "support/reference/ref.h"
#include <math.h>

enum { PROBLEM_ISAS = 8, PROBLEM_BATCH = 8, PROBLEM_HEADS = 16 };

/* The guard values of inputs and of outputs (see tensor.h). */
#define TEST_POISON ((double)NAN)
#define TEST_CANARY (-12345.0)

/* Indices of the tensors in `stats`. */
enum { ROW_ENTROPY, ROW_MAX, ROW_ARGMAX, ROW_DISTANCE, RECEIVED, TOP_PROB, TOP_KEY, PROBLEM_STATS };

/* The layouts of all arguments; an all-zero layout is contiguous. */
typedef struct problem_layouts {
    tensor_layout q, k, v, out, keep, bias, lse, probs, slopes, sinks, gates, block_keep, dropout_keep, scores, stats;
} problem_layouts;

typedef struct problem {
    mha_attn_desc desc;
    mha_attn_args args; /* set by problem_bind from the tensors and lengths below */
    tensor q, k, v, out, keep, bias, lse, probs, slopes, sinks, gates, block_keep, dropout_keep, scores;
    tensor stats[PROBLEM_STATS];
    mha_attn_stats stats_views;
    int64_t q_lens[PROBLEM_BATCH], kv_lens[PROBLEM_BATCH], offsets[PROBLEM_BATCH], prefix_lens[PROBLEM_BATCH];
    int64_t cu_q[PROBLEM_BATCH + 1], cu_k[PROBLEM_BATCH + 1]; /* boundaries of packed sequences (see packed.h) */
    uint64_t dropout_seed;
    int32_t head_list[PROBLEM_HEADS];
    int32_t *table; /* [batch][table_width] if k and v are paged (see paged.h) */
    int64_t table_width;
    bool short_weights; /* true if the last plan reported weights that are rounded to bf16 */
} problem;

/* A valid description, which tests modify to make it invalid. */
extern const mha_attn_desc problem_valid;

/* Allocates all tensors that `desc` requires, and fills inputs, lengths and offsets with random values from the seed.
 * The values do not depend on the layouts. `layouts` may be NULL. Free with problem_free. */
void problem_make(problem *p, const mha_attn_desc *desc, const problem_layouts *layouts, uint64_t seed);
/* Creates a problem with a random description and random data in random layouts, determined by (seed, number). */
void problem_random(problem *p, uint64_t seed, uint64_t number);
/* Creates a random problem with the given outputs, without pages and without q8_0, q4_0 and f8_e4m3. */
void problem_random_for(problem *p, uint32_t outputs, uint64_t seed, uint64_t number);
/* Updates args after a tensor or length has changed. */
void problem_bind(problem *p);
void problem_free(problem *p);

/* Writes the sizes and features of a problem as one line to text[capacity]. Returns `text`. */
const char *problem_text(const problem *p, char *text, size_t capacity);

/* Creates a plan, allocates its workspace between two guards, fills the workspace with NaN, runs the call, and checks
 * the guards of workspace and outputs. On any error, fails the running test with a message. */
void problem_run(mha_ctx *ctx, problem *p);
/* Runs a problem as problem_run does, but on failure returns false with a message in why[capacity]. */
bool problem_try(mha_ctx *ctx, problem *p, char *why, size_t capacity);

/* Returns false with a message in why[capacity] if the error of an output exceeds its limit (ref.h). *worst, if not
 * NULL, is set to the largest ratio error / limit. */
bool problem_near(const problem *p, const ref_result *truth, const ref_result *plain, double *worst, char *why,
                  size_t capacity);

/* Returns true if all outputs of a and b are bitwise identical. */
bool problem_same_bits(const problem *a, const problem *b);

#endif
