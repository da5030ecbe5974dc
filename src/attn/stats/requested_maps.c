/* requested_maps.c - see requested_maps.h. Lists are short and are gone through as they are; what they leave out is
 * never computed. */
#include "attn/stats/requested_maps.h"

#include "base/error.h"
#include <inttypes.h>

enum { LISTS = MHA_ATTN_MAP_HEADS | MHA_ATTN_MAP_ROWS };

void mha__maps_extent(const mha_attn_desc *d, int64_t extent[4])
{
    extent[0] = d->batch;
    extent[1] = d->inputs & MHA_ATTN_MAP_HEADS ? d->map_heads : d->listed_heads;
    extent[2] = d->inputs & MHA_ATTN_MAP_ROWS ? d->map_rows : d->max_q_len;
    extent[3] = d->max_kv_len;
}

/* ---- checks ---- */

static int64_t entry_of(const mha__call *call, int64_t b, int64_t n)
{
    return *(const int64_t *)mha__at(&call->args.map_rows, sizeof(int64_t), b, n, 0, 0);
}

static mha_status check_heads(const mha__call *call, mha_error *err)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int32_t *list = call->args.map_heads;
    for (int64_t n = 0; n < d->map_heads; n++)
        if (list[n] < 0 || list[n] >= d->listed_heads)
            return mha__fail(err, MHA_ERR_ARG,
                             "map_heads[%" PRId64 "] must be from 0 to %" PRId64 ", a head of out (got %" PRId32 ")", n,
                             d->listed_heads - 1, list[n]);
    return MHA_OK;
}

static mha_status check_rows(const mha__call *call, mha_error *err)
{
    const mha_attn_desc *d = &call->plan->desc;
    if (d->max_q_len == 0) return MHA_OK; /* nothing will be written, whatever they say */
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t n = 0; n < d->map_rows; n++) {
            const int64_t row = entry_of(call, b, n);
            if (row < -d->max_q_len || row >= d->max_q_len)
                return mha__fail(err, MHA_ERR_ARG,
                                 "map_rows[%" PRId64 "][%" PRId64 "] must be from %" PRId64 " to %" PRId64
                                 " (got %" PRId64 ")",
                                 b, n, -d->max_q_len, d->max_q_len - 1, row);
        }
    return MHA_OK;
}

mha_status mha__maps_check(const mha__call *call, mha_error *err)
{
    const uint32_t inputs = call->plan->desc.inputs;
    if (inputs & MHA_ATTN_MAP_HEADS) MHA__TRY(check_heads(call, err));
    return inputs & MHA_ATTN_MAP_ROWS ? check_rows(call, err) : MHA_OK;
}

/* ---- use ---- */

/* How many heads of the maps there are, and which head of out one of them is. */
static int64_t heads_of(const mha__call *call)
{
    const mha_attn_desc *d = &call->plan->desc;
    return d->inputs & MHA_ATTN_MAP_HEADS ? d->map_heads : d->listed_heads;
}

static int64_t head_of(const mha__call *call, int64_t n)
{
    return call->plan->desc.inputs & MHA_ATTN_MAP_HEADS ? call->args.map_heads[n] : n;
}

/* Where row `n` of the map stands among `rows`; -1: nowhere. */
static int64_t lane_of(const mha__call *call, const mha__rows *rows, int64_t n)
{
    const int64_t entry = entry_of(call, rows->b, n);
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

/* To head `head` of the map. */
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
