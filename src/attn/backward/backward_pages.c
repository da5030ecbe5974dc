/* backward_pages.c - writes dk and dv of keys and values in pages. A row of a page receives the gradients of all
 * sequences whose block table refers to the page, in ascending order of sequences and of their keys. */
#include "attn/backward/backward.h"
#include "attn/plan/rotary.h"
#include "base/size.h"
#include <string.h>

/* The gradient of one operand, and the sums of which it consists. */
typedef struct page_rows {
    const mha_view *view;
    int64_t width, stride; /* elements per row of the gradient and of the sums */
    double scale;
    bool values, turns;
    void *term; /* rows of one sequence: [KEY_BLOCK][width] */
} page_rows;

static int64_t blocks_of(const mha_attn_desc *d)
{
    return mha__ceil_div(d->page_size, MHA__KEY_BLOCK);
}

int64_t mha__bwd_pages(const mha__bwd_call *call)
{
    const mha_attn_desc *d = &call->call.plan->desc;
    return d->pages * d->kv_heads * blocks_of(d);
}

/* ---- uses of pages ---- */

/* The entries of the block table by page: b * entries + n for entry n of sequence b, ascending within each page, so
 * that the order of every sum depends on the block table alone. Only entries of existing keys are listed. */
typedef struct page_uses {
    int64_t entries; /* per sequence */
    int64_t *start;  /* [pages + 1] page p is used by entry[start[p]] to entry[start[p + 1] - 1] */
    int64_t *entry;  /* [B * entries] */
} page_uses;

static page_uses uses_of(const mha__bwd_call *call)
{
    const mha_attn_plan *plan = call->call.plan;
    const mha_attn_desc *d = &plan->desc;
    int64_t *start = (void *)(call->call.workspace + plan->bwd.uses_at);
    return (page_uses){mha__ceil_div(d->kv_len, d->page_size), start, start + d->pages + 1};
}

/* Returns the page of entry `entry`, or -1 for a dropped page and for an entry without keys. The entries of a call
 * without queries are unchecked. */
static int64_t page_of(const mha__call *call, int64_t entries, int64_t entry)
{
    const mha_attn_desc *d = &call->plan->desc;
    const int64_t b = entry / entries, n = entry % entries;
    if (n * d->page_size >= mha__mask_keys(call, b)) return -1;
    const int32_t page = *(const int32_t *)mha__at(&call->args.block_table, sizeof page, b, n, 0, 0);
    return page < d->pages ? page : -1;
}

/* A counting sort, so that the work is linear in the pages and in the entries. start[p] is first the number of entries
 * of page p, then their end, and finally their start. */
void mha__bwd_list_uses(const mha__bwd_call *call)
{
    const mha_attn_desc *d = &call->call.plan->desc;
    const page_uses u = uses_of(call);
    const int64_t count = d->batch * u.entries;
    memset(u.start, 0, (size_t)(d->pages + 1) * sizeof *u.start);
    for (int64_t i = 0; i < count; i++) {
        const int64_t page = page_of(&call->call, u.entries, i);
        if (page >= 0) u.start[page]++;
    }
    for (int64_t page = 1; page <= d->pages; page++)
        u.start[page] += u.start[page - 1];
    for (int64_t i = count - 1; i >= 0; i--) {
        const int64_t page = page_of(&call->call, u.entries, i);
        if (page >= 0) u.entry[--u.start[page]] = i;
    }
}

/* ---- sums ---- */

/* Computes the terms of keys [first, first + keys) of one sequence in r->term. */
static void load_terms(const mha__bwd_call *call, const page_rows *r, int64_t b, int64_t g, int64_t first, int64_t keys,
                       const mha__scratch *x)
{
    const mha__kernels *k = call->call.plan->kernels;
    void *sums[2];
    mha__bwd_sums_of(call, b, g, 0, 0, &sums[0], &sums[1]);
    const char *from = (const char *)sums[r->values] + (size_t)(first * r->stride) * k->real_size;
    const mha__bwd_turn turn = {&call->call, mha__rope_of_key, b, first, keys};
    k->fill(keys, r->scale, x->inverse);
    k->output(keys, r->width, from, r->stride, x->inverse, r->term, r->width, 1);
    if (r->turns) mha__bwd_turn_back(&turn, keys, r->width, r->term);
}

/* Adds the terms of all sequences for `rows` rows of a page, from row `first` on, to `sum`. The first terms are copied,
 * so that dk and dv of a page of one sequence are bitwise identical to those of dense keys. */
static void add_sequences(const mha__bwd_call *call, const page_rows *r, int64_t page, int64_t g, int64_t first,
                          int64_t rows, const mha__scratch *x, void *sum)
{
    const mha__call *all = &call->call;
    const mha_attn_desc *d = &all->plan->desc;
    const mha__kernels *k = all->plan->kernels;
    const page_uses u = uses_of(call);
    bool found = false;
    memset(sum, 0, (size_t)(rows * r->width) * k->real_size);
    for (int64_t i = u.start[page]; i < u.start[page + 1]; i++) {
        const int64_t b = u.entry[i] / u.entries, key = u.entry[i] % u.entries * d->page_size + first;
        const int64_t keys = mha__min64(rows, mha__mask_keys(all, b) - key);
        if (keys <= 0) continue;
        load_terms(call, r, b, g, key, keys, x);
        if (found)
            k->add(keys * r->width, r->term, sum);
        else
            memcpy(sum, r->term, (size_t)(keys * r->width) * k->real_size);
        found = true;
    }
}

static void write_rows(const mha__bwd_call *call, const page_rows *r, int64_t page, int64_t g, int64_t first,
                       int64_t rows, const mha__scratch *x, void *sum)
{
    const mha_attn_plan *plan = call->call.plan;
    if (!r->view->data) return;
    add_sequences(call, r, page, g, first, rows, x, sum);
    void *to = mha__at_out(r->view, plan->kv.size, page, g, first, 0);
    if (plan->kv.narrow)
        plan->kv.narrow(rows, r->width, sum, r->width, to, r->view->stride[2], r->view->stride[3]);
    else
        mha__bwd_scatter(plan->kernels, rows, r->width, sum, to, r->view);
}

void mha__bwd_page(void *arg, int64_t item, int worker)
{
    const mha__bwd_call *call = arg;
    const mha_attn_plan *plan = call->call.plan;
    const mha_attn_desc *d = &plan->desc;
    const int64_t blocks = blocks_of(d), first = item % blocks * MHA__KEY_BLOCK;
    const int64_t g = item / blocks % d->kv_heads, page = item / blocks / d->kv_heads;
    const int64_t rows = mha__min64(MHA__KEY_BLOCK, d->page_size - first);
    mha__bwd_scratch x;
    mha__bwd_worker_scratch(call, worker, &x);
    const page_rows keys = {
        &call->grads.dk, d->head_dim, plan->bwd.q_stride, d->scale, false, d->inputs & MHA_ATTN_ROPE_K, x.q};
    const page_rows values = {&call->grads.dv, d->v_head_dim, plan->bwd.v_stride, 1, true, false, x.dout};
    write_rows(call, &keys, page, g, first, rows, &x.base, x.v);
    write_rows(call, &values, page, g, first, rows, &x.base, x.v);
}
