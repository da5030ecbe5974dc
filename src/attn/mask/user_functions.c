/* user_functions.c - calls the user functions for the rows of a panel. A panel has one query row per lane, so the
 * scores of a row are copied to contiguous memory and back. Keys outside the interval of a row are not passed. */
#include "attn/mask/user_functions.h"

#include "base/size.h"
#include <string.h>

/* A range of keys of one row, with the indices that are passed to the functions. */
typedef struct row_keys {
    int64_t b, h, i, j0, count;
    int64_t at; /* index of the first element in memory that has one row of keys per lane */
} row_keys;

/* Stores the keys of [first, end) that lie within the interval of a row, or its prefix. Returns false if there are
 * none. */
static bool find_keys(const mha__call *call, const mha__rows *rows, int64_t lane, int64_t first, int64_t end,
                      row_keys *keys)
{
    const mha_shard *of = &call->plan->desc.shard;
    const int64_t lo = mha__max64(first, rows->prefix[lane] > 0 ? 0 : rows->lo[lane]);
    const int64_t hi = mha__min64(end, rows->hi[lane]);
    *keys = (row_keys){of->batch + rows->b,
                       of->head + rows->h,
                       of->key + rows->position + lane,
                       of->key + lo,
                       hi - lo,
                       lane * (end - first) + lo - first};
    return lo < hi;
}

static mha_attn_block classify(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end)
{
    const mha_shard *of = &call->plan->desc.shard;
    return call->functions.block(call->functions.user, of->batch + rows->b, of->head + rows->h,
                                 of->key + rows->position, rows->count, of->key + first, end - first);
}

bool mha__functions_skip(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end)
{
    return classify(call, rows, first, end) == MHA_ATTN_BLOCK_NONE;
}

void mha__functions_score(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                          int64_t end, void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const mha_attn_functions *f = &call->functions;
    const int64_t lanes = rows->count, width = end - first;
    char *by_row = scratch->extra;
    row_keys r;
    k->unpack(lanes, width, s, by_row, width, 1);
    for (int64_t lane = 0; lane < lanes; lane++)
        if (find_keys(call, rows, lane, first, end, &r))
            f->score(f->user, r.b, r.h, r.i, r.j0, r.count, by_row + (size_t)r.at * k->real_size);
    k->pack_rows(lanes, width, by_row, width, 1, s);
}

bool mha__functions_keep(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                         int64_t end, void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const mha_attn_functions *f = &call->functions;
    const int64_t lanes = rows->count, width = end - first;
    row_keys r;
    if (f->block && classify(call, rows, first, end) == MHA_ATTN_BLOCK_ALL) return false;
    memset(scratch->bytes, 1, (size_t)(lanes * width));
    for (int64_t lane = 0; lane < lanes; lane++)
        if (find_keys(call, rows, lane, first, end, &r))
            f->keep(f->user, r.b, r.h, r.i, r.j0, r.count, scratch->bytes + r.at);
    k->pack_keep(lanes, width, scratch->bytes, width, 1, scratch->extra);
    k->bias(width, lanes, scratch->extra, s);
    return true;
}

/* Copies gradients back to rows of keys, except those that were 0: a derivative at a masked score may be NaN, and would
 * turn an exact 0 into NaN. */
static void put_back(int64_t keys, int64_t lanes, const void *by_row, size_t size, void *ds, int64_t stride)
{
    for (int64_t key = 0; key < keys; key++)
        for (int64_t lane = 0; lane < lanes; lane++)
            if (mha__real_at(ds, key * stride + lane, size) != 0)
                mha__put_real(ds, key * stride + lane, size, mha__real_at(by_row, lane * keys + key, size));
}

void mha__functions_back(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                         int64_t end, const void *scores, void *ds, int64_t stride)
{
    const mha__kernels *k = call->plan->kernels;
    const mha_attn_functions *f = &call->functions;
    const int64_t lanes = rows->count, width = end - first;
    char *inputs = scratch->extra, *gradients = scratch->s;
    row_keys r;
    k->unpack(lanes, width, scores, inputs, width, 1);
    k->gather(lanes, width, ds, 1, stride, gradients, width, width);
    for (int64_t lane = 0; lane < lanes; lane++) {
        if (!find_keys(call, rows, lane, first, end, &r)) continue;
        const size_t at = (size_t)r.at * k->real_size;
        f->score_back(f->user, r.b, r.h, r.i, r.j0, r.count, inputs + at, gradients + at);
    }
    put_back(width, lanes, gradients, k->real_size, ds, stride);
}
