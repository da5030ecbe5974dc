/* key_layout.c - the ranges of keys that each rank caches (key_layout.h). */
#include "library/model/key_layout.h"

#include <stdlib.h>

/* Returns the first key that does not belong to the prompt's chunks. */
static int64_t first_later(const mha__key_layout *l)
{
    return (l->prompt + MHA_ATTN_CHUNK - 1) / MHA_ATTN_CHUNK * MHA_ATTN_CHUNK;
}

int64_t mha__layout_ranges(const mha__key_layout *layout, int cp_rank)
{
    const int64_t later = layout->length - first_later(layout);
    const int64_t chunks = later > 0 ? (later + MHA_ATTN_CHUNK - 1) / MHA_ATTN_CHUNK : 0;
    return 2 + (chunks + layout->cp - 1 - cp_rank) / layout->cp;
}

mha__range mha__layout_range(const mha__key_layout *layout, int cp_rank, int64_t n)
{
    const mha_cluster_part part = mha_cluster_part_of(layout->prompt, layout->cp, cp_rank);
    if (n >= 2) {
        const int64_t start = first_later(layout) + ((n - 2) * layout->cp + cp_rank) * MHA_ATTN_CHUNK;
        return (mha__range){start, mha__min64(MHA_ATTN_CHUNK, layout->length - start), 0};
    }
    mha__range range = {part.start[n], part.length[n], 0};
    if (range.length > 0 && range.start + range.length == layout->prompt)
        range.length = mha__min64(layout->length, first_later(layout)) - range.start;
    return range;
}

int mha__layout_power(const mha__key_layout *layout)
{
    int power = 1;
    while (2 * power <= layout->cp)
        power *= 2;
    return power;
}

static int by_start(const void *a, const void *b)
{
    const mha__range *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static int64_t add_ranges(const mha__key_layout *l, int cp_rank, int64_t count, mha__range *ranges)
{
    for (int64_t n = 0; n < mha__layout_ranges(l, cp_rank); n++) {
        const mha__range range = mha__layout_range(l, cp_rank, n);
        if (range.length > 0) ranges[count++] = range;
    }
    return count;
}

int64_t mha__list_keys(const mha__key_layout *layout, int first, int count, bool adds, mha__range *ranges,
                       mha_attn_partial *parts)
{
    const int power = mha__layout_power(layout);
    int64_t number = 0, listed = 0;
    for (int rank = first; rank < first + count; rank++) {
        number = add_ranges(layout, rank, number, ranges);
        if (adds && rank + power < layout->cp) number = add_ranges(layout, rank + power, number, ranges);
    }
    qsort(ranges, (size_t)number, sizeof *ranges, by_start);
    for (int64_t n = 0; n < number; n++) {
        int64_t key = ranges[n].start, end = key + ranges[n].length;
        for (; n + 1 < number && ranges[n + 1].start == end; n++)
            end += ranges[n + 1].length;
        for (int64_t keys; (keys = mha_attn_subtree(key, end)) > 0; key += keys) {
            if (parts) parts[listed] = (mha_attn_partial){.key = key, .kv_len = keys};
            listed++;
        }
    }
    return listed;
}
