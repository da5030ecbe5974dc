/* ablation_loss.c - evaluates a forward pass with heads switched off: the distance of text embeddings, the cross
 * entropy of tokens, or the loss of pairs. */
#include "base/error.h"
#include "heads/importance/ablation.h"
#include "layer/loss/contrastive_loss.h"
#include "layer/loss/sentence_vector.h"
#include "math/linalg.h"
#include "mha/layer.h"
#include "model/forward/pooler_logits.h"
#include <string.h>

enum { CHUNK_ELEMENTS = 1 << 21, CHUNK_ROWS = 256 }; /* maximum logits (8 MiB) and rows per chunk */

int64_t mha__ablation_chunk(const mha__ablation *a)
{
    return mha__min64(CHUNK_ROWS, mha__max64(1, CHUNK_ELEMENTS / mha__max64(1, a->info->logit_width)));
}

/* Returns the label of row `t` of text b of a batch, which has `length` tokens. Only the first token of an image has
 * one. */
static int32_t label_of(const mha__ablation *a, const mha__packed *batch, int64_t b, int64_t length, int64_t t)
{
    const int64_t first = batch->input.starts[b];
    if (batch->input.pixels) return t ? MHA_IGNORE : batch->labels[b];
    const int64_t at = t + (a->info->causal && !batch->input.source ? 1 : 0);
    if (at >= length) return MHA_IGNORE;
    return batch->labels ? batch->labels[first + at] : batch->input.ids[first + at];
}

/* Adds to *sum the losses of the `count` rows of hidden states in a->room with the given labels. */
static mha_status add_chunk(const mha__ablation *a, const int32_t *labels, int64_t count, double *sum, mha_error *err)
{
    const int64_t width = a->info->hidden;
    const float *input = NULL;
    double part = 0;
    if (count == 0) return MHA_OK;
    const mha_cross_entropy_args args = {.size = sizeof args,
                                         .rows = count,
                                         .classes = a->info->logit_width,
                                         .logits = a->logits,
                                         .labels = labels,
                                         .scale = 1};
    MHA__TRY(mha__head_input(a->model, count, a->room, a->room + mha__ablation_chunk(a) * width, &input, err));
    MHA__TRY(mha__head_logits(a->model, count, input, a->logits, err));
    MHA__TRY(mha_cross_entropy(a->ctx, &args, &part, NULL, err));
    *sum += part;
    return MHA_OK;
}

/* Computes the sum of the cross entropy over the tokens of text b of a batch. */
static mha_status take_tokens(mha__ablation *a, const mha__packed *batch, int64_t b, mha_error *err)
{
    const int64_t first = batch->input.starts[b], length = batch->input.starts[b + 1] - first;
    const int64_t width = a->info->hidden, chunk = mha__ablation_chunk(a);
    int32_t labels[CHUNK_ROWS];
    double sum = 0;
    int64_t count = 0;
    for (int64_t t = 0; t < length; t++) {
        const int32_t label = label_of(a, batch, b, length, t);
        if (label == MHA_IGNORE) continue;
        labels[count] = label;
        memcpy(a->room + count++ * width, a->last + (first + t) * width, (size_t)width * sizeof *a->room);
        if (count < chunk) continue;
        MHA__TRY(add_chunk(a, labels, count, &sum, err));
        count = 0;
    }
    MHA__TRY(add_chunk(a, labels, count, &sum, err));
    a->value[batch->place[b]] = sum;
    return MHA_OK;
}

mha_status mha__ablation_take(mha__ablation *a, const mha__packed *batch, mha_error *err)
{
    const int64_t width = a->info->hidden, *starts = batch->input.starts;
    for (int64_t b = 0; b < batch->input.batch; b++)
        if (a->measure == MHA__ABLATION_TOKENS)
            MHA__TRY(take_tokens(a, batch, b, err));
        else
            mha__unit(a->last + starts[b] * width, starts[b + 1] - starts[b], width, a->unit + batch->place[b] * width);
    return MHA_OK;
}

double mha__ablation_value(const mha__ablation *a, int64_t t)
{
    const int64_t width = a->info->hidden;
    return a->measure == MHA__ABLATION_TOKENS ? a->value[t]
                                              : 1 - mha__dot(width, a->full + t * width, a->unit + t * width);
}

mha_status mha__ablation_finish(mha__ablation *a, double *value, mha_error *err)
{
    const int64_t width = a->info->hidden;
    if (a->measure == MHA__ABLATION_PAIRS)
        return mha__pairs_terms(a->ctx, a->unit, a->texts / 2, width, a->scale, value, err);
    for (int64_t t = 0; t < a->texts; t++)
        value[t] = mha__ablation_value(a, t);
    return MHA_OK;
}
