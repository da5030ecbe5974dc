/* tile_decode.c - computes blocks of keys for a few queries, as in token generation. K and V are read once, in place
 * and in the stored type, page by page if they are paged.
 *
 * Scores stay in a strip (kernel_operands.h) from the product to the weights, and masks are applied to the strip. If a
 * bias or another input changes scores, they are converted to a panel, which is processed as usual.
 *
 * Where long ranges of addresses are read faster (plan->streams), the scores of a chunk are computed before its values
 * are read, and contiguous keys of the chunk in one call. The results are bitwise the same. */
#include "attn/forward/query_tile.h"
#include "attn/mask/attention_dropout.h"
#include <string.h>

_Static_assert(MHA_ATTN_CHUNK + 16 <= MHA__STRIP, "a strip holds the scores of a chunk and one vector");

enum { BLOCKS_MAX = MHA_ATTN_CHUNK / MHA__KEY_BLOCK };

/* The blocks of keys that are processed together: block n contains keys [first[n], end[n]), none if no row attends to
 * it. Its scores begin at element n * MHA__KEY_BLOCK of the strip. */
typedef struct run {
    int blocks;
    int64_t first[BLOCKS_MAX], end[BLOCKS_MAX];
} run;

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

static mha__pieces value_pieces(const mha__tile *t, int64_t first, int64_t end)
{
    return mha__keys_pieces(t->call, &t->call->args.v, t->plan->desc.v_head_dim, t->rows.b, t->kv_head, first, end);
}

/* Computes the scores of keys `k` with bf16 products. If d is odd, the keys are packed first, because the last pair of
 * a key must not contain an element of the next key. */
static void pair_scores(const mha__tile *t, const mha__panel *p, const mha__pieces *k, double scale, void *strip,
                        const mha__upcoming *upcoming)
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
    t->pairs->decode_scores(d % 2 != 0 ? &packed : k, mha__round_up(d, 2), mha__tile_decode_q(t), p->rows.count, scale,
                            strip, upcoming);
}

/* Computes the scores of keys `k` in `strip`; bf16 products are scaled by `scale`. */
static void strip_scores(const mha__tile *t, const mha__panel *p, const mha__pieces *k, double scale, void *strip,
                         const mha__upcoming *upcoming)
{
    const mha_attn_desc *d = &t->plan->desc;
    if (t->pairs)
        pair_scores(t, p, k, scale, strip, upcoming);
    else
        t->k->decode_scores(t->plan->kv.type, k, d->head_dim, mha__tile_decode_q(t), p->rows.count, d->scale, strip,
                            upcoming);
}

void mha__decode_products(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, void *s)
{
    const mha__pieces k = key_pieces(t, first, end);
    strip_scores(t, p, &k, t->raw ? 1 : t->plan->desc.scale, t->scratch.strip, NULL);
    t->k->decode_panel(end - first, p->rows.count, t->scratch.strip, s);
}

/* Computes weights from the scores of a strip and stores them in a panel. */
static void weigh_panel(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, const void *strip,
                        const mha__partial *into)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha__scratch *x = &t->scratch;
    const int64_t keys = end - first, lanes = p->rows.count;
    t->k->decode_panel(keys, lanes, strip, x->s);
    if (d->softcap != 0) t->k->softcap(keys, lanes, d->softcap, x->s);
    mha__mask_apply(t->call, x, &p->rows, &p->span, first, end, x->s);
    t->k->top(keys, lanes, x->s, x->top);
    t->k->softmax(keys, lanes, x->top, x->s, into->max, into->sum, x->alpha);
    if (mha__dropout_on(d)) mha__dropout_apply(t->call, x, &p->rows, first, end, x->s);
}

/* Returns true if scores stay in the strip: keys [first, end) have no dropped pages, and nothing but masks changes
 * scores or weights. */
static bool stays_in_strip(const mha__tile *t, int64_t first, int64_t end)
{
    const mha_attn_desc *d = &t->plan->desc;
    if (d->softcap != 0 || mha__dropout_on(d) || !mha__mask_is_pure(t->call)) return false;
    if (!(d->inputs & MHA_ATTN_BLOCK_TABLE)) return true;
    const mha__pieces k = key_pieces(t, first, end);
    return !has_dropped(&k);
}

/* Returns the blocks from `start` on to process together: a whole chunk or one block. Stops before a block that the
 * functions for any number of queries must process. Pairs begin with an even key. */
static run run_of(const mha__tile *t, const mha__panel *p, int64_t start, int64_t end)
{
    run r = {0};
    const int max = mha__tile_streams(t) ? BLOCKS_MAX : 1;
    for (; start < end && r.blocks < max; start += MHA__KEY_BLOCK, r.blocks++) {
        int64_t *const first = &r.first[r.blocks], *const last = &r.end[r.blocks];
        if (!mha__mask_block(t->call, &p->rows, &p->span, start, first, last))
            *last = *first;
        else if (t->pairs && !stays_in_strip(t, *first, *last))
            break;
        else if (t->pairs)
            *first -= *first % 2;
    }
    return r;
}

