/* live_lens.c - the logit lens: what the output head predicts from the hidden state after each layer. */
#include "live.h"
#include <math.h>

/* The lens multiplies the states of all tokens and layers by the output matrix; more products would block the page. */
static const double PRODUCTS_MAX = 1e10;

/* Computes the lens at token `at` of the model as it is. In a causal model it depends on the tokens up to it only. */
LIVE_EXPORT(live_lens) mha_status live_lens(int at)
{
    const mha_model_info *i = live.info;
    const int64_t count = i->causal ? at + 1 : live.count;
    const mha_logit_lens_options options = {.size = sizeof options, .top = i->vocab < LIVE_LENS ? i->vocab : LIVE_LENS};
    mha_logit_lens_free(live.lens);
    live.lens = NULL;
    const double max = PRODUCTS_MAX / ((double)(i->layers + 1) * (double)i->hidden * (double)i->vocab);
    const mha_status status = live_check_token(at);
    if (status != MHA_OK) return status;
    if ((double)count > max)
        return live_fail("text must have at most %.0f tokens for the logit lens of this model on this page (got %lld)",
                         floor(max), (long long)count);
    live.lens_at = at;
    return mha_logit_lens_measure(live.model, live.ids, count, &options, &live.lens, &live_err);
}

static int64_t place(int entry)
{
    return entry * live.lens->tokens + live.lens_at;
}

/* Returns the LIVE_LENS most likely tokens after `entry` layers, or all of a smaller vocabulary. */
LIVE_EXPORT(live_lens_ids) const int32_t *live_lens_ids(int entry)
{
    return live.lens->top_ids + place(entry) * live.lens->top;
}

/* Returns the probability of token n of live_lens_ids. */
LIVE_EXPORT(live_lens_probability) double live_lens_probability(int entry, int n)
{
    return live.lens->top_probs[place(entry) * live.lens->top + n];
}

/* Returns KL(prediction of the model || prediction after `entry` layers) in nats. */
LIVE_EXPORT(live_lens_divergence) double live_lens_divergence(int entry)
{
    return live.lens->divergences[place(entry)];
}
