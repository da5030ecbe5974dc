/* layer.h - the layers: the parts of a transformer, and every published variant of attention.
 *
 *     linear, norm, activation, embedding, loss         below: functions on rows, forward and backward
 *     mha_attn_layer, mha_block                         below: attention and a whole block as models run them
 *     self-attention, causal, stacked heads,            variants.h, which this header includes: a constructor for
 *     weight-split, q/k/v, standard MHA, GQA and MQA,   each, and what they share: initialization, forward,
 *     LLaMA, MoE heads, head pruning, adaptive heads    backward, parameters, save and load, the trace
 *
 * The functions below are thin and work on float32 rows. x and y are row-major and contiguous: [rows, width]. A row's
 * result does not depend on how many rows are computed with it, nor on the number of threads, to the bit.
 *
 * Shapes: E model width ("hidden"), H query heads, Hkv key/value heads, D head width, I width of the feed-forward part,
 * B sequences of L tokens.
 *
 * Everything made here copies or packs the weights it is given, so they may be freed afterwards; it is immutable
 * and any number of threads may run it at once. `ctx` must outlive it.
 * Common errors: MHA_ERR_ARG for a NULL pointer, a size < 1 or a wrong value, naming it; MHA_ERR_UNSUPPORTED for what
 * is not built yet, naming it; MHA_ERR_MEMORY. The way back through mha_attn_layer and mha_block is that of the model
 * which has their weights (model_grads.h); the variants have one of their own.
 *
 * A BERT layer with these parts is one mha_block; examples are in tests/unit/layer/test_layer_block.c.
 */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "mha/cache.h"
#include "mha/rope.h"
#include "mha/variants.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- activation ---- */

typedef enum mha_activation {
    MHA_ACT_NONE = 0,
    MHA_ACT_GELU,      /* x/2 (1 + erf(x / sqrt 2))                          "gelu" */
    MHA_ACT_GELU_TANH, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))      "gelu_new", "gelu_pytorch_tanh" */
    MHA_ACT_RELU,      /* max(x, 0); NaN stays NaN */
    MHA_ACT_TANH,
    MHA_ACT_SILU,       /* x / (1 + e^-x)                                            "silu", "swish" */
    MHA_ACT_QUICK_GELU, /* x / (1 + e^-1.702x), within 0.021 of GELU                 "quick_gelu" */
    MHA_ACT_SIGMOID,    /* 1 / (1 + e^-x) */
    MHA_ACT_SOFTPLUS    /* log(1 + e^x) */
} mha_activation;

/* Applies it in place to x [rows, width]. Cost: one pass over x. */
MHA_API mha_status mha_activation_forward(mha_ctx *ctx, mha_activation activation, int64_t rows, int64_t width,
                                          float *x, mha_error *err);

/* dx = dy f'(x) of the x that went in; all [rows, width]. dx may be exactly x or exactly dy. Where a ReLU cut off, dx
 * is 0 whatever dy is. Cost: one pass over the three. */
MHA_API mha_status mha_activation_backward(mha_ctx *ctx, mha_activation activation, int64_t rows, int64_t width,
                                           const float *x, const float *dy, float *dx, mha_error *err);

/* ---- linear ---- */

/* A weight matrix and its bias, as a checkpoint stores them: weight [out, in] (PyTorch's nn.Linear), or [in, out] when
 * `transposed` (GPT-2's Conv1D). bias [out] or NULL. */
typedef struct mha_matrix {
    const float *weight;
    const float *bias;
    int transposed;
    int64_t out;      /* rows of W; read by mha_linear_create_stack only */
    mha_dtype packed; /* what it is packed as: f32 (default), bf16, f16 or q8_0 */
} mha_matrix;

/* y = act(x W^T + b). The weights are packed at creation: in * out numbers, padded to whole panels (kernel.h).
 * Each number of y is one chain of fused multiply-adds from b upwards over k = 0 .. in-1.
 *
 * Packed in fewer bytes, weights are rounded to nearest, once: bf16 keeps 8 bits, f16 11 (beyond 65504: Inf), q8_0 8
 * for each 32 inputs with one f16 scale. That halves or quarters their memory and the time for a few rows, which is
 * that of reading them. x and all sums stay f32. But for bf16 on the ISAs amx and avx512bf16 (ctx.h): there x is
 * rounded to bf16 as well, and products are faster, with tiles several times. Either way bits follow from the row and
 * the weights alone. */
