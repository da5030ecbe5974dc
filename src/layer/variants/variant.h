/* variant.h - the inside of mha/variants.h: one layer that every variant describes.
 *
 * A constructor fills a mha_variant with numbers (sizes, masks, which projections) and names its parameters in the
 * order in which they are drawn; mha__variant_create makes the object. Then, for each call:
 *
 *     variant_input.c     checks the input; masks become views for the operator
 *     variant_select.c    the selector: which heads, with which gates
 *     variant_forward.c   projections -> rotation -> operator -> output projection
 *     variant_attend.c    the operator's plan and arguments, forward and backward
 *     variant_backward.c  the same steps from the end
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

/* One projection: one matrix, or one for each head beside each other. */
typedef struct mha__dense {
    int64_t in, out; /* out of all matrices together; 0 = there is no such projection */
    int tensors;     /* matrices, of out / tensors rows each */
    int parts;       /* packed apart so that each can be left out: a multiple of tensors */
    bool bias;
    bool plain;      /* stored [in, out / tensors], used as x @ w, drawn from [0, 1) */
    int first, step; /* matrix t is parameter first + t step; its bias comes next */
    mha_linear *linear;
} mha__dense;

enum { MHA__Q, MHA__K, MHA__V, MHA__EXPERT_O, MHA__O, MHA__CHOICE, MHA__CHOICE_HIDDEN, MHA__DENSES };

/* A parameter's name and how it is drawn. */
typedef struct mha__parameter {
    char name[56];
    int64_t fan_in; /* 0 = uniform in [0, 1) */
} mha__parameter;

struct mha_variant {
    mha_ctx *ctx;
    const char *name; /* "causal attention", for sentences */
    mha_dtype dtype;
    size_t real;                       /* bytes of a number */
    int64_t d_in, d_out;               /* widths of query and output */
    int64_t heads, kv_heads, head_dim; /* with options: those of one head, d_model wide */
    double scale;                      /* 0 = 1 / sqrt(head width of the run) */
    bool causal, self;                 /* self: takes x alone */
    int64_t context_length;
    bool takes_dropout;
    double dropout;
    bool dropout_by_head; /* drawn head by head, each over the batch */
    bool takes_past, rotary;
    mha_rope_options rope;
    mha__dense dense[MHA__DENSES];
    /* the selector */
    mha_layer_choice choice; /* without matrices; `keep` is how many a sample gets, of options 1 */
    mha_expert_output expert_output;
    int64_t choices; /* experts, heads or options to choose from */
    /* parameters, in the order of drawing */
    int parameters;
    mha__parameter *parameter;            /* NULL while they are counted */
    mha_named_tensor *values, *gradients; /* share the names */
};

/* Names the parameters of matrix t of a projection: FORMAT ".weight" and ".bias", or FORMAT for a plain one. `number`
 * is for a %lld in the format. */
void mha__name_matrix(mha_variant *v, int dense, int t, const char *format, int64_t number);
/* Makes the object described by `v`; `name_all` calls mha__name_matrix for each matrix in the order of drawing. */
mha_status mha__variant_create(mha_ctx *ctx, mha_variant *v, void (*name_all)(mha_variant *v), mha_variant **layer,
                               mha_error *err);
/* The usual four: q_proj, k_proj, v_proj and, where there is one, o_proj. */
void mha__name_usual(mha_variant *v);

/* Shared checks of constructors; `v` has its name. */
mha_status mha__check_layer(mha_variant **layer, mha_error *err);
mha_status mha__check_width(const mha_variant *v, const char *field, int64_t width, mha_error *err);
/* The number of heads in `field` must divide the width in `of`. */
mha_status mha__check_heads(const mha_variant *v, const char *field, int64_t heads, const char *of, int64_t width,
                            mha_error *err);
/* Both checks of num_heads and of `width`, which is called `field`; sets heads, kv_heads and head_dim. */
mha_status mha__split_heads(mha_variant *v, int64_t heads, const char *field, int64_t width, mha_error *err);
/* kv_heads (0 = heads) must divide heads. */
mha_status mha__share_heads(mha_variant *v, int64_t kv_heads, mha_error *err);
mha_status mha__check_dropout(const mha_variant *v, mha_error *err); /* and context_length */
mha_status mha__check_scale(mha_variant *v, mha_scale_rule rule, mha_error *err);
mha_status mha__check_selection(const mha_variant *v, mha_error *err);

/* Pointers to a parameter's numbers and to its gradient. */
static inline char *mha__value(const mha_variant *v, int parameter)
{
    return v->values[parameter].data;
}
static inline char *mha__gradient(const mha_variant *v, int parameter)
{
    return v->gradients[parameter].data;
}

