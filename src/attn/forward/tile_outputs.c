/* tile_outputs.c - writes the outputs of a tile besides out and lse: probabilities, statistics and scores. Once the
 * maximum and sum of every row are known, scores that were not kept are recomputed, so that no intermediate result has
 * size Lq x Lk. */
#include "attn/forward/query_tile.h"
#include "attn/stats/attention_stats.h"
#include "attn/stats/requested_maps.h"
#include <string.h>

static bool wants_probs(const mha__tile *t, const mha__rows *rows)
{
    return (t->plan->desc.outputs & MHA_ATTN_PROBS) && mha__maps_want(t->call, rows);
}

/* Stores the kept or recomputed scores of keys [first, end) in s. */
static void final_scores(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                         void *s)
{
    const void *kept = mha__tile_kept(t, p, first);
    if (kept)
        memcpy(s, kept, (size_t)((end - first) * t->k->nr) * t->k->real_size);
    else
        mha__block_scores(t, p, b, first, end, s, NULL);
}

/* Adds the probabilities of one panel and one block of keys to the statistics, and writes them to probs, including the
 * masked entries. */
static void panel_probabilities(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t keys,
                                const mha__partial *result)
{
    const bool stats = t->plan->desc.outputs & MHA_ATTN_STATS, map = wants_probs(t, &p->rows);
    const int64_t nr = t->k->nr;
    int64_t first, end;
    if (!stats && !map) return;
    if (map) memset(t->scratch.s, 0, (size_t)(keys * nr) * t->k->real_size);
    if (b->k.data && mha__mask_block(t->call, &p->rows, &p->span, b->start, &first, &end)) {
        void *s = mha__tile_at(t, t->scratch.s, (first - b->start) * nr);
        final_scores(t, p, b, first, end, s);
        const void *max = mha__tile_at(t, result->max, p->row);
        if (stats) {
            mha__stats_panel(t->call, &t->scratch, &p->rows, p->row, b->start, first, end - first, max, s);
            mha__stats_receive(t->call, &t->scratch, first, end - first, p->rows.count, s);
        } else {
            t->k->probs(end - first, p->rows.count, max, mha__tile_at(t, t->scratch.inverse, p->row), s);
        }
    }
    if (map) mha__maps_write(t->call, &t->call->args.probs, &p->rows, b->start, keys, t->scratch.s);
}

/* Computes probabilities from scores and the final maximum and sum. Keys that the tile does not attend to are not
 * read. */
void mha__tile_probabilities(const mha__tile *t, const mha__partial *result)
{
    const int64_t Lk = mha__keys_of(t->call, t->rows.b);
    const bool stats = t->plan->desc.outputs & MHA_ATTN_STATS, map = wants_probs(t, &t->rows);
    if (!stats && !map) return;
    if (stats) mha__stats_open_tile(t->call, &t->scratch, &t->rows);
    for (int64_t start = 0; start < Lk; start += MHA__KEY_BLOCK) {
        const int64_t keys = mha__min64(MHA__KEY_BLOCK, Lk - start);
        int64_t first, end;
        const bool seen = mha__mask_block(t->call, &t->rows, &t->span, start, &first, &end);
        if (!seen && !map) continue;
        const mha__block b = {.start = start, .k = seen ? mha__block_keys(t, start, end - start) : (mha__run){0}};
        for (int64_t row = 0; row < t->rows.count; row += t->k->nr) {
            const mha__panel *p = mha__tile_panel(t, row);
            panel_probabilities(t, p, &b, keys, result);
        }
    }
    if (stats) mha__stats_close_tile(t->call, &t->scratch, &t->rows, result);
}

/* ---- the output `scores` ---- */

/* Computes one panel and one block of `keys` keys at a stage after masking, in scratch.s. Masked entries stay 0 or
 * become -infinity. */
static void masked_stage(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t keys, mha_scores stage,
                         const mha__partial *result)
{
    const int64_t lanes = p->rows.count;
    int64_t first, end, lo[MHA__NR_MAX] = {0}, hi[MHA__NR_MAX] = {0};
    const bool seen = b->k.data && mha__mask_block(t->call, &p->rows, &p->span, b->start, &first, &end);
    if (seen) {
        void *s = mha__tile_at(t, t->scratch.s, (first - b->start) * t->k->nr);
        mha__block_scores(t, p, b, first, end, s, NULL);
        if (stage == MHA_SCORES_PROBS)
            t->k->probs(end - first, lanes, mha__tile_at(t, result->max, p->row),
                        mha__tile_at(t, t->scratch.inverse, p->row), s);
    }
    if (stage == MHA_SCORES_PROBS) return;
    for (int64_t i = 0; i < lanes && seen; i++)
        lo[i] = first, hi[i] = end;
    t->k->interval(keys, lanes, b->start, lo, hi, t->scratch.s);
}

/* Same as masked_stage, but for a stage before masking, at which only the lengths limit the scores. */
static void plain_stage(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t keys, mha_scores stage)
{
    const int64_t lanes = p->rows.count, queries = mha__mask_queries(t->call, t->rows.b);
    const int64_t end = mha__min64(b->start + keys, mha__mask_keys(t->call, t->rows.b));
    int64_t lo[MHA__NR_MAX] = {0}, hi[MHA__NR_MAX] = {0};
    if (b->k.data) {
        mha__block_products(t, p, b, b->start, end, stage == MHA_SCORES_SOFTCAPPED, t->scratch.s, NULL);
        mha__pages_mask(t->call, t->rows.b, b->start, end, lanes, t->scratch.s);
    }
    for (int64_t i = 0; i < lanes && b->k.data; i++)
        hi[i] = mha__query_of(t->plan, p->rows.first + i) < queries ? end : 0;
    t->k->interval(keys, lanes, b->start, lo, hi, t->scratch.s);
}

/* Writes all requested scores, including masked entries. Keys that the stage does not require are not read. */
void mha__tile_write_scores(const mha__tile *t, const mha__partial *result)
{
    const mha_scores stage = t->plan->desc.scores;
    const bool masked = stage == MHA_SCORES_BIASED || stage == MHA_SCORES_PROBS;
    const int64_t Lk = mha__keys_of(t->call, t->rows.b);
    if (!mha__maps_want(t->call, &t->rows)) return;
    for (int64_t start = 0; start < Lk; start += MHA__KEY_BLOCK) {
        const int64_t keys = mha__min64(MHA__KEY_BLOCK, Lk - start);
        int64_t first, end = mha__min64(start + keys, mha__mask_keys(t->call, t->rows.b));
        const bool needed = masked ? mha__mask_block(t->call, &t->rows, &t->span, start, &first, &end) : start < end;
        const mha__block b = {.start = start, .k = needed ? mha__block_keys(t, start, end - start) : (mha__run){0}};
        for (int64_t row = 0; row < t->rows.count; row += t->k->nr) {
            const mha__panel *p = mha__tile_panel(t, row);
            if (!mha__maps_want(t->call, &p->rows)) continue;
            memset(t->scratch.s, 0, (size_t)(keys * t->k->nr) * t->k->real_size);
            if (masked)
                masked_stage(t, p, &b, keys, stage, result);
            else
                plain_stage(t, p, &b, keys, stage);
            mha__maps_write(t->call, &t->call->args.scores, &p->rows, start, keys, t->scratch.s);
        }
    }
}