typedef struct mha_linear mha_linear;

/* weight [out, in], bias [out] or NULL. Packing reads the weights once, on all threads. */
MHA_API mha_status mha_linear_create(mha_ctx *ctx, int64_t in, int64_t out, const float *weight, const float *bias,
                                     mha_linear **linear, mha_error *err);
/* Several matrices with one input, computed as one: y = [x W0^T + b0 | x W1^T + b1 | ...], each as wide as its `out`.
 * `activation` is applied to all of y while it is still in the cache. */
MHA_API mha_status mha_linear_create_stack(mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count,
                                           mha_activation activation, mha_linear **linear, mha_error *err);
MHA_API void mha_linear_free(mha_linear *linear);

/* x [rows, in] -> y [rows, out]; rows >= 0; they must not overlap. Allocates nothing, but where x is rounded 2 bytes
 * for each number of it. Cost: 2 rows in out operations; for a few rows, one read of the packed weights. */
MHA_API mha_status mha_linear_forward(const mha_linear *linear, const float *x, int64_t rows, float *y, mha_error *err);

/* Gradients of y = x W^T + b: dx = dy W, dweight += dy^T x, dbias += column sums of dy. */
typedef struct mha_linear_gradient {
    size_t size;       /* sizeof(mha_linear_gradient) */
    int64_t rows, in;  /* rows >= 0 */
    mha_matrix matrix; /* `weight` is read for dx alone, `bias` never; `transposed` and `out` are read */
    const float *x;    /* [rows, in]  read for dweight alone */
    const float *dy;   /* [rows, out] */
    float *dx;         /* [rows, in]  replaced; NULL = not wanted */
    float *dweight;    /* as the weight is stored; added to; NULL = not wanted */
    float *dbias;      /* [out] added to; NULL = not wanted */
} mha_linear_gradient;

/* Works on weights as a checkpoint stores them, not on packed ones: training changes them anyway. Allocates memory for
 * packed operands. Cost: 2 rows in out operations for each of dx and dweight. Bits as invariant as those of y. */
MHA_API mha_status mha_linear_backward(mha_ctx *ctx, const mha_linear_gradient *gradient, mha_error *err);

/* ---- normalisation ---- */

typedef enum mha_norm_kind {
    MHA_NORM_LAYER = 0, /* (x - mean) / sqrt(var + eps) * weight + bias, biased variance */
    MHA_NORM_RMS        /* x / sqrt(mean(x^2) + eps) * weight; Zhang & Sennrich 2019 */
} mha_norm_kind;

/* A norm over rows of some width. weight NULL: no norm at all, where one is optional. */
typedef struct mha_norm {
    const float *weight, *bias; /* [width]; MHA_NORM_RMS has no bias */
    double eps;                 /* > 0 */
    mha_norm_kind kind;
} mha_norm;

/* y = norm(x + residual) over each row of `width` numbers. residual [rows, width] or NULL. y may be exactly x or
 * exactly residual. */
MHA_API mha_status mha_norm_forward(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t width, const float *x,
                                    const float *residual, float *y, mha_error *err);

/* Gradients of y = norm(x), where x is what the norm read: x + residual, if there was one. */
typedef struct mha_norm_gradient {
    size_t size;         /* sizeof(mha_norm_gradient) */
    int64_t rows, width; /* rows >= 0 */
    const float *x;      /* [rows, width] */
    const float *dy;     /* [rows, width] */
    float *dx;           /* [rows, width] may be exactly dy; NULL = not wanted */
    int add;             /* 1 = dx is added to (and is not dy); 0 = replaced */
    float *dweight;      /* [width] added to; NULL = not wanted */
    float *dbias;        /* [width] likewise; RMSNorm has none: there, the sum of dy */
} mha_norm_gradient;

/* Sums are in double, cut by the number of rows alone. Allocates up to 64 width doubles for dweight and dbias. */
MHA_API mha_status mha_norm_backward(mha_ctx *ctx, const mha_norm *norm, const mha_norm_gradient *gradient,
                                     mha_error *err);

/* ---- loss ---- */

/* Cross entropy of rows of logits with the class that each should have:
 *
 *     loss = scale * sum over counted rows of (log sum_c exp(logits[c]) - logits[label])
 *
 * A row whose label is MHA_IGNORE is not counted, and its logits are not read. */
#define MHA_IGNORE (-100)

