/* layer.h - the building blocks of a transformer, and the published variants of attention.
 *
 *     linear, norm, activation, embedding, loss         below: functions of rows, forward and backward
 *     mha_attn_layer, mha_block                         below: attention and a transformer block, as models run them
 *     self-attention, causal, stacked heads,            variants.h, which this header includes: a constructor for
 *     weight-split, q/k/v, standard MHA, GQA and MQA,   each variant, and the common calls: initialization, forward,
 *     LLaMA, MoE heads, head pruning, adaptive heads    backward, parameters, save and load, the trace
 *
 * The functions below operate on float32 rows, unless a comment names another type. x and y are row-major and
 * contiguous: [rows, width]. The result of a row is bitwise identical for any number of rows in the call and any number
 * of threads.
 *
 * Shapes: E model width ("hidden"), H query heads, Hkv key/value heads, D head width, I feed-forward width, B
 * sequences of L tokens.
 *
 * Every object created here copies or packs its weights, so the caller may free them afterwards. The objects are
 * immutable, and any number of threads may run one concurrently. `ctx` must outlive them. Common errors: MHA_ERR_ARG
 * for a NULL pointer, a size < 1 or an invalid value; MHA_ERR_UNSUPPORTED for an unimplemented option; MHA_ERR_MEMORY.
 * The message names the argument or option. The backward pass of mha_attn_layer and mha_block is the backward pass of
 * the model that uses their weights (model_grads.h); the variants have their own backward pass.
 *
 * A BERT layer is one mha_block; tests/unit/layer/test_layer_block.c has examples. */
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
    MHA_ACT_RELU,      /* max(x, 0); NaN for NaN */
    MHA_ACT_TANH,
    MHA_ACT_SILU,       /* x / (1 + e^-x)                                            "silu", "swish" */
    MHA_ACT_QUICK_GELU, /* x / (1 + e^-1.702x), within 0.021 of GELU                 "quick_gelu" */
    MHA_ACT_SIGMOID,    /* 1 / (1 + e^-x) */
    MHA_ACT_SOFTPLUS    /* log(1 + e^x) */
} mha_activation;

/* Applies the activation in place to x [rows, width]. Cost: one pass over x. */
MHA_API mha_status mha_activation_forward(mha_ctx *ctx, mha_activation activation, int64_t rows, int64_t width,
                                          float *x, mha_error *err);

/* Computes dx = dy f'(x), where x is the input of the activation; all arrays are [rows, width]. dx may be exactly x
 * or exactly dy. Where a ReLU is inactive, dx is 0 even if dy is NaN or infinite. Cost: one pass over the three
 * arrays. */
MHA_API mha_status mha_activation_backward(mha_ctx *ctx, mha_activation activation, int64_t rows, int64_t width,
                                           const float *x, const float *dy, float *dx, mha_error *err);

/* ---- linear ---- */

/* A weight matrix and its bias, as a checkpoint stores them: weight [out, in] (PyTorch's nn.Linear), or [in, out] when
 * `transposed` (GPT-2's Conv1D). bias [out] or NULL. */
typedef struct mha_matrix {
    const float *weight;
    const float *bias;
    int transposed;
    int64_t out;      /* number of outputs; only read by mha_linear_create_stack */
    mha_dtype packed; /* type of the packed weights: f32 (default), bf16, f16 or q8_0 */
    /* 1 = most calls have at least 64 rows: a layer with f32 weights and at least 256 inputs then uses the split
     * product if the ISA supports it (amx). The split product is faster for 64 rows and more, and slower for fewer than
     * 32. A stack uses the value of its first matrix; output projections of attention layers ignore it. */
    int many_rows;
} mha_matrix;

