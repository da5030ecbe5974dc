/* block_mask.c - applies `block_keep`: skips keys and masks individual scores. Only a few bytes of block_keep apply to
 * a panel, so each byte is tested separately. A mask of individual scores is written only for panels in which a key is
 * masked for some rows but not for all. */
#include "attn/mask/block_mask.h"

#include "base/size.h"
#include <string.h>

static bool kept(const mha__call *call, const mha__rows *rows, int64_t row_block, int64_t key_block)
{
    return *(const uint8_t *)mha__at(&call->args.block_keep, 1, rows->b, rows->h, row_block, key_block) != 0;
}

/* Returns the number of rows per block. The rows of a folded tile are heads, each with its own mask. */
static int64_t block_rows(const mha__call *call)
{
    return call->plan->folded ? 1 : call->plan->desc.block_q;
}

/* Returns true if block_keep is `state` for any of the rows and this block of keys. */
static bool some_row(const mha__call *call, const mha__rows *rows, int64_t key_block, bool state)
{
    const int64_t size = block_rows(call), last = (rows->first + rows->count - 1) / size;
    for (int64_t block = rows->first / size; block <= last; block++)
        if (kept(call, rows, block, key_block) == state) return true;
    return false;
}

void mha__blocks_narrow(const mha__call *call, const mha__rows *rows, int64_t *first, int64_t *end)
{
    const int64_t size = call->plan->desc.block_k;
    while (*first < *end && !some_row(call, rows, *first / size, true))
        *first += mha__min64(*end - *first, size - *first % size);
    while (*first < *end && !some_row(call, rows, (*end - 1) / size, true))
        *end = mha__max64(*first, (*end - 1) / size * size);
}

bool mha__blocks_all_kept(const mha__call *call, const mha__rows *rows, int64_t first, int64_t end)
{
    const int64_t size = call->plan->desc.block_k, last = (end - 1) / size;
    for (int64_t block = first / size; block <= last; block++)
        if (some_row(call, rows, block, false)) return false;
    return true;
}

bool mha__blocks_key_kept(const mha__call *call, const mha__rows *rows, int64_t r, int64_t key, int64_t *end)
{
    const int64_t size = call->plan->desc.block_k;
    *end = (key / size + 1) * size;
    return kept(call, rows, (rows->first + r) / block_rows(call), key / size);
}

/* Writes the mask of one block of rows: one byte per key of [first, end). */
static void write_row(const mha__call *call, const mha__rows *rows, int64_t row_block, int64_t first, int64_t end,
                      uint8_t *bytes)
{
    const int64_t size = call->plan->desc.block_k;
    for (int64_t key = first; key < end;) {
        const int64_t run = mha__min64(end - key, size - key % size);
        memset(bytes + (key - first), kept(call, rows, row_block, key / size), (size_t)run);
        key += run;
    }
}

bool mha__blocks_apply(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t first,
                       int64_t end, void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const int64_t size = block_rows(call), keys = end - first;
    if (mha__blocks_all_kept(call, rows, first, end)) return false;
    uint8_t *bytes = scratch->bytes;
    for (int64_t r = 0; r < rows->count; r++) {
        const int64_t row = rows->first + r;
        if (r > 0 && row % size != 0)
            memcpy(bytes + r * keys, bytes + (r - 1) * keys, (size_t)keys);
        else
            write_row(call, rows, row / size, first, end, bytes + r * keys);
    }
    k->pack_keep(rows->count, keys, bytes, keys, 1, scratch->extra);
    k->bias(keys, rows->count, scratch->extra, s);
    return true;
}
