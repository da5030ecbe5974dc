/* pair_table.c - implements a hash table with pairs of integers as keys. */
#include "text/vocabulary/pair_table.h"

#include "base/ctx.h"
#include "text/memory_budget.h"

enum { FIRST_SLOTS = 64 };

/* Returns the first slot to probe. The multiplier is the golden ratio in 64 bits (Knuth, The Art of Computer
 * Programming, 6.4). */
static size_t start(const mha__pair_table *pairs, uint32_t first, uint32_t second)
{
    uint64_t key = ((uint64_t)first << 32 | second) * 0x9E3779B97F4A7C15u;
    return (size_t)((key ^ key >> 32) & pairs->mask);
}

/* Returns the slot of the key, or the free slot where it would be inserted. */
static size_t find(const mha__pair_table *pairs, uint32_t first, uint32_t second)
{
    size_t at = start(pairs, first, second);
    while (pairs->slots[at].value && (pairs->slots[at].first != first || pairs->slots[at].second != second))
        at = (at + 1) & pairs->mask;
    return at;
}

void mha__pairs_free(mha__pair_table *pairs)
{
    mha__free(pairs->ctx, pairs->slots);
    pairs->slots = NULL;
    pairs->count = 0;
}

/* Doubles the number of slots. */
static mha_status grow(mha__pair_table *pairs, mha_error *err)
{
    mha__pair_table old = *pairs;
    size_t slots = old.slots ? 2 * (old.mask + 1) : FIRST_SLOTS;
    MHA__TRY(mha__room_take(pairs->room, slots * sizeof *pairs->slots, err));
    pairs->slots = mha__calloc(pairs->ctx, slots, sizeof *pairs->slots);
    if (!pairs->slots) {
        *pairs = old;
        return mha__no_memory(err, slots * sizeof *pairs->slots, "the vocabulary");
    }
    pairs->mask = slots - 1;
    for (size_t i = 0; old.slots && i <= old.mask; i++)
        if (old.slots[i].value) pairs->slots[find(pairs, old.slots[i].first, old.slots[i].second)] = old.slots[i];
    mha__free(pairs->ctx, old.slots);
    if (pairs->room && old.slots) *pairs->room += (old.mask + 1) * sizeof *old.slots;
    return MHA_OK;
}

mha_status mha__pairs_put(mha__pair_table *pairs, uint32_t first, uint32_t second, uint32_t value, mha_error *err)
{
    if (!pairs->slots || 2 * pairs->count > pairs->mask) MHA__TRY(grow(pairs, err));
    size_t at = find(pairs, first, second);
    if (!pairs->slots[at].value) {
        pairs->probes += (at - start(pairs, first, second)) & pairs->mask;
        if (pairs->probes > 16 * pairs->count + 1024)
            return mha__fail(err, MHA_ERR_FORMAT, "too many pairs of tokens with the same hash, such as (%u, %u)",
                             (unsigned)first, (unsigned)second);
        pairs->count++;
    }
    pairs->slots[at] = (mha__pair_slot){first, second, value + 1};
    return MHA_OK;
}

int64_t mha__pairs_get(const mha__pair_table *pairs, uint32_t first, uint32_t second)
{
    return pairs->slots ? (int64_t)pairs->slots[find(pairs, first, second)].value - 1 : -1;
}
