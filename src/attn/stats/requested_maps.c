/* requested_maps.c - writes the requested heads and rows of maps. The lists of heads and rows are short, so they are
 * searched linearly. Heads and rows that are not listed are never computed. */
#include "attn/stats/requested_maps.h"

#include "attn/plan/map_lists.h"

enum { LISTS = MHA_ATTN_MAP_HEADS | MHA_ATTN_MAP_ROWS };

/* Return the number of heads in the maps, and the head of out that head n of the maps corresponds to. */
static int64_t heads_of(const mha__call *call)
{
    const mha_attn_desc *d = &call->plan->desc;
    return d->inputs & MHA_ATTN_MAP_HEADS ? d->map_heads : d->listed_heads;
}

static int64_t head_of(const mha__call *call, int64_t n)
{
    return call->plan->desc.inputs & MHA_ATTN_MAP_HEADS ? call->args.map_heads[n] : n;
}

/* Returns the index of map row `n` within `rows`; -1 if `rows` does not contain it. */
static int64_t lane_of(const mha__call *call, const mha__rows *rows, int64_t n)
{
    const int64_t entry = mha__map_row(call, rows->b, n);
    const int64_t row = entry < 0 ? entry + mha__mask_queries(call, rows->b) : entry;
    return row >= rows->first && row < rows->first + rows->count ? row - rows->first : -1;
}

bool mha__maps_want(const mha__call *call, const mha__rows *rows)
{
    const mha_attn_desc *d = &call->plan->desc;
    bool wanted = false;
    if (!(d->inputs & LISTS)) return true;
    for (int64_t n = 0; n < heads_of(call) && !wanted; n++)
        wanted = head_of(call, n) == rows->result;
    if (!wanted || !(d->inputs & MHA_ATTN_MAP_ROWS)) return wanted;
    for (int64_t n = 0; n < d->map_rows; n++)
        if (lane_of(call, rows, n) >= 0) return true;
    return false;
}

bool mha__maps_want_row(const mha__call *call, const mha__rows *rows, int64_t lane)
{
    const mha__rows one = {.b = rows->b, .result = rows->result, .first = rows->first + lane, .count = 1};
    return mha__maps_want(call, &one);
}

/* Writes the requested rows of a panel to head `head` of the map. */
static void write_head(const mha__call *call, const mha_view *map, const mha__rows *rows, int64_t head, int64_t start,
                       int64_t keys, const void *s)
{
    const mha_attn_desc *d = &call->plan->desc;
    const mha__kernels *k = call->plan->kernels;
    const size_t size = k->real_size;
    if (!(d->inputs & MHA_ATTN_MAP_ROWS)) {
        void *to = mha__at_out(map, size, rows->b, head, rows->first, start);
        k->unpack(rows->count, keys, s, to, map->stride[2], map->stride[3]);
        return;
    }
    for (int64_t n = 0; n < d->map_rows; n++) {
        const int64_t lane = lane_of(call, rows, n);
        if (lane < 0) continue;
        void *to = mha__at_out(map, size, rows->b, head, n, start);
        k->unpack(1, keys, (const char *)s + lane * (int64_t)size, to, map->stride[2], map->stride[3]);
    }
}

void mha__maps_write(const mha__call *call, const mha_view *map, const mha__rows *rows, int64_t start, int64_t keys,
                     const void *s)
{
    if (!(call->plan->desc.inputs & LISTS)) {
        write_head(call, map, rows, rows->result, start, keys, s);
        return;
    }
    for (int64_t n = 0; n < heads_of(call); n++)
        if (head_of(call, n) == rows->result) write_head(call, map, rows, n, start, keys, s);
}
