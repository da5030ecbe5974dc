/* importance_run.h - the state of one measurement of importance. Public header: mha/importance.h.
 *
 * Units (texts, or pairs of texts) form groups: the units that share one mean loss, or a fixed number of units if there
 * is no loss. The rule of a score processes one step at a time and computes a value for each text of the step. A step
 * is a whole group or some of its units. These values are summed as integers, so the order of the steps does not
 * matter. */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_RUN_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_RUN_H

#include "heads/data/batch_packer.h"
#include "heads/importance/importance_intervals.h"
#include "heads/measure/head_measures.h"
#include "heads/weights/head_kinds.h"
#include "mha/importance.h"
#include "mha/model_grads.h"
#include <stdbool.h>

typedef struct mha__importance_job mha__importance_job;

/* How a score is derived from its mean over units: the mean itself, its absolute value, or the mean divided by the L2
 * norm of its layer's means. */
typedef enum mha__importance_form { MHA__FORM_MEAN, MHA__FORM_ABS, MHA__FORM_LAYER_L2 } mha__importance_form;

/* Alternative formulas for the gradient of a gate, summed over the texts of a step (importance_taylor.c). */
enum { MHA__FORM_GATE, MHA__FORM_CONTEXT, MHA__FORM_OUT, MHA__FORM_VALUE, MHA__FORMS };

/* Indices of `counts`: the number of finished texts, and of finished groups; whether the ranking had converged before
 * the last group, and after it. */
enum { MHA__TEXTS, MHA__GROUPS, MHA__BEFORE, MHA__SETTLED, MHA__COUNTS };

typedef struct mha__importance_rule {
    /* Processes one step: writes the values to s->part, or adds them to s->tally. */
    mha_status (*group)(mha__importance_job *s, mha_error *err);
    /* For scores with a loss: computes the values of one batch after its backward pass; NULL = not needed. */
    void (*take)(mha__importance_job *s, const mha__packed *batch);
    /* For scores from the weights only: computes the value of one head; the other callbacks are not called. */
    mha_status (*weights)(const mha__head_set *set, int64_t layer, int64_t head, double *value, mha_error *err);
    mha__importance_form form;
    bool loss;       /* requires a loss */
    bool parameters; /* requires gradients of the projections */
    bool taylor;     /* requires row_taylor, the first-order effect of single attention weights */
    bool forward;    /* requires no gradients */
    bool negative;   /* values may be negative */
    bool adds;       /* `group` adds to the tally itself: a group is one unit */
} mha__importance_rule;

struct mha__importance_job {
    mha_ctx *ctx;
    const mha_model *model;
    const mha_model_info *info;
    const mha_head_data *data;
    const mha__importance_rule *rule;
    mha_importance_options options; /* options with defaults set */
    mha__head_sets sets;            /* the kinds of heads */
    int64_t total;                  /* sets.total: layers H, summed over kinds */
    int64_t units, per_group;       /* number of units in the data, and per group */

    int64_t group, group_units; /* the current group, and its size */
    int64_t terms;              /* tokens in the mean loss of the current group */
    int64_t first, count;       /* first unit of the current step, and its number of units */
    int64_t texts;              /* number of texts in the step: count, or 2 count for pairs */
    int64_t max_texts;          /* maximum of `texts` */
    int64_t *text;              /* [texts] indices into the data; for pairs, all texts a, then all texts b */
    int64_t done;               /* number of texts in earlier steps */
    int64_t done_here;          /* number of finished texts in this step */
    double *part;               /* [texts, total] value of each text */
    double *weight;             /* [texts] */

    mha__packer packer;
    int64_t *label_at;
    mha_model_grads *grads;
    float *gates;   /* [layers, B, H] gradients of a batch's gates, kind after kind */
    float *hidden;  /* [tokens, E] last hidden states of a batch, and their gradient */
    double *unit;   /* [texts, E] text embeddings */
    double *dunit;  /* [texts, E] gradients of the text embeddings */
    double *length; /* [texts] norms of the text embeddings */
    double *means;  /* [sets.cells] for ablation; NULL = not used */
    void *memory;   /* the allocation that contains the arrays of this struct */

    float *logits;     /* [B, vocab] decoders: probabilities of the token after each text */
    float *dlogits;    /* [B, vocab] */
    double *direction; /* [E or vocab] */

    mha__heads_job *statistics; /* of all heads, from the forward passes of this measurement; NULL = none */
    const mha__packed *batch;   /* current batch */
    double *forms[MHA__FORMS];  /* [total] */

    mha__tally tally;
    int64_t *counts;                      /* [MHA__COUNTS], in the tally as the following sums */
    mha__fixed *loss;                     /* sum of the mean losses of the groups */
    mha__fixed *forms_gate, *forms_apart; /* [total] sums of |gradient|, and of the largest difference between its
                                           * forms */
};

extern const mha__importance_rule mha__importance_rules[MHA_IMPORTANCE_SCORES];

/* Returns the array [total] for the values of sequence b of a batch, in s->part. */
static inline double *mha__importance_part(const mha__importance_job *s, const mha__packed *batch, int64_t b)
{
    return s->part + batch->place[b] * s->total;
}
/* Returns the gradients [layers, B, H] of the gates of a kind for a batch; NULL if the model does not have the kind. */
static inline float *mha__importance_gates(const mha__importance_job *s, const mha__packed *batch, mha_head_kind kind)
{
    const bool there = (int)kind < s->sets.count;
    return there ? s->gates + s->sets.set[kind].first * batch->input.batch : NULL;
}
/* Returns the gradient of the gate of head n for sequence b; in the arrays of a kind, n = l H + h. */
static inline double mha__importance_gate(const mha__importance_job *s, const mha__packed *batch, int64_t b, int64_t n)
{
    const mha__head_set *set = mha__head_set_at(&s->sets, n);
    const int64_t H = set->heads, at = n - set->first;
    return (double)mha__importance_gates(s, batch, set->kind)[(at / H * batch->input.batch + b) * H + at % H];
}

