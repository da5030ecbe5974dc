/* string_counts.c - implements a hash table of strings with counts. */
#include "text/train/string_counts.h"

#include "base/ctx.h"
#include "text/encode_buffers.h"
#include <string.h>

enum { FIRST_SLOTS = 1024, MAX = UINT32_MAX / 4 };

/* Hashes eight bytes per step: multiplies by the golden ratio in 64 bits (Knuth, The Art of Computer Programming, 6.4),
 * then combines the halves of the product. */
static uint32_t hash(const char *p, size_t n)
{
    const uint64_t factor = 0x9E3779B97F4A7C15u;
    uint64_t h = (n + 1) * factor;
    for (; n > 0;) {
        const size_t step = n < 8 ? n : 8;
        uint64_t word = 0;
        memcpy(&word, p, step);
        h = (h ^ word) * factor;
        h ^= h >> 32;
        p += step;
        n -= step;
    }
    h *= factor;
    return (uint32_t)(h >> 32);
}

void mha__strings_free(mha__strings *strings)
{
    mha__free(strings->ctx, strings->bytes);
    mha__free(strings->ctx, strings->items);
    mha__free(strings->ctx, strings->slots);
    *strings = (mha__strings){.ctx = strings->ctx};
}

/* Doubles the number of slots. */
static mha_status grow(mha__strings *s, mha_error *err)
{
    const size_t slots = s->slots ? 2 * (s->mask + 1) : FIRST_SLOTS;
    uint32_t *fresh = mha__calloc(s->ctx, slots, sizeof *fresh);
    if (!fresh) return mha__no_memory(err, slots * sizeof *fresh, "distinct words");
    mha__free(s->ctx, s->slots);
    s->slots = fresh;
    s->mask = slots - 1;
    for (size_t i = 0; i < s->count; i++) {
        size_t at = s->items[i].hash & s->mask;
        while (fresh[at])
            at = (at + 1) & s->mask;
        fresh[at] = (uint32_t)i + 1;
    }
    return MHA_OK;
}

/* Returns the slot of a string, or the free slot where it would be inserted. */
static size_t find(const mha__strings *s, uint32_t key, const char *p, size_t n)
{
    for (size_t at = key & s->mask;; at = (at + 1) & s->mask) {
        if (!s->slots[at]) return at;
        const mha__string *item = &s->items[s->slots[at] - 1];
        if (item->hash == key && item->length == n && memcmp(s->bytes + item->begin, p, n) == 0) return at;
    }
}

static mha_status append(mha__strings *s, uint32_t key, const char *p, size_t n, mha_error *err)
{
    if (s->count >= MAX || n > UINT32_MAX)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "text must have at most %u distinct words", (unsigned)MAX);
    if (s->probes > 16 * s->count + 1024)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "too many words with the same hash, such as \"%s\"",
                         mha__quote(&(mha__quoted){0}, p, n));
    MHA__TRY(mha__items_grow(s->ctx, &s->items, &s->room, s->count + 1, sizeof *s->items, err));
    MHA__TRY(mha__items_grow(s->ctx, &s->bytes, &s->bytes_room, s->used + n + 1, 1, err));
    if (n) memcpy(s->bytes + s->used, p, n);
    s->bytes[s->used + n] = '\0';
    s->items[s->count++] = (mha__string){.begin = s->used, .length = (uint32_t)n, .hash = key};
    s->used += n + 1;
    return MHA_OK;
}

mha_status mha__strings_add(mha__strings *s, const char *p, size_t n, int64_t more, uint32_t *number, mha_error *err)
{
    if (!s->slots || 2 * s->count > s->mask) MHA__TRY(grow(s, err));
    const uint32_t key = hash(p, n);
    const size_t at = find(s, key, p, n);
    if (!s->slots[at]) {
        s->probes += (at - key) & s->mask;
        MHA__TRY(append(s, key, p, n, err));
        s->slots[at] = (uint32_t)s->count;
    }
    const uint32_t found = s->slots[at] - 1;
    s->items[found].sum += more;
    if (number) *number = found;
    return MHA_OK;
}
