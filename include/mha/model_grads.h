/* model_grads.h - the backward pass of a whole model: gradients of parameters, head gates and embeddings.
 *
 *     mha_model_grads *grads;
 *     const mha_model_loss_args args = { .size = sizeof args, .labels = labels };
 *     double loss;
 *     mha_model_grads_create(model, NULL, &grads, &err);
 *     mha_model_grads_loss(grads, &input, &args, &loss, NULL, &err);             forward and backward
 *     const mha_named_tensor *g = mha_model_grads_list(grads, &count);           g[n].name, g[n].data
 *
 * For a custom loss, call mha_model_grads_forward, then mha_model_grads_backward any number of times.
 *
 * All families of model.h, pruned layers, every mask of mha_model_input and packed sequences are supported; cache,
 * fills and hidden are not. Arithmetic is float32 with the summation order of the forward pass; losses and gradients
 * of norms are summed in double. Results are bitwise identical for any number of threads. Without dropout, logits and
 * states are bitwise identical to those of mha_model_forward. The content of masked tokens does not affect any
 * gradient.
 *
 * If the model was opened in bf16, dense products use bf16 in both passes. Weights are rounded. Where the CPU
 * multiplies pairs of bf16 (AMX, AVX512-BF16), activations, their gradients and the operands of weight gradients are
 * rounded too. Sums and all other operations, including attention, are float32. Logits then differ from those of
 * mha_model_forward only because mha_model_forward also rounds q, k, v and context.
 *
 * Memory: between forward and backward, each layer keeps per token about 3 E + 2 (H + Hkv) D + I floats (2 I with a
 * gated feed-forward part), and one log-sum-exp per head. With `recompute`, each layer keeps E floats per token, and
 * all layers share memory for the other activations of one layer. Attention probabilities are never stored. Gradients
 * take 4 bytes per parameter. Cost: the backward pass takes about twice the forward pass; nearly three times with
 * `recompute`; about once with `no_parameters`. Unless gradients of embeddings are requested, the backward pass stops
 * at the heads of the first layer, or, with `attention_only`, at the projections of the first layer.
 *
 * After: Dao et al. 2022, appendix B (attention from lse); Chen et al. 2016 (recomputation); Michel et al. 2019
 * (gates). */
#ifndef MHA_MODEL_GRADS_H
#define MHA_MODEL_GRADS_H

#include "mha/layer.h"
#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients of one model, and the activations of its last forward call. Not thread-safe, but several such objects may
 * exist for one model. */
typedef struct mha_model_grads mha_model_grads;

typedef struct mha_model_grads_options {
    size_t size;
    int no_parameters; /* 1 = compute gradients of gates and embeddings only; mha_model_grads_list is empty. Halves the
                        * time */
    int recompute;     /* 1 = keep only the input of each layer, and run the layer again in the backward pass */
    /* 1 = pack the dense weights of the layers for the backward pass once, at creation, instead of in each pass: 4
     * bytes per weight, 2 in bf16. Worthwhile for many short batches, or many backward passes per forward pass.
     * Gradients are bitwise identical whether or not it is set. */
    int pack;
    int attention_only; /* 1 = compute gradients only of the attention layers' parameters: projections, and norms of q
                         * and k */
} mha_model_grads_options;

/* Creates the gradients of a model. `options` may be NULL. `model` must outlive the result. Errors: MHA_ERR_ARG for
 * a model without weights, MHA_ERR_UNSUPPORTED for a model that was opened in f16 or q8_0 (regardless of the type in
 * its file). */
MHA_API mha_status mha_model_grads_create(const mha_model *model, const mha_model_grads_options *options,
                                          mha_model_grads **out, mha_error *err);
MHA_API void mha_model_grads_free(mha_model_grads *grads);

/* Returns the gradients, float32, under the names and shapes of the parameters in the checkpoint; initially zero. Tied
 * tensors appear once, with the sum of their gradients. The list omits tensors of the file that the model does not use,
 * and constants, which are buffers in PyTorch, such as the biases that correct the routers of deepseek_v3. The input
 * row of the token that config.json names as pad_token_id (BERT, Gemma-2: 0 if absent) adds nothing to the gradient of
 * the word embeddings, as with PyTorch's padding_idx. A tied output head still adds to it. GPT-2 has no such row. */
MHA_API const mha_named_tensor *mha_model_grads_list(const mha_model_grads *grads, int64_t *count);
MHA_API void mha_model_grads_zero(mha_model_grads *grads);

/* ---- dropout ---- */

