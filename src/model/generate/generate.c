/* generate.c - continues a list of prompts, several at a time. Each slot of the cache runs one prompt; when that prompt
 * ends, the next prompt uses the slot. Each prompt is prefilled separately; then all slots advance together by one
 * token per step.
 *
 * The slot of a finished prompt keeps its keys. A prompt that shares a prefix with the tokens of a slot reuses the
 * cached prefix. The result is bitwise identical to prefilling the prefix, because a row of the cache depends only on
 * the tokens up to this row. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "model/generate/generation.h"
#include <string.h>

/* PIECE: tokens per prefill call, so that memory does not grow with the prompt. SHARED_PREFIX_MIN: minimum length of a
 * shared prefix. */
enum { PIECE = 512, SHARED_PREFIX_MIN = 16 };

/* ---- prefill ---- */

/* Returns the number of first tokens that the prompt and the cache of a slot have in common, at most all but the last
 * token of the prompt. */
static int64_t common_prefix(const mha__generation *g, const mha__slot *s, const mha_prompt *p)
{
    const int64_t max = mha__min64(mha_model_cache_length(g->cache, s - g->slot), p->count - 1);
    int64_t n = 0;
    while (n < max && s->ids[n] == p->ids[n])
        n++;
    return n;
}

/* Fills the cache of slot `to` with the longest cached prefix of the prompt in any slot; returns the length of the
 * prefix. At least the last token is left to prefill, since its logits are needed. If a window has freed part of the
 * prefix, the prefix is not reused. */
static int64_t share(mha__generation *g, int64_t to, const mha_prompt *p)
{
    int64_t max = 0, from = to;
    const bool shares =
        !g->model->info.rotation_by_length && !mha__generation_sources(g); /* keys depend on the source */
    for (int64_t n = 0; shares && n < g->slots; n++) {
        const int64_t same = common_prefix(g, &g->slot[n], p);
        if (same > max) max = same, from = n;
    }
    if (max >= SHARED_PREFIX_MIN) {
        const mha_status status = from == to ? mha_model_cache_truncate(g->cache, to, max, NULL)
                                             : mha_model_cache_fork(g->cache, from, to, max, NULL);
        if (status == MHA_OK) return max;
    }
    mha_model_cache_clear(g->cache, to, NULL);
    return 0;
}

/* Returns the input of the encoder for a prompt. */
static mha_model_input source_of(const mha__generation *g, int64_t prompt)
{
    mha_model_input input = {.size = sizeof input, .batch = 1};
    if (g->o.features) {
        input.length = g->model->encoder->config.max_positions;
        input.features = g->o.features[prompt];
    }
    if (!g->o.sources) return input;
    input.length = g->o.sources[prompt].count;
    input.ids = g->o.sources[prompt].ids;
    return input;
}

/* Prefills the slot's prompt from token `at` on; g->logits receives the logits of the last token. */
static mha_status read_prompt(mha__generation *g, int64_t n, int64_t at, mha_error *err)
{
    const mha__slot *s = &g->slot[n];
    if (g->o.forward) return g->o.forward(g->o.forward_user, n, s->ids, s->length, at, g->logits, err);
    const int64_t piece = g->cache && !g->model->info.rotation_by_length ? PIECE : s->length;
    const mha_model_input source = source_of(g, s->prompt);
    for (int64_t count; at < s->length; at += count) {
        count = mha__min64(piece, s->length - at);
        MHA__TRY(mha__progress(g->model->ctx, "generate", g->done, g->count * g->o.max_new, err));
        const mha_model_input input = {.size = sizeof input,
                                       .batch = 1,
                                       .length = count,
                                       .ids = s->ids + at,
                                       .cache = g->cache,
                                       .sequence = n,
                                       .gates = g->o.gates,
                                       .source = mha__generation_sources(g) && at == 0 ? &source : NULL};
        const mha_model_output output = {.size = sizeof output,
                                         .last_logits = at + count == s->length ? g->logits : NULL};
        MHA__TRY(mha_model_forward(g->model, &input, &output, err));
    }
    return MHA_OK;
}

