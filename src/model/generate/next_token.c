/* next_token.c - selects the next token of a prompt from its logits. */
#include "base/error.h"
#include "model/generate/generation.h"
#include "model/generate/sampling.h"
#include <float.h>
#include <math.h>

static int64_t greatest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Samples from the softmax as torch.multinomial does; *id must hold the most likely token on entry. */
static mha_status draw(mha__generation *g, mha__slot *s, const float *logits, int64_t *id, mha_error *err)
{
    const int64_t vocab = g->model->config.vocab;
    const float top = logits[*id];
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        sum += (double)(g->probs[i] = expf(logits[i] - top));
    for (int64_t i = 0; i < vocab; i++)
        g->probs[i] = (float)((double)g->probs[i] / sum);
    return mha_rng_multinomial(&s->rng, g->probs, vocab, 0, g->work, id, 1, err);
}

mha_status mha__generation_choose(mha__generation *g, mha__slot *s, float *logits, int64_t *id, mha_error *err)
{
    const int64_t vocab = g->model->config.vocab, fresh = s->length - g->prompts[s->prompt].count;
    for (int64_t i = 0; fresh < g->o.min_new && i < g->o.eos_count && g->o.eos; i++)
        logits[g->o.eos[i]] = -INFINITY;
    MHA__TRY(mha__sampling_run(g->model->ctx, &g->o.sampling, s->ids, s->length, vocab, logits, err));
    *id = greatest(logits, vocab);
    if (isnan(logits[*id]) || logits[*id] > FLT_MAX)
        return mha__fail(err, MHA_ERR_NOT_FINITE, "no token can be chosen: the greatest logit is %g",
                         (double)logits[*id]);
    if (logits[*id] < -FLT_MAX)
        return mha__fail(err, MHA_ERR_ARG, "sampling options must leave a token to choose (got none of %lld)",
                         (long long)vocab);
    return g->o.sampling.temperature > 0 ? draw(g, s, logits, id, err) : MHA_OK;
}