/* Dropout probabilities p, in [0, 1), per site. In a pass with gradients, each element at a site becomes 0 with
 * probability p; the remaining elements are multiplied by 1 / (1 - p) (Srivastava et al. 2014). The sites are those of
 * transformers: embd_pdrop, attn_pdrop and resid_pdrop of GPT-2; hidden_dropout_prob (embedding and residual) and
 * attention_probs_dropout_prob of BERT; attention_dropout of LLaMA, which has no other site.
 *
 * Dropout masks are not stored: they are regenerated in the backward pass, and with `recompute` in the repeated
 * forward pass. An element is dropped if x < p 2^32, where x is the first word of Philox4x32-10 (Salmon et al. 2011),
 * low word first:
 *
 *     site                                               key                counter
 *     0  sum of embeddings, after its norm               k(0, 0)            (b, 0, column, i)
 *     1  probabilities of layer n, after softmax         k(n, 1)            (b, h, i, j)
 *     2  output projection of layer n                    k(n, 2)            (b, 0, column, i)
 *     3  feed-forward output of layer n                  k(n, 3)            (b, 0, column, i)
 *     4  convolution of DeBERTa-v2, before its           k(1, 0)            (b, 0, column, i)
 *        activation, with the residual probability
 *
 * Sites 2 and 3 come after an outer norm (Gemma-2), right before the residual is added. k(n, s) is output 4 n + s + 1
 * of splitmix64 seeded with `seed`. b is the index of the sequence in the call. i and j are token indices from the
 * start of the sequence, even if sequences are packed. h counts the heads that the layer has; column is 0 .. E-1. The
 * masks are therefore the same for any number of threads, padding or packing, but the mask of a text depends on its
 * position in the batch. */
typedef struct mha_model_dropout {
    double embedding, attention, residual;
    uint64_t seed; /* must differ in each pass; otherwise the same elements are dropped again */
} mha_model_dropout;

/* Sets the dropout of all later passes; NULL or probabilities of 0 = none, the initial state. The struct is copied,
 * and a backward pass uses the dropout of its forward call. MHA_ERR_ARG for a probability outside [0, 1), naming it. */
MHA_API mha_status mha_model_grads_dropout(mha_model_grads *grads, const mha_model_dropout *dropout, mha_error *err);

/* ---- forward and backward pass for a custom loss ---- */

/* Runs mha_model_forward and keeps the activations for the backward pass. `output` may be NULL; its last_hidden,
 * pooled, logits, last_logits, embedding and on_rows are supported. All other fields, and cache, fills and hidden of
 * `input`, must be NULL (MHA_ERR_UNSUPPORTED). Arrays that `input` points to must remain unchanged until the last
 * backward call. */
MHA_API mha_status mha_model_grads_forward(mha_model_grads *grads, const mha_model_input *input,
                                           const mha_model_output *output, mha_error *err);

/* The outputs of one layer's heads, and their gradients: rows are [B, L], or those of packed sequences. Rows of masked
 * tokens are unspecified, and their gradients are zeros. If c is a head's output before its gate, context = gate c and
 *
 *     sum over rows of <context, dcontext> of a head = gate dgate = sum over rows of <v, dv>
 *
 * The last equality only holds if no other head shares the values (Michel et al. 2019).
 *
 * In an encoder-decoder, the callback is called for the self-attention of a decoder layer, then for its
 * cross-attention, and, if the encoder runs backward (for parameters or encoder_gates), for its layers. Only the
 * library creates this struct; later versions may add fields at the end. */
typedef struct mha_model_context_gradient {
    int64_t layer, rows, heads, head_dim; /* `heads` counts the heads of this layer */
    const float *context;                 /* [rows, heads head_dim] input of the output projection */
    const float *dcontext;                /* [rows, heads head_dim] */
    const float *row_taylor; /* [heads, rows] of attn_grads.h: sum over keys of |p dL/dp|; NULL unless requested */
    mha_head_kind kind;      /* kind of these heads */
} mha_model_context_gradient;

/* The gradient of a scalar with respect to the outputs of the forward call (NULL = zeros; rows of masked tokens are
 * not read), and the gradients to compute (NULL = not computed). */
typedef struct mha_model_gradient {
    size_t size;
    const float *last_hidden; /* [B, L, E] */
    const float *pooled;      /* [B, E] */
    const float *logits;      /* [B, L, vocab]; in image classifiers [B, classes], in discriminators [B, L] */
    float *gates;             /* [layers, B, H] written: gradients of gates (1 if not given); 0 for missing heads */
    float *embeddings;        /* [B, L, E] written: gradients of each token's word embedding (E: width of the table), or
                               * of the class token and the patches of an image, before positions are added */
    /* Called on the calling thread after each layer, from the last layer to the first; its data are valid during the
     * call only. Non-zero stops the backward pass with MHA_ERR_CANCELED. */
    int (*on_context)(void *user, const mha_model_context_gradient *g);
    void *user;
    int taylor; /* 1 = compute row_taylor: one more exponential per pair of tokens, 4 bytes per head and row */
    const float *last_logits; /* [B, logit_width] gradient with respect to the logits of the last real token of each
                               * sequence */
    const float *embedding;   /* [B, embedding_width] CLIP: gradient with respect to the L2-normalized embedding */
    /* Encoder-decoders, written: gradients of the gates of the cross-attention [layers, B, H], and of the encoder
     * [encoder layers, B, encoder H], as `gates`. MHA_ERR_ARG for other models. */
    float *cross_gates, *encoder_gates;
} mha_model_gradient;

