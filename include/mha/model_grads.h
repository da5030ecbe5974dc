/* model_grads.h - the way back through a whole model: gradients of every parameter, of head gates, of embeddings.
 *
 *     mha_model_grads *grads;
 *     const mha_model_loss_args args = { .size = sizeof args, .labels = labels };
 *     double loss;
 *     mha_model_grads_create(model, NULL, &grads, &err);
 *     mha_model_grads_loss(grads, &input, &args, &loss, NULL, &err);             forward, loss, and back
 *     const mha_named_tensor *g = mha_model_grads_list(grads, &count);           g[n].name, g[n].data
 *
 * or, with a loss of one's own, mha_model_grads_forward and then mha_model_grads_backward as often as wanted.
 *
 * All families of model.h, pruned layers, every mask of mha_model_input, packed sequences; no cache, fills or hidden.
 * Arithmetic is float32 with the sums of the forward pass; losses and gradients of norms are summed in double. The same
 * bits for any number of threads; without dropout, logits and states have the bits of mha_model_forward. What masked
 * tokens hold reaches no gradient.
 *
 * Of a model that was opened in bf16, dense products are made in bf16 in both directions: weights are rounded, and
 * where the CPU multiplies pairs of bf16 (AMX, AVX512-BF16), so is what meets them there, the gradients that go back,
 * and what gradients of weights are made of; sums are float32, and so is all else, attention too. Logits are then those
 * of mha_model_forward but for its rounding of q, k, v and context.
 *
 * Memory: between forward and backward, for each layer and token, about 3 E + 2 (H + Hkv) D + I floats (2 I with a
 * gated feed-forward part), and one log-sum-exp per head; with `recompute` E, and the rest once. Attention
 * probabilities are never kept. Gradients: 4 bytes for each parameter.
 * Cost: back about twice forward; nearly three times with `recompute`; about once with `no_parameters`. Without a
 * gradient of embeddings it goes no further than the heads of the first layer, or, with `attention_only`, its
 * projections.
 *
 * After: Dao et al. 2022, appendix B (attention from lse); Chen et al. 2016 (recomputation); Michel et al. 2019
 * (gates).
 */
#ifndef MHA_MODEL_GRADS_H
#define MHA_MODEL_GRADS_H

#include "mha/layer.h"
#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients of one model, and what its last forward call left behind. For one thread at a time; several may belong to
 * one model. */
typedef struct mha_model_grads mha_model_grads;

typedef struct mha_model_grads_options {
    size_t size;
    int no_parameters; /* 1 = gates and embeddings alone: the list is empty, and about half of the way back is saved */
    int recompute;     /* 1 = keep only each layer's input, and run the layer again on the way back */
    /* 1 = dense weights of the layers are packed for the way back now, not each time: 4 bytes each, 2 in bf16. For many
     * short batches, or many ways back from one. No bit of a gradient depends on it. */
    int pack;
    int attention_only; /* 1 = of parameters, those of the attention layers alone: projections and norms of q and k */
} mha_model_grads_options;

/* `options` may be NULL. `model` must outlive it. MHA_ERR_ARG for a model without weights,
 * MHA_ERR_UNSUPPORTED for one that was opened in f16 or q8_0 (what its file holds does not matter). */
MHA_API mha_status mha_model_grads_create(const mha_model *model, const mha_model_grads_options *options,
                                          mha_model_grads **out, mha_error *err);
MHA_API void mha_model_grads_free(mha_model_grads *grads);

/* The gradients, float32, under the names and shapes of the parameters in the checkpoint; zeros at first. Tied tensors
 * appear once, with the sum. Tensors of the file that the model does not use are not in the list. The token that
 * config.json names as pad_token_id (BERT, Gemma-2: 0 where it says nothing) adds nothing to its row of the table of
 * words when it is read, as with PyTorch's padding_idx; a tied head of logits still does. GPT-2 has no such row. */
MHA_API const mha_named_tensor *mha_model_grads_list(const mha_model_grads *grads, int64_t *count);
MHA_API void mha_model_grads_zero(mha_model_grads *grads);

