/* attention_stats.c - sums the statistics of rows and keys. Sums within a block have the type of the kernels; sums
 * over blocks and rows are double. */
#include "attn/stats/attention_stats.h"

#include "attn/plan/operand_table.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <math.h>
#include <string.h>

/* ---- requested statistics ---- */

void mha__stats_move(mha_attn_stats *stats, size_t real_size, int64_t row)
{
    for (int n = 0; n < MHA__STATS_ROWS; n++) {
        const mha__operand_row *r = &mha__stats_rows[n];
        if (r->shape[0] == MHA__DIM_ROW_BATCH)
            mha__skip_rows_out((mha_view *)(void *)((char *)stats + r->field),
                               r->element == MHA__OF_INT64 ? sizeof(int64_t) : real_size, row);
    }
}

bool mha__stats_receives(const mha__call *call)
{
    return (call->plan->desc.outputs & MHA_ATTN_STATS) && call->stats.received.data;
}

/* ---- sums over the rows of a head ---- */

static void put_real(const mha__call *call, const mha_view *view, int64_t b, int64_t h, int64_t i, int64_t n, double x)
{
    const size_t size = call->plan->kernels->real_size;
    if (view->data) mha__put_real(mha__at_out(view, size, b, h, i, n), 0, size, x);
}

static void put_key(const mha_view *view, int64_t b, int64_t h, int64_t i, int64_t n, int64_t key)
{
    if (view->data) *(int64_t *)mha__at_out(view, sizeof key, b, h, i, n) = key;
}

void mha__stats_open_head(const mha__call *call, const mha__scratch *scratch)
{
    for (int64_t j = 0; j < mha__received_keys(call->plan); j++)
        scratch->received[j] = 0;
}

void mha__stats_close_head(const mha__call *call, const mha__scratch *scratch, int64_t head)
{
    const mha_attn_desc *d = &call->plan->desc;
    for (int64_t j = 0; j < mha__received_keys(call->plan); j++)
        put_real(call, &call->stats.received, head / d->listed_heads + j / d->kv_len, head % d->listed_heads,
                 j % d->kv_len, 0, scratch->received[j]);
}

/* ---- sums over the keys of a tile's rows ---- */

void mha__stats_open_tile(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows)
{
    for (int64_t r = 0; r < rows->count; r++)
        scratch->row_sums[r] = (mha__row_sums){.where = -1};
    for (int64_t n = 0; n < rows->count * call->plan->desc.top_keys; n++)
        scratch->top_keys[n] = (mha__top_key){0, -1};
}

/* Inserts a key into a row's list in descending order of probability, after equal entries; the last entry is
 * dropped. */
static void insert_key(mha__top_key *list, int64_t count, double prob, int64_t key)
{
    int64_t n = count - 1;
    for (; n > 0 && prob > list[n - 1].prob; n--)
        list[n] = list[n - 1];
    list[n] = (mha__top_key){prob, key};
}

/* Inserts the keys of one lane of a panel into its row's list. */
static void add_top(const mha__kernels *k, mha__top_key *list, int64_t count, int64_t lane, int64_t first, int64_t keys,
                    const void *s)
{
    int64_t j = k->next_above(0, keys, s, lane, list[count - 1].prob);
    for (; j < keys; j = k->next_above(j + 1, keys, s, lane, list[count - 1].prob))
        insert_key(list, count, mha__real_at(s, j * k->nr + lane, k->real_size), first + j);
}

/* Adds the sums of one panel, in x->moments, to the sums of its rows. */
static void add_panel(const mha__call *call, const mha__scratch *x, int64_t rows, int64_t row, int64_t start,
                      int64_t first, int64_t keys, const void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const int64_t top = call->plan->desc.top_keys;
    for (int64_t i = 0; i < rows; i++) {
        mha__row_sums *sums = &x->row_sums[row + i];
        const double peak = mha__real_at(x->moments.peak, i, k->real_size);
        sums->total += mha__real_at(x->moments.total, i, k->real_size);
        sums->depth += mha__real_at(x->moments.depth, i, k->real_size);
        sums->reach += mha__real_at(x->moments.reach, i, k->real_size);
        if (peak > sums->peak) {
            sums->peak = peak;
            sums->where = start + (int64_t)mha__real_at(x->moments.where, i, k->real_size);
        }
        mha__top_key *list = x->top_keys + (row + i) * top;
        if (top > 0 && peak > list[top - 1].prob) add_top(k, list, top, i, first, keys, s);
    }
}

void mha__stats_panel(const mha__call *call, const mha__scratch *x, const mha__rows *rows, int64_t row, int64_t start,
                      int64_t first, int64_t keys, const void *max, void *s)
{
    const mha__kernels *k = call->plan->kernels;
    const void *inverse = (const char *)x->inverse + row * (int64_t)k->real_size;
    k->moments(keys, rows->count, max, inverse, rows->position - start, first - start, s, &x->moments);
    add_panel(call, x, rows->count, row, start, first, keys, s);
}

void mha__stats_receive(const mha__call *call, const mha__scratch *x, int64_t first, int64_t keys, int64_t lanes,
                        const void *probs)
{
    if (call->stats.received.data) call->plan->kernels->mass(keys, lanes, probs, x->received + call->first_key + first);
}

/* Returns the entropy in bits. The entropy - sum of p ln p equals sum of p (max - s) + ln(sum) * sum of p. With a
 * sink, the sum of p is below 1. */
double mha__stats_entropy(const mha__row_sums *sums, double sum)
{
    static const double BITS_PER_NAT = 1.4426950408889634;
    return sum == 0 ? 0 : (sums->depth + log(sum) * sums->total) * BITS_PER_NAT;
}

void mha__stats_close_tile(const mha__call *call, const mha__scratch *x, const mha__rows *rows,
                           const mha__partial *result)
{
    const mha_attn_stats *to = &call->stats;
    const int64_t b = rows->b, h = rows->result, top = call->plan->desc.top_keys;
    for (int64_t r = 0; r < rows->count; r++) {
        const mha__row_sums *sums = &x->row_sums[r];
        const int64_t i = rows->first + r;
        const bool nan = isnan(sums->total);
        const double sum = mha__real_at(result->sum, r, call->plan->kernels->real_size);
        put_real(call, &to->row_entropy, b, h, i, 0, mha__stats_entropy(sums, sum));
        put_real(call, &to->row_max, b, h, i, 0, nan ? sums->total : sums->peak);
        put_key(&to->row_argmax, b, h, i, 0, nan ? -1 : sums->where);
        put_real(call, &to->row_distance, b, h, i, 0, sums->reach);
        for (int64_t n = 0; n < top; n++) {
            const mha__top_key *entry = &x->top_keys[r * top + n];
            put_real(call, &to->top_prob, b, h, i, n, nan ? sums->total : entry->prob);
            put_key(&to->top_key, b, h, i, n, nan ? -1 : entry->key);
        }
    }
}
