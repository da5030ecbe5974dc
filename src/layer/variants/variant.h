/* variant.h - a published variant of attention (mha/variants.h): the options of an attention layer, the names of its
 * parameters, and the inputs that it accepts.
 *
 * A constructor sets the fields of an mha_variant (options of the layer, masks, projections) and names its parameters
 * in the order of their initialization; mha__variant_create creates the object. The work of each call is divided as
 * follows:
 *
 *     variant_input.c   checks the input and converts masks to views for the operator
 *     variant_run.c     describes the call to the layer (attention/attention_layer.h), forward and backward
 *     variant_trace.c   returns the intermediate results of a call */
#ifndef MHA_LAYER_VARIANTS_VARIANT_H
#define MHA_LAYER_VARIANTS_VARIANT_H

#include "base/error.h"
#include "base/struct_size.h"
#include "layer/attention/attention_layer.h"
#include "mha/variants.h"

/* ---- struct of a variant ---- */

/* The matrix of one projection, [out, in], or a list of matrices, one per head. Unless `plain` is set, the list is
 * contiguous and thus also one matrix. */
typedef struct mha__variant_projection {
    int64_t in, out; /* out is the sum over all matrices; 0 = the variant does not have this projection */
    int tensors;     /* number of matrices in the list; 0 = a single matrix */
    bool bias;
    bool plain;            /* matrices are stored as [in, out / tensors], used as x @ w, and initialized uniformly in
                            * [0, 1) */
    char *weight, *biases; /* elements; NULL before mha_variant_init */
    char *dweight, *dbiases;
} mha__variant_projection;

enum { MHA__Q, MHA__K, MHA__V, MHA__EXPERT_O, MHA__O, MHA__CHOICE, MHA__CHOICE_HIDDEN, MHA__DENSES };

/* A parameter: its name, its initialization, and which matrix or bias of a projection it is. */
typedef struct mha__variant_parameter {
    char name[56];
    int64_t fan_in; /* number of inputs, which determines the bound of the initialization; 0 = uniform in [0, 1) */
    int dense, tensor;
    bool bias;
} mha__variant_parameter;

struct mha_variant {
    const char *name; /* name in error messages, for example "causal attention" */
    /* The layer, with options but without matrices; if the head count varies, with the options of one head of width
     * d_model. */
    mha_attn_layer layer;
    bool self; /* self-attention: key and value must be NULL */
    int64_t context_length;
    bool takes_dropout;
    double dropout;
    bool dropout_by_head; /* masks are sampled head by head, each for the whole batch */
    bool takes_past;
    mha__variant_projection dense[MHA__DENSES];
    bool packed; /* parameters were packed, so the layer can run */
    /* parameters in the order of initialization */
    int parameters;
    mha__variant_parameter *parameter;    /* NULL while parameters are counted */
    mha_named_tensor *values, *gradients; /* parameters and their gradients, in lists with the same names */
    void *value_memory, *gradient_memory;
};

/* Returns the number of heads, experts or options to select from; 0 without a selector. */
static inline int64_t mha__choices(const mha_variant *v)
{
    const mha_layer_choice *c = &v->layer.options.choice;
    return c->of == MHA_CHOICE_OPTIONS ? c->option_count : c->of ? v->layer.options.heads : 0;
}

/* Returns true if q, k and v are packed, and their gradients computed, head by head. */
static inline bool mha__by_head(const mha_variant *v)
{
    const mha_choice of = v->layer.options.choice.of;
    return of == MHA_CHOICE_EXPERTS || of == MHA_CHOICE_HEADS || (v->dense[MHA__Q].plain && v->dense[MHA__Q].tensors);
}

/* Names the parameters of matrix t of a projection: FORMAT ".weight" and ".bias", or FORMAT if the matrix is plain.
 * `number` replaces a %lld in the format. */
void mha__name_matrix(mha_variant *v, int dense, int t, const char *format, int64_t number);
/* Creates the object described by `v`; `name_all` calls mha__name_matrix for each matrix in the order of
 * initialization. */
mha_status mha__variant_create(mha_ctx *ctx, mha_variant *v, void (*name_all)(mha_variant *v), mha_variant **layer,
                               mha_error *err);
