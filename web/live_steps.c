/* live_steps.c - the numbers of one head for one token. */
#include "live.h"
#include <stdlib.h>
#include <string.h>

/* ---- the steps of one head ---- */

/* The request of live_steps, and its result: q [D], then for every token j: score of the query with key j before
 * masks, k [D], v [D]; then the output of the head [D]. */
typedef struct steps {
    int64_t layer, head, row;
    float *out;
    bool done;
    mha_status status; /* of reading the steps */
    mha_error error;
} steps;

static void copy_pair(const mha_head_steps *h, int64_t j, float *to)
{
    const size_t D = (size_t)h->head_dim;
    to[0] = (float)mha_head_steps_score(h, j);
    memcpy(to + 1, h->k + j * h->stride, D * sizeof *to);
    memcpy(to + 1 + D, h->v + j * h->stride, D * sizeof *to);
}

/* Keeps the numbers of the layer, and ends the pass. */
static int keep_steps(void *user, const mha_model_activations *a)
{
    steps *s = user;
    mha_head_steps h;
    if (a->layer != s->layer) return 0;
    s->status = mha_model_head_steps(live.model, a, s->head, s->row, &h, &s->error);
    if (s->status != MHA_OK) return 1;
    const int64_t D = h.head_dim;
    memcpy(s->out, h.q, (size_t)D * sizeof *h.q);
    for (int64_t j = 0; j < h.rows; j++)
        copy_pair(&h, j, s->out + D + j * (1 + 2 * D));
    memcpy(s->out + D + h.rows * (1 + 2 * D), h.context, (size_t)D * sizeof *h.context);
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
    live_pass(side, &in, &out); /* ends with MHA_ERR_CANCELED once the steps are read */
    if (s.done) return s.out;
    if (s.status != MHA_OK) live_err = s.error;
    free(s.out);
    return NULL;
}
