/* variant.h - the struct and steps of mha/variants.h: one layer that every variant describes.
 *
 * A constructor fills in a mha_variant (sizes, masks, projections) and names its parameters in the order of their
 * initialization; mha__variant_create makes the object. Then, for each call:
 *
 * variant_input.c     checks the input and converts masks to views for the operator
 *     variant_select.c    the selector: selected heads and their gates
 *     variant_forward.c   projections -> rotation -> operator -> output projection
 *     variant_attend.c    the operator's plan and arguments, forward and backward
 *     variant_backward.c  the same steps in reverse
 */
#ifndef MHA_LAYER_VARIANTS_VARIANT_H
#define MHA_LAYER_VARIANTS_VARIANT_H

#include "base/error.h"
#include "base/struct_size.h"
#include "layer/arena.h"
#include "layer/linear/linear.h"
#include "layer/selection/selection_gates.h"
#include "mha/variants.h"

/* ---- what a variant is ---- */

/* One projection: one matrix, or one matrix per head. */
typedef struct mha__dense {
    int64_t in, out; /* out is the sum over all matrices; 0 = the variant does not have this projection */
    int tensors;     /* matrices, each with out / tensors rows */
    int parts;       /* pieces packed separately, so that each can be skipped: a multiple of tensors */
    bool bias;
    bool plain;      /* stored as [in, out / tensors], used as x @ w, initialized uniformly from [0, 1) */
    int first, step; /* matrix t is parameter first + t step; its bias is the next parameter */
    mha_linear *linear;
} mha__dense;

enum { MHA__Q, MHA__K, MHA__V, MHA__EXPERT_O, MHA__O, MHA__CHOICE, MHA__CHOICE_HIDDEN, MHA__DENSES };

/* A parameter's name and initialization. */
typedef struct mha__parameter {
    char name[56];
    int64_t fan_in; /* 0 = uniform in [0, 1) */
} mha__parameter;

struct mha_variant {
    mha_ctx *ctx;
    const char *name; /* for messages, for example "causal attention" */
    mha_dtype dtype;
    size_t real;                       /* bytes per element */
    int64_t d_in, d_out;               /* widths of query and output */
    int64_t heads, kv_heads, head_dim; /* if the head count varies: those of a single head of width d_model */
    double scale;                      /* 0 = 1 / sqrt(head width of the call) */
    bool causal, self;                 /* self: accepts no key and value */
    int64_t context_length;
    bool takes_dropout;
    double dropout;
    bool dropout_by_head; /* masks are sampled head by head, each over the batch */
    bool takes_past, rotary;
    mha_rope_options rope;
    mha__dense dense[MHA__DENSES];
    /* the selector */
    mha_layer_choice choice; /* without matrices; `keep` is the number selected per sample, 1 of options */
    mha_expert_output expert_output;
    int64_t choices; /* experts, heads or options to select from */
    /* parameters in the order of initialization */
    int parameters;
    mha__parameter *parameter;            /* NULL while parameters are counted */
    mha_named_tensor *values, *gradients; /* with the same names */
};

/* Names the parameters of matrix t of a projection: FORMAT ".weight" and ".bias", or FORMAT if it is plain. `number`
 * replaces a %lld in the format. */
void mha__name_matrix(mha_variant *v, int dense, int t, const char *format, int64_t number);
/* Creates the object described by `v`; `name_all` calls mha__name_matrix for each matrix in the order of
 * initialization. */
mha_status mha__variant_create(mha_ctx *ctx, mha_variant *v, void (*name_all)(mha_variant *v), mha_variant **layer,
                               mha_error *err);
/* Names q_proj, k_proj, v_proj and, if the variant has it, o_proj. */
void mha__name_usual(mha_variant *v);

/* Checks that constructors share; `v` must have its name. */
mha_status mha__check_layer(mha_variant **layer, mha_error *err);
mha_status mha__check_width(const mha_variant *v, const char *field, int64_t width, mha_error *err);
/* The head count in `field` must divide the width in `of`. */
mha_status mha__check_heads(const mha_variant *v, const char *field, int64_t heads, const char *of, int64_t width,
                            mha_error *err);
/* Checks num_heads and `width`, which messages call `field`; sets heads, kv_heads and head_dim. */
mha_status mha__split_heads(mha_variant *v, int64_t heads, const char *field, int64_t width, mha_error *err);
/* kv_heads (0 = heads) must divide heads. */
mha_status mha__share_heads(mha_variant *v, int64_t kv_heads, mha_error *err);
mha_status mha__check_dropout(const mha_variant *v, mha_error *err); /* also checks context_length */
mha_status mha__check_scale(mha_variant *v, mha_scale_rule rule, mha_error *err);
mha_status mha__check_selection(const mha_variant *v, mha_error *err);

/* The elements of a parameter, and its gradient. */
static inline char *mha__value(const mha_variant *v, int parameter)
{
    return v->values[parameter].data;
}
static inline char *mha__gradient(const mha_variant *v, int parameter)
{
    return v->gradients[parameter].data;
}

/* Access to f32 or f64 elements, for loops too short to matter. */
static inline double mha__get(mha_dtype dtype, const void *x, int64_t i)
{
    return dtype == MHA_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}
