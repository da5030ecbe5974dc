/* sampling.c - applies penalties and filters to logits before sampling, as transformers does. */
#include "model/generate/sampling.h"

#include "base/ctx.h"
#include "base/error.h"
#include <math.h>
#include <string.h>

/* ---- checks ---- */

static mha_status check_share(const char *field, double value, mha_error *err)
{
    if (value >= 0 && value <= 1) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_sampling: %s must be from 0 to 1 (got %g)", field, value);
}

static mha_status check_factor(const char *field, double value, mha_error *err)
{
    if (value >= 0 && isfinite(value)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_sampling: %s must be finite and at least 0 (got %g)", field, value);
}

mha_status mha__sampling_check(const mha_sampling *s, mha_error *err)
{
    MHA__TRY(check_factor("temperature", s->temperature, err));
    MHA__TRY(check_factor("repetition_penalty", s->repetition_penalty, err));
    MHA__TRY(check_share("top_p", s->top_p, err));
    MHA__TRY(check_share("min_p", s->min_p, err));
    if (s->top_k < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_sampling: top_k must be at least 0 (got %lld)", (long long)s->top_k);
    if (s->no_repeat_ngram < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_sampling: no_repeat_ngram must be at least 0 (got %lld)",
                         (long long)s->no_repeat_ngram);
    return MHA_OK;
}

/* ---- penalties ---- */

/* Applies the penalty once per distinct token: `seen` has one byte per token of the vocabulary. */
static void penalize(double penalty, const int32_t *ids, int64_t count, int64_t vocab, uint8_t *seen, float *logits)
{
    memset(seen, 0, (size_t)vocab);
    for (int64_t i = 0; i < count; i++) {
        float *x = &logits[ids[i]];
        if (seen[ids[i]]) continue;
        seen[ids[i]] = 1;
        *x = *x < 0 ? *x * (float)penalty : *x / (float)penalty;
    }
}

/* Masks every token x for which the last n - 1 tokens, followed by x, occurred earlier in the text. */
static void forbid_repeats(int64_t n, const int32_t *ids, int64_t count, float *logits)
{
    const int32_t *end = ids + count - (n - 1);
    for (int64_t i = 0; i + n <= count; i++)
        if (memcmp(ids + i, end, (size_t)(n - 1) * sizeof *ids) == 0) logits[ids[i + n - 1]] = -INFINITY;
}

/* ---- filters: each is a lower bound of logits; only the kept logits are sorted ---- */

/* The finite logits: a max-heap of the remaining logits, followed by the extracted logits in ascending order. */
typedef struct ranking {
    float *x;
    int64_t n, taken;
} ranking;

/* Sifts heap[at] down: afterwards no entry is smaller than its children, 2 at + 1 and 2 at + 2. */
static void sink(float *heap, int64_t n, int64_t at)
{
    const float x = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= x) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static ranking rank(const float *logits, int64_t vocab, float *memory)
{
    ranking r = {.x = memory};
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] > -INFINITY) r.x[r.n++] = logits[i];
    for (int64_t at = r.n / 2 - 1; at >= 0; at--)
        sink(r.x, r.n, at);
    return r;
}

/* Returns the logit of rank k (0 = greatest); k < n. */
static float nth(ranking *r, int64_t k)
{
    while (r->taken <= k) {
        const int64_t last = r->n - 1 - r->taken++;
        const float top = r->x[0];
        r->x[0] = r->x[last];
        sink(r->x, last, 0);
        r->x[last] = top;
    }
    return r->x[r->n - 1 - k];
}

/* Returns how many of the n greatest logits (all logits, or n extracted ones) are required to reach the fraction p of
 * their total probability. */
static int64_t count_top_p(double p, ranking *r, int64_t n)
{
    const double top = (double)nth(r, 0);
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++)
        total += exp((double)r->x[r->n - 1 - i] - top);
    int64_t kept = 0;
    while (kept < n && (kept == 0 || sum < p * total))
        sum += exp((double)nth(r, kept++) - top);
    return kept;
}

static void keep_from(float bound, int64_t vocab, float *logits)
{
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] < bound) logits[i] = -INFINITY;
}

static void filter(const mha_sampling *s, int64_t vocab, float *memory, float *logits)
{
    for (int64_t i = 0; i < vocab; i++)
        logits[i] /= (float)s->temperature;
    if (s->top_k == 0 && s->top_p == 0 && s->min_p == 0) return;
    ranking r = rank(logits, vocab, memory);
    if (r.n == 0) return;
    int64_t n = r.n;
    float bound = -INFINITY;
    if (s->top_k > 0 && s->top_k < n) {
        bound = nth(&r, s->top_k - 1);
        for (n = s->top_k; n < r.n && nth(&r, n) == bound;)
            n++;
    }
    if (s->top_p > 0 && s->top_p < 1) bound = nth(&r, count_top_p(s->top_p, &r, n) - 1);
    if (s->min_p > 0) bound = fmaxf(bound, nth(&r, 0) + (float)log(s->min_p));
    keep_from(bound, vocab, logits);
}

mha_status mha__sampling_run(mha_ctx *ctx, const mha_sampling *s, const int32_t *ids, int64_t count, int64_t vocab,
                             float *logits, mha_error *err)
{
    float *work = mha__alloc(ctx, (size_t)vocab * sizeof *work);
    if (!work) return mha__no_memory(err, (size_t)vocab * sizeof *work, "sampling a token");
    if (s->repetition_penalty != 0) penalize(s->repetition_penalty, ids, count, vocab, (uint8_t *)work, logits);
    if (s->no_repeat_ngram > 0 && s->no_repeat_ngram <= count + 1)
        forbid_repeats(s->no_repeat_ngram, ids, count, logits);
    if (s->temperature > 0) filter(s, vocab, work, logits);
    mha__free(ctx, work);
    return MHA_OK;
}

mha_status mha_sampling_apply(mha_ctx *ctx, const mha_sampling *sampling, const int32_t *ids, int64_t count,
                              int64_t vocab, float *logits, mha_error *err)
{
    if (!sampling || !logits || (count > 0 && !ids))
        return mha__fail(err, MHA_ERR_ARG, "mha_sampling_apply: sampling, logits and ids must not be NULL");
    if (vocab < 1 || vocab > INT32_MAX || count < 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_sampling_apply: vocab must be from 1 to 2^31-1, and count at least 0 (got %lld, %lld)",
                         (long long)vocab, (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "mha_sampling_apply: ids[%lld] must be from 0 to %lld (got %d)",
                             (long long)i, (long long)vocab - 1, ids[i]);
    MHA__TRY(mha__sampling_check(sampling, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    return mha__sampling_run(ctx, sampling, ids, count, vocab, logits, err);
}
