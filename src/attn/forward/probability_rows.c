/* probability_rows.c - passes rows of probabilities to a callback, one panel after another, without storing all rows.
 *
 * As for maps and statistics, scores are recomputed once the maximum and sum of every row are known. Panels are
 * transposed into rows, which must be complete before they are passed to the callback. A panel therefore processes all
 * keys before the next panel begins, whereas maps and statistics process all panels of each block of keys. */
#include "attn/forward/query_tile.h"
#include "attn/stats/attention_stats.h"
#include "attn/stats/requested_maps.h"
#include <string.h>

/* Sets the probabilities of keys [first, end) to 0 in all rows. */
static void clear(const mha__tile *t, int64_t lanes, int64_t keys, int64_t first, int64_t end)
{
    for (int64_t i = 0; i < lanes && first < end; i++)
        memset(mha__tile_at(t, t->scratch.shown, i * keys + first), 0, (size_t)(end - first) * t->k->real_size);
}

/* Computes the probabilities of the block of keys that begins at `start`, and stores them in the rows, which have
 * `keys` keys in total. */
static void fill_block(const mha__tile *t, const mha__panel *p, int64_t start, int64_t keys, const mha__partial *result)
{
    const int64_t end = mha__min64(start + MHA__KEY_BLOCK, keys), lanes = p->rows.count;
    int64_t from = start, to = start;
    const bool seen = mha__mask_block(t->call, &p->rows, &p->span, start, &from, &to);
    const mha__block b = {.start = start, .k = seen ? mha__block_keys(t, start, to - start) : (mha__run){0}};
    if (!b.k.data) {
        clear(t, lanes, keys, start, end);
        return;
    }
    void *s = mha__tile_at(t, t->scratch.s, (from - start) * t->k->nr);
    mha__block_scores(t, p, &b, from, to, s, NULL);
    mha__stats_panel(t->call, &t->scratch, &p->rows, p->row, start, from, to - from,
                     mha__tile_at(t, result->max, p->row), s);
    t->k->unpack(lanes, to - from, s, mha__tile_at(t, t->scratch.shown, from), keys, 1);
    clear(t, lanes, keys, start, from);
    clear(t, lanes, keys, to, end);
}

/* ---- calls of the callback ---- */

typedef struct row_numbers {
    double entropy[MHA__NR_MAX], largest[MHA__NR_MAX], distance[MHA__NR_MAX];
    int64_t largest_key[MHA__NR_MAX];
} row_numbers;

static void fill_numbers(const mha__tile *t, const mha__panel *p, const mha__partial *result, row_numbers *n)
{
    for (int64_t i = 0; i < p->rows.count; i++) {
        const mha__row_sums *sums = &t->scratch.row_sums[p->row + i];
        const bool nan = sums->total != sums->total;
        n->entropy[i] = mha__stats_entropy(sums, mha__real_at(result->sum, p->row + i, t->k->real_size));
        n->largest[i] = nan ? sums->total : sums->peak;
        n->distance[i] = sums->reach;
        n->largest_key[i] = nan ? -1 : sums->where;
    }
}

static void show(const mha__tile *t, const mha__panel *p, int64_t lane, int64_t count, int64_t keys,
                 const row_numbers *n)
{
    const mha_attn_visitor *visitor = &t->call->args.on_rows;
    const mha_attn_rows rows = {.sequence = p->rows.b,
                                .head = p->rows.result,
                                .first = p->rows.first + lane,
                                .count = count,
                                .keys = keys,
                                .stride = keys,
                                .p = mha__tile_at(t, t->scratch.shown, lane * keys),
                                .entropy = n->entropy + lane,
                                .largest = n->largest + lane,
                                .distance = n->distance + lane,
                                .largest_key = n->largest_key + lane};
    visitor->rows(visitor->user, &rows);
}

/* Passes the existing rows of a panel to the callback, in runs of requested rows. */
static void show_panel(const mha__tile *t, const mha__panel *p, const mha__partial *result)
{
    const int64_t keys = mha__mask_keys(t->call, p->rows.b);
    const int64_t rows = mha__min64(p->rows.count, mha__mask_queries(t->call, p->rows.b) - p->rows.first);
    row_numbers numbers;
    for (int64_t start = 0; start < keys; start += MHA__KEY_BLOCK)
        fill_block(t, p, start, keys, result);
    fill_numbers(t, p, result, &numbers);
    for (int64_t lane = 0, end; lane < rows; lane = end + 1) {
        end = lane;
        while (end < rows && mha__maps_want_row(t->call, &p->rows, end))
            end++;
        if (end > lane) show(t, p, lane, end - lane, keys, &numbers);
    }
}

void mha__tile_pass_rows(const mha__tile *t, const mha__partial *result)
{
    const int64_t rows = mha__min64(t->rows.count, mha__mask_queries(t->call, t->rows.b) - t->rows.first);
    if (!mha__maps_want(t->call, &t->rows)) return;
    mha__stats_open_tile(t->call, &t->scratch, &t->rows);
    for (int64_t row = 0; row < rows; row += t->k->nr) {
        const mha__panel *p = mha__tile_panel(t, row);
        if (mha__maps_want(t->call, &p->rows)) show_panel(t, p, result);
    }
}
