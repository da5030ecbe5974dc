/* importance.h - measures how much each attention head of a model matters on a data set, by any of the published
 * scores, and how reliable the ranking is.
 *
 *     const mha_importance_options options = { .size = sizeof options, .by = MHA_IMPORTANCE_JACOBIAN_PROBE };
 *     mha_head_data_of_texts(model, texts, count, NULL, &data, &err);
 *     mha_importance_measure(model, data, &options, &result, &err);
 *     mha_importance_value(result, layer, head);         higher = more important
 *
 * Recommended scores: for encoders `jacobian_probe`, which needs no loss and gives nearly the ranking of leave-one-out
 * ablation (rank correlation 0.98 on MiniLM) in a fraction of the time; for decoders `gate`. The other scores are for
 * comparison with published results. Some of them are poor predictors: neither confidence nor the norm of weights
 * measures importance. Every score evaluates heads one at a time, so redundant heads look useless.
 *
 * Scores in the last layers are often ten times those in the first layers, so a rule that prunes per layer should also
 * rank per layer.
 *
 * Definitions. xi is a gate on a head's output, 1 in the unmodified model. c is the head's output before the output
 * projection. A are its attention weights. L is the loss.
 *
 *     gate            sum over texts of |dL/dxi|, each text with its own gate; Michel et al. 2019
 *     gate_batch      |sum over texts of dL/dxi|: one gate for all texts. Signs cancel, so it is unstable; for
 *                     comparison only
 *     gate_layer_l2   gate / its L2 norm over the heads of the layer: ranks within layers only; Michel et al. 2019
 *     taylor_token    sum over texts and rows of |<c, dL/dc>|: per token
 *     taylor_elem     sum over texts, rows and keys of |A dL/dA|: per weight, attention times gradient
 *     gradmag         mean |dL/dWq| + mean |dL/dWk| + mean |dL/dWv| over the head's rows, without biases; heads that
 *                     share keys and values share the last two terms. A mean over batches of `batch_texts`. It depends
 *                     on the batch size, because absolute values are taken after the sum over a batch
 *     jacobian        1/2 mean over texts of |de/dxi|^2: the second order of 1 - cos(e, e without the head) for
 *                     unit-norm e. e of encoders (and of decoders without logits, and for pairs): the mean of the last
 *                     hidden states, L2-normalized. e of decoders: the log-probabilities after the last token. Exact:
 *                     one backward pass per element of e
 *     jacobian_probe  estimate of jacobian from `probes` random sign vectors u: 1/2 mean over texts and u of
 *                     (d u.e/dxi)^2
 *     loo             leave-one-out ablation: mean over texts of 1 - cos(e, e without the head), with the e of
 *                     encoders, even for decoders. The head's output is set to 0, which is equivalent to removing the
 *                     head
 *     loo_loss        L without the head - L: negative if the model is better without it
 *     loo_mean, loo_mean_loss   like loo and loo_loss, but with the head's output set to its mean over all tokens of
 *                     the data
 *     confidence      mean over rows of the largest weight; Voita et al. 2019
 *     confidence_nospecial   confidence over content rows and keys that are not special tokens, without renormalizing
 *     ov_norm         |Wo_h Wv_h| (Frobenius): from the weights alone
 *     qk_norm         |Wq_h^T Wk_h| / sqrt(D) (Frobenius): from the weights alone
 *
 * In an encoder-decoder, the data are source/target pairs (mha_head_data_of_pairs), and L is the cross entropy of the
 * tokens of the targets. Every score covers the heads of the decoder, of its cross-attention and of the encoder
 * (mha_importance_kind); confidence and confidence_nospecial are not supported.
 *
 * Sums over texts do not grow with the number of texts, since L is a mean. Over several batches, gate_* and taylor_*
 * are means over all texts.
 *
 * Values of texts are summed as integers in units of 2^-80: each value is truncated by less than 1e-24, and the sum is
 * exact. Values of at least 4e-9 keep all their bits.
 */
#ifndef MHA_IMPORTANCE_H
#define MHA_IMPORTANCE_H

#include "mha/heads.h"
#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation); docs/glossary.md explains each key, and a test checks that none is missing
 * there. */
