/* logit_lens.h - the logit lens (nostalgebraist 2020): the prediction that the output head of a model makes from the
 * hidden state after each layer.
 *
 *     mha_logit_lens *lens;
 *     if (mha_logit_lens_measure(model, ids, count, NULL, &lens, &err) != MHA_OK) return report(&err);
 *     int32_t guess = lens->top_ids[(entry * lens->tokens + token) * lens->top];
 *     mha_logit_lens_free(lens);
 *
 * Entry 0 is the input of layer 0, and entry n the output of layer n - 1; the last entry is the output of the model.
 * The logits of an entry are those of the whole output head: the final norm with the statistics of that hidden state,
 * in an encoder the dense layer and norm of its masked-LM head, the output matrix, scale and cap. The parts of
 * logit_attribution.h, whose norm has the scale of the last state, are not differences between entries.
 *
 * Early layers of a model with tied embeddings predict the token itself; this is the product of both matrices, not
 * knowledge of the text. A layer may also represent a prediction in directions that only later layers rotate to those
 * of the output matrix (Belrose et al. 2023), so a lens shows less than the layer contains. */
#ifndef MHA_LOGIT_LENS_H
#define MHA_LOGIT_LENS_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_logit_lens_options {
    size_t size;
    int64_t top; /* number of tokens with the largest logits, 1..vocab; 0 = 5 */
    /* [count] tokens whose probability and rank are computed, MHA_IGNORE = none; NULL = in a decoder the next token of
     * the text, and none for the last position; in an encoder the token itself */
    const int32_t *targets;
} mha_logit_lens_options;

/* Result of a lens. Arrays are valid until mha_logit_lens_free. Logarithms are natural. Only the library creates this
 * struct; later versions may add fields at the end. */
typedef struct mha_logit_lens {
    int64_t entries, tokens, top;  /* layers + 1, count, and options.top */
    const int32_t *top_ids;        /* [entries, tokens, top] in order of falling logits; of equal ones the lower id */
    const double *top_probs;       /* [entries, tokens, top] */
    const int32_t *targets;        /* [tokens]; MHA_IGNORE = none */
    const double *target_logprobs; /* [entries, tokens] log-probability of the target; NAN without a target */
    /* [entries, tokens] number of tokens with a larger logit, or an equal one and a lower id; 0 = first, -1 = no
     * target */
    const int64_t *target_ranks;
    const double *divergences; /* [entries, tokens] KL(output of the model, this entry) in nats; 0 for the last */
} mha_logit_lens;

/* Runs the model over one text of `count` tokens. `options` may be NULL. Reports progress as "lens", in tokens. The
 * context of the model must outlive the result; the model need not. The result is bitwise identical for any number of
 * threads. Errors: MHA_ERR_UNSUPPORTED for a checkpoint without logits and for encoder-decoders; MHA_ERR_ARG for an id
 * or target outside the vocabulary; those of mha_model_forward. Cost: a forward pass, and 2 E vocab operations per
 * token and entry. Memory: 4 E bytes per token and entry for the hidden states, and at most 64 MiB of logits, or two
 * rows. */
MHA_API mha_status mha_logit_lens_measure(const mha_model *model, const int32_t *ids, int64_t count,
                                          const mha_logit_lens_options *options, mha_logit_lens **out, mha_error *err);
MHA_API void mha_logit_lens_free(mha_logit_lens *lens);

#ifdef __cplusplus
}
#endif
#endif
