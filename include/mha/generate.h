/* generate.h - text from a decoder, token by token.
 *
 *     mha_prompt prompt = { ids, count };
 *     mha_generate_options o = { .size = sizeof o, .max_new = 64, .sampling = { .temperature = 0.8, .top_p = 0.95 } };
 *     int32_t out[64];  int64_t length;
 *     mha_model_generate(model, &prompt, 1, &o, out, &length, &err);
 *
 * Greedy unless a temperature is set. A prompt's tokens do not depend on the others of the call, nor on how many run at
 * once, to the bit. With one prompt and PyTorch's order of drawing, a seed gives what transformers draws from the same
 * logits (torch.multinomial after torch.manual_seed).
 *
 * Of a checkpoint's generation_config.json only eos_token_id is followed: its do_sample, temperature, top_k and the
 * others do nothing unless the caller sets them here.
 */
#ifndef MHA_GENERATE_H
#define MHA_GENERATE_H

#include "mha/model.h"
#include "mha/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the next token is chosen. Zero every field that is not needed: greedy. The order is that of transformers:
 * penalties, then, only when sampling, temperature, top_k, top_p, min_p. */
typedef struct mha_sampling {
    double temperature;        /* 0 = greedy; else > 0: logits are divided by it */
    int64_t top_k;             /* 0 = off; the k greatest, and all that equal the k-th */
    double top_p;              /* 0 = off; 0..1: the smallest set that reaches p (Holtzman et al. 2020), at least one:
                                  DBL_MIN is what transformers does at 0 */
    double min_p;              /* 0 = off; 0..1: at least p times the greatest probability (Nguyen et al. 2024) */
    double repetition_penalty; /* 0 = off; > 0: tokens seen are divided by it, multiplied where negative
                                  (Keskar et al. 2019) */
    int64_t no_repeat_ngram;   /* 0 = off; n: no n tokens come twice in a row */
    uint64_t seed;
} mha_sampling;

/* Applies penalties and filters to logits [vocab] in place, given the `count` tokens so far; what is left out becomes
 * -infinity. Errors: MHA_ERR_ARG naming the field and its value, or a token that is none; MHA_ERR_MEMORY. */
MHA_API mha_status mha_sampling_apply(mha_ctx *ctx, const mha_sampling *sampling, const int32_t *ids, int64_t count,
                                      int64_t vocab, float *logits, mha_error *err);

typedef struct mha_prompt {
    const int32_t *ids; /* [count] */
    int64_t count;      /* > 0 */
} mha_prompt;

/* Why a prompt ended: max_new tokens, a token of eos, a stop string, or because a callback said so. */
typedef enum mha_ending { MHA_END_LENGTH = 0, MHA_END_EOS, MHA_END_STOP, MHA_END_CALLER } mha_ending;

typedef struct mha_generate_options {
    size_t size;           /* sizeof(mha_generate_options) */
    int64_t max_new;       /* > 0 tokens for each prompt */
    int64_t min_new;       /* 0..max_new: before so many, no token of eos is chosen */
    mha_sampling sampling; /* each prompt draws from a generator of its own: seed + its number */
    const int32_t *eos;    /* [eos_count] each ends a prompt, and is kept; NULL = the checkpoint's, at most 64 */
    int64_t eos_count;     /* with eos NULL, -1 = nothing ends it */
    /* [stop_count] UTF-8, none empty. A prompt ends with the token that completes one of them in its new text; the
     * token is kept. Text is that of mha_text_stream, without special tokens, as it continues the prompt's. */
    const char *const *stop;
    int64_t stop_count;
    int no_cache;    /* 1 = computes the whole sequence for every token: slow, the same but for dynamic rotation */
    int64_t at_once; /* prompts that run together; 0 = 8. As one ends, the next takes its place */
    mha_dtype cache_dtype; /* as in mha_model_cache_options */
    /* 0 = off; 1..64 tokens to guess ahead: what followed the last time that the latest three (or two) tokens came.
     * Guesses are checked in one pass with the next token, so the tokens are the same, drawn or greedy; text that
     * repeats itself comes faster where weights do not fit the CPU's caches. Nothing is guessed without a cache, with
     * sliding windows, or where rotation depends on the length. After: Saxena 2023 (prompt lookup decoding);
     * Leviathan et al. 2023 (speculative decoding). */
    int64_t lookup;

    /* Callbacks, all on the calling thread; any may be NULL. on_token and on_text end the prompt by returning non-zero.
     * Prompts that run together take turns. */
    void (*on_prompt)(void *user, int64_t prompt, int64_t shared); /* before a prompt is read, `shared` tokens excepted:
                                                                      those have been read for another one */
    int (*on_token)(void *user, int64_t prompt, int32_t id);       /* each new token */
    /* New text that is certain, not terminated, valid during the call: whole characters, and nothing that is or may
     * become a stop string, nor what follows one. The last comes before on_end. */
    int (*on_text)(void *user, int64_t prompt, const char *text, size_t bytes);
    void (*on_end)(void *user, int64_t prompt, mha_ending why);
    void *user;
} mha_generate_options;

/* out [count, max_new]: the new tokens of each prompt; lengths [count]: how many. Reports progress as "generate".
 * Errors: MHA_ERR_ARG, also for a prompt that leaves no room within max_positions where positions are learned, and for
 * stop or on_text where the model was opened without a tokenizer; MHA_ERR_UNSUPPORTED for an encoder; MHA_ERR_MEMORY;
 * MHA_ERR_NOT_FINITE where the greatest logit is NaN or infinite; MHA_ERR_CANCELLED. All prompts are checked before the
 * first callback.
 * Cost: one forward pass of each prompt, in pieces, and one of a token for each step. What a prompt has in common with
 * one that runs, or ran last in its place, is not read again but shared (mha_model_cache_fork); so several
 * continuations of one prompt, given several times, cost one reading. Memory: at_once caches of the longest prompt
 * and max_new tokens. */
MHA_API mha_status mha_model_generate(const mha_model *model, const mha_prompt *prompts, int64_t count,
                                      const mha_generate_options *options, int32_t *out, int64_t *lengths,
                                      mha_error *err);

/* How well a decoder foresees a text: logprob[i] = log p(ids[i + 1] | ids[0 .. i]), natural, for i = 0 .. count - 2.
 * Their mean is minus the loss; exp of the loss is the perplexity. Runs in pieces through a cache, so memory does not
 * grow with count times vocab. Errors as mha_model_generate; also MHA_ERR_ARG for fewer than two tokens. */
MHA_API mha_status mha_model_score(const mha_model *model, const int32_t *ids, int64_t count, float *logprob,
                                   mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
