/* live_run.c - forward passes over the text: maps, predictions, gates, and the effect of switching each head. */
#include "live.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void live_runs_free(live_state *s)
{
    for (int side = 0; side < LIVE_SIDES; side++) {
        free(s->run[side].memory);
        s->run[side] = (live_run){0};
        mha_model_cache_free(s->cache[side]);
        s->cache[side] = NULL;
    }
    free(s->written);
    s->written = NULL;
    mha_logit_lens_free(s->lens);
    s->lens = NULL;
}

/* Allocates the results of a side for the present text. */
static mha_status make_room(live_run *run, bool outputs)
{
    const mha_model_info *i = live.info;
    const size_t n = (size_t)live.count, layers = (size_t)i->layers;
    const uint64_t maps = (uint64_t)layers * (size_t)live.heads * n * n;
    const uint64_t hidden = (uint64_t)(layers + 1) * n * (size_t)i->hidden;
    const uint64_t context = outputs ? (uint64_t)layers * n * (size_t)live.width : 0,
                   vocab = i->logits ? (uint64_t)i->vocab : 0;
    const uint64_t bytes = (maps + hidden + context + vocab) * sizeof(float);
    free(run->memory);
    *run = (live_run){.memory = bytes <= SIZE_MAX / 2 ? malloc((size_t)bytes) : NULL};
    if (!run->memory)
        return live_fail("out of memory: %llu bytes for the maps of this text", (unsigned long long)bytes);
    run->maps = run->memory;
    run->hidden = run->maps + maps;
    run->context = outputs ? run->hidden + hidden : NULL;
    run->logits = vocab ? run->hidden + hidden + context : NULL;
    return MHA_OK;
}

static int keep_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const size_t one = (size_t)(live.count * live.count);
    memcpy(((live_run *)user)->maps + (size_t)(layer * live.heads) * one, probs, (size_t)heads * one * sizeof *probs);
    return 0;
}

static int keep_hidden(void *user, int64_t entry, const float *x)
{
    const size_t one = (size_t)(live.count * live.info->hidden);
    memcpy(((live_run *)user)->hidden + (size_t)entry * one, x, one * sizeof *x);
    return 0;
}

static int keep_context(void *user, const mha_model_activations *a)
{
    const size_t width = (size_t)(a->heads * a->head_dim);
    float *to = ((live_run *)user)->context + (size_t)(a->layer * live.count * live.width);
    if (width > (size_t)live.width) return 0; /* heads of another width: no means */
    for (int64_t row = 0; row < a->rows; row++)
        memcpy(to + row * live.width, a->context + (size_t)row * width, width * sizeof *to);
    return 0;
}

/* In a causal model, the logits at token live.at depend on the tokens up to it only, so the pass ends there. */
mha_status live_predict(live_side side, int64_t layer, const float *hidden, const float *gates, const float *fills,
                        float *logits)
{
    const bool causal = live.info->causal;
    const size_t vocab = (size_t)live.info->vocab;
    float *all = causal ? NULL : malloc((size_t)live.count * vocab * sizeof *all);
    if (!causal && !all) return live_fail("out of memory for the logits of all tokens");
    const mha_model_input in = {.size = sizeof in,
                                .batch = 1,
                                .length = causal ? live.at + 1 : live.count,
                                .ids = live.ids,
                                .gates = gates,
                                .fills = fills,
                                .first_layer = layer,
                                .hidden = hidden};
    const mha_model_output out = {.size = sizeof out, .last_logits = causal ? logits : NULL, .logits = all};
    const mha_status status = live_pass(side, &in, &out);
    if (status == MHA_OK && all) memcpy(logits, all + (size_t)live.at * vocab, vocab * sizeof *all);
    free(all);
    return status;
}

/* Runs a side, and keeps its maps, hidden states, the logits at token `at`, and if `outputs` is 1, the outputs of the
 * heads. */
LIVE_EXPORT(live_forward) mha_status live_forward(live_side side, int at, int outputs)
{
    live_run *run = &live.run[side];
    mha_status status = live_check_token(at);
    if (status == MHA_OK) status = make_room(run, outputs != 0);
    if (status != MHA_OK) return status;
    live.at = at;
    const bool last = live.info->logits && live.info->causal && at == live.count - 1;
    const float *gates = side == LIVE_CHANGED ? live.gates : NULL, *fills = side == LIVE_CHANGED ? live.fills : NULL;
    const mha_model_input in = {
        .size = sizeof in, .batch = 1, .length = live.count, .ids = live.ids, .gates = gates, .fills = fills};
    const mha_model_output out = {.size = sizeof out,
                                  .last_logits = last ? run->logits : NULL,
                                  .last_hidden = run->hidden + live.info->layers * live.count * live.info->hidden,
                                  .on_attention = keep_maps,
                                  .on_hidden = keep_hidden,
                                  .on_activations = outputs ? keep_context : NULL,
                                  .user = run};
    status = live_pass(side, &in, &out);
    if (status != MHA_OK || last || !live.info->logits) return status;
    const int64_t layer = live.info->layers - 1;
    return live_predict(side, layer, run->hidden + layer * live.count * live.info->hidden, gates, fills, run->logits);
}