/* y = act(x W^T + b). The weights are packed at creation: in * out elements, padded to whole panels (kernel.h). Each
 * element of y is one chain of fused multiply-adds that starts from b and runs over k = 0 .. in-1 in ascending order.
 * The split product (many_rows) instead adds sums of 32 terms to b, each computed from bf16 parts of the operands; the
 * error of many terms is smaller than that of a chain (docs/numerics.md).
 *
 * Packing into a smaller type rounds each weight once, to nearest. bf16 keeps 8 bits, f16 keeps 11 (values beyond
 * 65504 become Inf), q8_0 keeps 8 with one f16 scale per 128 inputs. This halves or quarters the memory of the weights;
 * calls with few rows become as much faster, since reading the weights dominates. In q8_0, x is also quantized to 8
 * bits, with one scale per 128 inputs of a row, and sums of 128 products are exact integers (docs/numerics.md). x stays
 * f32 in other types, except that bf16 on the ISAs amx and avx512bf16 (ctx.h) rounds x to bf16. In bf16 on these
 * ISAs, and in q8_0 on these ISAs and avx512vnni, GELU has a relative error of at most 2^-15 (x >= -5.5;
 * docs/numerics.md). Products of these smaller types are faster for any row count. Each row of y depends only, bitwise,
 * on its row of x and the weights. */
typedef struct mha_linear mha_linear;

/* Creates a linear layer from weight [out, in] and bias [out] or NULL. Packing reads the weights once, on all
 * threads. */
MHA_API mha_status mha_linear_create(mha_ctx *ctx, int64_t in, int64_t out, const float *weight, const float *bias,
                                     mha_linear **linear, mha_error *err);
/* Fuses several matrices that multiply the same input: y = [x W0^T + b0 | x W1^T + b1 | ...], each part as wide as its
 * `out`. `count` is from 1 to 64, and `packed` must be the same type for all parts. `activation` is applied to all of y
 * while y is still in the cache. */
MHA_API mha_status mha_linear_create_stack(mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count,
                                           mha_activation activation, mha_linear **linear, mha_error *err);
MHA_API void mha_linear_free(mha_linear *linear);

/* Computes y [rows, out] from x [rows, in]; rows >= 0, and the arrays must not overlap. Allocates nothing, except 1
 * or 2 bytes per element of x if x is rounded. Cost: 2 rows in out operations; for few rows, one read of the packed
 * weights. */
MHA_API mha_status mha_linear_forward(const mha_linear *linear, const float *x, int64_t rows, float *y, mha_error *err);
/* Same as mha_linear_forward, but x and y are bf16 arrays (the upper 16 bits of a float): y is the f32 result, rounded
 * to nearest, ties to even. On the ISAs amx and avx512bf16, a layer with bf16 weights and a multiple of 32 inputs reads
 * x in place if x is aligned to 64 bytes, except for up to 15 rows at the end. All other rows are copied, or converted
 * to f32, at most 512 at a time; the call allocates memory for these copies. */
MHA_API mha_status mha_linear_forward_bf16(const mha_linear *linear, const uint16_t *x, int64_t rows, uint16_t *y,
                                           mha_error *err);

/* Gradients of y = x W^T + b: dx = dy W, dweight += dy^T x, dbias += column sums of dy. */
typedef struct mha_linear_gradient {
    size_t size;       /* sizeof(mha_linear_gradient) */
    int64_t rows, in;  /* rows >= 0 */
    mha_matrix matrix; /* `weight` is only read for dx, `bias` never; `transposed` and `out` are read */
    const float *x;    /* [rows, in]  only read for dweight */
    const float *dy;   /* [rows, out] */
    float *dx;         /* [rows, in]  overwritten; NULL = not computed */
    float *dweight;    /* in the layout of the weight; accumulated; NULL = not computed */
    float *dbias;      /* [out] accumulated; NULL = not computed */
} mha_linear_gradient;

/* Computes the gradients. Reads the weights in the layout of the checkpoint, not packed, because training changes
 * them after every step. Allocates memory for packed operands. Cost: 2 rows in out operations for each of dx and
 * dweight. The results are bitwise reproducible, like those of the forward pass. */
MHA_API mha_status mha_linear_backward(mha_ctx *ctx, const mha_linear_gradient *gradient, mha_error *err);

/* ---- normalization ---- */

typedef enum mha_norm_kind {
    MHA_NORM_LAYER = 0, /* (x - mean) / sqrt(var + eps) * weight + bias, biased variance */
    MHA_NORM_RMS        /* x / sqrt(mean(x^2) + eps) * weight; Zhang & Sennrich 2019 */
} mha_norm_kind;

/* A norm over rows. Where a norm is optional, weight NULL means no norm. */
typedef struct mha_norm {
    const float *weight, *bias; /* [width]; MHA_NORM_LAYER requires a bias, which may be zeros; MHA_NORM_RMS requires
                                 * NULL */
    double eps;                 /* > 0 */
    mha_norm_kind kind;
} mha_norm;