/* Sets the shapes of q, k, v and, with `output`, of o from the options of the layer. */
void mha__usual_dense(mha_variant *v, bool bias, bool output);
/* Names q_proj, k_proj, v_proj and, if present, o_proj. */
void mha__name_usual(mha_variant *v);

/* Checks that constructors share; v->name must be set. */
mha_status mha__check_layer(mha_variant **layer, mha_error *err);
mha_status mha__check_width(const mha_variant *v, const char *field, int64_t width, mha_error *err);
/* Checks that `heads` divides `width`; messages call them `field` and `of`. */
mha_status mha__check_heads(const mha_variant *v, const char *field, int64_t heads, const char *of, int64_t width,
                            mha_error *err);
/* Checks num_heads and `width`, which is named `field` in messages; sets heads, kv_heads and head_dim. */
mha_status mha__split_heads(mha_variant *v, int64_t heads, const char *field, int64_t width, mha_error *err);
/* Checks that kv_heads (0 = heads) divides heads, and sets the option kv_heads. */
mha_status mha__share_heads(mha_variant *v, int64_t kv_heads, mha_error *err);
mha_status mha__check_dropout(const mha_variant *v, mha_error *err); /* also checks context_length */
mha_status mha__check_scale(mha_variant *v, mha_scale_rule rule, mha_error *err);
mha_status mha__check_selection(const mha_variant *v, mha_error *err);

/* ---- state of a call ---- */

enum { MHA__STEPS = MHA_STEP_GATES + 1 };

struct mha_trace {
    mha_ctx *ctx;
    char *memory;
    size_t capacity;
    /* layer of the last forward call, which is compared but not accessed; NULL before the first call and after a failed
     * call */
    const mha_variant *layer;
    int64_t B, Lq, Ln, P, Lk; /* Ln tokens of key, P past tokens; Lk = P + Ln */
    /* the call of the layer, and the activations that it recorded */
    mha_layer_input in;
    mha__attn_call call;
    mha__attn_trace steps;
    int64_t *positions; /* [B Lq] positions of the queries */
    float *cos, *sin;   /* [B Lq, R / 2] angles, where R is the rotary width */
    /* true if keep masks every key of some row: a copy of keep then unmasks the row, and q of the row is 0 */
    bool opens_rows;
    bool drops, draws; /* drops: dropout is applied; draws: the layer samples the mask */
    int64_t keep_shape[4];
    uint8_t *keep_memory, *drop_memory, *empty; /* empty [keep_shape[0], keep_shape[1], Lq]: rows without a key */
    char *bias_memory;
    /* results of mha_trace_step, which may be read after the layer is freed */
    mha_step_view step[MHA__STEPS];
    int64_t flops;
    int64_t n;           /* maximum number of heads computed per sample */
    int64_t width;       /* number of columns of the computed heads in the context */
    int64_t chosen;      /* number of selected choices per sample */
    const int32_t *list; /* [B, choices] the first `chosen` entries are selected; NULL without a selector */
    int64_t choices;
    int64_t *heads; /* [B] head count of each sample with MHA_CHOICE_OPTIONS; NULL = n heads for every sample */
    char *logits;   /* [B, choices] scores */
    char *gate;     /* [B, chosen] gate of each selected choice */
    /* results of selected heads, in the order of selection: context [B Lq, n D], weights and scores [B, n, Lq, Lk] */
    char *context, *weights, *scores;
};

/* Copies the input, sets its defaults and checks it (variant_input.c). */
mha_status mha__variant_input(const mha_variant *v, mha_variant_input *local, const mha_variant_input *given,
                              mha_error *err);
/* Convert the masks to the operator's form in t->in and t->call. The functions are called before, during and after the
 * allocation of the trace. */
void mha__look_at_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t);
void mha__place_masks(const mha_variant *v, const mha_variant_input *in, mha__arena *arena, mha_trace *t);
mha_status mha__fill_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err);

/* Allocate the arrays that mha_trace_step returns, and set them at the end of a forward call (variant_trace.c). */
void mha__place_steps(const mha_variant *v, mha__arena *arena, mha_trace *t);
void mha__show_steps(const mha_variant *v, mha_trace *t);

#endif