#define MHA_IMPORTANCE_SCORE_MAP(X)                                                                                   \
    X(MHA_IMPORTANCE_GATE, "gate", "mean of each text's |dL/d gate|; needs a loss")                                   \
    X(MHA_IMPORTANCE_GATE_BATCH, "gate_batch", "|dL/d gate| of all texts together: signs cancel; needs a loss")       \
    X(MHA_IMPORTANCE_GATE_LAYER_L2, "gate_layer_l2", "gate / its norm over the layer's heads; needs a loss")          \
    X(MHA_IMPORTANCE_TAYLOR_TOKEN, "taylor_token", "sum over tokens of |<c, dL/dc>|; needs a loss")                   \
    X(MHA_IMPORTANCE_TAYLOR_ELEM, "taylor_elem", "sum over weights of |A dL/dA|; needs a loss")                       \
    X(MHA_IMPORTANCE_GRADMAG, "gradmag", "mean |gradient| of the head's rows of Wq, Wk and Wv; needs a loss")         \
    X(MHA_IMPORTANCE_JACOBIAN, "jacobian", "1/2 |d embedding / d gate|^2, exact; needs no loss")                      \
    X(MHA_IMPORTANCE_JACOBIAN_PROBE, "jacobian_probe", "jacobian, estimated with random vectors; recommended")        \
    X(MHA_IMPORTANCE_LOO, "loo", "change in the embedding if the head is removed; the reference, but slow")           \
    X(MHA_IMPORTANCE_LOO_LOSS, "loo_loss", "change in the loss if the head is removed; needs a loss")                 \
    X(MHA_IMPORTANCE_LOO_MEAN, "loo_mean", "loo with the head's output set to its mean instead of 0")                 \
    X(MHA_IMPORTANCE_LOO_MEAN_LOSS, "loo_mean_loss", "loo_loss with the head's output set to its mean; needs a loss") \
    X(MHA_IMPORTANCE_CONFIDENCE, "confidence", "mean of each row's largest weight; does not measure importance")      \
    X(MHA_IMPORTANCE_CONFIDENCE_NOSPECIAL, "confidence_nospecial",                                                    \
      "confidence, special tokens excluded; does not measure importance")                                             \
    X(MHA_IMPORTANCE_OV_NORM, "ov_norm", "norm of Wo Wv, from the weights alone")                                     \
    X(MHA_IMPORTANCE_QK_NORM, "qk_norm", "norm of Wq^T Wk, from the weights alone")

typedef enum mha_importance_score {
#define MHA__X(name, key, text) name,
    MHA_IMPORTANCE_SCORE_MAP(MHA__X)
#undef MHA__X
        MHA_IMPORTANCE_SCORES
} mha_importance_score;

/* Return the key, such as "gate", and its help text; NULL if out of range. */
MHA_API const char *mha_importance_score_key(mha_importance_score score);
MHA_API const char *mha_importance_score_help(mha_importance_score score);
/* Returns 1 for scores that need a loss, which an encoder has only with labels or pairs; 0 if out of range. */
MHA_API int mha_importance_score_needs_loss(mha_importance_score score);

/* The loss to differentiate. */
typedef enum mha_head_loss {
    MHA_LOSS_AUTO = 0, /* LM for decoders with logits, MLM for encoders with logits and labels, CLASSES for image
                        * classifiers with labels, else NONE */
    MHA_LOSS_NONE,
    MHA_LOSS_LM,     /* mean cross entropy of the next token; `labels` may exclude tokens */
    MHA_LOSS_MLM,    /* mean cross entropy of the labeled tokens */
    MHA_LOSS_PAIRS,  /* texts i and count / 2 + i have the same meaning. With e as in the jacobian of encoders and
                      S = scale E_a E_b^T: (CE(S, diagonal) + CE(S^T, diagonal)) / 2 */
    MHA_LOSS_CLASSES /* mean cross entropy of the classes of labeled images; requires an image classifier */
} mha_head_loss;

/* Returns "auto", "none", "lm", "mlm", "pairs" or "classes"; NULL if out of range. */
MHA_API const char *mha_head_loss_key(mha_head_loss loss);

