/* source_store.c - memory of the keys and values of sources. */
#include "model/forward/source_store.h"

#include <string.h>

/* Returns the elements of a token's keys and values in one layer. */
static int64_t width_of(const mha_model *m)
{
    return 2 * m->config.kv_heads * m->config.head_dim;
}

void mha__sources_lay_out(mha__arena *arena, const mha_model *m, bool keys, mha__sources *s)
{
    const size_t cells = (size_t)s->batch * (size_t)s->tokens;
    s->lengths = mha__take(arena, (size_t)s->batch, sizeof *s->lengths);
    s->mask = mha__take(arena, cells, sizeof *s->mask);
    s->kv = !keys ? NULL : mha__take(arena, (size_t)m->config.layers * cells, (size_t)width_of(m) * sizeof *s->kv);
}

int64_t mha__sources_stride(const mha__sources *s, const mha_model *m)
{
    return s->tokens * width_of(m);
}

float *mha__sources_at(const mha__sources *s, const mha_model *m, int64_t layer, int64_t sequence)
{
    return s->kv ? s->kv + (layer * s->batch + sequence) * mha__sources_stride(s, m) : NULL;
}

void mha__sources_clear(mha__sources *s, int64_t sequence)
{
    for (int64_t b = 0; s->kv && b < s->batch; b++)
        if (sequence == MHA_CACHE_ALL || sequence == b) s->lengths[b] = 0;
}

void mha__sources_copy(mha__sources *s, const mha_model *m, int64_t from, int64_t to)
{
    if (!s->kv || from == to) return;
    s->lengths[to] = s->lengths[from];
    memcpy(s->mask + to * s->tokens, s->mask + from * s->tokens, (size_t)s->tokens);
    for (int64_t layer = 0; layer < m->config.layers; layer++)
        memcpy(mha__sources_at(s, m, layer, to), mha__sources_at(s, m, layer, from),
               (size_t)(s->lengths[to] * width_of(m)) * sizeof *s->kv);
}
