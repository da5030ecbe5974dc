/* generation_rules.c - the rules for generated text that the checkpoint of an encoder-decoder contains: forced tokens,
 * suppressed tokens, and banned words. */
#include "model/generate/generation.h"
#include <math.h>
#include <string.h>

/* Returns true if the rules of the checkpoint apply. */
static bool has_rules(const mha__generation *g)
{
    return mha__generation_sources(g) && !g->o.no_rules;
}

/* Returns the token that must be at a position of the text, or -1. */
static int64_t forced_at(const mha__config *c, int64_t position)
{
    if (position < c->forced_count && c->forced[position] >= 0) return c->forced[position];
    return position == 1 ? c->forced_first : -1;
}

int64_t mha__generation_forced(const mha__generation *g, const mha__slot *s)
{
    const mha__config *c = &g->model->config;
    if (!has_rules(g)) return -1;
    if (c->forced_last >= 0 && g->lengths[s->prompt] == g->o.max_new - 1) return c->forced_last;
    return forced_at(c, s->length);
}

/* Excludes the tokens of suppress_tokens and, before the first token that is not forced, begin_suppress_tokens. */
static void suppress(const mha__generation *g, const mha__slot *s, float *logits)
{
    const mha__config *c = &g->model->config;
    int64_t first = mha__generation_prompt(g, s->prompt).count;
    while (forced_at(c, first) >= 0)
        first++;
    for (int64_t n = 0; n < c->suppressed_count; n++)
        logits[c->suppressed[n]] = -INFINITY;
    for (int64_t n = 0; n < c->late_count && s->length == first; n++)
        logits[c->late[n]] = -INFINITY;
}

/* A word of several tokens that is as long as the text including its next token is not banned, as in transformers. */
void mha__generation_ban(const mha__generation *g, const mha__slot *s, float *logits)
{
    const mha__config *c = &g->model->config;
    if (!has_rules(g)) return;
    suppress(g, s, logits);
    for (int64_t at = 0, count; at < c->banned_count; at += count + 1) {
        const int32_t *word = c->banned + at;
        for (count = 0; word[count] >= 0; count++) {
        }
        const int64_t before = count - 1;
        if (count > 1 &&
            (count > s->length || memcmp(s->ids + s->length - before, word, (size_t)before * sizeof *word) != 0))
            continue;
        logits[word[before]] = -INFINITY;
    }
}