/* Runs the backward pass and accumulates the gradients of parameters into the list. May be called several times
 * after one forward call. After a failure the gradients are unspecified. Errors: MHA_ERR_ARG without a forward call,
 * or for `taylor` without on_context; MHA_ERR_UNSUPPORTED for pooled or logits that the checkpoint lacks;
 * MHA_ERR_MEMORY, MHA_ERR_CANCELED. */
MHA_API mha_status mha_model_grads_backward(mha_model_grads *grads, const mha_model_gradient *gradient, mha_error *err);

/* ---- standard losses ---- */

/* Distillation from another model, the teacher: the loss is the weighted sum of these terms.
 *
 *     labels       cross entropy with the labels: a mean over labels
 *     logits       T^2 KL(p || q), where p and q are the softmax of logits / T of teacher and model: a mean over the
 *                  tokens that have a label; for encoders without labels, over all real tokens. T^2 keeps the
 *                  magnitude of the gradient independent of T (Hinton et al. 2015)
 *     hidden       (x - y)^2 of the last hidden states: a mean over real tokens and the width
 *     text         1 - cosine of the text embeddings of mha_model_embed: a mean over texts
 *
 * If all four weights are 0, labels and logits are 0.5 if both models have logits; otherwise hidden is 1. */
typedef struct mha_model_distill {
    double labels, logits, hidden, text; /* >= 0 */
    double temperature;                  /* T in 1e-3 .. 1e3; 0 = 2 */
    mha_pool pool;                       /* pooling of the text term */
} mha_model_distill;

typedef struct mha_model_loss_args {
    size_t size;
    /* [B, L] token ids, or MHA_IGNORE. A decoder's token i predicts label i + 1 (labels are the ids themselves,
     * shifted here); an encoder's token i predicts label i, and so does a token of the decoder of an encoder-decoder,
     * whose ids are the shifted labels (mha_model_shift_labels). No label is predicted from a masked token. NULL = the
     * ids of real tokens, for decoders only. Image classifiers: [B], the class of each image. Discriminators: 1 for
     * a replaced token, else 0; the loss is the binary cross entropy. */
    const int32_t *labels;
    double scale;       /* 0 = 1 / counted labels, the mean; else the loss is scale times the sum */
    float *dgates;      /* gradients of the gates, as in mha_model_gradient; NULL = not computed */
    float *dembeddings; /* gradients of the embeddings, as in mha_model_gradient; NULL = not computed */
    int (*on_context)(void *user, const mha_model_context_gradient *g); /* on_context, user, taylor: as in
                                                                           mha_model_gradient */
    void *user;
    int taylor;
    int loss_only; /* 1 = forward pass and loss only: no backward pass, no gradients, no callback */
    /* A model with any number of layers and heads and any weight type. It runs on the input without its gates and is
     * not modified. Teacher and model must have the same vocabulary size and, for `hidden` and `text`, the same width.
     * NULL = cross entropy only. */
    const mha_model *teacher;
    mha_model_distill distill;            /* only with a teacher */
    float *dcross_gates, *dencoder_gates; /* cross_gates and encoder_gates of mha_model_gradient; NULL = not computed */
    const mha_model_output *output;       /* outputs of the forward pass, as in mha_model_grads_forward; NULL = none */
} mha_model_loss_args;

/* Computes the loss and its gradients: cross entropy of the logits (layer.h), or the distillation loss of a teacher.
 * Logits, including those of the teacher, are only computed for rows that count, a chunk of rows at a time. Accumulates
 * into the list. `counted` may be NULL; it gets the number of labels or, if no term uses logits, of real tokens. If a
 * term has nothing to count (no label, token or text), the loss is NaN, and all gradients are 0, including those of
 * other terms. With `scale`, each term is scale times its sum over labels, tokens or texts.
 *
 * Cost of a teacher: its forward pass, its output head for `logits`, and memory for its last hidden states. A model
 * identical to its teacher has a loss of 0 and gradients of 0 in all terms except labels.
 *
 * Errors: MHA_ERR_ARG for a label outside the vocabulary, and for a teacher whose vocabulary, width or kind differs;
 * the errors of mha_model_grads_backward; MHA_ERR_UNSUPPORTED for a checkpoint without the logits that a term needs. */
MHA_API mha_status mha_model_grads_loss(mha_model_grads *grads, const mha_model_input *input,
                                        const mha_model_loss_args *args, double *loss, int64_t *counted,
                                        mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
