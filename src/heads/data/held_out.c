/* held_out.c - divides texts into learning texts and held-out texts. */
#include "mha/held_out.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include <stdlib.h>
#include <string.h>

/* Returns the new index of text i. Text i belongs to the unit (text or pair) i % units; the texts of a pair are `units`
 * apart. */
static int64_t place_of(int64_t i, int64_t units, int64_t texts_per_unit)
{
    const int64_t unit = i % units, nth = i / units, held = units / MHA_HELD_OUT_PART, learned = units - held;
    if (unit % MHA_HELD_OUT_PART == MHA_HELD_OUT_PART - 1)
        return texts_per_unit * learned + nth * held + unit / MHA_HELD_OUT_PART;
    return nth * learned + unit - unit / MHA_HELD_OUT_PART;
}

mha_status mha_held_out_split(int64_t count, int pairs, int64_t *order, int64_t *learned, mha_error *err)
{
    const int64_t texts_per_unit = pairs ? 2 : 1, units = count / texts_per_unit;
    if (!order || !learned)
        return mha__fail(err, MHA_ERR_ARG, "mha_held_out_split: %s must not be NULL", order ? "learned" : "order");
    if (units < MHA_HELD_OUT_PART || count % texts_per_unit != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_held_out_split: count must be %sat least %d%s (got %lld)",
                         pairs ? "even and " : "", (int)(texts_per_unit * MHA_HELD_OUT_PART),
                         pairs ? " with pairs" : "", (long long)count);
    for (int64_t i = 0; i < count; i++)
        order[place_of(i, units, texts_per_unit)] = i;
    *learned = texts_per_unit * (units - units / MHA_HELD_OUT_PART);
    return MHA_OK;
}

/* ---- texts in both lists ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static mha_status check(const char *name, const char *const *texts, int64_t count, mha_error *err)
{
    if (count < 0 || (count > 0 && !texts))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_held_out_distinct: %s_count must be the number of texts in %s (got %lld)", name, name,
                         (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (!texts[i])
            return mha__fail(err, MHA_ERR_ARG, "mha_held_out_distinct: %s[%lld] must not be NULL", name, (long long)i);
    return MHA_OK;
}

static mha_status sort(mha_ctx *ctx, const char *const *texts, int64_t count, const char ***sorted, mha_error *err)
{
    size_t bytes;
    if (!mha__bytes(&count, 1, sizeof **sorted, &bytes)) return mha__no_memory(err, SIZE_MAX, "the texts");
    *sorted = mha__alloc(ctx, bytes);
    if (!*sorted) return mha__no_memory(err, bytes, "the texts");
    memcpy(*sorted, texts, bytes);
    qsort(*sorted, (size_t)count, sizeof **sorted, by_text);
    return MHA_OK;
}

mha_status mha_held_out_distinct(mha_ctx *ctx, const char *const *learn, int64_t learn_count, const char *const *held,
                                 int64_t held_count, int64_t *kept, int64_t *left, mha_error *err)
{
    const char **sorted = NULL;
    if (!kept || !left)
        return mha__fail(err, MHA_ERR_ARG, "mha_held_out_distinct: %s must not be NULL", kept ? "left" : "kept");
    MHA__TRY(check("learn", learn, learn_count, err));
    MHA__TRY(check("held", held, held_count, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    if (learn_count) MHA__TRY(sort(ctx, learn, learn_count, &sorted, err));
    *left = 0;
    for (int64_t i = 0; i < held_count; i++)
        if (!learn_count || !bsearch(&held[i], sorted, (size_t)learn_count, sizeof *sorted, by_text))
            kept[(*left)++] = i;
    mha__free(ctx, sorted);
    return MHA_OK;
}