/* Computes y = norm(x + residual) over each row of `width` elements. residual is [rows, width] or NULL. y may be
 * exactly x or exactly residual. */
MHA_API mha_status mha_norm_forward(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t width, const float *x,
                                    const float *residual, float *y, mha_error *err);

/* Gradients of y = norm(x). If the forward call added a residual, x is the sum x + residual. */
typedef struct mha_norm_gradient {
    size_t size;         /* sizeof(mha_norm_gradient) */
    int64_t rows, width; /* rows >= 0 */
    const float *x;      /* [rows, width] */
    const float *dy;     /* [rows, width] */
    float *dx;           /* [rows, width] may be exactly dy; NULL = not computed */
    int add;             /* 1 = accumulate into dx, which must not be dy; 0 = overwrite dx */
    float *dweight;      /* [width] accumulated; NULL = not computed */
    float *dbias;        /* [width] accumulated; for RMSNorm, which has no bias: the sum of dy; NULL = not computed */
} mha_norm_gradient;

/* Computes the gradients. Sums are accumulated in double, in chunks that depend on the number of rows only.
 * Allocates up to 64 width doubles for dweight and dbias. */
MHA_API mha_status mha_norm_backward(mha_ctx *ctx, const mha_norm *norm, const mha_norm_gradient *gradient,
                                     mha_error *err);

/* ---- loss ---- */

/* Cross entropy of rows of logits against their labels:
 *
 *     loss = scale * sum over counted rows of (log sum_c exp(logits[c]) - logits[label])
 *
 * A row with the label MHA_IGNORE is not counted, and its logits are not read. */
#define MHA_IGNORE (-100)

typedef struct mha_cross_entropy_args {
    size_t size;           /* sizeof(mha_cross_entropy_args) */
    int64_t rows, classes; /* rows >= 0, classes > 0 */
    const float *logits;   /* [rows, classes] */
    const int32_t *labels; /* [rows] 0..classes-1, or MHA_IGNORE */
    double scale;          /* 0 = 1 / counted rows: the mean, NaN if no row counts (as in PyTorch) */
    float *dlogits;        /* [rows, classes] gradient, 0 in uncounted rows; may be exactly logits; or NULL */
} mha_cross_entropy_args;

/* Stores the loss, summed in double, and the number of counted rows; either pointer may be NULL. All labels are
 * checked first: an invalid label fails with MHA_ERR_ARG and a message that names its row and value. Cost: two
 * passes over logits, with one exponential per logit in each. Allocates one double per row. */
MHA_API mha_status mha_cross_entropy(mha_ctx *ctx, const mha_cross_entropy_args *args, double *loss, int64_t *counted,
                                     mha_error *err);

/* ---- embedding ---- */

/* Computes y[r] = table[ids[r]], or y[r] += table[ids[r]] with `add`; table [count, width], y [rows, width]. All ids
 * are checked first: if one is outside 0 .. count-1, the call fails with MHA_ERR_ARG and a message that names
 * `what`, the index and the value, such as "ids[2] must be ..."; y is not written. */
MHA_API mha_status mha_embedding_forward(const char *what, const float *table, int64_t count, int64_t width,
                                         const int32_t *ids, int64_t rows, int add, float *y, mha_error *err);

/* Computes dtable[ids[r]] += dy[r]. Rows are added in ascending order, so the sum for a repeated token is
 * reproducible. */
MHA_API mha_status mha_embedding_backward(const char *what, float *dtable, int64_t count, int64_t width,
                                          const int32_t *ids, int64_t rows, const float *dy, mha_error *err);

/* ---- attention layer ---- */

/* out = concat over h of Attention(x Wq^T, x Wk^T, x Wv^T)_h  Wo^T + bo
 *
 * One fused projection computes q, k and v into one buffer [B L, H D + 2 Hkv D]. Strided views of that buffer are
 * passed to the operator (attn.h), so heads are never copied or transposed. Layers of one model may have different
 * head counts. */
typedef struct mha_attn_layer mha_attn_layer;