/* Assigns the next prompt to an idle slot, and generates its first token. */
static mha_status begin(mha__generation *g, int64_t n, mha_error *err)
{
    mha__slot *s = &g->slot[n];
    const mha_prompt p = mha__generation_prompt(g, g->next);
    const int64_t shared = g->cache ? share(g, n, &p) : 0;
    if (g->o.on_prompt) g->o.on_prompt(g->o.user, g->next, shared);
    s->prompt = g->next++;
    s->length = p.count;
    memcpy(s->ids, p.ids, (size_t)p.count * sizeof *s->ids);
    mha_rng_manual_seed(&s->rng, g->o.sampling.seed + (uint64_t)s->prompt);
    if (s->writer.tokenizer) MHA__TRY(mha__writer_begin(&s->writer, &p, err));
    MHA__TRY(read_prompt(g, n, shared, err));
    return mha__generation_advance(g, s, g->logits, err);
}

/* ---- generation loop ---- */

/* Returns true if the next token of the slot requires other rotation frequencies than the slot's cached keys have. */
static bool is_outdated(const mha__generation *g, const mha__slot *s)
{
    const int64_t original = g->model->config.rope.original_positions;
    return g->model->config.family->drops_cache && g->model->config.rope.kind == MHA_ROPE_LONGROPE && s->prompt >= 0 &&
           s->length == original + 1;
}

/* Generates without a cache: recomputes the whole sequence of each slot, unless the caller's function o.forward
 * computes it. */
static mha_status step_again(mha__generation *g, mha_error *err)
{
    for (int64_t n = 0; n < g->slots; n++) {
        if (g->slot[n].prompt < 0) continue;
        const bool again = !g->o.forward || is_outdated(g, &g->slot[n]);
        MHA__TRY(read_prompt(g, n, again ? 0 : g->slot[n].length - 1, err));
        MHA__TRY(mha__generation_advance(g, &g->slot[n], g->logits, err));
    }
    return MHA_OK;
}

/* Generates the next token of slots whose cached keys are outdated, and caches their keys again. */
static mha_status renew(mha__generation *g, bool *busy, mha_error *err)
{
    *busy = false;
    for (int64_t n = 0; n < g->slots; n++) {
        if (is_outdated(g, &g->slot[n])) {
            MHA__TRY(mha_model_cache_clear(g->cache, n, err));
            MHA__TRY(read_prompt(g, n, 0, err));
            MHA__TRY(mha__generation_advance(g, &g->slot[n], g->logits, err));
        }
        *busy |= g->slot[n].prompt >= 0;
    }
    return MHA_OK;
}

static mha_status run(mha__generation *g, mha_error *err)
{
    const int64_t total = g->count * g->o.max_new;
    for (bool busy = true; busy;) {
        busy = false;
        for (int64_t n = 0; n < g->slots; n++) {
            while (g->slot[n].prompt < 0 && g->next < g->count)
                MHA__TRY(begin(g, n, err));
            busy |= g->slot[n].prompt >= 0;
        }
        MHA__TRY(mha__progress(g->model->ctx, "generate", g->done, total, err));
        if (busy && g->cache) MHA__TRY(renew(g, &busy, err));
        if (busy) MHA__TRY((g->cache ? mha__generation_step : step_again)(g, err));
    }
    return MHA_OK;
}

mha_status mha_model_generate(const mha_model *model, const mha_prompt *prompts, int64_t count,
                              const mha_generate_options *options, int32_t *out, int64_t *lengths, mha_error *err)
{
    mha__generation g = {.model = model, .prompts = prompts, .count = count, .out = out, .lengths = lengths};
    if (count < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_generate: count must be at least 0 (got %lld)", (long long)count);
    if (!model || (count > 0 && (!prompts || !out || !lengths)))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_generate: model, prompts, out and lengths must not be NULL");
    MHA__TRY(mha__options_read(&g.o, sizeof g.o, options, "mha_generate_options", err));
    MHA__TRY(mha__generation_check(&g, err));
    if (count == 0) return MHA_OK;
    memset(lengths, 0, (size_t)count * sizeof *lengths);
    mha_status status = mha__generation_allocate(&g, err);
    if (status == MHA_OK) status = run(&g, err);
    mha__generation_release(&g);
    return status;
}