typedef struct mha_importance_options {
    size_t size;
    mha_importance_score by;
    mha_head_loss loss;
    double loss_scale;   /* scale of PAIRS; 0 = 5. With 20, as in training, the loss is often too small to rank heads */
    int probes;          /* number of probes for jacobian_probe; 0 = 4, at most 4096 */
    int64_t batch_texts; /* number of consecutive texts (with PAIRS: pairs) whose loss is one mean; 0 = all */
    /* A token id or MHA_IGNORE for each token of the data, text by text: for MLM, or to exclude tokens from LM:
     * MHA_IGNORE in the entry of a predicted token excludes this token. For images: the class of each image, or
     * MHA_IGNORE. */
    const int32_t *labels;
    uint64_t seed; /* seed of the probes */
    /* > 0: stop when the ranking has converged. After each group of texts (the texts of one loss; 64 texts without a
     * loss), the ranking by the even units is compared with the ranking by the odd units (texts, pairs, or the batches
     * of gradmag). When mha_importance_halves is at least this value after two successive groups, no more texts are
     * read. At most 1; 0.95 is a good value. The texts should be in random order. */
    double settle;
    /* A file that stores the sums so far, as in mha_heads_options, so that an interrupted run can resume with a bitwise
     * identical result. Steps have at most 32 texts (64 for scores without a backward pass, unless the data are divided
     * among processes); for gradmag and PAIRS, a batch is a step. MHA_ERR_ARG if the file belongs to another model,
     * data or options. NULL = none. */
    const char *state;
} mha_importance_options;

/* Result of a measurement: the scores of all heads. Immutable. */
typedef struct mha_importance mha_importance;

/* Runs the model over the data and scores every head. `data` may be NULL for ov_norm and qk_norm. Reports progress as
 * "importance", in texts. The result is bitwise identical for any number of threads and, if the data are divided, for
 * any number of processes (mha_head_data_options.work; not with `settle`). Processes divide the steps described at
 * `state`, so gradmag and PAIRS are divided only if batch_texts is set. A loss below 0.05 logs a warning, because its
 * small gradients rank heads poorly.
 *
 * Errors: MHA_ERR_ARG for a score that needs a loss if there is none (the message names alternatives), for a loss that
 * the model or the data do not support, and for labels out of range; MHA_ERR_UNSUPPORTED for gradients of a model that
 * was opened in f16 or q8_0, and for confidence on pairs; MHA_ERR_NOT_FINITE for a score of a text that is not finite,
 * naming the text; MHA_ERR_MEMORY, MHA_ERR_CANCELED.
 *
 * Cost, in forward passes: gate_* and taylor_* 2; gradmag 2.3; jacobian_probe 1 + probes; jacobian 1 + E, or 1 + the
 * vocabulary size for decoders; confidence 1.5; loo_* H (layers + 1) / 2, since the layers below a head run only once.
 * PAIRS takes one more pass if a group has more than 1,536 tokens. Memory: what a pass with gradients stores for 512
 * tokens, with PAIRS 1,536, or one longer text (model_grads.h); 4 bytes for each dense weight; 8 bytes for each text of
 * a step and head, 16 E for each of its texts; with gradmag 4 bytes for each element of Wq, Wk, Wv and Wo; for
 * `jacobian` on decoders, 8 bytes for 64 times the vocabulary size. loo_* store no gradients, but 12 E bytes for each
 * token of a step; on pairs, 4 E bytes for each token of a batch and each layer of its side. The encoder runs again
 * only for its own heads. */
MHA_API mha_status mha_importance_measure(const mha_model *model, const mha_head_data *data,
                                          const mha_importance_options *options, mha_importance **out, mha_error *err);
MHA_API void mha_importance_free(mha_importance *importance);

/* Like mha_importance_measure, and also measures the statistics of all heads: *heads receives the result of
 * mha_heads_measure_data with `heads_options` (may be NULL). In f32, scores with a backward pass take the statistics
 * from their own forward passes, which saves one pass, and report progress only as "importance". This requires texts,
 * not images, and that work, settle, keep_maps and `state` of both options are not set; otherwise,
 * mha_heads_measure_data runs first. All results have the same bits as those of separate calls. After a failure, *out
 * and *heads are NULL. Errors and memory: those of both functions. */
