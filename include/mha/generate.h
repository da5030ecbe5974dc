/* generate.h - generates text with a decoder, token by token.
 *
 *     mha_prompt prompt = { ids, count };
 *     mha_generate_options o = { .size = sizeof o, .max_new = 64, .sampling = { .temperature = 0.8, .top_p = 0.95 } };
 *     int32_t out[64];  int64_t length;
 *     mha_model_generate(model, &prompt, 1, &o, out, &length, &err);
 *
 * Decoding is greedy unless a temperature is set. The tokens generated for a prompt do not depend on the other prompts
 * of the call or on how many prompts run together. With one prompt and PyTorch's sampling order, a seed gives the
 * tokens that transformers samples from the same logits (torch.multinomial after torch.manual_seed).
 *
 * Only eos_token_id is read from the checkpoint's generation_config.json; do_sample, temperature, top_k and its other
 * keys have no effect unless the caller sets the options here. If the file lacks eos_token_id or the value is null,
 * that of config.json applies, whereas transformers reads config.json only if the file does not exist.
 */
#ifndef MHA_GENERATE_H
#define MHA_GENERATE_H

#include "mha/model.h"
#include "mha/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options for the choice of the next token. All fields 0 = greedy. Applied in the same order as in Hugging Face
 * transformers: penalties; then, only when sampling, temperature, top_k, top_p, min_p. */
typedef struct mha_sampling {
    double temperature;        /* 0 = greedy; > 0: divisor of the logits */
    int64_t top_k;             /* 0 = off; keeps the k largest logits and all logits equal to the k-th */
    double top_p;              /* 0 = off; 0..1: keeps the smallest set whose probability reaches p, at least one token
                                  (Holtzman et al. 2020); DBL_MIN acts like 0 in transformers */
    double min_p;              /* 0 = off; 0..1: minimum probability relative to the largest (Nguyen et al. 2024) */
    double repetition_penalty; /* 0 = off; > 0: divides positive logits of earlier tokens and multiplies negative
                                  ones (Keskar et al. 2019) */
    int64_t no_repeat_ngram;   /* 0 = off; n: no sequence of n tokens may occur twice */
    uint64_t seed;
} mha_sampling;

/* Applies penalties and filters to logits [vocab] in place, given the `count` tokens so far; excluded tokens become
 * -infinity. Errors: MHA_ERR_ARG naming the field and its value, or an invalid token; MHA_ERR_MEMORY. */
MHA_API mha_status mha_sampling_apply(mha_ctx *ctx, const mha_sampling *sampling, const int32_t *ids, int64_t count,
                                      int64_t vocab, float *logits, mha_error *err);

typedef struct mha_prompt {
    const int32_t *ids; /* [count] token ids of the prompt */
    int64_t count;      /* > 0; may be 0 with `sources` (mha_generate_options) */
} mha_prompt;

/* Why generation ended for a prompt: max_new tokens, an eos token, a stop string, or a callback. */
typedef enum mha_ending { MHA_END_LENGTH = 0, MHA_END_EOS, MHA_END_STOP, MHA_END_CALLER } mha_ending;

