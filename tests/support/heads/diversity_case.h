/* diversity_case.h - measures the similarity of heads on random texts; a failed call fails the running test. */
#ifndef TEST_DIVERSITY_CASE_H
#define TEST_DIVERSITY_CASE_H

#include "mha/diversity.h"
#include <stdbool.h>

#define DIVERSITY_ENCODER "models/bert-tiny"
#define DIVERSITY_DECODER "heads/tinylm"

/* Lengths of the texts of these tests. Tokens are assigned to halves in units of 64, so only the text of 80 tokens is
 * in both halves. */
enum { DIVERSITY_TEXTS = 9 };
extern const int64_t diversity_lengths[DIVERSITY_TEXTS];

/* Opens a model without its tokenizer, with `count` tensors replaced. */
mha_model *diversity_model(mha_ctx *ctx, const char *folder, const mha_named_tensor *tensors, int64_t count);
/* Returns `count` random texts of lengths n[0], n[1] ..., the same in every run. */
mha_head_data *diversity_data(const mha_model *model, const int64_t *n, int64_t count, int64_t batch_tokens);
mha_diversity *diversity_of(const mha_model *model, const mha_head_data *data, mha_diversity_options options);

/* A pair of heads: head a of layer la and head b of layer lb. */
typedef struct diversity_pair {
    int64_t la, a, lb, b;
} diversity_pair;
/* Returns pair i of a model, in row-major order of its matrix of pairs. */
diversity_pair diversity_pair_at(const mha_model_info *info, int64_t i);
double diversity_at(const mha_diversity *d, mha_diversity_kind what, diversity_pair p);

/* Returns true if all values, the map and the clusters of x and y are bitwise identical. */
bool diversity_equal(const mha_model *model, const mha_diversity *x, const mha_diversity *y);

#endif
