/* generate.c - several prompts, some of them at once: each slot of the cache works on one prompt, and when that ends
 * the next one takes the slot. A prompt is read in one pass of its own; then all slots advance by a token together.
 */
#include "mha/generate.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "model/kv.h"
#include "model/sample.h"
#include <math.h>
#include <string.h>

/* One prompt at work. */
typedef struct slot {
    int64_t prompt; /* -1: idle */
    int64_t length; /* of ids */
    int32_t *ids;   /* the prompt and what has come of it */
    mha_rng rng;
} slot;

typedef struct generation {
    const mha_model *model;
    const mha_prompt *prompts;
    mha_generate_options o;
    int64_t count, next; /* prompts, and the first that nobody has begun */
    int32_t *out;
    int64_t *lengths;
    int64_t slots, room; /* of ids in a slot */
    slot *slot;
    int32_t *ids, *step; /* of all slots; the last token of each */
    uint8_t *mask;       /* [slots] which ones advance */
    float *logits, *probs, *work;
    mha_model_cache *cache;
} generation;

/* ---- checks ---- */

static mha_status check_prompt(const generation *g, int64_t n, int64_t most, mha_error *err)
{
    const mha_prompt *p = &g->prompts[n];
    if (!p->ids || p->count < 1)
        return mha__fail(err, MHA_ERR_ARG, "prompt %lld of %lld has no tokens", (long long)n + 1, (long long)g->count);
    if (p->count > most - g->o.max_new)
        return mha__fail(err, MHA_ERR_ARG, "prompt %lld of %lld: %lld tokens and %lld new ones; the model takes %lld",
                         (long long)n + 1, (long long)g->count, (long long)p->count, (long long)g->o.max_new,
                         (long long)most);
    for (int64_t i = 0; i < p->count; i++)
        if (p->ids[i] < 0 || p->ids[i] >= g->model->config.vocab)
            return mha__fail(err, MHA_ERR_ARG, "prompt %lld of %lld: token %lld is %d, not 0..%lld", (long long)n + 1,
                             (long long)g->count, (long long)i, p->ids[i], (long long)g->model->config.vocab - 1);
    return MHA_OK;
}

static mha_status check(generation *g, mha_error *err)
{
    const mha_model *m = g->model;
    if (!m->info.causal)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s is an encoder: it writes no text", m->info.family);
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "the model was opened without weights (no_weights)");
    if (g->o.max_new < 1 || g->o.max_new > INT32_MAX / 2)
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: max_new is %lld, must be > 0",
                         (long long)g->o.max_new);
    if (g->o.at_once < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: at_once is %lld", (long long)g->o.at_once);
    MHA__TRY(mha__sampling_check(&g->o.sampling, err));
    if (!g->o.eos && g->o.eos_count == 0) g->o.eos = m->config.eos, g->o.eos_count = m->config.eos_count;
    for (int64_t i = 0; g->o.eos && i < g->o.eos_count; i++)
        if (g->o.eos[i] < 0 || g->o.eos[i] >= m->config.vocab)
            return mha__fail(err, MHA_ERR_ARG, "mha_generate_options: eos[%lld] is %d, no token of the model",
                             (long long)i, g->o.eos[i]);
    const int64_t most = m->positions.weight ? m->config.max_positions : INT32_MAX / 2;
    for (int64_t n = 0; n < g->count; n++)
        MHA__TRY(check_prompt(g, n, most, err));
    return MHA_OK;
}

/* ---- memory ---- */