/* ---- dropout ---- */

/* The share p, in [0, 1), of the numbers at each place that becomes 0 in a pass with gradients; the others are
 * multiplied by 1 / (1 - p) (Srivastava et al. 2014). The places are those of transformers: embd_pdrop, attn_pdrop and
 * resid_pdrop of GPT-2; hidden_dropout_prob (embedding and residual) and attention_probs_dropout_prob of BERT;
 * attention_dropout of LLaMA, which has no other.
 *
 * Nothing is kept of what was dropped: it is drawn again on the way back, and with `recompute` on the way there. A
 * number is dropped if x < p 2^32, where x is the first word of Philox4x32-10 (Salmon et al. 2011), low word first:
 *
 *     site                                                               key                counter
 *     0  the sum of embeddings, behind its norm                          k(0, 0)            (b, 0, column, i)
 *     1  probabilities of layer n, behind softmax                        k(n, 1)            (b, h, i, j)
 *     2  what the output projection of layer n gave                      k(n, 2)            (b, 0, column, i)
 *     3  what the feed-forward part of layer n gave                      k(n, 3)            (b, 0, column, i)
 *
 * where 2 and 3 come behind an outer norm (Gemma-2), last before the residual is added. k(n, s) is number 4 n + s + 1
 * of splitmix64 from `seed`. b is the sequence of the call, i and j are tokens, counted from its start, also where
 * sequences are packed; h counts the heads that the layer has, and column those of E. So the same bits come for any
 * number of threads, padding or packing, but not for a text at another place of a batch. */
typedef struct mha_model_dropout {
    double embedding, attention, residual;
    uint64_t seed; /* another one for each pass, or the same numbers are dropped again */
} mha_model_dropout;

/* For all passes from now on; NULL or shares of 0: none, as at first. It is copied, and a way back has that of its
 * forward call. MHA_ERR_ARG for a share that is not in [0, 1), naming it. */
MHA_API mha_status mha_model_grads_dropout(mha_model_grads *grads, const mha_model_dropout *dropout, mha_error *err);

/* ---- in steps ---- */

/* As mha_model_forward, and keeps what the way back needs. `output` may be NULL; its last_hidden, pooled, logits and
 * last_logits are served, the rest must be NULL (MHA_ERR_UNSUPPORTED), and so must cache, fills and hidden of `input`.
 * Arrays that it points to must stay as they are until the last backward call. */
MHA_API mha_status mha_model_grads_forward(mha_model_grads *grads, const mha_model_input *input,
                                           const mha_model_output *output, mha_error *err);

/* What one layer's heads gave, and the gradient of it: rows are [B, L], or those of packed sequences. Rows of masked
 * tokens hold no meaning, and their gradients are zeros. With c a head's output before its gate, context = gate c, and
 *
 *     sum over rows of <context, dcontext> of a head = gate dgate = sum over rows of <v, dv>
 *
 * (the last where no other head shares its values; Michel et al. 2019). */
typedef struct mha_model_context_gradient {
    int64_t layer, rows, heads, head_dim; /* the heads that this layer has */
    const float *context;                 /* [rows, heads head_dim] what the output projection read */
    const float *dcontext;                /* [rows, heads head_dim] */
    const float *row_taylor; /* [heads, rows] of attn_grads.h: sum over keys of |p dL/dp|; NULL unless asked for */
} mha_model_context_gradient;

/* The gradient of some number with respect to what the forward call gave (NULL = zeros; rows of masked tokens are not
 * read), and where to write it with respect to other things (NULL = not wanted). */
typedef struct mha_model_gradient {
    size_t size;
    const float *last_hidden; /* [B, L, E] */
    const float *pooled;      /* [B, E] */
    const float *logits;      /* [B, L, vocab] */
    float *gates;      /* [layers, B, H] written: of input->gates, also of ones; 0 where a layer has no such head */
    float *embeddings; /* [B, L, E] written: of each token's row of the table of words */
    /* Called on the calling thread behind each layer, the last one first, with what is valid during the call only.
     * Non-zero stops the way back: MHA_ERR_CANCELLED. */
    int (*on_context)(void *user, const mha_model_context_gradient *g);
    void *user;
    int taylor; /* 1 = with row_taylor: one more exponential for each pair of tokens, 4 bytes for each head and row */
    const float *last_logits; /* [B, vocab] of each sequence's last real token */
} mha_model_gradient;

