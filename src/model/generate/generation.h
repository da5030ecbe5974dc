/* generation.h - shared state of mha_model_generate: the active prompts, each in a slot of the cache. */
#ifndef MHA_MODEL_GENERATE_GENERATION_H
#define MHA_MODEL_GENERATE_GENERATION_H

#include "mha/generate.h"
#include "model/forward/model_cache.h"
#include "model/generate/stop_strings.h"

/* One slot and its active prompt. `ids` and the cache of the slot are kept after the prompt ends, because the next
 * prompt may share a prefix. */
typedef struct mha__slot {
    int64_t prompt; /* index of the prompt; -1 = idle */
    int64_t length; /* number of ids in use, guesses excluded */
    int32_t *ids;   /* the prompt and its generated tokens, followed by guesses */
    int64_t ahead;  /* number of tokens to guess */
    int64_t row;    /* number of tokens in this step: the last token and the guesses; 0 = idle */
    mha_rng rng;
    mha__writer writer;
} mha__slot;

typedef struct mha__generation {
    const mha_model *model;
    const mha_prompt *prompts;
    mha_generate_options o;
    int64_t count, next;    /* number of prompts, and index of the next prompt to start */
    int64_t done;           /* progress: tokens generated, plus unused tokens of prompts that ended early */
    int32_t *out;           /* [count, max_new] generated tokens */
    int64_t *lengths;       /* [count] number of generated tokens */
    int64_t slots, room;    /* room is the capacity of ids in a slot */
    mha__slot *slot;        /* [slots] */
    int32_t *ids;           /* [slots, room] memory for the ids of all slots */
    int32_t start;          /* first token of prompts without ids */
    int32_t *step;          /* [slots, 1 + lookup] the last token of each slot, followed by guesses */
    uint8_t *mask;          /* same shape as `step`: 1 = a token, 0 = padding */
    float *logits;          /* [slots, 1 + lookup, vocab] */
    float *probs, *work;    /* [vocab] each, scratch of sampling */
    float *gates;           /* [layers, slots, H] gates of a pass over all slots; NULL = ones */
    mha_model_cache *cache; /* NULL = no cache: every token recomputes the whole sequence */
} mha__generation;

/* Returns true if each prompt has a source: the model is an encoder-decoder. */
static inline bool mha__generation_sources(const mha__generation *g)
{
    return g->o.sources || g->o.features;
}

/* Returns prompt n; for an encoder-decoder without ids, its first token. */
static inline mha_prompt mha__generation_prompt(const mha__generation *g, int64_t n)
{
    return g->prompts[n].count || !mha__generation_sources(g) ? g->prompts[n] : (mha_prompt){&g->start, 1};
}

/* Returns the token that the checkpoint's rules require next, or -1. */
int64_t mha__generation_forced(const mha__generation *g, const mha__slot *slot);
/* Sets the logits of tokens that the checkpoint's rules exclude, or that would complete a banned word, to -infinity. */
void mha__generation_ban(const mha__generation *g, const mha__slot *slot, float *logits);

/* Checks all options, and sets g->o.eos. */
mha_status mha__generation_check(mha__generation *g, mha_error *err);
/* Allocates the buffers of `g`. The caller must call mha__generation_release, even if this function fails. */
mha_status mha__generation_allocate(mha__generation *g, mha_error *err);
void mha__generation_release(mha__generation *g);

/* Samples the slot's next token from its logits [vocab], which are overwritten. */
mha_status mha__generation_choose(mha__generation *g, mha__slot *s, float *logits, int64_t *id, mha_error *err);
/* Samples the next token, stores it and reports it. The slot becomes idle after its last token. */
mha_status mha__generation_advance(mha__generation *g, mha__slot *s, float *logits, mha_error *err);
/* Generates at least one token for every active slot, in one pass with the cache. */
mha_status mha__generation_step(mha__generation *g, mha_error *err);

#endif
