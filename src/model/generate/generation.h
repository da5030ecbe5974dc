/* generation.h - what the files of mha_model_generate share: the prompts at work, each in a slot of the cache. */
#ifndef MHA_MODEL_GENERATE_GENERATION_H
#define MHA_MODEL_GENERATE_GENERATION_H

#include "mha/generate.h"
#include "model/forward/model_cache.h"
#include "model/generate/stop_strings.h"

/* One prompt at work. `ids` stay when it has ended, as the slot's cache does: the next prompt may begin alike. */
typedef struct mha__slot {
    int64_t prompt; /* -1: idle */
    int64_t length; /* of ids */
    int32_t *ids;   /* the prompt and what has come of it; behind that, guesses */
    int64_t ahead;  /* how many tokens to guess */
    int64_t row;    /* of this step: its last token and guesses; 0 = idle */
    mha_rng rng;
    mha__writer writer;
} mha__slot;

typedef struct mha__generation {
    const mha_model *model;
    const mha_prompt *prompts;
    mha_generate_options o;
    int64_t count, next;    /* prompts, and the first that nobody has begun */
    int64_t done;           /* tokens made, and those that prompts which ended early did not need */
    int32_t *out;           /* [count, max_new] */
    int64_t *lengths;       /* [count] */
    int64_t slots, room;    /* of ids in a slot */
    mha__slot *slot;        /* [slots] */
    int32_t *ids;           /* [slots, room] */
    int32_t *step;          /* [slots, 1 + lookup] the last token of each slot, and guesses */
    uint8_t *mask;          /* the same: which of them there are */
    float *logits;          /* [slots, 1 + lookup, vocab] */
    float *probs, *work;    /* [vocab] each */
    mha_model_cache *cache; /* NULL: the whole sequence again for every token */
} mha__generation;

/* Everything that may be refused is refused here, and o.eos is settled. */
mha_status mha__generation_check(mha__generation *g, mha_error *err);
/* What mha__generation_release takes back, also after a failure. */
mha_status mha__generation_allocate(mha__generation *g, mha_error *err);
void mha__generation_release(mha__generation *g);

/* The slot's next token from its logits [vocab], which are spoilt. */
mha_status mha__generation_choose(mha__generation *g, mha__slot *s, float *logits, int64_t *id, mha_error *err);
/* The same, kept and told of; the slot is idle afterwards if it was the last token. */
mha_status mha__generation_advance(mha__generation *g, mha__slot *s, float *logits, mha_error *err);
/* At least one token for every slot at work, in one pass through the cache. */
mha_status mha__generation_step(mha__generation *g, mha_error *err);
/* Rotation by the length of the whole sequence: a key depends on when it was read, so that nothing can be shared, read
 * in pieces or guessed. */
bool mha__turns_with_length(const mha_model *m);

#endif
