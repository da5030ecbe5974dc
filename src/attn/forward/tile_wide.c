/* tile_wide.c - computes one block of keys for wide heads (plan->wide). A block of K or V then does not fit in the L2
 * cache, so groups of MHA__COLUMNS columns are copied to scratch memory, and all panels of the tile use a group before
 * the next group is copied. The order of every sum is that of tile_key_block.c, so results are bitwise identical. */
#include "attn/forward/query_tile.h"
#include "attn/mask/attention_dropout.h"
#include "math/types/element.h"
#include <string.h>

/* A panel and the keys [first, end) that it attends to; its scores and the factors of its output rows. */
typedef struct wide_panel {
    mha__panel p;
    int64_t first, end;
    void *s, *alpha;
} wide_panel;

/* Lists the panels that attend to keys of the block at `start`. Returns their number. */
static int open_panels(const mha__tile *t, int64_t start, wide_panel panels[MHA__PANELS])
{
    int count = 0;
    for (int64_t row = 0; row < t->rows.count; row += t->k->nr) {
        wide_panel *w = &panels[count];
        w->p = *mha__tile_panel(t, row);
        if (!mha__mask_block(t->call, &w->p.rows, &w->p.span, start, &w->first, &w->end)) continue;
        w->s = mha__tile_at(t, t->scratch.s, row * MHA__KEY_BLOCK);
        w->alpha = mha__tile_at(t, t->scratch.alpha, row);
        count++;
    }
    return count;
}

/* Copies `width` columns of keys or values to rows of reals. `column` is a multiple of MHA__COLUMNS. */
static void copy_columns(const mha__tile *t, const mha__run *run, int64_t keys, int64_t column, int64_t width, void *to,
                         int64_t stride)
{
    const mha__stored *as = &t->plan->kv;
    const int64_t skipped = mha__element_count(as->dtype, column) * run->col;
    const void *from = (const char *)run->data + skipped * (int64_t)as->size;
    if (as->widen)
        as->widen(keys, width, from, run->row, run->col, to, stride);
    else
        t->k->gather(keys, width, from, run->row, run->col, to, stride, width);
}

/* Returns the memory to prefetch during `products` products: columns of keys or values that copy_columns reads next. */
static mha__prefetch_schedule next_columns(const mha__tile *t, const mha__run *run, int64_t keys, int64_t column,
                                           int64_t end, int products)
{
    const mha__stored *as = &t->plan->kv;
    const int64_t size = (int64_t)as->size, width = mha__min64(MHA__COLUMNS, end - column);
    mha__prefetch_schedule prefetch = {.products = products};
    if (width <= 0 || run->col != 1 || !run->data) return prefetch;
    const char *at = (const char *)run->data + mha__element_count(as->dtype, column) * size;
    const int64_t bytes = mha__element_count(as->dtype, width) * size;
    prefetch.range[prefetch.count++] = (mha__prefetch_range){at, keys, run->row * size, bytes};
    prefetch.lines = keys * mha__ceil_div(bytes, MHA__LINE);
    return prefetch;
}

static void add_scores(const mha__tile *t, const mha__run *run, const mha__run *v, int64_t start, int64_t keys,
                       const wide_panel *panels, int count)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha__kernels *k = t->k;
    const int64_t stride = MHA__COLUMNS + k->nr;
    for (int64_t c = 0; c < d->head_dim; c += MHA__COLUMNS) {
        const int64_t width = mha__min64(MHA__COLUMNS, d->head_dim - c);
        const bool last = c + width == d->head_dim;
        mha__prefetch_schedule prefetch = last ? next_columns(t, v, keys, 0, d->v_head_dim, count)
                                               : next_columns(t, run, keys, c + width, d->head_dim, count);
        copy_columns(t, run, keys, c, width, t->scratch.wide, stride);
        for (const wide_panel *w = panels; w < panels + count; w++) {
            const void *from = mha__tile_at(t, t->scratch.wide, (w->first - start) * stride);
            const void *q = (const char *)w->p.q + (size_t)(c * k->nr) * k->real_size;
            (c > 0 ? k->scores_last : k->scores)(w->end - w->first, width, from, stride, 1, q, w->p.rows.count,
                                                 last ? d->scale : 1, w->s, t->scratch.top, &prefetch);
        }
    }
}

/* Converts the products of a panel to weights. */
static void weigh(const mha__tile *t, const wide_panel *w, const mha__partial *into)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha__scratch *x = &t->scratch;
    const int64_t keys = w->end - w->first, lanes = w->p.rows.count;
    if (d->softcap != 0) t->k->softcap(keys, lanes, d->softcap, w->s);
    mha__mask_apply(t->call, x, &w->p.rows, &w->p.span, w->first, w->end, w->s);
    mha__tile_keep(t, &w->p, w->first, w->end, w->s);
    t->k->top(keys, lanes, w->s, x->top);
    t->k->softmax(keys, lanes, x->top, w->s, mha__tile_at(t, into->max, w->p.row), mha__tile_at(t, into->sum, w->p.row),
                  w->alpha);
    if (mha__dropout_on(d)) mha__dropout_apply(t->call, x, &w->p.rows, w->first, w->end, w->s);
}

static void add_values(const mha__tile *t, const mha__run *run, int64_t start, int64_t keys, const wide_panel *panels,
                       int count, const mha__partial *into)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha__kernels *k = t->k;
    const int64_t o_stride = t->plan->o_stride, stride = MHA__COLUMNS + k->nr;
    for (int64_t c = 0; c < d->v_head_dim; c += MHA__COLUMNS) {
        const int64_t width = mha__min64(MHA__COLUMNS, d->v_head_dim - c);
        mha__prefetch_schedule prefetch = next_columns(t, run, keys, c + width, d->v_head_dim, count);
        if (width % k->vl) memset(t->scratch.v, 0, (size_t)(keys * stride) * k->real_size); /* whole vectors are read */
        copy_columns(t, run, keys, c, width, t->scratch.v, stride);
        for (const wide_panel *w = panels; w < panels + count; w++)
            k->values(w->p.rows.count, width, w->end - w->first, w->s,
                      mha__tile_at(t, t->scratch.v, (w->first - start) * stride), stride, k->nr, w->alpha,
                      mha__tile_at(t, into->o, w->p.row * o_stride + c), o_stride, &prefetch);
    }
}

void mha__wide_attend(const mha__tile *t, int64_t start, int64_t keys, const mha__partial *into)
{
    wide_panel panels[MHA__PANELS];
    const int count = open_panels(t, start, panels);
    const mha_attn_desc *d = &t->plan->desc;
    const mha_attn_args *a = &t->call->args;
    const int64_t b = t->rows.b, g = t->kv_head;
    const mha__run k = mha__keys_run(t->call, &a->k, d->head_dim, b, g, start, keys, t->scratch.gathered_k);
    const mha__run v = mha__keys_run(t->call, &a->v, d->v_head_dim, b, g, start, keys, t->scratch.gathered_v);
    if (!k.data) return;
    add_scores(t, &k, &v, start, keys, panels, count);
    for (int n = 0; n < count; n++)
        weigh(t, &panels[n], into);
    add_values(t, &v, start, keys, panels, count, into);
}