/* Returns true for a Jacobian score of a decoder with logits, which uses the log-probabilities of the next token. The
 * texts of an encoder-decoder are complete, so that no token follows them. */
static inline bool mha__jacobian_of_logits(const mha__importance_job *s)
{
    const bool jacobian = s->options.by == MHA_IMPORTANCE_JACOBIAN || s->options.by == MHA_IMPORTANCE_JACOBIAN_PROBE;
    return jacobian && s->info->causal && s->info->logits && !s->info->encoder_decoder;
}

static inline bool mha__importance_of_pairs(const mha__importance_job *s)
{
    return s->rule->loss && s->options.loss == MHA_LOSS_PAIRS;
}

/* Opens a measurement: allocates memory for these options. Free with mha__importance_close, also after a failure. */
mha_status mha__importance_open(mha__importance_job *s, const mha_model *model, const mha_head_data *data,
                                const mha_importance_options *options, mha_error *err);
void mha__importance_close(mha__importance_job *s);
/* Runs all steps, or only the steps until the ranking has converged (importance_steps.c). */
mha_status mha__importance_run_steps(mha__importance_job *s, mha_error *err);
/* Return the number of steps, and the maximum number of units per step. The last group of pairs may have one more
 * unit. */
int64_t mha__importance_steps(const mha__importance_job *s);
int64_t mha__importance_step_units(const mha__importance_job *s);
/* Returns the number of texts before a step of `job` (an mha__importance_job); for step = steps, the number of all
 * texts. */
int64_t mha__importance_texts_before(const void *job, int64_t step);
/* Writes `what` and everything except model and data that the result depends on to `words`, and returns `words`. */
enum { MHA__IMPORTANCE_WORDS = 320 };
const char *mha__importance_describe(const mha__importance_job *s, const char *what, char words[MHA__IMPORTANCE_WORDS]);
/* Checks that the loss of each group has a token. */
mha_status mha__importance_check_terms(const mha__importance_job *s, mha_error *err);
/* Adds the scores s->part [total] of a group, which is one unit. MHA_ERR_NOT_FINITE if a score is not finite. */
mha_status mha__importance_add_group(mha__importance_job *s, mha_error *err);
/* Begins a step: sets the fields of the job that describe it. */
void mha__importance_begin(mha__importance_job *s, int64_t step);

/* Requests the rows of probabilities of a batch in `output`, if they are measured. */
void mha__importance_rows(const mha__importance_job *s, const mha__packed *batch, mha_model_output *output);

/* Computes the loss of the step's texts and its gradient, batch by batch; calls rule->take after each batch. */
mha_status mha__importance_loss(mha__importance_job *s, mha_error *err);
/* Computes the text embeddings of a batch from its last hidden states. */
void mha__importance_units(mha__importance_job *s, const mha__packed *batch);
/* Reports the progress after a batch. */
mha_status mha__importance_step(mha__importance_job *s, const mha__packed *batch, mha_error *err);

/* on_context callback of a backward pass: computes the Taylor scores of tokens and weights. */
int mha__importance_context(void *user, const mha_model_context_gradient *gradient);
/* Compute and compare the forms of the gradient of gates. The functions are called, in this order: at the start of a
 * step; after each batch; after the last batch, if gradients of the projections exist; at the end of the step, to
 * compare the first `forms` forms. mha__identity_shared returns true if layers share their tensors, where the gradient
 * of a projection is a sum over layers, or if heads share projections; forms of projections are then left out. */
void mha__identity_begin(mha__importance_job *s);
void mha__identity_gates(mha__importance_job *s);
bool mha__identity_shared(const mha__importance_job *s);
mha_status mha__identity_weights(mha__importance_job *s, mha_error *err);
void mha__identity_end(mha__importance_job *s, int forms);
/* Returns the result of all comparisons: the largest element of forms_apart divided by the largest of forms_gate. */
double mha__identity(const mha__importance_job *s);

/* Returns the gradients of the weights of a kind of heads. */
mha_model_grads *mha__importance_grads(const mha__importance_job *s, const mha__head_set *set);

/* Implementations of the scores. */
void mha__take_gate(mha__importance_job *s, const mha__packed *batch);
void mha__take_gate_batch(mha__importance_job *s, const mha__packed *batch);
mha_status mha__group_gradmag(mha__importance_job *s, mha_error *err);
mha_status mha__group_jacobian(mha__importance_job *s, mha_error *err);
mha_status mha__group_confidence(mha__importance_job *s, mha_error *err);
mha_status mha__group_ablation(mha__importance_job *s, mha_error *err);
/* Computes s->means for the ablations that need them. */
mha_status mha__importance_means(mha__importance_job *s, mha_error *err);
mha_status mha__ov_norm(const mha__head_set *set, int64_t layer, int64_t head, double *value, mha_error *err);
mha_status mha__qk_norm(const mha__head_set *set, int64_t layer, int64_t head, double *value, mha_error *err);

#endif
