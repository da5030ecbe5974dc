/* kv_fetch.c - locates keys and values. bind_args.c has checked the entries of the block table for all keys within the
 * lengths. */
#include "attn/plan/kv_fetch.h"

#include "base/size.h"
#include "math/types/element.h"
#include <string.h>

static int32_t page_of(const mha__call *call, int64_t b, int64_t key)
{
    const mha_cview *table = &call->args.block_table;
    const int64_t page = key / call->plan->desc.page_size;
    return ((const int32_t *)table->data)[b * table->stride[0] + page * table->stride[1]];
}

/* Returns the address of key `key`, which is in page `page`; NULL if the page is dropped. Staged keys are dense. */
static const void *key_at(const mha__call *call, const mha_cview *view, int64_t b, int64_t g, int64_t key, int32_t page)
{
    const size_t size = call->plan->kv.size;
    if (page < 0) return NULL;
    if (call->staged_keys && view == &call->args.k) return mha__at(view, size, b, g, key, 0);
    return mha__at(view, size, page, g, key % call->plan->desc.page_size, 0);
}

/* Returns the end of the page that contains `key`, at most `end`. */
static int64_t page_end(const mha__call *call, int64_t key, int64_t end)
{
    const int64_t size = call->plan->desc.page_size;
    return mha__min64(end, (key / size + 1) * size);
}

static void copy_rows(int64_t rows, int64_t width, size_t size, const mha_cview *view, const char *from, char *to)
{
    const int64_t row = view->stride[2] * (int64_t)size;
    for (int64_t j = 0; j < rows; j++, from += row, to += width * (int64_t)size)
        mha__copy_row(width, size, from, view->stride[3], to);
}

mha__run mha__keys_run(const mha__call *call, const mha_cview *view, int64_t width, int64_t b, int64_t g, int64_t start,
                       int64_t keys, void *gathered)
{
    const mha_attn_desc *d = &call->plan->desc;
    const size_t size = call->plan->kv.size;
    width = mha__element_count(d->kv_dtype, width);
    const int64_t end = start + keys;
    mha__run run = {NULL, view->stride[2], view->stride[3]};
    if (!(d->inputs & MHA_ATTN_BLOCK_TABLE)) {
        run.data = mha__at(view, size, b, g, start, 0);
        return run;
    }
    if (page_end(call, start, end) == end) {
        run.data = key_at(call, view, b, g, start, page_of(call, b, start));
        return run;
    }
    const bool staged = call->staged_keys && view == &call->args.k;
    for (int64_t j = start, next; j < end; j = next) {
        const int32_t page = page_of(call, b, j);
        char *to = (char *)gathered + (j - start) * width * (int64_t)size;
        next = page_end(call, j, end);
        if (staged) {
            if (page >= 0) run.data = mha__at(view, size, b, g, start, 0);
            continue;
        }
        if (page < 0) {
            memset(to, 0, (size_t)((next - j) * width) * size);
            continue;
        }
        copy_rows(next - j, width, size, view, key_at(call, view, b, g, j, page), to);
        run = (mha__run){gathered, width, 1};
    }
    return run;
}

mha__pieces mha__keys_pieces(const mha__call *call, const mha_cview *view, int64_t width, int64_t b, int64_t g,
                             int64_t start, int64_t end)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int64_t size = (int64_t)call->plan->kv.size;
    mha__pieces p = {.stride = view->stride[2] * size, .bytes = mha__element_count(d->kv_dtype, width) * size};
    if (!(d->inputs & MHA_ATTN_BLOCK_TABLE)) {
        p.count = 1;
        p.piece[0].at = mha__at(view, (size_t)size, b, g, start, 0);
        p.piece[0].rows = end - start;
        return p;
    }
    for (int64_t j = start, next; j < end; j = next) {
        const int32_t page = page_of(call, b, j);
        next = page_end(call, j, end);
        p.piece[p.count].at = key_at(call, view, b, g, j, page);
        p.piece[p.count++].rows = next - j;
    }
    return p;
}

bool mha__pages_mask(const mha__call *call, int64_t b, int64_t first, int64_t end, int64_t lanes, void *s)
{
    static const int64_t nowhere[MHA__NR_MAX]; /* an empty interval of keys for each lane */
    const mha__kernels *k = call->plan->kernels;
    bool changed = false;
    if (!(call->plan->desc.inputs & MHA_ATTN_BLOCK_TABLE)) return false;
    for (int64_t j = first, next; j < end; j = next) {
        next = page_end(call, j, end);
        if (page_of(call, b, j) >= 0) continue;
        k->interval(next - j, lanes, j, nowhere, nowhere, (char *)s + (j - first) * k->nr * (int64_t)k->real_size);
        changed = true;
    }
    return changed;
}