typedef struct mha_cross_entropy_args {
    size_t size;           /* sizeof(mha_cross_entropy_args) */
    int64_t rows, classes; /* rows >= 0, classes > 0 */
    const float *logits;   /* [rows, classes] */
    const int32_t *labels; /* [rows] 0..classes-1, or MHA_IGNORE */
    double scale;          /* 0 = 1 / counted rows: the mean, NaN when no row counts (as PyTorch has it) */
    float *dlogits;        /* [rows, classes] gradient of loss, zeros where not counted; may be exactly logits; NULL */
} mha_cross_entropy_args;

/* Stores the loss, summed in double, and how many rows counted; either may be NULL. All labels are checked first:
 * another one is MHA_ERR_ARG naming its row and value. Cost: two passes over logits, and an exponential for each;
 * allocates a double for each row. */
MHA_API mha_status mha_cross_entropy(mha_ctx *ctx, const mha_cross_entropy_args *args, double *loss, int64_t *counted,
                                     mha_error *err);

/* ---- embedding ---- */

/* y[r] = table[ids[r]], or y[r] += with `add`; table [count, width], y [rows, width]. All ids are checked first: one
 * outside 0 .. count-1 is MHA_ERR_ARG naming `what`, its place and its value, and nothing has been written. */
MHA_API mha_status mha_embedding_forward(const char *what, const float *table, int64_t count, int64_t width,
                                         const int32_t *ids, int64_t rows, int add, float *y, mha_error *err);

/* dtable[ids[r]] += dy[r]: rows in order, so a token that appears twice adds up in one order. */
MHA_API mha_status mha_embedding_backward(const char *what, float *dtable, int64_t count, int64_t width,
                                          const int32_t *ids, int64_t rows, const float *dy, mha_error *err);

/* ---- attention layer ---- */

/* out = concat over h of Attention(x Wq^T, x Wk^T, x Wv^T)_h  Wo^T + bo
 *
 * q, k and v are computed by one fused projection into one buffer [B L, H D + 2 Hkv D], whose strided views go straight
 * to the operator (attn.h); heads are never copied or transposed. Layers of one model may differ in their head
 * counts. */
typedef struct mha_attn_layer mha_attn_layer;

/* Which heads a sequence gets, where a layer chooses. */
typedef enum mha_choice {
    MHA_CHOICE_NONE = 0, /* all */
    MHA_CHOICE_EXPERTS,  /* a mixture of experts, which are the heads: gates are the softmax of the scores of the kept
                            heads. As mha_moe_heads of variants.h with MHA_EXPERT_SLOT */
    MHA_CHOICE_HEADS,    /* dynamic head pruning, as mha_head_pruning: gates by `selection` */
    MHA_CHOICE_OPTIONS   /* into how many heads the H D columns are cut, as mha_adaptive_heads; one gate for all of
                            them by `selection` */
} mha_choice;

/* Heads by choice inside a layer of a model:
 *
 *     score = W m + b,  of options W relu(W' m + b') + b,  m the mean of the layer's input over the real tokens
 *
 * of a sequence, in double. The `keep` heads of the greatest scores, of equal ones the first, get a gate each, the
 * others one of 0; of options the one of the greatest score is taken. A score that is no number is greater than all,
 * so that it does not hide.
 * Gates of the call (mha_layer_input) multiply these. Since m is of all tokens, there is no choice for causal layers,
 * where it would tell a token of later ones. Heads with a gate of 0 are not computed: not their attention and, in f32
 * with weights [out, in], not their projections. All are computed if the call asks for probs, stats, on_rows or
 * activations.
 *
 * With options each sequence is a call of the operator, with a plan and a workspace that are allocated for it, and
 * nothing of single heads may be wanted or given: MHA_ERR_UNSUPPORTED for gates, probs, stats, on_rows, and masks that
 * are not the same for all heads. */
typedef struct mha_layer_choice {
    mha_choice of;
    mha_selection selection; /* gates, and how W and b learn (variants.h); not of MHA_CHOICE_EXPERTS */
    int64_t keep;            /* 1..H; not of options */
    mha_matrix score;        /* W, b [H, E], [options, P]; both needed, copied; `packed` and `out` are not read */
    mha_matrix hidden;       /* W', b' [P, E] of options, likewise; `out` = P */
    int64_t options[MHA_HEAD_OPTIONS]; /* [option_count] each divides H D; not with shared keys, rope, norms, slopes */
    int64_t option_count;
} mha_layer_choice;

