/* paged.c - moves keys and values of a problem into pages. */
#include "support/attn/paged.h"

#include <stdlib.h>

enum { SPARE_PAGES = 3, BEYOND = 1 << 30 };

static int64_t keys_of(const problem *p, int64_t b)
{
    return p->desc.inputs & MHA_ATTN_KV_LENS ? p->kv_lens[b] : p->desc.kv_len;
}

static void shuffle(int32_t *order, int64_t count, rng *r)
{
    for (int64_t n = 0; n < count; n++)
        order[n] = (int32_t)n;
    for (int64_t n = count - 1; n > 0; n--) {
        int64_t other = rng_range(r, 0, n);
        int32_t kept = order[n];
        order[n] = order[other];
        order[other] = kept;
    }
}

static double always_nan(void *arg)
{
    (void)arg;
    return NAN;
}

/* Converts `dense` from [B, Hkv, Lk, width] to pages [pages, Hkv, page_size, width]. */
static void into_pages(problem *p, tensor *dense)
{
    static const tensor_layout plain;
    const int64_t size = p->desc.page_size;
    tensor pages;
    tensor_make(&pages, dense->dtype, (int64_t[]){p->desc.pages, dense->dim[1], size, dense->dim[3]}, &plain, NAN);
    tensor_fill(&pages, always_nan, NULL);
    for (int64_t b = 0; b < p->desc.batch; b++)
        for (int64_t g = 0; g < dense->dim[1]; g++)
            for (int64_t j = 0; j < keys_of(p, b); j++)
                for (int64_t d = 0; d < dense->dim[3]; d++)
                    tensor_set(&pages, p->table[b * p->table_width + j / size], g, j % size, d,
                               tensor_get(dense, b, g, j, d));
    tensor_free(dense);
    *dense = pages;
}

void paged_make(problem *p, int64_t page_size, uint64_t seed)
{
    rng r = rng_make(seed, 7);
    const int64_t width = (p->desc.kv_len + page_size - 1) / page_size, pages = p->desc.batch * width + SPARE_PAGES;
    int32_t *order = malloc((size_t)pages * sizeof *order);
    if (!order) abort();
    shuffle(order, pages, &r);
    p->desc.inputs |= MHA_ATTN_BLOCK_TABLE;
    p->desc.page_size = page_size;
    p->desc.pages = pages;
    p->table = order;
    p->table_width = width;
    into_pages(p, &p->k);
    into_pages(p, &p->v);
    for (int64_t b = 0; b < p->desc.batch; b++)
        for (int64_t n = (keys_of(p, b) + page_size - 1) / page_size; n < width; n++)
            order[b * width + n] = BEYOND;
    problem_bind(p);
}

void paged_drop(problem *p, int64_t b, int64_t page)
{
    int32_t *entry = &p->table[b * p->table_width + page];
    tensor *both[] = {&p->k, &p->v};
    for (int n = 0; n < 2; n++)
        for (int64_t g = 0; g < both[n]->dim[1]; g++)
            for (int64_t j = 0; j < p->desc.page_size; j++)
                for (int64_t d = 0; d < both[n]->dim[3]; d++)
                    tensor_set(both[n], *entry, g, j, d, NAN);
    *entry = -1;
}
