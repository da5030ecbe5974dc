/* plan_advice.c - which variant to take, and why, in numbers of the model at hand. */
#include "heads/plan_rows.h"

#include "base/error.h"
#include <stdbool.h>
#include <stdio.h>

typedef struct amount {
    char text[32];
} amount;

/* "1.5 GiB" in steps of 1024, "110 million" in steps of 1000. */
static const char *shown(amount *a, double n, double step, const char *const names[5])
{
    int i = 0;
    for (; n >= step && i < 4; i++)
        n /= step;
    snprintf(a->text, sizeof a->text, "%.*f%s%s", n >= 100 || i == 0 ? 0 : 1, n, *names[i] ? " " : "", names[i]);
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

/* What the size of the cache means for a small model: beside its weights, in f32. */
static const char *cache_counts(const mha_plan_options *m, const mha_plan_row *mha)
{
    return mha->kv_bytes / (int64_t)sizeof(float) < m->parameters
               ? "so sharing keys and values saves little and may cost quality"
               : "more than the parameters: sharing keys and values may cost quality, but is worth a trial (the row "
                 "gqa)";
}

static void advise_small(const mha_plan_options *m, const mha_plan_row *mha, const mha_plan_row *pruned,
                         mha_plan_advice *a)
{
    amount parameters, cache;
    const double share = 100.0 * (double)m->layers * (double)mha->weights.total / (double)m->parameters;
    const int n =
        snprintf(a->reason, sizeof a->reason,
                 "The model is small: %s parameters, less than 100 million. Its cache for %lld tokens takes %s, %s; "
                 "attention has %.0f %% of the parameters.",
                 number(&parameters, m->parameters), (long long)m->seq * m->batch, bytes(&cache, mha->kv_bytes),
                 cache_counts(m, mha), share);
    if (!pruned->left_out && n > 0 && (size_t)n < sizeof a->reason)
        snprintf(a->reason + n, sizeof a->reason - (size_t)n,
                 " Light pruning, to %lld of %lld heads by measured importance, takes %.3g %% of those away.",
                 (long long)pruned->heads, (long long)mha->heads, 100 * pruned->reduction);
}

/* Also when heads cannot be grouped: then keys and values are shared by all. */
static void advise_shared(const mha_plan_options *m, const mha_plan_row *mha, const mha_plan_row *shared,
                          mha_plan_advice *a)
{
    amount parameters, before, after;
    const bool large = m->parameters > MHA__PLAN_LARGE;
    const int n = snprintf(
        a->reason, sizeof a->reason,
        "The model is %s: %s parameters, %s 10 billion. With %lld query heads for each key/value head the "
        "cache for %lld tokens takes %s instead of %s, which every decoded token reads, and the "
        "projections %.3g %% fewer parameters, at almost the same quality.",
        large ? "large" : "medium", number(&parameters, m->parameters), large ? "more than" : "from 100 million to",
        (long long)shared->kv_groups, (long long)m->seq * m->batch, bytes(&after, shared->kv_bytes),
        bytes(&before, mha->kv_bytes), 100 * shared->reduction);
    if (!large) return;
    a->experts = m->experts;
    a->top_k = m->top_k;
    if (n > 0 && (size_t)n < sizeof a->reason)
        snprintf(a->reason + n, sizeof a->reason - (size_t)n,
                 " At this size add experts (the row moe): more parameters for the same operations per token.");
}

mha_status mha_plan_advise(const mha_plan_options *options, mha_plan_advice *advice, mha_error *err)
{
    mha_plan_options m;
    mha_plan_row rows[MHA_PLAN_VARIANTS];
    MHA__TRY(mha_plan_resolve(options, &m, err));
    MHA__TRY(mha_plan_variants(&m, rows, err));
    const mha_plan_row *best = &rows[MHA_PLAN_MHA];
    if (m.parameters >= MHA__PLAN_MEDIUM && m.heads > 1)
        best = rows[MHA_PLAN_GQA].left_out ? &rows[MHA_PLAN_MQA] : &rows[MHA_PLAN_GQA];
    *advice = (mha_plan_advice){
        .variant = best->variant, .heads = best->heads, .kv_heads = best->kv_heads, .parameters = m.parameters};
    if (m.parameters < MHA__PLAN_MEDIUM)
        advise_small(&m, best, &rows[MHA_PLAN_PRUNED], advice);
    else if (m.heads > 1)
        advise_shared(&m, &rows[MHA_PLAN_MHA], best, advice);
    else
        snprintf(advice->reason, sizeof advice->reason,
                 "One head has no other to share keys and values with; more heads would allow that.");
    return MHA_OK;
}
