/* live_steps.c - the numbers of one head for one token. */
#include "live.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the steps of one head ---- */

/* The request of live_steps, and its result: q [D], then for every token j: score of the query with key j before
 * masks, k [D], v [D]; then the output of the head [D]. */
typedef struct steps {
    int64_t layer, head, row;
    float *out;
    bool done;
} steps;

static void copy_pair(const mha_model_activations *a, int64_t kv, int64_t j, const float *q, float *to)
{
    const int64_t D = a->head_dim;
    const float *k = a->k + j * a->stride + kv * D;
    double score = 0;
    for (int64_t d = 0; d < D; d++)
        score += (double)q[d] * (double)k[d];
    const double scale = live.info->attention_per_layer[a->layer].scale;
    to[0] = (float)(score * (scale != 0 ? scale : 1 / sqrt((double)D)));
    memcpy(to + 1, k, (size_t)D * sizeof *to);
    memcpy(to + 1 + D, a->v + j * a->stride + kv * D, (size_t)D * sizeof *to);
}

/* Keeps the numbers of the layer, and ends the pass, unless the heads of the layer have another width. */
static int keep_steps(void *user, const mha_model_activations *a)
{
    steps *s = user;
    const int64_t D = a->head_dim;
    if (a->layer != s->layer || D != live.info->head_dim) return 0;
    const float *q = a->q + s->row * a->stride + s->head * D;
    memcpy(s->out, q, (size_t)D * sizeof *q);
    for (int64_t j = 0; j < a->rows; j++)
        copy_pair(a, s->head / (a->heads / a->kv_heads), j, q, s->out + D + j * (1 + 2 * D));
    memcpy(s->out + D + a->rows * (1 + 2 * D), a->context + (s->row * a->heads + s->head) * D, (size_t)D * sizeof *q);
    return s->done = true;
}

static mha_status check_steps(live_side side, int layer, int head, int row)
{
    if (!live.run[side].hidden) return live_fail("live_steps must follow live_forward");

    const bool within =
        layer >= 0 && layer < live.info->layers && head >= 0 && head < live.info->heads_per_layer[layer];
    if (!within) return live_fail("layer and head must name a head of the model (got %d.%d)", layer, head);
    return live_check_token(row);
}

/* Returns the numbers of a head for the query token `row` on a side (struct steps), from the input of its layer in the
 * last run. The caller frees them with live_free; NULL on failure. */
LIVE_EXPORT(live_steps) float *live_steps(live_side side, int layer, int head, int row)
{
    const int64_t D = live.info->head_dim;
    steps s = {.layer = layer, .head = head, .row = row};
    if (check_steps(side, layer, head, row) != MHA_OK) return NULL;
    s.out = calloc((size_t)(2 * D + live.count * (1 + 2 * D)), sizeof *s.out);
    if (!s.out) return live_fail("out of memory for the steps of a head"), NULL;
    const mha_model_input in = {.size = sizeof in,
                                .batch = 1,
                                .length = live.count,
                                .ids = live.ids,
                                .first_layer = layer,
                                .hidden = live.run[side].hidden + layer * live.count * live.info->hidden,
                                .gates = side == LIVE_CHANGED ? live.gates : NULL,
                                .fills = side == LIVE_CHANGED ? live.fills : NULL};
    const mha_model_output out = {.size = sizeof out, .on_activations = keep_steps, .user = &s};
    if (live_pass(side, &in, &out) == MHA_OK || s.done) return s.out;
    free(s.out);
    return NULL;
}