typedef struct mha_attn_layer_options {
    size_t size;                  /* sizeof(mha_attn_layer_options) */
    int64_t hidden;               /* E   > 0 */
    int64_t heads;                /* H   > 0 */
    int64_t kv_heads;             /* Hkv 0 = H; else divides H */
    int64_t head_dim;             /* D   0 = E / H (which must divide); else 1..MHA_HEAD_DIM_MAX */
    mha_matrix q, k, v;           /* to H D, Hkv D, Hkv D numbers; `out` is not read */
    mha_matrix qkv;               /* the three in one, H D + 2 Hkv D numbers (GPT-2); q, k and v are empty then */
    mha_matrix o;                 /* from H D to E */
    mha_norm q_norm, k_norm;      /* over D, of each head of q and k before rotation (Qwen3); weight NULL: none */
    const mha_rope_options *rope; /* rotates q and k; NULL: not. Its head_dim is D */
    double scale, softcap;        /* as in mha_attn_desc */
    int causal;                   /* row i sees keys j <= i */
    mha_window window;            /* as in mha_attn_desc */
    mha_dtype dtype; /* what q, k and v are rounded to on their way into the operator, and its output: f32 (default),
                        bf16 or f16. A cache stores keys and values in its own type */
    /* Hv, where there are other numbers of key and of value heads: 0 = Hkv, which then counts both; else divides H.
     * Query head h reads key head h / (H / Hkv) and value head h / (H / Hv). v has Hv D numbers then, and qkv
     * (H + Hkv + Hv) D. The operator, and a cache, get the least common multiple of both counts: rows of k and v are
     * repeated behind the projection. */
    int64_t v_heads;
    /* [H] ALiBi (Press et al. 2022): slopes[h] |i - j| is taken from the score of row i and key j; copied. NULL: no. */
    const float *slopes;
    mha_layer_choice choice; /* not with `causal` */
} mha_attn_layer_options;

MHA_API mha_status mha_attn_layer_create(mha_ctx *ctx, const mha_attn_layer_options *options, mha_attn_layer **layer,
                                         mha_error *err);
MHA_API void mha_attn_layer_free(mha_attn_layer *layer);

/* Where to copy what attention holds between its projections, as f32 whatever the type it works in; NULL = not wanted.
 * Rows of padding are written as well, and hold no meaning. */
typedef struct mha_layer_activations {
    float *input;   /* [B L, E] what q, k and v are made of; in a block behind the pre-norm, where there is one */
    float *qkv;     /* [B L, (H + 2 Hkv) D] rows q | k | v as the operator reads them: normed and rotated. With a cache
                       those of this call, before they are stored */
    float *context; /* [B L, H D] what the output projection reads: gate times the head's output, plus its fill */
    float *out;     /* [B L, E] what the output projection gives, its bias included */
} mha_layer_activations;