static inline void mha__put(mha_dtype dtype, void *x, int64_t i, double value)
{
    if (dtype == MHA_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

/* ---- what a call is ---- */

enum { MHA__STEPS = MHA_STEP_GATES + 1 };

struct mha_trace {
    mha_ctx *ctx;
    char *memory;
    size_t capacity;
    const mha_variant *layer; /* layer of the last forward call, only compared; NULL = none, or the call failed */
    int64_t B, Lq, Ln, P, Lk; /* Ln tokens of key, P past tokens; Lk = P + Ln */
    int64_t n;                /* heads computed per sample, at most */
    int64_t width;            /* width of a row of context */
    int64_t flops;
    mha_step_view step[MHA__STEPS]; /* for mha_trace_step, which may be called after the layer is freed */
    char *query_q;                  /* [B Lq, H D] */
    char *key_k, *value_v;          /* [B Ln, Hkv D] of new tokens */
    char *past_k, *past_v;          /* [B, Hkv, Lk, D], past tokens first; NULL without past tokens */
    char *context;                  /* [B Lq, n D] */
    char *mixed;                    /* [B Lq, d_model] sum of the experts, or NULL */
    char *lse;                      /* [B, n, Lq] */
    char *weights, *scores;         /* [B, n, Lq, Lk] */
    char *mean, *hidden, *logits;   /* [B, d_in], [B, predictor width], [B, choices] */
    char *gates;                    /* [B, mha__gate_row] gate of each head, for the operator */
    char *gate;                     /* [B, chosen] gate of each selected choice */
    int32_t *choice;                /* [B, chosen]; NULL without a selector */
    int64_t chosen;                 /* selected per sample */
    /* [B] head count of each sample with MHA_CHOICE_OPTIONS; NULL: every sample has n */
    int64_t *heads;
    uint8_t *parts;      /* [choices] scratch: the parts that one sample computes */
    double *soft;        /* [B, choices] trained gates (selection_gates.h) */
    double *choice_gate; /* [choices] scratch: scores of one sample, then its gates */
    int64_t *offsets;    /* [B] = P */
    float *cos, *sin;    /* [B Lq, R / 2] */
    /* masks in the operator's form */
    mha_cview keep, bias, drop;
    /* keep masks every key of some row; it is then a copy that opens the row, and q of that row is 0 */
    bool opens_rows;
    bool drops, draws; /* weights are dropped; the mask is sampled by this layer */
    int64_t keep_shape[4];
    uint8_t *keep_memory, *drop_memory, *empty; /* empty [keep_shape[0], keep_shape[1], Lq]: rows without a key */
    char *bias_memory;
};

/* One call of the operator: samples [first, first + count). */
typedef struct mha__run {
    int64_t first, count;
    int64_t heads, head_dim;
    const int32_t *list; /* heads to compute; NULL = all */
    int64_t listed;      /* number of computed heads */
} mha__run;

/* variant_input.c */
mha_status mha__variant_input(const mha_variant *v, mha_variant_input *local, const mha_variant_input *given,
                              mha_error *err);
/* Called before, during and after the allocation of the trace. */
void mha__look_at_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t);
void mha__place_masks(const mha_variant *v, const mha_variant_input *in, mha__arena *arena, mha_trace *t);
mha_status mha__fill_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err);
/* Sets q, or its gradient, [B Lq, H D] to 0 in rows in which keep masks every key. */
void mha__clear_empty_rows(const mha_variant *v, const mha_trace *t, char *q);

/* variant_select.c */
void mha__select(const mha_variant *v, const mha_variant_input *in, mha_trace *t);
/* True if gates [B, mha__gate_row] multiply the heads' outputs. */
bool mha__gated(const mha_variant *v);
int64_t mha__gate_row(const mha_variant *v, const mha_trace *t);
/* Number of operator calls. */
int64_t mha__runs(const mha_variant *v, const mha_trace *t);
mha__run mha__run_of(const mha_variant *v, const mha_trace *t, int64_t r);
/* True if a sample may skip heads; parts [choices] marks the computed ones. */
bool mha__leaves_heads_out(const mha_variant *v);
void mha__chosen_parts(const mha_variant *v, const mha_trace *t, int64_t b, uint8_t *parts);
/* From dgate [B, choices], gradients of the gates, 0 for choices that were not selected: accumulates the gradients of
 * the selector's parameters and adds to dquery unless it is NULL. Overwrites dgate. */
mha_status mha__select_backward(mha_variant *v, const mha_trace *t, double *dgate, char *dquery, mha_error *err);

/* variant_trace.c: fills in what mha_trace_step returns, at the end of a forward call. */
void mha__show_steps(const mha_variant *v, mha_trace *t);

/* variant_attend.c: all operator calls, from q, k, v to context. */
mha_status mha__attend(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err);
/* Gradients laid out as query_q, as key_k or past_k, and as gates; gradients of heads that are not computed are not
 * written. */
typedef struct mha__attend_grads {
    char *dq, *dk, *dv;
    char *dgates; /* NULL without a selector */
} mha__attend_grads;
mha_status mha__attend_backward(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
                                const char *dcontext, const mha__attend_grads *grads, mha_error *err);

/* variant_backward.c: gradients of one projection. Fields that are 0 have the plain meaning. */
typedef struct mha__dense_grad {
    int64_t rows;
    const char *x, *dy;
    int64_t x_stride, dy_stride; /* 0 = contiguous */
    char *dx;                    /* NULL = not wanted; overwritten, or accumulated with add_dx */
    int64_t dx_stride;           /* likewise */
    bool add_dx;
    const uint8_t *parts; /* parts with gradients; NULL = all */
    int64_t dy_first;     /* column of the whole output that `dy` points to */
    int64_t first, depth; /* x holds inputs [first, first + depth) of W; depth 0 = all */
    bool skip_bias, bias_only;
} mha__dense_grad;
mha_status mha__dense_backward(mha_variant *v, int dense, const mha__dense_grad *g, mha_error *err);

#endif