/* Returns the first block after block n whose keys do not directly follow those of the previous block, or whose scores
 * would not directly follow in the strip. Pages, and keys that pair_scores packs, are read block by block: the memory
 * for packed keys holds one block. */
static int contiguous_from(const mha__tile *t, const run *r, int n)
{
    const mha_attn_desc *d = &t->plan->desc;
    const bool single = (d->inputs & MHA_ATTN_BLOCK_TABLE) || (t->pairs && d->head_dim % 2 != 0);
    for (n++; n < r->blocks && !single; n++)
        if (r->first[n] != r->end[n - 1] || r->end[n - 1] - r->first[n - 1] != MHA__KEY_BLOCK ||
            r->first[n] == r->end[n])
            break;
    return n;
}

static void *strip_of(const mha__tile *t, int block)
{
    return mha__tile_at(t, t->scratch.strip, block * MHA__KEY_BLOCK);
}

/* Computes the scores of all blocks. */
static void run_scores(const mha__tile *t, const mha__panel *p, const run *r, int64_t start)
{
    for (int n = 0, next; n < r->blocks; n = next) {
        next = contiguous_from(t, r, n);
        if (r->first[n] == r->end[n]) continue;
        const mha__pieces k = key_pieces(t, r->first[n], r->end[next - 1]);
        const mha__upcoming upcoming = mha__decode_prefetch(t, false, start, start + (next - 1) * MHA__KEY_BLOCK);
        strip_scores(t, p, &k, 1, strip_of(t, n), &upcoming);
    }
}

/* Adds the block of values `v` of keys [first, end), whose scores are in `strip`, to `into`. */
static void block_values(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, const mha__pieces *v,
                         void *strip, const mha__partial *into, const mha__upcoming *upcoming)
{
    const mha_attn_desc *d = &t->plan->desc;
    const mha__scratch *x = &t->scratch;
    const int64_t lanes = p->rows.count, o_stride = t->plan->o_stride;
    const bool stays = stays_in_strip(t, first, end);
    if (stays && !mha__mask_is_open(t->call, &p->rows, &p->span, first, end))
        mha__mask_strip(t->call, &p->rows, first, end, strip);
    if (t->pairs) {
        t->pairs->decode_attend(v, end - first, d->v_head_dim, lanes, d->scale, strip, into, o_stride, upcoming);
        return;
    }
    if (stays)
        t->k->decode_softmax(end - first, lanes, strip, into->max, x->alpha);
    else
        weigh_panel(t, p, first, end, strip, into);
    t->k->decode_values(t->plan->kv.type, v, d->v_head_dim, lanes, stays ? strip : x->s, stays ? MHA__STRIP : 1,
                        stays ? 1 : t->k->nr, x->alpha, stays ? into->sum : NULL, into->o, o_stride, upcoming);
}

/* Adds the values of blocks [n, end) of a run that begins at key `start`; their keys follow each other. Their addresses
 * are computed together, because no memory is read in the meantime. */
static void contiguous_values(const mha__tile *t, const mha__panel *p, const run *r, int n, int end, int64_t start,
                              const mha__partial *into)
{
    mha__pieces v = value_pieces(t, r->first[n], r->end[end - 1]);
    const mha__upcoming last = mha__decode_prefetch(t, true, start, start + (end - 1) * MHA__KEY_BLOCK);
    mha__upcoming inner = last;
    for (; n < end - 1; n++) {
        v.piece[0].rows = r->end[n] - r->first[n];
        inner.next = (const char *)v.piece[0].at + v.piece[0].rows * v.stride;
        block_values(t, p, r->first[n], r->end[n], &v, strip_of(t, n), into, &inner);
        v.piece[0].at = inner.next;
        v.piece[0].rows = r->end[n + 1] - r->first[n + 1];
    }
    block_values(t, p, r->first[n], r->end[n], &v, strip_of(t, n), into, &last);
}

static void run_values(const mha__tile *t, const mha__panel *p, const run *r, int64_t start, const mha__partial *into)
{
    for (int n = 0, next; n < r->blocks; n = next) {
        next = contiguous_from(t, r, n);
        if (r->first[n] < r->end[n]) contiguous_values(t, p, r, n, next, start, into);
    }
}

int64_t mha__decode_attend(const mha__tile *t, int64_t start, int64_t end, const mha__partial *into)
{
    const mha__panel *p = mha__tile_panel(t, 0);
    const run r = run_of(t, p, start, end);
    run_scores(t, p, &r, start);
    run_values(t, p, &r, start, into);
    return start + r.blocks * (int64_t)MHA__KEY_BLOCK;
}