/* How an attention layer selects the heads that run for each sequence. */
typedef enum mha_choice {
    MHA_CHOICE_NONE = 0, /* no selection: all heads run for every sequence */
    MHA_CHOICE_EXPERTS,  /* mixture of experts in which heads are the experts: gates are the softmax over the scores
                            of the kept heads, as in mha_moe_heads of variants.h with MHA_EXPERT_SLOT */
    MHA_CHOICE_HEADS,    /* dynamic head pruning, as in mha_head_pruning; `selection` defines the gates */
    MHA_CHOICE_OPTIONS   /* number of heads that the H D columns are split into, as in mha_adaptive_heads; one gate
                            for all of these heads, defined by `selection` */
} mha_choice;

/* Head selection per sequence inside a layer of a model:
 *
 *     score = W m + b                          scores of heads
 *     score = W relu(W' m + b') + b            scores of options
 *
 * where m is the mean of the layer's input over the real tokens, computed in double for each sequence. Each of the
 * `keep` heads with the highest scores gets a gate; ties go to the lower index. All other heads get a gate of 0. With
 * MHA_CHOICE_OPTIONS, the option with the highest score is selected. A NaN score ranks above all other scores, so that
 * NaN appears in the output instead of being hidden.
 *
 * The gates of the selected heads are multiplied by the gates of the call (mha_layer_input). Causal layers have no
 * selection, because m would leak later tokens into earlier ones. Heads with a gate of 0 are not computed: neither
 * their attention nor, in f32 with weights [out, in], their projections. All heads are computed if the call requests
 * probs, stats, on_rows or activations.
 *
 * With MHA_CHOICE_OPTIONS, the operator is called once per sequence, with a new plan and workspace for each call.
 * Requests for per-head inputs or outputs then return MHA_ERR_UNSUPPORTED: gates, probs, stats, on_rows, and masks that
 * differ between heads. */
typedef struct mha_layer_choice {
    mha_choice of;
    mha_selection selection; /* gate rule, and how W and b are trained (variants.h); not for MHA_CHOICE_EXPERTS */
    int64_t keep;            /* number of heads to keep, 1..H; not read for MHA_CHOICE_OPTIONS */
    mha_matrix score;        /* W, b [H, E], or [options, P]; required, copied; `packed` and `out` are not read */
    mha_matrix hidden;       /* W', b' [P, E], only for options; required, copied; `out` = P */
    int64_t options[MHA_HEAD_OPTIONS]; /* [option_count] head counts; each must divide H D; not with shared keys, rope,
                                        * norms, slopes or sinks */
    int64_t option_count;
} mha_layer_choice;

typedef struct mha_attn_layer_options {
    size_t size;                  /* sizeof(mha_attn_layer_options) */
    int64_t hidden;               /* E   > 0 */
    int64_t heads;                /* H   > 0 */
    int64_t kv_heads;             /* Hkv 0 = H; else must divide H */
    int64_t head_dim;             /* D   0 = E / H (which must divide); else 1..MHA_HEAD_DIM_MAX */
    mha_matrix q, k, v;           /* E -> H D, Hkv D and Hkv D; `out` is not read */
    mha_matrix qkv;               /* fused q, k and v, E -> H D + 2 Hkv D (GPT-2); q, k and v are then empty */
    mha_matrix o;                 /* projects H D to E */
    mha_norm q_norm, k_norm;      /* normalize each head of q and k, before rotation (Qwen3); weight NULL = none */
    int whole_norms;              /* 1 = q_norm is over H D and k_norm over Hkv D, all heads together (OLMo 2) */
    const mha_rope_options *rope; /* rotates q and k; its head_dim is D; NULL = no rotation */
    double scale, softcap;        /* as in mha_attn_desc */
    int causal;                   /* query i attends to keys j <= i */
    mha_window window;            /* as in mha_attn_desc */
    mha_dtype dtype;              /* type that q, k, v and the output of the operator are rounded to: f32 (default),
                                     bf16 or f16. A cache stores keys and values in its own type */
    /* Hv, the number of value heads, if it differs from the number of key heads; must divide H. 0 = Hkv. Query head h
     * reads key head h / (H / Hkv) and value head h / (H / Hv). v then has Hv D outputs, and qkv has (H + Hkv + Hv) D.
     * The operator and the cache use the least common multiple of both counts: rows of k and v are repeated after the
     * projection. */
    int64_t v_heads;
    /* [H] ALiBi (Press et al. 2022): slopes[h] |i - j| is subtracted from the score of query i and key j; copied. NULL
     * = none. */
    const float *slopes;
    mha_layer_choice choice; /* not with `causal` */
    /* [H] attention sinks (gpt-oss): exp(sinks[h]) is added to the denominator of the softmax, so the probabilities of
     * a row sum to less than 1; copied. NULL = none. */
    const float *sinks;
    /* 1 = cross-attention: keys and values are projections of another sequence, usually the output of an encoder
     * (mha_layer_source). Requires dtype f32 and separate q, k and v; not with causal, window, rope, norms, slopes,
     * v_heads or choice. */
    int cross;
    /* 1 = q_norm has weights (and biases) [H, D] and k_norm [Hkv, D]: each head is normalized with its own (Cohere).
     * Not with whole_norms, or v_heads that differ from kv_heads. */
    int head_gains;
} mha_attn_layer_options;

