/* diversity_case.c - implements diversity_case.h. */
#include "support/heads/diversity_case.h"

#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 60 };
const int64_t diversity_lengths[DIVERSITY_TEXTS] = {9, 80, 2, 31, 9, 1, 17, 40, 5};

mha_model *diversity_model(mha_ctx *ctx, const char *folder, const mha_named_tensor *tensors, int64_t count)
{
    const mha_model_options options = {
        .size = sizeof options, .no_tokenizer = 1, .tensors = tensors, .tensor_count = count};
    return case_model(ctx, folder, &options);
}

mha_head_data *diversity_data(const mha_model *model, const int64_t *n, int64_t count, int64_t batch_tokens)
{
    mha_head_data *data;
    mha_error err = {0};
    rng draw = rng_make(3, 0);
    int64_t *starts = calloc((size_t)count + 1, sizeof *starts);
    for (int64_t i = 0; i < count; i++)
        starts[i + 1] = starts[i] + n[i];
    int32_t *ids = calloc((size_t)starts[count], sizeof *ids);
    for (int64_t i = 0; i < starts[count]; i++)
        ids[i] = (int32_t)rng_range(&draw, 5, VOCAB - 1);
    const mha_head_data_options options = {.size = sizeof options, .batch_tokens = batch_tokens};
    if (mha_head_data_of_ids(model, ids, starts, count, &options, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    free(ids);
    free(starts);
    return data;
}

mha_diversity *diversity_of(const mha_model *model, const mha_head_data *data, mha_diversity_options options)
{
    mha_diversity *d;
    mha_error err = {0};
    options.size = sizeof options;
    if (mha_diversity_measure(model, data, &options, &d, &err) != MHA_OK) fail_msg("%s", err.message);
    return d;
}

diversity_pair diversity_pair_at(const mha_model_info *info, int64_t i)
{
    const int64_t n = info->layers * info->heads, a = i / n, b = i % n;
    return (diversity_pair){a / info->heads, a % info->heads, b / info->heads, b % info->heads};
}

double diversity_at(const mha_diversity *d, mha_diversity_kind what, diversity_pair p)
{
    return mha_diversity_value(d, what, p.la, p.a, p.lb, p.b);
}

bool diversity_equal(const mha_model *model, const mha_diversity *x, const mha_diversity *y)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t n = mha_diversity_heads(x);
    for (int what = 0; what < MHA_DIVERSITIES; what++)
        for (int64_t i = 0; i < n * n; i++) {
            const double a = diversity_at(x, what, diversity_pair_at(info, i)),
                         b = diversity_at(y, what, diversity_pair_at(info, i));
            if (memcmp(&a, &b, sizeof a) != 0) return false;
        }
    return memcmp(mha_diversity_map(x), mha_diversity_map(y), (size_t)n * 2 * sizeof(double)) == 0 &&
           memcmp(mha_diversity_merges(x), mha_diversity_merges(y), (size_t)(n - 1) * sizeof(mha_head_merge)) == 0;
}