static mha_status allocate(generation *g, mha_error *err)
{
    mha_ctx *ctx = g->model->ctx;
    const size_t vocab = (size_t)g->model->config.vocab;
    int64_t longest = 0;
    for (int64_t n = 0; n < g->count; n++)
        longest = mha__max64(longest, g->prompts[n].count);
    g->slots = mha__min64(g->count, g->o.at_once ? g->o.at_once : 8);
    g->room = longest + g->o.max_new;
    g->slot = mha__calloc(ctx, (size_t)g->slots, sizeof *g->slot);
    g->ids = mha__calloc(ctx, (size_t)g->slots, (size_t)g->room * sizeof *g->ids);
    g->step = mha__calloc(ctx, (size_t)g->slots, sizeof *g->step);
    g->mask = mha__calloc(ctx, (size_t)g->slots, 1);
    g->logits = mha__calloc(ctx, (size_t)g->slots, vocab * sizeof *g->logits);
    g->probs = mha__calloc(ctx, 2, vocab * sizeof *g->probs);
    if (!g->slot || !g->ids || !g->step || !g->mask || !g->logits || !g->probs)
        return mha__no_memory(err, (size_t)g->slots * vocab * sizeof *g->logits, "generating");
    g->work = g->probs + vocab;
    for (int64_t s = 0; s < g->slots; s++)
        g->slot[s] = (slot){.prompt = -1, .ids = g->ids + s * g->room};
    if (g->o.no_cache) return MHA_OK;
    const mha_model_cache_options o = {
        .size = sizeof o, .batch = g->slots, .tokens = g->room, .dtype = g->o.cache_dtype};
    return mha_model_cache_create(g->model, &o, &g->cache, err);
}

static void release(generation *g)
{
    mha_ctx *ctx = g->model->ctx;
    mha_model_cache_free(g->cache);
    mha__free(ctx, g->slot);
    mha__free(ctx, g->ids);
    mha__free(ctx, g->step);
    mha__free(ctx, g->mask);
    mha__free(ctx, g->logits);
    mha__free(ctx, g->probs);
}

/* ---- one token ---- */

static int64_t greatest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Draws as torch.multinomial does from the softmax. */
static mha_status draw(generation *g, slot *s, const float *logits, int64_t *id, mha_error *err)
{
    const int64_t vocab = g->model->config.vocab;
    const float top = logits[greatest(logits, vocab)];
    double sum = 0;
    if (!isfinite(top))
        return mha__fail(err, MHA_ERR_ARG, "no token is left to choose: the greatest logit is %g", (double)top);
    for (int64_t i = 0; i < vocab; i++)
        sum += (double)(g->probs[i] = expf(logits[i] - top));
    for (int64_t i = 0; i < vocab; i++)
        g->probs[i] = (float)((double)g->probs[i] / sum);
    return mha_rng_multinomial(&s->rng, g->probs, vocab, 0, g->work, id, 1, err);
}

static mha_status choose(generation *g, slot *s, float *logits, int64_t *id, mha_error *err)
{
    const int64_t vocab = g->model->config.vocab, fresh = s->length - g->prompts[s->prompt].count;
    for (int64_t i = 0; fresh < g->o.min_new && i < g->o.eos_count && g->o.eos; i++)
        logits[g->o.eos[i]] = -INFINITY;
    MHA__TRY(mha__sampling_run(g->model->ctx, &g->o.sampling, s->ids, s->length, vocab, logits, err));
    if (g->o.sampling.temperature > 0) return draw(g, s, logits, id, err);
    *id = greatest(logits, vocab);
    return MHA_OK;
}

static bool is_eos(const generation *g, int64_t id)
{
    for (int64_t i = 0; g->o.eos && i < g->o.eos_count; i++)
        if (g->o.eos[i] == id) return true;
    return false;
}

/* The slot's next token from its logits; the slot is idle if it was the last. */
static mha_status advance(generation *g, slot *s, float *logits, mha_error *err)
{
    int64_t id = 0, *length = &g->lengths[s->prompt];
    MHA__TRY(choose(g, s, logits, &id, err));
    s->ids[s->length++] = (int32_t)id;
    g->out[s->prompt * g->o.max_new + (*length)++] = (int32_t)id;
    const bool stop = g->o.on_token && g->o.on_token(g->o.user, s->prompt, (int32_t)id);
    if (!stop && !is_eos(g, id) && *length < g->o.max_new) return MHA_OK;
    s->prompt = -1;
    return g->cache ? mha_model_cache_clear(g->cache, s - g->slot, err) : MHA_OK;
}

