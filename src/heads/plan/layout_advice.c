/* layout_advice.c - recommends a head layout for the planned model, with reasons that quote the model's figures. */
#include "base/error.h"
#include "heads/plan/layout_table.h"
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Pruning is called light if it removes at most this fraction of the parameters. */
static const double LIGHT = 1.0 / 3;

typedef struct amount {
    char text[32];
} amount;

/* Formats n with the largest unit of `names` that fits: "1.5 GiB" for step 1024, "110 million" for step 1000. Rounds
 * down, so that the text never shows a limit that n does not reach. */
static const char *shown(amount *a, double n, double step, const char *const names[5])
{
    int i = 0;
    for (; n >= step && i < 4; i++)
        n /= step;
    const int digits = n >= 100 || i == 0 ? 0 : 1;
    n = digits ? floor(10 * n) / 10 : floor(n);
    snprintf(a->text, sizeof a->text, "%.*f%s%s", digits, n, *names[i] ? " " : "", names[i]);
    return a->text;
}

static const char *bytes(amount *a, int64_t n)
{
    static const char *const names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    return shown(a, (double)n, 1024, names);
}

static const char *number(amount *a, int64_t n)
{
    static const char *const names[] = {"", "thousand", "million", "billion", "trillion"};
    return shown(a, (double)n, 1000, names);
}

static void __attribute__((format(printf, 2, 3))) say(mha_head_layout_advice *a, const char *format, ...)
{
    const size_t used = strlen(a->reason);
    va_list args;
    va_start(args, format);
    vsnprintf(a->reason + used, sizeof a->reason - used, format, args);
    va_end(args);
}

/* Compares the cache size of a small model with the size of its weights in f32. */
static void say_cache(const mha_head_layout_options *m, const mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS],
                      mha_head_layout_advice *a)
{
    amount cache;
    const mha_head_layout *mha = &rows[MHA_HEAD_LAYOUT_MHA];
    say(a, " Its cache for %lld tokens takes %s", (long long)m->seq * m->batch, bytes(&cache, mha->kv_bytes));
    if (m->heads == 1)
        say(a, ", and a single head cannot share keys and values");
    else if (mha->kv_bytes / (int64_t)sizeof(float) < m->parameters)
        say(a, ", so sharing keys and values saves little");
    else
        say(a, ", more than the parameters: sharing keys and values is worth trying (row %s)",
            mha_head_layout_variant_key(rows[MHA_HEAD_LAYOUT_GQA].left_out ? MHA_HEAD_LAYOUT_MQA
                                                                           : MHA_HEAD_LAYOUT_GQA));
}

static void advise_small(const mha_head_layout_options *m, const mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS],
                         mha_head_layout_advice *a)
{
    amount parameters;
    const mha_head_layout *mha = &rows[MHA_HEAD_LAYOUT_MHA], *pruned = &rows[MHA_HEAD_LAYOUT_PRUNED];
    const double attention = (double)m->layers * (double)mha->weights.total, share = attention / (double)m->parameters;
    say(a, "The model is small: %s parameters, less than 100 million.", number(&parameters, m->parameters));
    say_cache(m, rows, a);
    if (share > 1) {
        say(a, ". But attention alone would have %s parameters in %lld layers: these values contradict each other.",
            number(&parameters, (int64_t)attention), (long long)m->layers);
        return;
    }
    say(a, "; attention has %.0f %% of the parameters.", 100 * share);
    if (!pruned->left_out)
        say(a, " %s to %lld of %lld heads by measured importance removes %.3g %% of these parameters.",
            pruned->reduction <= LIGHT ? "Light pruning" : "Pruning", (long long)pruned->heads, (long long)mha->heads,
            100 * pruned->reduction);
}

/* Recommends shared keys and values, with reasons. If heads cannot be grouped, all heads share one key/value head. */
static void advise_shared(const mha_head_layout_options *m, const mha_head_layout *mha, const mha_head_layout *shared,
                          mha_head_layout_advice *a)
{
    amount parameters, before, after;
    const bool large = m->parameters > MHA__HEAD_LAYOUT_LARGE;
    say(a,
        "The model is %s: %s parameters, %s 10 billion. With %lld query heads per key/value head, the "
        "cache for %lld tokens, which every decoded token reads, takes %s instead of %s. The projections "
        "have %.3g %% fewer parameters. To compare the losses of small models, run mha plan --measure --train.",
        large ? "large" : "medium", number(&parameters, m->parameters), large ? "more than" : "from 100 million to",
        (long long)shared->kv_groups, (long long)m->seq * m->batch, bytes(&after, shared->kv_bytes),
        bytes(&before, mha->kv_bytes), 100 * shared->reduction);
    if (!large) return;
    a->experts = m->experts;
    a->top_k = m->top_k;
    say(a, " At this size, add experts (row moe) for more parameters at the same operations per token.");
}

mha_status mha_head_layout_advise(const mha_head_layout_options *options, mha_head_layout_advice *advice,
                                  mha_error *err)
{
    mha_head_layout_options m;
    mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS];
    MHA__TRY(mha_head_layout_resolve(options, &m, err));
    MHA__TRY(mha_head_layout_variants(&m, rows, err));
    const mha_head_layout *best = &rows[MHA_HEAD_LAYOUT_MHA];
    if (m.parameters >= MHA__HEAD_LAYOUT_MEDIUM && m.heads > 1)
        best = rows[MHA_HEAD_LAYOUT_GQA].left_out ? &rows[MHA_HEAD_LAYOUT_MQA] : &rows[MHA_HEAD_LAYOUT_GQA];
    *advice = (mha_head_layout_advice){
        .variant = best->variant, .heads = best->heads, .kv_heads = best->kv_heads, .parameters = m.parameters};
    if (m.parameters < MHA__HEAD_LAYOUT_MEDIUM)
        advise_small(&m, rows, advice);
    else if (m.heads > 1)
        advise_shared(&m, &rows[MHA_HEAD_LAYOUT_MHA], best, advice);
    else
        say(advice, "A single head cannot share keys and values; several heads can.");
    return MHA_OK;
}