/* Reals of either type, where a loop is too short to matter. */
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
    const mha_variant *layer; /* of the last forward call, compared only; NULL = none, or it failed */
    int64_t B, Lq, Ln, P, Lk; /* Ln tokens of key, P past ones; Lk = P + Ln */
    int64_t n;                /* heads computed for each sample, at most */
    int64_t width;            /* of a row of context */
    int64_t flops;
    mha_step_view step[MHA__STEPS]; /* for those who look: the layer may be gone by then */
    char *query_q;                  /* [B Lq, H D] */
    char *key_k, *value_v;          /* [B Ln, Hkv D] new tokens */
    char *past_k, *past_v;          /* [B, Hkv, Lk, D] with past ones in front, or NULL */
    char *context;                  /* [B Lq, n D] */
    char *mixed;                    /* [B Lq, d_model] of experts, or NULL */
    char *lse;                      /* [B, n, Lq] */
    char *weights, *scores;         /* [B, n, Lq, Lk] */
    char *mean, *hidden, *logits;   /* [B, d_in], [B, predictor width], [B, choices] */
    char *gates;                    /* [B, mha__gate_row]: the operator's, by head */
    char *gate;                     /* [B, chosen] what the gates are made of */
    int32_t *choice;                /* [B, chosen], or NULL without a selector */
    int64_t chosen;                 /* for each sample */
    int64_t *heads;                 /* [B] with MHA_CHOICE_OPTIONS, else NULL: all have n */
    uint8_t *parts;                 /* [choices] scratch: what one sample computes */
    double *soft;                   /* [B, choices] trained gates (selection_gates.h) */
    double *choice_gate;            /* [choices] scratch: scores of one sample, then its gates */
    int64_t *offsets;               /* [B] = P */
    float *cos, *sin;               /* [B Lq, R / 2] */
    /* masks, as the operator takes them */
    mha_cview keep, bias, drop;
    bool opens_rows;   /* keep leaves some row without a key; it is a copy then, and q of that row is 0 */
    bool drops, draws; /* weights are dropped; by the mask drawn here */
    int64_t keep_shape[4];
    uint8_t *keep_memory, *drop_memory, *empty; /* empty [keep_shape[0], keep_shape[1], Lq] */
    char *bias_memory;
};

/* Samples first .. first + count - 1 attended by one call of the operator. */
typedef struct mha__run {
    int64_t first, count;
    int64_t heads, head_dim;
    const int32_t *list; /* heads to compute, or NULL = all */
    int64_t listed;      /* how many are computed */
} mha__run;

/* variant_input.c */
mha_status mha__variant_input(const mha_variant *v, mha_variant_input *local, const mha_variant_input *given,
                              mha_error *err);
/* Before, while, and after the trace gets its memory. */
void mha__look_at_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t);
void mha__place_masks(const mha_variant *v, const mha_variant_input *in, mha__arena *arena, mha_trace *t);
mha_status mha__fill_masks(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err);
/* Sets q, or its gradient, [B Lq, H D], to 0 in rows that keep leaves without a key. */
void mha__clear_empty_rows(const mha_variant *v, const mha_trace *t, char *q);

/* variant_select.c */
void mha__select(const mha_variant *v, const mha_variant_input *in, mha_trace *t);
/* True if the heads' outputs are multiplied by gates, [B, mha__gate_row] of them. */
bool mha__gated(const mha_variant *v);
int64_t mha__gate_row(const mha_variant *v, const mha_trace *t);
/* Calls of the operator that the choice asks for. */
int64_t mha__runs(const mha_variant *v, const mha_trace *t);
mha__run mha__run_of(const mha_variant *v, const mha_trace *t, int64_t r);
/* True if a sample has heads that are not computed; parts[choices] then says which are. */
bool mha__leaves_heads_out(const mha_variant *v);
void mha__chosen_parts(const mha_variant *v, const mha_trace *t, int64_t b, uint8_t *parts);
/* From the gradients of the gates, [B, choices], 0 for those not chosen, to those of the selector's parameters; adds to
 * dquery (or NULL). Overwrites dgate. */
mha_status mha__select_backward(mha_variant *v, const mha_trace *t, double *dgate, char *dquery, mha_error *err);

/* variant_trace.c: what mha_trace_step will answer, at the end of a forward call. */
void mha__show_steps(const mha_variant *v, mha_trace *t);

/* variant_attend.c: all runs, from q, k, v to context. */
mha_status mha__attend(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err);
/* Gradients laid out as query_q, as key_k or past_k, and as gates; those of heads not computed are left alone. */
typedef struct mha__attend_grads {
    char *dq, *dk, *dv;
    char *dgates; /* NULL without a selector */
} mha__attend_grads;
mha_status mha__attend_backward(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
                                const char *dcontext, const mha__attend_grads *grads, mha_error *err);

/* variant_backward.c: gradients of one projection. Zero fields are the plain case. */
typedef struct mha__dense_grad {
    int64_t rows;
    const char *x, *dy;
    int64_t x_stride, dy_stride; /* 0 = contiguous */
    char *dx;                    /* NULL = not wanted; replaced, or += with add_dx */
    int64_t dx_stride;           /* likewise */
    bool add_dx;
    const uint8_t *parts; /* those that have gradients; NULL = all */
    int64_t dy_first;     /* the column of y that lies at dy */
    int64_t first, depth; /* inputs `first` .. of W belong to x; depth 0 = all */
    bool skip_bias, bias_only;
} mha__dense_grad;
mha_status mha__dense_backward(mha_variant *v, int dense, const mha__dense_grad *g, mha_error *err);

#endif
