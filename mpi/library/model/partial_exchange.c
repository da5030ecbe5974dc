/* partial_exchange.c - exchanges lists of partial results between ranks, and merges them. The layout determines which
 * parts a rank has after an exchange, so only rows are sent. */
#include "library/model/partial_exchange.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static bool grow(void **memory, size_t bytes)
{
    void *more = realloc(*memory, bytes);
    if (more) *memory = more;
    return more != NULL;
}

static bool grow_list(mha__part_list *list, int64_t room, size_t part_bytes)
{
    return grow((void **)&list->parts, (size_t)room * sizeof *list->parts) &&
           grow((void **)&list->memory, (size_t)room * part_bytes);
}

static mha_status make_room(mha__exchange *x, mha_cluster *c, const mha__key_layout *layout, mha_error *err)
{
    int64_t ranges = 0, parts = 0;
    for (int rank = 0; rank < layout->cp; rank++)
        ranges += mha__layout_ranges(layout, rank);
    if (!grow((void **)&x->ranges, (size_t)ranges * sizeof *x->ranges))
        return mha__cluster_no_memory(c, err, (size_t)ranges * sizeof *x->ranges, "the ranges of keys");
    for (int rank = 0; rank < layout->cp; rank++)
        parts += mha__list_keys(layout, rank, 1, false, x->ranges, NULL);
    if (parts <= x->room && (size_t)parts * x->part_bytes <= x->bytes) return MHA_OK;
    x->room = parts;
    x->bytes = (size_t)parts * x->part_bytes;
    if (grow_list(&x->own, parts, x->part_bytes) && grow_list(&x->other, parts, x->part_bytes) &&
        grow_list(&x->merged, parts, x->part_bytes))
        return MHA_OK;
    return mha__cluster_no_memory(c, err, 3 * x->bytes, "partial results");
}

/* Lists the keys of a group of ranks (mha__list_keys). */
static void list(const mha__exchange *x, const mha__key_layout *layout, int first, int count, bool adds,
                 mha__part_list *to)
{
    to->count = mha__list_keys(layout, first, count, adds, x->ranges, to->parts);
    for (int64_t n = 0; n < to->count; n++)
        to->parts[n].rows = (mha_cview){to->memory + (size_t)n * x->part_bytes, {0}};
}

mha_status mha__exchange_begin(mha__exchange *exchange, mha_cluster *cluster, const mha__key_layout *layout,
                               size_t part_bytes, mha_error *err)
{
    exchange->part_bytes = part_bytes;
    MHA__TRY(make_room(exchange, cluster, layout, err));
    list(exchange, layout, cluster->info.cp_rank, 1, false, &exchange->own);
    return MHA_OK;
}

void mha__exchange_free(mha__exchange *exchange)
{
    mha__part_list *const lists[] = {&exchange->own, &exchange->other, &exchange->merged};
    for (int n = 0; n < 3; n++) {
        free(lists[n]->parts);
        free(lists[n]->memory);
    }
    free(exchange->ranges);
    *exchange = (mha__exchange){0};
}

/* ---- merging ---- */

/* Stores the parts of both lists that are within `whole` in `parts`, in ascending order; returns their number. */
static int64_t find_within(const mha__part_list *a, const mha__part_list *b, const mha_attn_partial *whole,
                           mha_attn_partial *parts)
{
    int64_t i = 0, j = 0, count = 0;
    while (i < a->count || j < b->count) {
        const bool from_a = j == b->count || (i < a->count && a->parts[i].key < b->parts[j].key);
        const mha_attn_partial *p = from_a ? &a->parts[i++] : &b->parts[j++];
        if (p->key >= whole->key && p->key < whole->key + whole->kv_len) parts[count++] = *p;
    }
    return count;
}

/* Computes the rows of x->merged from x->own and x->other, and makes the merged list the own list. */
static mha_status merge_lists(mha__exchange *x, const mha_cluster *cluster, mha_ctx *ctx,
                              const mha_attn_merge_partials_args *call, mha_error *err)
{
    const size_t bytes = (size_t)(x->own.count + x->other.count) * sizeof(mha_attn_partial) + 1;
    mha_attn_partial *parts = malloc(bytes);
    mha_status status = parts ? MHA_OK : mha__cluster_no_memory(cluster, err, bytes, "the list of partial results");
    for (int64_t n = 0; n < x->merged.count && status == MHA_OK; n++) {
        mha_attn_merge_partials_args a = *call;
        a.count = find_within(&x->own, &x->other, &x->merged.parts[n], parts);
        a.parts = parts;
        a.partial = (mha_view){(void *)x->merged.parts[n].rows.data, {0}};
        if (a.count == 1)
            memcpy(a.partial.data, parts[0].rows.data, x->part_bytes);
        else
            status = mha_attn_merge_partials(ctx, &a, err);
    }
    free(parts);
    const mha__part_list own = x->own;
    x->own = x->merged;
    x->merged = own;
    return status;
}

/* Sends the own list to a cp rank, if `sends`, and receives that rank's list in x->other if `receives`. */
static mha_status trade(mha__exchange *x, mha_cluster *c, int cp_rank, bool sends, bool receives, mha_error *err)
{
    const mha__group g = mha__cp_group(c);
    const int peer = mha__group_rank(&g, cp_rank);
    if (receives) MHA__TRY(mha__cluster_receive(c, x->other.memory, (size_t)x->other.count * x->part_bytes, peer, err));
    if (sends) MHA__TRY(mha__cluster_send(c, x->own.memory, (size_t)x->own.count * x->part_bytes, peer, err));
    return mha__cluster_wait(c, "merging partial results", err);
}

/* Runs on a rank beyond the largest power of two: sends the own list to another rank, and receives the merged
 * result. */
static mha_status let_merge(mha__exchange *x, mha_cluster *c, const mha__key_layout *layout, int power, mha_error *err)
{
    list(x, layout, 0, power, true, &x->other);
    MHA__TRY(trade(x, c, c->info.cp_rank - power, true, true, err));
    const mha__part_list own = x->own;
    x->own = x->other;
    x->other = own;
    return MHA_OK;
}

mha_status mha__exchange_merge(mha__exchange *exchange, mha_cluster *cluster, mha_ctx *ctx,
                               const mha__key_layout *layout, const mha_attn_merge_partials_args *call, mha_error *err)
{
    mha__exchange *x = exchange;
    const int me = cluster->info.cp_rank, power = mha__layout_power(layout);
    if (me >= power) return let_merge(x, cluster, layout, power, err);
    const bool helps = me + power < layout->cp;
    if (helps) {
        list(x, layout, me + power, 1, false, &x->other);
        list(x, layout, me, 1, true, &x->merged);
        MHA__TRY(trade(x, cluster, me + power, false, true, err));
        MHA__TRY(merge_lists(x, cluster, ctx, call, err));
    }
    for (int bit = 1; bit < power; bit *= 2) {
        const int group = me & ~(2 * bit - 1), peer = me ^ bit;
        list(x, layout, peer & ~(bit - 1), bit, true, &x->other);
        list(x, layout, group, 2 * bit, true, &x->merged);
        MHA__TRY(trade(x, cluster, peer, true, true, err));
        MHA__TRY(merge_lists(x, cluster, ctx, call, err));
    }
    return helps ? trade(x, cluster, me + power, true, false, err) : MHA_OK;
}
