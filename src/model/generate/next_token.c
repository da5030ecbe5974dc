/* next_token.c - selects the next token of a prompt from its logits, stores and reports it. */
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

/* Samples from the softmax as torch.multinomial does; on entry, *id must be the most likely token. */
static mha_status sample(mha__generation *g, mha__slot *s, const float *logits, int64_t *id, mha_error *err)
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

/* Sets the logits to those of a distribution with one token. */
static void keep_one(int64_t vocab, int64_t id, float *logits)
{
    for (int64_t i = 0; i < vocab; i++)
        logits[i] = i == id ? 0 : -INFINITY;
}

/* Applies all options to the logits, before a token is sampled. */
static mha_status edit_logits(const mha__generation *g, const mha__slot *s, float *logits, mha_error *err)
{
    const int64_t vocab = g->model->config.vocab, fresh = s->length - mha__generation_prompt(g, s->prompt).count;
    const int64_t forced = mha__generation_forced(g, s);
    if (forced >= 0) {
        keep_one(vocab, forced, logits);
        return MHA_OK;
    }
    for (int64_t i = 0; fresh < g->o.min_new && i < g->o.eos_count && g->o.eos; i++)
        logits[g->o.eos[i]] = -INFINITY;
    mha__generation_ban(g, s, logits);
    return mha__sampling_run(g->model->ctx, &g->o.sampling, s->ids, s->length, vocab, logits, err);
}

mha_status mha__generation_choose(mha__generation *g, mha__slot *s, float *logits, int64_t *id, mha_error *err)
{
    const int64_t vocab = g->model->config.vocab;
    MHA__TRY(edit_logits(g, s, logits, err));
    *id = greatest(logits, vocab);
    if (isnan(logits[*id]) || logits[*id] > FLT_MAX)
        return mha__fail(err, MHA_ERR_NOT_FINITE, "greatest logit must be finite to choose a token (got %g)",
                         (double)logits[*id]);
    if (logits[*id] < -FLT_MAX)
        return mha__fail(err, MHA_ERR_ARG, "sampling options must keep at least one token (got 0 of %lld)",
                         (long long)vocab);
    return g->o.sampling.temperature > 0 ? sample(g, s, logits, id, err) : MHA_OK;
}

/* ---- storing and reporting of tokens ---- */

static bool is_eos(const mha__generation *g, int64_t id)
{
    for (int64_t i = 0; g->o.eos && i < g->o.eos_count; i++)
        if (g->o.eos[i] == id) return true;
    return false;
}

/* Passes the final text of the slot to the callback; returns true if the callback stops the prompt. */
static bool hand_out(const mha__generation *g, const mha__slot *s)
{
    return g->o.on_text && s->writer.sure > 0 &&
           g->o.on_text(g->o.user, s->prompt, s->writer.text, s->writer.sure) != 0;
}

static mha_status end(mha__generation *g, mha__slot *s, mha_ending why, mha_error *err)
{
    if (s->writer.stream) {
        MHA__TRY(mha__writer_end(&s->writer, err));
        if (s->writer.stopped) why = MHA_END_STOP;
        hand_out(g, s);
    }
    if (g->o.on_end) g->o.on_end(g->o.user, s->prompt, why);
    g->done += g->o.max_new - g->lengths[s->prompt];
    s->prompt = -1;
    return MHA_OK;
}

/* Reports the slot's new token, and ends the prompt if this token is the last. */
static mha_status tell(mha__generation *g, mha__slot *s, int32_t id, mha_error *err)
{
    const bool eos = is_eos(g, id), full = g->lengths[s->prompt] == g->o.max_new;
    bool called_off = g->o.on_token && g->o.on_token(g->o.user, s->prompt, id);
    if (s->writer.stream && !eos) {
        MHA__TRY(mha__writer_put(&s->writer, id, err));
        called_off = hand_out(g, s) || called_off;
    }
    if (!called_off && !eos && !full && !s->writer.stopped) return MHA_OK;
    return end(g, s, called_off ? MHA_END_CALLER : eos ? MHA_END_EOS : MHA_END_LENGTH, err);
}

mha_status mha__generation_advance(mha__generation *g, mha__slot *s, float *logits, mha_error *err)
{
    int64_t id = 0;
    MHA__TRY(mha__generation_choose(g, s, logits, &id, err));
    s->ids[s->length++] = (int32_t)id;
    g->out[s->prompt * g->o.max_new + g->lengths[s->prompt]++] = (int32_t)id;
    g->done++;
    return tell(g, s, (int32_t)id, err);
}