typedef struct mha_generate_options {
    size_t size;           /* sizeof(mha_generate_options) */
    int64_t max_new;       /* 1..2^30 - 1 new tokens per prompt */
    int64_t min_new;       /* 0..max_new: no eos token is chosen before this many new tokens */
    mha_sampling sampling; /* for prompt n, tokens are sampled with a separate generator, seeded with seed + n */
    const int32_t *eos; /* [eos_count] at most 64 tokens that end a prompt and are kept; NULL = from the checkpoint */
    int64_t eos_count;  /* number of entries in eos; 0 if eos is NULL; -1 = no token ends a prompt */
    /* [stop_count] UTF-8, not empty. A prompt ends with the token that completes a stop string in its new text; the
     * token is kept. The new text is the output of mha_text_stream, without special tokens, continuing the prompt. */
    const char *const *stop;
    int64_t stop_count;
    int no_cache;    /* 1 = recompute the whole sequence for each token: slow; same results unless rotation depends on
                      * the length */
    int64_t at_once; /* maximum number of prompts that run together; 0 = 8. When one ends, the next starts */
    mha_dtype cache_dtype; /* dtype of the caches, as in mha_model_cache_options */
    /* 0 = off; 1..64 = prompt lookup: number of tokens to speculate. The speculated tokens are those that followed the
     * previous occurrence of the latest three (or two) tokens. They are verified in the forward pass of the next token,
     * so the output is the same, greedy or sampled; repetitive text is faster if the weights do not fit the CPU caches.
     * Has no effect without a cache, with sliding windows, or with rotation that depends on the length. Saxena 2023
     * (prompt lookup decoding); Leviathan et al. 2023 (speculative decoding). */
    int64_t lookup;

    /* Callbacks on the calling thread; each may be NULL. A non-zero return of on_token or on_text ends the prompt.
     * Calls for prompts that run at the same time are interleaved. */
    void (*on_prompt)(void *user, int64_t prompt, int64_t shared); /* before a prompt is processed; its first `shared`
                                                                      tokens are shared with another prompt */
    int (*on_token)(void *user, int64_t prompt, int32_t id);       /* called for each new token */
    /* New final text, not NUL-terminated, valid during the call: whole characters, excluding a stop string, any text
     * after it, and text that may become part of a stop string. The last call precedes on_end. */
    int (*on_text)(void *user, int64_t prompt, const char *text, size_t bytes);
    void (*on_end)(void *user, int64_t prompt, mha_ending why);
    void *user;

    /* Replaces the forward passes and the caches: computes the logits [vocab] of the token that follows ids [length] of
     * slot 0 .. at_once-1. The first `past` ids (length - 1, or 0 for a new prompt) are those of the slot's last call.
     * lookup and cache_dtype are then ignored. NULL = this process runs the forward passes. */
    mha_status (*forward)(void *user, int64_t slot, const int32_t *ids, int64_t length, int64_t past, float *logits,
                          mha_error *err);
    void *forward_user;
    /* Encoder-decoders: [count] source of each prompt; required. A prompt then consists of decoder_start and any tokens
     * that the text must continue; with ids NULL and count 0, of decoder_start alone. NULL for other models. */
    const mha_prompt *sources;
    /* Encoder-decoders: 1 = ignore these keys of generation_config.json, which otherwise apply as in transformers:
     * forced_bos_token_id (the first token, after a prompt of one token), forced_eos_token_id (token max_new),
     * bad_words_ids (words that are never generated), suppress_tokens (tokens that are never generated),
     * begin_suppress_tokens (tokens that are not the first token after the prompt and the forced tokens), and
     * forced_decoder_ids (pairs of a position and its token; a prompt that reaches the position takes precedence). */
    int no_rules;
    /* [count] audio features [feature_bins, 2 max_positions] of each prompt, for an encoder that reads audio (audio.h),
     * instead of `sources`; NULL for other models. */
    const float *const *features;
    /* [layers, H] factors for the output of each head, for the prompts and all new tokens: 0 removes a head. For an
     * encoder-decoder, the heads of the decoder's self-attention. Requires forward to be NULL. NULL = ones. */
    const float *gates;
} mha_generate_options;

/* Writes the new tokens of each prompt to out [count, max_new] and their number to lengths [count]. Reports progress as
 * "generate". Errors: MHA_ERR_ARG, including a prompt that leaves no position for a new token within learned
 * max_positions, and stop or on_text without a tokenizer; MHA_ERR_UNSUPPORTED for an encoder; MHA_ERR_MEMORY;
 * MHA_ERR_NOT_FINITE if the largest logit is NaN or infinite; MHA_ERR_CANCELED. All prompts are checked before the
 * first callback. Cost: one forward pass over each prompt, in chunks, and one pass of one token per step. A prefix in
 * common with a running prompt, or with the last prompt of the same slot, is shared (mha_model_cache_fork) instead of
 * processed again. To sample several continuations of one prompt, pass it several times; it is processed once. Memory:
 * at_once caches for the longest prompt plus max_new tokens. */
MHA_API mha_status mha_model_generate(const mha_model *model, const mha_prompt *prompts, int64_t count,
                                      const mha_generate_options *options, int32_t *out, int64_t *lengths,
                                      mha_error *err);

/* Scores a text: logprob[i] = log p(ids[i + 1] | ids[0 .. i]), natural logarithm, for i = 0 .. count - 2. The loss is
 * minus their mean; the perplexity is exp(loss). Runs in chunks through a cache, so memory does not grow with count
 * times vocab. Errors: those of mha_model_generate, and MHA_ERR_ARG for fewer than two tokens. */
MHA_API mha_status mha_model_score(const mha_model *model, const int32_t *ids, int64_t count, float *logprob,
                                   mha_error *err);

/* Scores from rows of last_hidden [rows, E] of a decoder: logprob[i] = log p(next[i]) given the tokens up to row i.
 * Bitwise identical to mha_model_score, unless rotation depends on the length of the text. Runs in chunks, so memory
 * does not grow with rows times vocab. Errors: MHA_ERR_ARG, MHA_ERR_UNSUPPORTED for an encoder or a checkpoint without
 * logits, MHA_ERR_MEMORY. */
MHA_API mha_status mha_model_score_hidden(const mha_model *model, const float *hidden, const int32_t *next,
                                          int64_t rows, float *logprob, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