MHA_API mha_status mha_attn_layer_create(mha_ctx *ctx, const mha_attn_layer_options *options, mha_attn_layer **layer,
                                         mha_error *err);
MHA_API void mha_attn_layer_free(mha_attn_layer *layer);

/* Buffers for the intermediate activations of attention, always f32, regardless of the dtype of the layer; NULL = not
 * copied. Rows of padding are written too, with unspecified values. */
typedef struct mha_layer_activations {
    float *input;   /* [B L, E] input of the q, k and v projections; in a pre-norm block, after the norm */
    float *qkv;     /* [B L, (H + 2 Hkv) D] rows q | k | v as the operator reads them: normalized and rotated. With a
                       cache, the rows of this call, before they are stored */
    float *context; /* [B L, H D] input of the output projection: gate times the head's output, plus its fill */
    float *out;     /* [B L, E] output of the output projection, with its bias */
} mha_layer_activations;

/* Attention over one sequence whose tokens are divided among several processes; each call processes some of the tokens.
 * The layer computes q, k and v of these tokens, and passes them to `attend` instead of the operator. */
typedef struct mha_layer_shard {
    int64_t length; /* number of tokens in the whole sequence */
    int64_t layer;  /* passed to `attend`; models set it to the layer's index */
    /* Computes the attention. `desc` describes the call over the whole sequence: q_len and kv_len are `length`. The
     * views q, k, v and out of `args` contain the tokens of this call, in their order; all other inputs describe the
     * whole sequence. The layer's call returns the status of `attend`. */
    mha_status (*attend)(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                         mha_error *err);
    void *user;
} mha_layer_shard;

/* Keys and values of another sequence for cross-attention. They are computed once, by mha_attn_layer_source or
 * mha_block_source, and may be read by any number of calls: when a decoder generates text, every new token reads the
 * same keys and values. */
typedef struct mha_layer_source {
    int64_t tokens;         /* S   > 0 rows per sequence, padding included */
    const int64_t *lengths; /* [B] 0..S; later rows are padding and are masked. NULL = S */
    mha_cview keep;         /* [B, H, L, S] bytes, non-zero = attend; zero strides broadcast; data NULL = none */
    const float *kv;        /* [B, S, 2 Hkv D] rows k | v; sequences are `stride` elements apart */
    int64_t stride;         /* 0 = S 2 Hkv D */
    /* [B, H, L, S] probabilities of the cross-attention of a block, written; NULL = not computed. A call to an
     * attention layer writes `probs` of its input instead. */
    float *probs;
    const int32_t *map_heads; /* [map_count] heads of `probs`, in this order, as in mha_layer_input; NULL = all */
    int64_t map_count;
    const mha_attn_plan *plan; /* the operator's plan of a block's cross-attention; NULL = created for this call */
    mha_cview gates;           /* [B, H] f32 factors for the outputs of the heads of a block's cross-attention, as in
                                * mha_layer_input; data NULL = ones. A call to an attention layer reads `gates` of its
                                * input instead. */
    /* [sequences + 1] Packed sequences, as `starts` of mha_layer_input, which must also be set: sequence n is rows
     * starts[n] to starts[n + 1] of kv, `tokens` is the total, and lengths, keep and probs are NULL. NULL = one
     * sequence per batch entry. */
    const int64_t *starts;
    const float *fills; /* [H, D] as `fills` of mha_layer_input, for a block's cross-attention; NULL = zeros */
    /* Receives context and out of a block's cross-attention; input and qkv are NULL. NULL = not copied. */
    const mha_layer_activations *activations;
} mha_layer_source;