/* Returns the maps of a side, [layers, H, N, N]. */
LIVE_EXPORT(live_maps) const float *live_maps(live_side side)
{
    return live.run[side].maps;
}

/* Returns the logits of a side at the chosen token, [vocab]; NULL without logits. */
LIVE_EXPORT(live_logits) const float *live_logits(live_side side)
{
    return live.run[side].logits;
}

/* Returns the last hidden states of a side, [N, E]. */
LIVE_EXPORT(live_hidden) const float *live_hidden(live_side side)
{
    return live.run[side].hidden + live.info->layers * live.count * live.info->hidden;
}

/* ---- gates ---- */

/* Returns the gates [layers, H], which the page sets; they apply to side LIVE_CHANGED. */
LIVE_EXPORT(live_gates) float *live_gates(void)
{
    return live.gates;
}

void live_fill_head(int64_t head, float gate)
{
    const int64_t D = live.info->head_dim;
    for (int64_t n = head * D; n < (head + 1) * D; n++)
        live.fills[n] = (1 - gate) * live.means[n];
}

/* Applies the gates that the page has set. A gate of 0 then replaces the output of a head by its mean in the text (from
 * the run of side LIVE_CLEAN, which must have kept the outputs), or with mean = 0, by 0. */
LIVE_EXPORT(live_apply) void live_apply(int mean)
{
    const float *from = mean ? live.run[LIVE_CLEAN].context : NULL;
    for (int64_t n = 0; n < live.info->layers * live.width; n++) {
        const int64_t layer = n / live.width, column = n % live.width;
        double sum = 0;
        for (int64_t row = 0; from && row < live.count; row++)
            sum += (double)from[(layer * live.count + row) * live.width + column];
        live.means[n] = from ? (float)(sum / (double)live.count) : 0;
    }
    for (int64_t head = 0; head < live.info->layers * live.heads; head++)
        live_fill_head(head, live.gates[head]);
}

/* ---- the effect of switching a head ---- */

/* Returns KL(p || q) in bits, for the distributions of two vectors of logits; NAN if they contain NAN. */
static double divergence(const float *p, const float *q)
{
    return mha_kl_divergence(p, q, live.info->vocab) / log(2);
}

/* Returns KL(clean || changed) at the chosen token in bits; -1 without logits. */
LIVE_EXPORT(live_divergence) double live_divergence(void)
{
    const float *clean = live.run[LIVE_CLEAN].logits, *changed = live.run[LIVE_CHANGED].logits;
    return clean && changed ? divergence(clean, changed) : -1;
}

/* Computes the logits of a side with head n switched: off, or on again if its gate is 0. `gates` is a copy of the gates
 * of the side. */
static mha_status predict_switched(live_side side, int64_t n, float *gates, float *logits)
{
    const int64_t layer = n / live.heads, rows = live.count * live.info->hidden;
    const float before = gates[n];
    gates[n] = before == 0 ? 1 : 0;
    live_fill_head(n, gates[n]);
    const mha_status status =
        live_predict(side, layer, live.run[side].hidden + layer * rows, gates, live.fills, logits);
    live_fill_head(n, before);
    return status;
}

static mha_status check_effect(const live_run *run, int64_t n)
{
    const int64_t heads = live.info->layers * live.heads;
    if (!run->logits) return live_fail("model must have logits and a text (got %s)", live.info->family);
    if (n >= 0 && n < heads && n % live.heads < live.info->heads_per_layer[n / live.heads]) return MHA_OK;
    return live_fail("head must be a head of the model, from 0 to %lld (got %lld)", (long long)heads - 1, (long long)n);
}

/* Returns the effect of head n = layer H + head on a side: KL in bits between the prediction of the side and that with
 * the head switched. Requires logits. Returns -1 on failure. */
LIVE_EXPORT(live_effect) double live_effect(live_side side, int n)
{
    const live_run *run = &live.run[side];
    const int64_t heads = live.info->layers * live.heads;
    float *gates = malloc((size_t)heads * sizeof *gates), *logits = malloc((size_t)live.info->vocab * sizeof *logits);
    mha_status status = check_effect(run, n);
    if (status == MHA_OK && (!gates || !logits)) status = live_fail("out of memory for the effect of a head");
    for (int64_t i = 0; status == MHA_OK && i < heads; i++)
        gates[i] = side == LIVE_CHANGED ? live.gates[i] : 1;
    if (status == MHA_OK) status = predict_switched(side, n, gates, logits);
    const double effect = status == MHA_OK ? divergence(run->logits, logits) : -1;
    free(gates);
    free(logits);
    return effect;
}
