/* tile_decode.c - computes one block of keys for a few queries, as in token generation. K and V are read once, in place
 * and in the stored type, page by page if they are paged.
 *
 * Scores stay in a strip (kernel.h) from the product to the weights, and masks are applied to the strip. If a bias or
 * another input changes scores, they are converted to a panel, which is processed as usual. */
#include "attn/forward/query_tile.h"
#include "attn/mask/attention_dropout.h"
#include <string.h>

static bool has_dropped(const mha__pieces *p)
{
    for (int n = 0; n < p->count; n++)
        if (!p->piece[n].at) return true;
    return false;
}

static mha__pieces key_pieces(const mha__tile *t, int64_t first, int64_t end)
{
    return mha__keys_pieces(t->call, &t->call->args.k, t->plan->desc.head_dim, t->rows.b, t->kv_head, first, end);
}

/* Computes the scores of keys `k` with bf16 products. If d is odd, the keys are packed first, because the last pair of
 * a key must not contain an element of the next key. */
static void pair_scores(const mha__tile *t, const mha__panel *p, const mha__pieces *k, double scale,
                        const mha__upcoming *ahead)
{
    const int64_t d = t->plan->desc.head_dim, depth = mha__round_up(d, t->pairs->step);
    uint16_t *rows = t->scratch.wide, *to = rows;
    for (int n = 0; d % 2 != 0 && n < k->count; to += k->piece[n++].rows * depth)
        if (k->piece[n].at)
            t->pairs->pack_keys(k->piece[n].rows, d, k->piece[n].at, k->stride / (int64_t)sizeof *to, 1, to);
        else
            memset(to, 0, (size_t)(k->piece[n].rows * depth) * sizeof *to);
    const int64_t bytes = depth * (int64_t)sizeof *to;
    const mha__pieces packed = {.count = 1, .stride = bytes, .bytes = bytes, .piece = {{rows, (to - rows) / depth}}};
    t->pairs->few_scores(d % 2 != 0 ? &packed : k, mha__round_up(d, 2), mha__tile_few_q(t), p->rows.count, scale,
                         t->scratch.strip, ahead);
}

void mha__few_products(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, void *s)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha__pieces k = key_pieces(t, first, end);
    if (t->pairs)
        pair_scores(t, p, &k, t->raw ? 1 : d->scale, NULL);
    else
        t->k->few_scores(t->plan->kv.type, &k, d->head_dim, mha__tile_few_q(t), p->rows.count, d->scale,
                         t->scratch.strip, NULL);
    t->k->few_panel(end - first, p->rows.count, t->scratch.strip, s);
}

/* Computes weights from the scores of a strip and stores them in a panel. */
static void weigh_panel(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, const mha__partial *into)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha__scratch *x = &t->scratch;
    const int64_t keys = end - first, lanes = p->rows.count;
    t->k->few_panel(keys, lanes, x->strip, x->s);
    if (d->softcap != 0) t->k->softcap(keys, lanes, d->softcap, x->s);
    mha__mask_apply(t->call, x, &p->rows, &p->span, first, end, x->s);
    t->k->top(keys, lanes, x->s, x->top);
    t->k->softmax(keys, lanes, x->top, x->s, into->max, into->sum, x->alpha);
    if (mha__dropout_on(d)) mha__dropout_apply(t->call, x, &p->rows, first, end, x->s);
}

/* Returns true if scores stay in the strip: these keys have no dropped pages, and nothing but masks changes scores or
 * weights. */
static bool stays_in_strip(const mha__tile *t, const mha__pieces *k)
{
    const mha_attn_desc *d = &t->plan->desc;
    return d->softcap == 0 && !mha__dropout_on(d) && !has_dropped(k) && mha__mask_is_pure(t->call);
}

static void mask_strip(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end)
{
    if (!mha__mask_is_open(t->call, &p->rows, &p->span, first, end))
        mha__mask_strip(t->call, &p->rows, first, end, t->scratch.strip);
}

/* Processes a block with bf16 products, beginning with a whole pair of keys. Returns false without any effect if pages
 * are dropped. */
static bool attend_pairs(const mha__tile *t, int64_t start, const mha__panel *p, int64_t first, int64_t end,
                         const mha__partial *into)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha_attn_args *a = &t->call->args;
    first -= first % 2;
    const mha__pieces k = key_pieces(t, first, end);
    const mha__upcoming k_ahead = mha__few_ahead(t, false, start);
    if (!stays_in_strip(t, &k)) return false;
    pair_scores(t, p, &k, 1, &k_ahead);
    mask_strip(t, p, first, end);
    const mha__pieces v = mha__keys_pieces(t->call, &a->v, d->v_head_dim, t->rows.b, t->kv_head, first, end);
    const mha__upcoming v_ahead = mha__few_ahead(t, true, start);
    t->pairs->few_attend(&v, end - first, d->v_head_dim, p->rows.count, d->scale, t->scratch.strip, into,
                         t->plan->o_stride, &v_ahead);
    return true;
}

bool mha__few_attend(const mha__tile *t, int64_t start, const mha__partial *into)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha_attn_args *a = &t->call->args;
    const mha__scratch *x = &t->scratch;
    const mha__panel p = mha__tile_panel(t, 0);
    const int64_t lanes = p.rows.count;
    const int type = t->plan->kv.type;
    int64_t first, end;
    if (!mha__mask_block(t->call, &p.rows, &p.span, start, &first, &end)) return true;
    if (t->pairs) return attend_pairs(t, start, &p, first, end, into);
    const mha__pieces k = key_pieces(t, first, end);
    const mha__upcoming k_ahead = mha__few_ahead(t, false, start);
    t->k->few_scores(type, &k, d->head_dim, mha__tile_few_q(t), lanes, d->scale, x->strip, &k_ahead);
    const bool strip = stays_in_strip(t, &k);
    if (strip) {
        mask_strip(t, &p, first, end);
        t->k->few_softmax(end - first, lanes, x->strip, into->max, x->alpha);
    } else {
        weigh_panel(t, &p, first, end, into);
    }
    const mha__pieces v = mha__keys_pieces(t->call, &a->v, d->v_head_dim, t->rows.b, t->kv_head, first, end);
    const mha__upcoming v_ahead = mha__few_ahead(t, true, start);
    t->k->few_values(type, &v, d->v_head_dim, lanes, strip ? x->strip : x->s, strip ? MHA__STRIP : 1,
                     strip ? 1 : t->k->nr, x->alpha, strip ? into->sum : NULL, into->o, t->plan->o_stride, &v_ahead);
    return true;
}