/* The tokens of one call and who may see whom; shared by attention layer and block. Masks compose by AND. */
typedef struct mha_layer_input {
    size_t size;            /* sizeof(mha_layer_input) */
    int64_t batch, length;  /* B, L > 0 */
    const int64_t *lengths; /* [B] 0..L: tokens beyond are padding: unseen as keys, rows without meaning. NULL = L */
    mha_cview keep;   /* [B, H, L, L] of bytes, non-zero = may be seen; zero strides broadcast; data NULL = none */
    mha_cache *cache; /* keys and values of earlier tokens, which this call's are appended to; NULL = none. Sequences
                               are those of the cache, `lengths` may leave some without a token; no keep */
    int64_t sequence; /* with batch 1: which one of a cache of several */
    const float *cos, *sin; /* [B L, R/2] from mha_rope_angles, for the positions of all tokens; where there is rope */
    mha_cview gates;        /* [B, H] of f32, factors on each head's output; zero strides broadcast; data NULL = none */
    float *probs;           /* written: [B, H, L, K] probabilities, see below; NULL = not wanted */
    /* Several sequences one behind another, without padding: batch is 1, length that of all, and sequence n is rows
     * starts[n] to starts[n + 1]. None sees another. No lengths, keep or cache; NULL = one sequence a batch. */
    const int64_t *starts; /* [sequences + 1] ascending from 0 to length */
    int64_t sequences;
    void *workspace; /* 64-byte aligned, from the _workspace function; NULL = allocated for this call */
    size_t workspace_bytes;
    /* What is wanted of the attention itself; the output has the same bits with it and without. K is L; with a cache L
     * and the tokens of its longest sequence of this call before it; with starts, probs are [sequences, H, M, M] of the
     * longest sequence, M, and what lies beyond a shorter one is not written. */
    const int32_t *map_heads; /* [map_count] the heads of `probs`, in this order, and of on_rows; NULL = all */
    const int64_t *map_rows;  /* [B, map_row_count] the rows of each sequence in place of L, as in attn.h; NULL = all */
    int64_t map_count, map_row_count;
    const mha_attn_stats *stats; /* statistics of rows and keys (stats.h), in any strides; NULL = none */
    int64_t top_keys;            /* of stats->top_* */
    /* [B, L] with stats: where 0 the row sees no key, so that `received` counts the others alone. Needed besides
     * `keep`, which speaks of keys; NULL = all rows count. */
    const uint8_t *rows;
    const float *fills; /* [H, D] added to each head's gated output of every token; NULL = zeros */
    const mha_layer_activations *activations; /* written; NULL = not wanted */
    /* [B L, H D] what the output projection reads, in place of all before it: no queries, keys, values, gates or fills;
     * nothing of the attention itself can be wanted then. NULL = computed from x. */
    const float *context;
    const mha_attn_visitor *on_rows; /* is shown rows of probabilities, those of map_heads and map_rows; NULL = none */
    /* [B, L] of a call that chooses heads: non-zero = counts in the mean. NULL = all tokens within `lengths` */
    const uint8_t *real;
    uint8_t *kept; /* [sequences, H], of options [sequences, options]; written where a layer has a choice: 1 = kept */
} mha_layer_input;

/* x [B L, E] -> y [B L, E]; they must not overlap. Makes a plan of the operator for this shape.
 * Cost: 2 B L E (2 H + 2 Hkv) D operations and the operator's own. */
MHA_API mha_status mha_attn_layer_forward(const mha_attn_layer *layer, const mha_layer_input *input, const float *x,
                                          float *y, mha_error *err);
/* Bytes that a forward call with this input needs; input->workspace is not read. */
MHA_API mha_status mha_attn_layer_workspace(const mha_attn_layer *layer, const mha_layer_input *input, size_t *bytes,
                                            mha_error *err);

/* ---- block ---- */

/* One layer of a transformer, with mlp(x) = down(act(up(x))), or down(act(gate(x)) * up(x)) where there is a gate:
 *     post-norm (BERT)    x = attn_norm(x + attention(x));   x = mlp_norm(x + mlp(x))
 *     pre-norm  (GPT-2)   x = x + attention(attn_norm(x));   x = x + mlp(mlp_norm(x))
 *     both      (Gemma-2) x = x + attn_out_norm(attention(attn_norm(x)));   x = x + mlp_out_norm(mlp(mlp_norm(x)))
 * A block may also be attention alone, the first half of these: intermediate is 0 then, no weight of the second half
 * is given, and its norms are not read. */
typedef struct mha_block mha_block;

typedef struct mha_block_options {
    size_t size;                 /* sizeof(mha_block_options) */
    mha_attn_layer_options attn; /* its hidden is E */
    int pre_norm;                /* 0 = post-norm */
    mha_norm attn_norm, mlp_norm;
    mha_norm attn_out_norm, mlp_out_norm; /* of what a branch gives; with pre_norm only; weight NULL: none */
    int64_t intermediate;                 /* I > 0; 0 = attention alone */
    mha_matrix up, down;                  /* E -> I, I -> E; `out` is not read */
    mha_matrix gate;                      /* E -> I, gated feed-forward (SwiGLU, Shazeer 2020); weight NULL: none */
    mha_activation activation;            /* between up and down, or of the gate */
} mha_block_options;

MHA_API mha_status mha_block_create(mha_ctx *ctx, const mha_block_options *options, mha_block **block, mha_error *err);
MHA_API void mha_block_free(mha_block *block);

/* Changes x [B L, E] in place. Cost: attention layer, and 4 B L E I operations. The feed-forward part runs in chunks of
 * rows, so that the workspace holds a chunk of width I and not the whole. */
MHA_API mha_status mha_block_forward(const mha_block *block, const mha_layer_input *input, float *x, mha_error *err);
MHA_API mha_status mha_block_workspace(const mha_block *block, const mha_layer_input *input, size_t *bytes,
                                       mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