/* The tokens of one call and their masks, for an attention layer or a block. Masks are combined by AND. */
typedef struct mha_layer_input {
    size_t size;            /* sizeof(mha_layer_input) */
    int64_t batch, length;  /* B, L > 0 */
    const int64_t *lengths; /* [B] 0..L; later tokens are padding: their keys are masked, and their output rows are
                             * unspecified. NULL = L */
    mha_cview keep;         /* [B, H, L, L] bytes, non-zero = attend; zero strides broadcast; data NULL = none */
    mha_cview bias;         /* [B, H, L, K] f32 added to the scores, before masks; K is defined below; packed:
                               [sequences, H, M, M], where M is the length of the longest sequence; zero strides
                               broadcast; data NULL = none */
    mha_cache *cache;       /* cached keys and values, to which this call appends its own; NULL = none. Sequences
                               are those of the cache; `lengths` may be 0 for some. Must be NULL if keep is set */
    int64_t sequence;       /* index of the sequence in a cache of several sequences, with batch 1 */
    const float *cos, *sin; /* [B L, R/2] from mha_rope_angles, for the positions of all tokens; required with rope */
    mha_cview gates;        /* [B, H] f32 factors applied to each head's output; zero strides broadcast; NULL = none */
    float *probs;           /* [B, H, L, K] attention probabilities, written; K is defined below; NULL = not computed */
    /* Packed sequences, concatenated without padding: batch is 1, length is the total, and sequence n is rows
     * starts[n] to starts[n + 1]. Attention never crosses sequences. Must be NULL if lengths, keep or cache is set;
     * NULL = one sequence per batch entry. */
    const int64_t *starts; /* [sequences + 1] ascending from 0 to length */
    int64_t sequences;
    void *workspace; /* 64-byte aligned, from the _workspace function; NULL = allocated for this call */
    size_t workspace_bytes;
    /* Optional outputs of the attention itself; the layer's output is bitwise identical with and without them. K is L;
     * with a cache, K is L plus the cached tokens of the longest sequence. With starts, probs are [sequences, H, M, M],
     * where M is the length of the longest sequence; elements beyond a shorter sequence are not written. */
    const int32_t *map_heads; /* [map_count] heads of `probs` and of on_rows, in this order; NULL = all */
    const int64_t *map_rows;  /* [B, map_row_count] rows of each sequence instead of all L, as in attn.h; NULL = all */
    int64_t map_count, map_row_count;
    const mha_attn_stats *stats; /* statistics of rows and keys (stats.h), with any strides; NULL = none */
    int64_t top_keys;            /* number of keys per row in stats->top_* */
    /* [B, L] for stats: 0 = the row is masked and does not count in `received`. This is needed in addition to `keep`,
     * which only masks keys. NULL = all rows count. */
    const uint8_t *rows;
    const float *fills; /* [H, D] added to the gated output of each head, for every token; NULL = zeros */
    const mha_layer_activations *activations; /* buffers that receive the activations; NULL = not copied */
    /* [B L, H D] input of the output projection, instead of the computed one. Queries, keys, values, gates and fills
     * are then unused; outputs of the attention itself may not be requested. NULL = computed from x. */
    const float *context;
    const mha_attn_visitor *on_rows; /* receives the rows of probabilities that map_heads and map_rows select; NULL =
                                      * none */
    /* [B, L] for layers that select heads: non-zero = the token counts in the mean. NULL = all tokens within
     * `lengths` */
    const uint8_t *real;
    uint8_t *kept; /* [sequences, H] or, for options, [sequences, options]; 1 = kept; written if the layer selects */
    /* The L tokens are part of a longer sequence. Requires batch 1; not with lengths, keep, bias, cache, starts, probs,
     * stats, on_rows, or a layer that selects heads; NULL = the tokens are the whole sequence. */
    const mha_layer_shard *shard;
    /* Keys and values for a layer with `cross`, or for the cross-attention of a block. A layer with `cross` does not
     * accept keep, bias, cache, starts, gates, fills, stats or shard. NULL = none. */
    const mha_layer_source *source;
} mha_layer_input;

