/* generation_rules.c - the rules for generated text that the checkpoint of an encoder-decoder contains: forced tokens,
 * and banned words. */
#include "model/generate/generation.h"
#include <math.h>
#include <string.h>

int64_t mha__generation_forced(const mha__generation *g, const mha__slot *s)
{
    const mha__config *c = &g->model->config;
    if (!g->o.sources || g->o.no_rules) return -1;
    if (c->forced_last >= 0 && g->lengths[s->prompt] == g->o.max_new - 1) return c->forced_last;
    return s->length == 1 ? c->forced_first : -1;
}

/* A word of several tokens that is as long as the text including its next token is not banned, as in transformers. */
void mha__generation_ban(const mha__generation *g, const mha__slot *s, float *logits)
{
    const mha__config *c = &g->model->config;
    if (!g->o.sources || g->o.no_rules) return;
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
