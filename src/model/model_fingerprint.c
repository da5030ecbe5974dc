/* model_fingerprint.c - the fingerprint of a model: a hash of its config, of the elements of all its weights, and of
 * the exact hidden states of a few tokens. The hidden states distinguish types of packed weights and ISAs.
 *
 * In a model that is divided among processes, no process reads all weights. There, hidden states and logits represent
 * the matrices of the layers and the output matrix. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/derived_tensor.h"
#include "math/hash.h"
#include "model/model_struct.h"
#include <string.h>

enum { TOKENS_MAX = 16 }; /* maximum tokens of the pass, except of an image */

static uint64_t hash_tensor(uint64_t h, const mha_tensor *t)
{
    h = mha__derived_hash(h, t, SIZE_MAX);
    return mha__hash(mha__hash(h, t->name, strlen(t->name)), t->data, t->bytes);
}

static uint64_t hash_weights(uint64_t h, const mha__shards *shards)
{
    for (int64_t n = 0; n < mha_file_count(shards->file); n++)
        h = hash_tensor(h, mha_file_tensor(shards->file, n));
    for (int64_t n = 0; n < shards->instead_count; n++)
        h = hash_tensor(h, &shards->instead[n]);
    return h;
}

/* Returns the elements of the pass's results: the hidden states and, in a divided model, the logits of a token. */
static size_t result_count(const mha_model *m, int64_t length)
{
    return (size_t)(length * m->info.hidden + (m->ranks.ranks && m->lm_head ? m->info.vocab : 0));
}

/* Writes the ids of `length` tokens, evenly spaced in the vocabulary, or features if the model reads these. */
static mha_status make_input(const mha_model *model, int64_t length, int32_t *ids, float **features,
                             mha_model_input *input, mha_error *err)
{
    const int64_t bins = model->info.feature_bins, frames = 2 * model->info.max_positions;
    *input = (mha_model_input){.size = sizeof *input, .batch = 1, .length = length};
    for (int64_t n = 0; n < length; n++)
        ids[n] = (int32_t)(n * (model->info.vocab / length));
    if (!bins) input->ids = ids;
    if (!bins) return MHA_OK;
    const size_t bytes = (size_t)(bins * frames) * sizeof **features;
    *features = mha__alloc(model->ctx, bytes);
    if (!*features) return mha__no_memory(err, bytes, "the features of a fingerprint");
    for (int64_t n = 0; n < bins * frames; n++)
        (*features)[n] = (float)(n % 7) / 4 - 0.75F;
    input->features = *features;
    input->length = model->info.max_positions;
    return MHA_OK;
}

/* Computes the results of a pass over up to TOKENS_MAX tokens. */
static mha_status run_tokens(const mha_model *model, int64_t length, float *results, mha_error *err)
{
    int32_t ids[TOKENS_MAX], source_ids[TOKENS_MAX];
    float *features = NULL;
    mha_model_input source, input;
    mha_model_output output = {.size = sizeof output, .last_hidden = results};
    if (model->ranks.ranks && model->lm_head) output.last_logits = results + length * model->info.hidden;
    mha_status status = make_input(model, length, ids, &features, &input, err);
    if (status == MHA_OK && model->encoder) {
        status = make_input(model->encoder, length, source_ids, &features, &source, err);
        input.source = &source;
    }
    if (status == MHA_OK) status = mha_model_forward(model, &input, &output, err);
    mha__free(model->ctx, features);
    return status;
}

/* Computes the results of a pass over one image, whose pixels are sevenths from -1 to 1. */
static mha_status run_image(const mha_model *model, float *results, mha_error *err)
{
    const mha_model_info *info = &model->info;
    const int64_t count = info->image_channels * info->image_height * info->image_width;
    const size_t bytes = (size_t)count * sizeof(float);
    float *pixels = mha__alloc(model->ctx, bytes);
    if (!pixels) return mha__no_memory(err, bytes, "an image");
    for (int64_t n = 0; n < count; n++)
        pixels[n] = (float)(n % 15 - 7) / 7;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .pixels = pixels};
    const mha_model_output output = {.size = sizeof output, .last_hidden = results};
    const mha_status status = mha_model_forward(model, &input, &output, err);
    mha__free(model->ctx, pixels);
    return status;
}

mha_status mha_model_fingerprint(const mha_model *model, char text[17], mha_error *err)
{
    if (!model || !text)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_fingerprint: %s must not be NULL", model ? "text" : "model");
    const mha_model_info *info = mha_model_describe(model);
    const char *config = mha_model_config_json(model);
    const int64_t max = mha__min64(mha__min64(info->vocab, info->max_positions), TOKENS_MAX);
    const int64_t length = info->image_channels ? info->max_positions : max;
    const size_t bytes = result_count(model, length) * sizeof(float);
    uint64_t weights = 0;
    float *results = mha__alloc(mha_model_ctx(model), bytes);
    if (!results) return mha__no_memory(err, bytes, "the fingerprint of a model");
    mha_status status = info->image_channels ? run_image(model, results, err) : run_tokens(model, length, results, err);
    if (status == MHA_OK && model->ranks.ranks)
        status = mha__rank_parts_hash(model, &weights, err);
    else if (status == MHA_OK)
        weights = hash_weights(mha__hash(0, config, strlen(config)), &model->shards);
    if (status == MHA_OK) mha__hash_print(text, mha__hash(weights, results, bytes));
    mha__free(mha_model_ctx(model), results);
    return status;
}