/* Computes y [B L, E] from x [B L, E]; they must not overlap. Creates an operator plan for this shape. Cost: 2 B L E
 * (2 H + 2 Hkv) D operations plus those of the operator. */
MHA_API mha_status mha_attn_layer_forward(const mha_attn_layer *layer, const mha_layer_input *input, const float *x,
                                          float *y, mha_error *err);
/* Computes the workspace size [bytes] of a forward call with this input; input->workspace is not read. */
MHA_API mha_status mha_attn_layer_workspace(const mha_attn_layer *layer, const mha_layer_input *input, size_t *bytes,
                                            mha_error *err);
/* Computes the keys and values kv [rows, 2 Hkv D] of x [rows, E] for a layer with `cross`. Cost: 4 rows E Hkv D
 * operations. */
MHA_API mha_status mha_attn_layer_source(const mha_attn_layer *layer, const float *x, int64_t rows, float *kv,
                                         mha_error *err);

/* ---- block ---- */

/* One layer of a transformer, with mlp(x) = down(act(up(x))), or down(act(gate(x)) * up(x)) with a gate:
 *     post-norm (BERT)    x = attn_norm(x + attention(x));   x = mlp_norm(x + mlp(x))
 *     pre-norm  (GPT-2)   x = x + attention(attn_norm(x));   x = x + mlp(mlp_norm(x))
 *     both      (Gemma-2) x = x + attn_out_norm(attention(attn_norm(x)));   x = x + mlp_out_norm(mlp(mlp_norm(x)))
 *     parallel  (GPT-NeoX) x = x + attention(attn_norm(x)) + mlp(mlp_norm(x))
 * With pre_norm every norm may be absent; its input then passes through unchanged (OLMo 2 has output norms only). In a
 * parallel block without mlp_norm both branches read attn_norm(x) (Phi, Cohere). A block may also consist of attention
 * only, the first half of each formula: if `intermediate` is 0, the matrices of the feed-forward part must be empty,
 * and its norms are not read.
 *
 * The decoder of an encoder-decoder (Vaswani et al. 2017) has cross-attention between both halves, with keys and values
 * of the encoder's output:
 *     post-norm (BART)    x = cross_norm(x + cross(x))
 *     pre-norm  (T5)      x = x + cross(cross_norm(x)) */
typedef struct mha_block mha_block;

typedef struct mha_block_options {
    size_t size;                 /* sizeof(mha_block_options) */
    mha_attn_layer_options attn; /* attention options; attn.hidden is E */
    int pre_norm;                /* 0 = post-norm */
    int parallel;                /* 1 = both branches read the block's input; with pre_norm only */
    double residual_scale;       /* factor of each branch's output before it is added (Granite); with pre_norm only; 0 =
                                  * 1 */
    mha_norm attn_norm, mlp_norm;
    mha_norm attn_out_norm, mlp_out_norm; /* norms of each branch's output; with pre_norm only; weight NULL = none */
    int64_t intermediate;                 /* I > 0; 0 = attention only */
    mha_matrix up, down;                  /* E -> I, I -> E; `out` is not read */
    mha_matrix gate;                      /* E -> I, gated feed-forward (SwiGLU, Shazeer 2020); weight NULL = none */
    mha_activation activation;            /* between up and down, or applied to the gate */
    const mha_attn_layer_options *cross; /* its field `cross` is 1, and hidden is E; not with `parallel`; NULL = none */
    mha_norm cross_norm;                 /* required with post-norm */
} mha_block_options;

MHA_API mha_status mha_block_create(mha_ctx *ctx, const mha_block_options *options, mha_block **block, mha_error *err);
MHA_API void mha_block_free(mha_block *block);

/* Updates x [B L, E] in place. Cost: the attention layer, plus 4 B L E I operations. The feed-forward part runs in
 * chunks of rows, so that the workspace contains I columns for one chunk only. */
MHA_API mha_status mha_block_forward(const mha_block *block, const mha_layer_input *input, float *x, mha_error *err);
MHA_API mha_status mha_block_workspace(const mha_block *block, const mha_layer_input *input, size_t *bytes,
                                       mha_error *err);
/* Runs mha_attn_layer_source for the cross-attention of a block. */
MHA_API mha_status mha_block_source(const mha_block *block, const float *x, int64_t rows, float *kv, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
