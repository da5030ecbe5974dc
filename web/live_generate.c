/* live_generate.c - continues the text greedily on both sides. */
#include "live.h"
#include <stdlib.h>
#include <string.h>

/* Appends ids to the text of a side with removed edges. */
static mha_status append(const int32_t *ids, int64_t count)
{
    if (live.written_count + count > live.count + LIVE_WRITTEN)
        return live_fail("continuation must have at most %d tokens (got more)", LIVE_WRITTEN);
    memcpy(live.written + live.written_count, ids, (size_t)count * sizeof *ids);
    live.written_count += count;
    return MHA_OK;
}

/* Runs `count` more ids of a side: on its cache, or the whole text if edges are removed. Returns the most likely next
 * token, or -1. */
static int step(live_side side, const int32_t *ids, int64_t count)
{
    const int64_t vocab = live.info->vocab;
    const bool whole = !live.cache[side];
    float *logits = malloc((size_t)vocab * sizeof *logits);
    if (!logits) return live_fail("out of memory for the logits"), -1;
    mha_status status = whole ? append(ids, count) : MHA_OK;
    const mha_model_input in = {.size = sizeof in,
                                .batch = 1,
                                .length = whole ? live.written_count : count,
                                .ids = whole ? live.written : ids,
                                .cache = live.cache[side],
                                .gates = side == LIVE_CHANGED ? live.gates : NULL,
                                .fills = side == LIVE_CHANGED ? live.fills : NULL};
    const mha_model_output out = {.size = sizeof out, .last_logits = logits};
    if (status == MHA_OK)
        status = whole ? live_pass(side, &in, &out) : mha_model_forward(live.model, &in, &out, &live_err);
    int32_t best = 0;
    for (int32_t i = 1; status == MHA_OK && i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    free(logits);
    return live.last[side] = status == MHA_OK ? best : -1;
}

/* Starts to continue the text on a side, greedily. Returns the first new token, or -1. */
LIVE_EXPORT(live_generate) int live_generate(live_side side)
{
    if (live_check_token(0) != MHA_OK) return -1;
    mha_model_cache_free(live.cache[side]);
    live.cache[side] = NULL;
    if (side == LIVE_CHANGED && live.edge_count) {
        free(live.written);
        live.written = malloc((size_t)(live.count + LIVE_WRITTEN) * sizeof *live.written);
        live.written_count = 0;
        if (!live.written) return live_fail("out of memory for the continuation"), -1;
    } else if (mha_model_cache_create(live.model, NULL, &live.cache[side], &live_err)) {
        return -1;
    }
    return step(side, live.ids, live.count);
}

/* Returns the next token of a side after live_generate, or -1. */
LIVE_EXPORT(live_next) int live_next(live_side side)
{
    const bool started = live.cache[side] || (side == LIVE_CHANGED && live.written);
    if (!started || live.last[side] < 0) return live_fail("live_next must follow live_generate"), -1;
    return step(side, &live.last[side], 1);
}
