/* generate_step.c - one forward pass for all active prompts. With lookup (speculative decoding), the pass may include
 * guessed tokens after the last token of a prompt. While the sampled token equals the guess, the next row of logits is
 * valid. Wrong guesses are truncated from the cache. */
#include "base/error.h"
#include "base/size.h"
#include "model/generate/generation.h"
#include <string.h>

/* Writes up to `max` guesses after the ids: the tokens that followed an earlier occurrence of the last three (or
 * two) tokens. If that occurrence overlaps the end of the text, the repetition is continued. Returns the number of
 * guesses. */
static int64_t guess(mha__slot *s, int64_t max)
{
    for (int64_t n = 3; n >= 2; n--) {
        if (s->length <= n) continue; /* no token precedes the tail */
        const int32_t *tail = s->ids + s->length - n;
        for (int64_t i = s->length - n - 1; i >= 0; i--) {
            if (memcmp(s->ids + i, tail, (size_t)n * sizeof *tail) != 0) continue;
            for (int64_t k = 0; k < max; k++)
                s->ids[s->length + k] = s->ids[i + n + k];
            return max;
        }
    }
    return 0;
}

/* Returns the length of the slot's row: its last token and guesses, limited by max_new; 0 for an idle slot. */
static int64_t row_length(const mha__generation *g, mha__slot *s)
{
    if (s->prompt < 0) return 0;
    const int64_t left = g->o.max_new - g->lengths[s->prompt] - 1;
    return 1 + guess(s, mha__min64(left, s->ahead));
}

/* Writes rows of equal length to `step` and `mask`, and returns that length; sets *all to true if no entry is
 * masked. */
static int64_t fill_rows(mha__generation *g, bool *all)
{
    int64_t max = 1;
    for (int64_t n = 0; n < g->slots; n++) {
        g->slot[n].row = row_length(g, &g->slot[n]);
        max = mha__max64(max, g->slot[n].row);
    }
    *all = true;
    for (int64_t n = 0; n < g->slots; n++) {
        const mha__slot *s = &g->slot[n];
        for (int64_t i = 0; i < max; i++) {
            const bool real = i < s->row;
            g->mask[n * max + i] = real;
            g->step[n * max + i] = real ? s->ids[s->length - 1 + i] : 0;
            *all &= real;
        }
    }
    return max;
}

/* Samples from the rows of logits in order until a guess is wrong, and truncates the wrong guesses from the cache. */
static mha_status take_row(mha__generation *g, mha__slot *s, float *logits, mha_error *err)
{
    const int64_t guesses = s->row - 1, begin = s->length;
    int64_t right = 0;
    for (bool accepted = true; accepted; right += accepted) {
        const int32_t guessed = s->ids[s->length < g->room ? s->length : 0];
        MHA__TRY(mha__generation_advance(g, s, logits + right * g->model->config.vocab, err));
        accepted = right < guesses && s->prompt >= 0 && s->ids[s->length - 1] == guessed;
    }
    if (guesses == 0) return MHA_OK;
    s->ahead = mha__min64(g->o.lookup, right == guesses ? 2 * guesses : right + 1);
    return mha_model_cache_truncate(g->cache, s - g->slot, begin + right, err);
}

mha_status mha__generation_step(mha__generation *g, mha_error *err)
{
    bool all = false;
    const int64_t length = fill_rows(g, &all);
    const mha_model_input input = {.size = sizeof input,
                                   .batch = g->slots,
                                   .length = length,
                                   .ids = g->step,
                                   .mask = all ? NULL : g->mask,
                                   .cache = g->cache,
                                   .gates = g->gates};
    const mha_model_output output = {
        .size = sizeof output, .logits = length > 1 ? g->logits : NULL, .last_logits = length > 1 ? NULL : g->logits};
    MHA__TRY(mha_model_forward(g->model, &input, &output, err));
    for (int64_t n = 0; n < g->slots; n++)
        if (g->slot[n].row > 0)
            MHA__TRY(take_row(g, &g->slot[n], g->logits + n * length * g->model->config.vocab, err));
    return MHA_OK;
}
