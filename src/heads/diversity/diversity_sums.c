/* diversity_sums.c - allocates the sums over texts as integers, and converts them to double. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/diversity/diversity.h"

static int64_t width_of(const mha_diversity *d, int64_t layer)
{
    return mha__diversity_width(d, layer) * d->head_dim;
}

/* ---- integer sums ---- */

/* Returns the next `count` elements of t->all. If t->all is NULL, only counts them. */
static mha__fixed *take(mha__diversity_tally *t, int64_t count)
{
    mha__fixed *at = t->all ? t->all + t->count : NULL;
    t->count += count;
    return at;
}

static void lay_out_tally(const mha_diversity *d, uint32_t what, mha__diversity_tally *t)
{
    const int64_t n = mha_diversity_heads(d);
    int64_t pairs = 0, squares = 0, columns = 0;
    for (int64_t l = 0; l < d->layers; l++) {
        pairs += mha__triangle(mha__diversity_width(d, l));
        squares += mha__triangle(width_of(d, l));
        columns += width_of(d, l);
    }
    t->count = 0;
    if (what & 1U << MHA_DIVERSITY_JS) t->js = take(t, mha__triangle(n));
    if (what & 1U << MHA_DIVERSITY_JS_CLARK) t->clark = take(t, mha__triangle(n));
    if (what & (1U << MHA_DIVERSITY_COSINE | 1U << MHA_DIVERSITY_COSINE_CENTRED)) {
        t->dot = take(t, pairs);
        t->mass = take(t, n);
        t->even = take(t, 1);
    }
    t->tokens = take(t, MHA__HALVED);
    for (int half = 0; half < MHA__HALVED && what & MHA__DIVERSITY_OF_OUTPUTS; half++) {
        t->gram[half] = take(t, squares);
        t->column[half] = take(t, columns);
    }
}

mha_status mha__diversity_tally_create(const mha_diversity *d, uint32_t what, mha__diversity_tally *t, mha_error *err)
{
    const int64_t n = mha_diversity_heads(d);
    int64_t numbers = n * n;
    *t = (mha__diversity_tally){0};
    for (int64_t l = 0; l < d->layers && what & MHA__DIVERSITY_OF_OUTPUTS; l++)
        numbers = mha__max64(numbers, width_of(d, l));
    lay_out_tally(d, what, t);
    const size_t bytes = (size_t)t->count * sizeof *t->all, room = (size_t)numbers * sizeof *t->text;
    t->all = mha__calloc(d->ctx, 1, bytes);
    t->text = mha__calloc(d->ctx, 1, room);
    if (!t->all || !t->text) return mha__no_memory(err, bytes + room, "sums over pairs of heads");
    lay_out_tally(d, what, t);
    return MHA_OK;
}

/* ---- sums in double ---- */

static void lay_out_sums(mha__arena *arena, const mha_diversity *d, const mha__diversity_tally *t,
                         mha__diversity_sums *s)
{
    const size_t n = (size_t)mha_diversity_heads(d);
    size_t pairs = 0, squares = 0, columns = 0;
    for (int64_t l = 0; l < d->layers; l++) {
        pairs += (size_t)(mha__diversity_width(d, l) * mha__diversity_width(d, l));
        squares += (size_t)(width_of(d, l) * width_of(d, l));
        columns += (size_t)width_of(d, l);
    }
    if (t->js) s->js = mha__take(arena, n * n, sizeof(double));
    if (t->clark) s->clark = mha__take(arena, n * n, sizeof(double));
    if (t->dot) {
        s->dot = mha__take(arena, pairs, sizeof(double));
        s->mass = mha__take(arena, n, sizeof(double));
        s->even = mha__take(arena, 1, sizeof(double));
    }
    s->tokens = mha__take(arena, MHA__HALVED, sizeof(double));
    for (int half = 0; half < MHA__HALVED && t->gram[0]; half++) {
        s->gram[half] = mha__take(arena, squares, sizeof(double));
        s->column[half] = mha__take(arena, columns, sizeof(double));
    }
}

/* Converts the symmetric matrices of all layers to double. Each matrix has `factor` rows per head of its layer. */
static void read_layers(const mha_diversity *d, const mha__fixed *from, int64_t factor, double *to)
{
    for (int64_t l = 0; l < d->layers; l++) {
        const int64_t n = mha__diversity_width(d, l) * factor;
        mha__fixed_read_triangle(from, n, to);
        from += mha__triangle(n);
        to += n * n;
    }
}

static void read_all(const mha_diversity *d, const mha__diversity_tally *t, const mha__diversity_sums *s)
{
    const int64_t n = mha_diversity_heads(d);
    if (t->js) mha__fixed_read_triangle(t->js, n, s->js);
    if (t->clark) mha__fixed_read_triangle(t->clark, n, s->clark);
    if (t->dot) {
        read_layers(d, t->dot, 1, s->dot);
        mha__fixed_read_array(t->mass, n, s->mass);
        mha__fixed_read_array(t->even, 1, s->even);
    }
    mha__fixed_read_array(t->tokens, MHA__HALVED, s->tokens);
    for (int half = 0; half < MHA__HALVED && t->gram[0]; half++) {
        read_layers(d, t->gram[half], d->head_dim, s->gram[half]);
        mha__fixed_read_array(t->column[half], n * d->head_dim, s->column[half]);
    }
}

mha_status mha__diversity_read(const mha_diversity *d, const mha__diversity_tally *t, mha__diversity_sums *s,
                               void **memory, mha_error *err)
{
    mha__arena arena = {0};
    *s = (mha__diversity_sums){0};
    lay_out_sums(&arena, d, t, s);
    *memory = arena.base = arena.overflow ? NULL : mha__calloc(d->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "sums over pairs of heads");
    arena.used = 0;
    lay_out_sums(&arena, d, t, s);
    read_all(d, t, s);
    return MHA_OK;
}