/* ---- the loop ---- */

/* Reads the next prompt into an idle slot, and gives it its first token. */
static mha_status begin(generation *g, int64_t n, mha_error *err)
{
    slot *s = &g->slot[n];
    const mha_prompt *p = &g->prompts[g->next];
    s->prompt = g->next++;
    s->length = p->count;
    memcpy(s->ids, p->ids, (size_t)p->count * sizeof *s->ids);
    mha_rng_manual_seed(&s->rng, g->o.sampling.seed + (uint64_t)s->prompt);
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = p->count, .ids = s->ids, .cache = g->cache, .sequence = n};
    const mha_model_output output = {.size = sizeof output, .last_logits = g->logits};
    MHA__TRY(mha_model_forward(g->model, &input, &output, err));
    return advance(g, s, g->logits, err);
}

/* A token for every slot at work, in one pass. */
static mha_status step(generation *g, mha_error *err)
{
    bool all = true;
    for (int64_t n = 0; n < g->slots; n++) {
        const slot *s = &g->slot[n];
        g->mask[n] = s->prompt >= 0;
        g->step[n] = g->mask[n] ? s->ids[s->length - 1] : 0;
        all &= g->mask[n];
    }
    const mha_model_input input = {.size = sizeof input,
                                   .batch = g->slots,
                                   .length = 1,
                                   .ids = g->step,
                                   .mask = all ? NULL : g->mask,
                                   .cache = g->cache};
    const mha_model_output output = {.size = sizeof output, .last_logits = g->logits};
    MHA__TRY(mha_model_forward(g->model, &input, &output, err));
    for (int64_t n = 0; n < g->slots; n++)
        if (g->mask[n]) MHA__TRY(advance(g, &g->slot[n], g->logits + n * g->model->config.vocab, err));
    return MHA_OK;
}

/* The same without a cache: each slot's whole sequence again. */
static mha_status step_again(generation *g, mha_error *err)
{
    for (int64_t n = 0; n < g->slots; n++) {
        slot *s = &g->slot[n];
        if (s->prompt < 0) continue;
        const mha_model_input input = {.size = sizeof input, .batch = 1, .length = s->length, .ids = s->ids};
        const mha_model_output output = {.size = sizeof output, .last_logits = g->logits};
        MHA__TRY(mha_model_forward(g->model, &input, &output, err));
        MHA__TRY(advance(g, s, g->logits, err));
    }
    return MHA_OK;
}

static mha_status run(generation *g, mha_error *err)
{
    for (bool busy = true; busy;) {
        busy = false;
        for (int64_t n = 0; n < g->slots; n++) {
            while (g->slot[n].prompt < 0 && g->next < g->count)
                MHA__TRY(begin(g, n, err));
            busy |= g->slot[n].prompt >= 0;
        }
        if (busy) MHA__TRY((g->cache ? step : step_again)(g, err));
    }
    return MHA_OK;
}

mha_status mha_model_generate(const mha_model *model, const mha_prompt *prompts, int64_t count,
                              const mha_generate_options *options, int32_t *out, int64_t *lengths, mha_error *err)
{
    generation g = {.model = model, .prompts = prompts, .count = count, .out = out, .lengths = lengths};
    if (!model || count < 0 || (count > 0 && (!prompts || !out || !lengths)))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_generate: count is %lld, or model, prompts, out or lengths is NULL",
                         (long long)count);
    MHA__TRY(mha__options_read(&g.o, sizeof g.o, options, "mha_generate_options", err));
    MHA__TRY(check(&g, err));
    if (count == 0) return MHA_OK;
    memset(lengths, 0, (size_t)count * sizeof *lengths);
    mha_status status = allocate(&g, err);
    if (status == MHA_OK) status = run(&g, err);
    release(&g);
    return status;
}