/* Adds to the list. May be called several times after one forward call. After a failure the gradients are unspecified.
 * Errors: MHA_ERR_ARG without a forward call, or for `taylor` without on_context; MHA_ERR_UNSUPPORTED for pooled or
 * logits that the checkpoint lacks; MHA_ERR_MEMORY, MHA_ERR_CANCELLED. */
MHA_API mha_status mha_model_grads_backward(mha_model_grads *grads, const mha_model_gradient *gradient, mha_error *err);

/* ---- with the usual loss ---- */

/* What a model learns from another one, its teacher: the loss is the sum of these terms, each times its weight here.
 *
 *     labels       cross entropy with the labels: a mean over them
 *     logits       T^2 KL(p || q), p and q being the softmax of logits / T of teacher and model: a mean over the tokens
 *                  that have a label, of encoders without labels over all real tokens. T^2 keeps the size of its
 *                  gradient whatever T is (Hinton et al. 2015)
 *     hidden       (x - y)^2 of the last hidden states: a mean over real tokens and the width
 *     text         1 - cosine of the vectors of texts that mha_model_embed makes: a mean over texts
 *
 * All four 0: labels and logits are 0.5 where both have logits; else hidden is 1. */
typedef struct mha_model_distill {
    double labels, logits, hidden, text; /* >= 0 */
    double temperature;                  /* T in 1e-3 .. 1e3; 0 = 2 */
    mha_pool pool;                       /* of text */
} mha_model_distill;

typedef struct mha_model_loss_args {
    size_t size;
    /* [B, L] of token ids, or MHA_IGNORE. A decoder's token i is asked for label i + 1 (labels are the ids themselves,
     * shifted here); an encoder's for label i. Masked tokens are asked for none. NULL: the ids of real tokens, for
     * decoders alone. */
    const int32_t *labels;
    double scale;       /* 0 = 1 / counted labels, the mean; else the loss is scale times the sum */
    float *dgates;      /* as gates in mha_model_gradient */
    float *dembeddings; /* as embeddings in mha_model_gradient */
    int (*on_context)(void *user, const mha_model_context_gradient *g); /* with the next two as in mha_model_gradient */
    void *user;
    int taylor;
    int loss_only; /* 1 = forward and the loss, but no way back: nothing is added, and nobody is called */
    /* Of any number of layers, heads, and bits; it sees the input without its gates, and nothing of it changes. Its
     * tokens are those of the model: the vocabulary must be as large, and for `hidden` and `text` the width the same.
     * NULL = cross entropy alone. */
    const mha_model *teacher;
    mha_model_distill distill; /* with a teacher */
} mha_model_loss_args;

/* Cross entropy of the logits (layer.h), or what a teacher makes of it. Logits, the teacher's too, exist only for the
 * rows that count, and for some of them at a time. Adds to the list; `counted` may be NULL: labels, or where the logits
 * are in no term, real tokens. A loss with a term that has nothing to count (no label, token, text) is NaN, and its
 * gradients are zeros, those of other terms too. With `scale` each term is scale times its sum over labels, tokens or
 * texts.
 * A teacher costs its forward pass and, for `logits`, its own head of logits, and memory for its last hidden states; a
 * model that equals its teacher has a loss of 0 and gradients of 0 in all terms but that of the labels.
 * Errors: MHA_ERR_ARG for a label outside the vocabulary, for a teacher of another vocabulary, width or kind, and as
 * those of backward; MHA_ERR_UNSUPPORTED for a checkpoint without the logits that a term needs. */
MHA_API mha_status mha_model_grads_loss(mha_model_grads *grads, const mha_model_input *input,
                                        const mha_model_loss_args *args, double *loss, int64_t *counted,
                                        mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
