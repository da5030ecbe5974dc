/* logit_attribution.h - direct logit attribution: which parts of a decoder write the logit of an answer (Elhage et al.
 * 2021; nostalgebraist 2020; Wang et al. 2022).
 *
 *     mha_logit_attribution_options o = {.size = sizeof o, .position = count - 1, .answer = boat, .wrong = ring};
 *     mha_logit_attribution *a;
 *     if (mha_logit_attribution_measure(model, ids, count, &o, &a, &err) != MHA_OK) return report(&err);
 *     double part = a->heads[(MHA_LOGIT_DIFFERENCE * a->layers + layer) * a->head_count + head];
 *     mha_logit_attribution_free(a);
 *
 * The last residual r at the position is a sum of parts, and the final norm is linear once its scale is fixed:
 *
 *     r = embed + pos_embed + sum over layers of (sum over heads of z_h Wo_h^T + bo + mlp)
 *     logit of v = <U_v, gamma C r / sigma + beta> + bias_v       C = I - 1 1^T / E for LayerNorm, C = I for RMSNorm
 *     part of c  = <u, gamma C c / sigma>                         sigma = sqrt(mean((C r)^2) + eps) of the whole r
 *
 * The parts add up to the logit, up to the rounding of the forward pass; `error` is the difference, computed in every
 * call. A head's part includes its value bias, and is split by source: token j contributes A_pj v_j Wo_h^T. The output
 * bias bo belongs to no head. Where a norm follows the attention (Gemma-2, OLMo 2), parts pass through it with its
 * scale fixed; where logits are capped, the attributed logit is the one before the cap. logit_scale and
 * residual_multiplier are included.
 *
 * Effects are direct: a head that changes the input of later layers, or sigma, has these effects in the parts of
 * others. */
#ifndef MHA_LOGIT_ATTRIBUTION_H
#define MHA_LOGIT_ATTRIBUTION_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is attributed: the first dimension of all results. */
typedef enum mha_logit_target {
    MHA_LOGIT_DIFFERENCE, /* logit of the answer - logit of the wrong answer; NAN without a wrong answer */
    MHA_LOGIT_ANSWER,     /* logit of the answer. Contains a part common to all tokens, which changes no probability */
    MHA_LOGIT_CENTRED,    /* logit of the answer - mean logit over the vocabulary */
    MHA_LOGIT_TARGETS
} mha_logit_target;

typedef struct mha_logit_attribution_options {
    size_t size;
    int64_t position; /* token after which the answer is predicted, 0..count-1 */
    int32_t answer;   /* token */
    int32_t wrong;    /* token; -1 = none */
} mha_logit_attribution_options;

/* Result of an attribution. Arrays are valid until mha_logit_attribution_free. n is a mha_logit_target. Only the
 * library creates this struct; later versions may add fields at the end. */
typedef struct mha_logit_attribution {
    int64_t layers, head_count, tokens;   /* layers, largest number of heads in a layer, and count */
    double total[MHA_LOGIT_TARGETS];      /* the logits themselves, from the forward pass */
    double embed[MHA_LOGIT_TARGETS];      /* word embedding; with positions if a norm or a linear map follows */
    double pos_embed[MHA_LOGIT_TARGETS];  /* learned position embedding; 0 = none */
    double norm_bias[MHA_LOGIT_TARGETS];  /* <u, beta> of the final norm */
    double logit_bias[MHA_LOGIT_TARGETS]; /* bias of the output matrix */
    const double *heads;                  /* [n, layers, head_count]; 0 for heads that a layer lacks */
    /* [n, layers, head_count, tokens] sums over tokens are `heads`, except that the model rounds z_h to f32 */
    const double *sources;
    const double *attn_bias; /* [n, layers] output bias of the attention */
    const double *mlps;      /* [n, layers] feed-forward part, with its bias */
    double scale;            /* sigma; 1 without a final norm */
    /* Largest |sum of the parts - total|: rounding, about 1e-6 of the largest part in a model packed as f32. Larger in
     * 16-bit and 8-bit models, which round the output projection that `heads` is computed from */
    double error;
} mha_logit_attribution;

/* Runs the model over one text of `count` tokens. The context of the model must outlive the result; the model need not.
 * The result is bitwise identical for any number of threads.
 *
 * MHA_ERR_UNSUPPORTED, with the reason: post-norm models (BERT), encoders with a masked-LM head and encoder-decoders,
 * for which no exact sum exists; linear maps between layers and output matrix; models with adaptive_heads; checkpoints
 * without logits. MHA_ERR_ARG for a position or token out of range; those of mha_model_forward. Cost: a forward pass,
 * the sum of the rows of the output matrix, and 2 E H D operations per layer. Memory: that of the pass, and 24 bytes
 * per head and token. */
MHA_API mha_status mha_logit_attribution_measure(const mha_model *model, const int32_t *ids, int64_t count,
                                                 const mha_logit_attribution_options *options,
                                                 mha_logit_attribution **out, mha_error *err);
MHA_API void mha_logit_attribution_free(mha_logit_attribution *attribution);

#ifdef __cplusplus
}
#endif
#endif