MHA_API mha_status mha_importance_with_heads(const mha_model *model, const mha_head_data *data,
                                             const mha_importance_options *options,
                                             const mha_heads_options *heads_options, mha_importance **out,
                                             mha_heads **heads, mha_error *err);

/* Returns the score of one head; NAN if the layer does not have this head, or if out of range. */
MHA_API double mha_importance_value(const mha_importance *importance, int64_t layer, int64_t head);
/* Returns all scores [layers, H], where H is `heads` of mha_model_info; *count gets their number. */
MHA_API const double *mha_importance_values(const mha_importance *importance, int64_t *count);

/* The scores of one kind of heads, each [layers, H] of its side; NAN for heads that a layer does not have. */
typedef struct mha_importance_heads {
    int64_t layers, heads;             /* number of layers, and H */
    const double *values, *low, *high; /* scores, and the bounds of their intervals; valid until the scores are freed */
} mha_importance_heads;
/* Stores the scores of a kind in *heads and returns 1. Returns 0 if the model does not have the kind: only
 * encoder-decoders have cross-attention and an encoder. All other functions that return scores, except
 * mha_importance_halves and mha_importance_identity, refer to MHA_HEADS_OWN. */
MHA_API int mha_importance_kind(const mha_importance *importance, mha_head_kind kind, mha_importance_heads *heads);

/* Return the bounds of the 95 % confidence interval over units (texts, pairs, or the batches of gradmag): value -+
 * mha_student_quantile(units - 1) standard errors (mean_interval.h), at least 0 except for changes of a loss. NAN for
 * fewer than 2 units; the value itself for scores that are computed from the weights alone. */
MHA_API double mha_importance_low(const mha_importance *importance, int64_t layer, int64_t head);
MHA_API double mha_importance_high(const mha_importance *importance, int64_t layer, int64_t head);
/* Returns Spearman's rank correlation, over all heads, of the scores from even units with the scores from odd units:
 * near 1 if other texts would give the same ranking. NAN for fewer than 2 units; 1 for scores that are computed from
 * the weights alone. */
MHA_API double mha_importance_halves(const mha_importance *importance);

/* Returns the mean loss over batches; NAN for scores that need no loss. */
MHA_API double mha_importance_loss(const mha_importance *importance);
/* Returns 1 if the loss is below 0.05. */
MHA_API int mha_importance_saturated(const mha_importance *importance);
/* Checks the library on this model: the gradient of each gate is also computed as sum <c, dL/dc>, and for gradmag as
 * <Wo, dL/dWo> and <Wv, dL/dWv> + <bv, dL/dbv> (if no other head shares these values). In exact arithmetic, these
 * values are equal before absolute values are taken. For each head, sums the largest difference between these values,
 * and |gradient|, over the steps described at `state`. Returns the maximum over heads of the summed differences,
 * divided by the maximum over heads of the summed |gradient|; rounding alone gives about 1e-6. Returns NAN for scores
 * that need no loss. */
MHA_API double mha_importance_identity(const mha_importance *importance);
/* Returns the number of texts read, which is smaller than given if the ranking converged early. */
MHA_API int64_t mha_importance_texts_used(const mha_importance *importance);

/* ---- pairs of heads ---- */

/* Ablates every pair of heads. out [N, N], where N = layers * H, receives the change in the loss (or in the distance,
 * if there is no loss) with both heads removed; on the diagonal, with one head removed. Reads from `options` the loss,
 * its labels and batches, and `by`, which only selects 0 or the mean (loo_mean, loo_mean_loss) for removed heads. The
 * change beyond the sum of the two single changes is the redundancy of the two heads, which scores of single heads
 * cannot measure. Symmetric; NAN for heads that a layer does not have. Reports progress as "pairs", in texts. Errors:
 * those of mha_importance_measure; MHA_ERR_UNSUPPORTED for encoder-decoders. Cost: about N^2 / 6 forward passes.
 * Memory: 8 E floats for each token of a batch of texts that share a loss. */
MHA_API mha_status mha_importance_pairs(const mha_model *model, const mha_head_data *data,
                                        const mha_importance_options *options, double *out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
