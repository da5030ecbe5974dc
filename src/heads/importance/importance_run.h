/* importance_run.h - one measurement of importance in progress. Public side: mha/importance.h.
 *
 * Units (texts, or pairs of texts) form groups: the units that share one mean loss, or a fixed number if there is no
 * loss. A score processes a step at a time, a whole group or some units of it, and returns the value of each of its
 * texts. These values are summed as integers, so the order of the steps does not matter. */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_RUN_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_RUN_H

#include <stdbool.h>

#include "heads/data/batch_packer.h"
#include "heads/importance/importance_intervals.h"
#include "mha/importance.h"
#include "mha/model_grads.h"

typedef struct mha__importance_job mha__importance_job;

/* How a score is derived from its mean over units: the mean itself, its absolute value, or the mean divided by the L2
 * norm of its layer's means. */
typedef enum mha__importance_form { MHA__FORM_MEAN, MHA__FORM_ABS, MHA__FORM_LAYER_L2 } mha__importance_form;

/* Alternative formulas for the gradient of a gate, summed over the texts of a step. */
enum { MHA__FORM_GATE, MHA__FORM_CONTEXT, MHA__FORM_OUT, MHA__FORM_VALUE, MHA__FORMS };

/* Counts of texts and groups so far; whether the ranking had converged after the group before the last, and after the
 * last. */
enum { MHA__TEXTS, MHA__GROUPS, MHA__BEFORE, MHA__SETTLED, MHA__COUNTS };

typedef struct mha__importance_rule {
    /* Processes one step: fills s->part, or adds to s->tally itself. */
    mha_status (*group)(mha__importance_job *s, mha_error *err);
    /* For scores with a loss: reads the values of one batch after its backward pass; NULL = only sums. */
    void (*take)(mha__importance_job *s, const mha__packed *batch);
    /* Computes the value of one head, for scores from the weights only; replaces the other callbacks. */
    mha_status (*weights)(const mha_model *model, int64_t layer, int64_t head, double *value, mha_error *err);
    mha__importance_form form;
    bool loss;       /* requires a loss */
    bool parameters; /* requires gradients of the projections */
    bool taylor;     /* requires row_taylor: the first-order effect of single attention weights */
    bool forward;    /* requires no gradients */
    bool negative;   /* values may be negative */
    bool adds;       /* `group` adds to the tally: a group is one unit */
} mha__importance_rule;

struct mha__importance_job {
    mha_ctx *ctx;
    const mha_model *model;
    const mha_model_info *info;
    const mha_head_data *data;
    const mha__importance_rule *rule;
    mha_importance_options options; /* options with defaults set */
    int64_t total;                  /* layers H */
    int64_t units, per_group;       /* number of units in the data, and per group */

    int64_t group, group_units; /* the current group, and its size */
    int64_t terms;              /* tokens in the mean loss of the current group */
    int64_t first, count;       /* of the current step: its first unit, and its size */
    int64_t texts;              /* texts in the step: count, or 2 count */
    int64_t *text;              /* [texts] indices into the data: the units, or all a, then all b */
    int64_t done;               /* number of texts in earlier steps */
    int64_t done_here;          /* number of finished texts in this step */
    double *part;               /* [texts, total] value of each text */
    double *weight;             /* [texts] */

    mha__packer packer;
    int64_t *label_at;
    mha_model_grads *grads;
    float *gates;   /* [layers, B, H] gradients of a batch's gates */
    float *hidden;  /* [tokens, E] last hidden states of a batch, and their gradient */
    double *unit;   /* [texts, E] text embeddings */
    double *dunit;  /* [texts, E] gradients of the text embeddings */
    double *length; /* [texts] norms of the text embeddings */
    double *means;  /* [layers, H, D] for ablation; NULL = not used */
    void *memory;   /* owns these arrays */

    float *logits;     /* [B, vocab] decoders: probabilities of the token after each text */
    float *dlogits;    /* [B, vocab] */
    double *direction; /* [E or vocab] */

    const mha__packed *batch;  /* current batch */
    double *forms[MHA__FORMS]; /* [total] */

    mha__tally tally;
    int64_t *counts;                      /* [MHA__COUNTS], in the tally as the following sums */
    mha__fixed *loss;                     /* over groups */
    mha__fixed *forms_gate, *forms_apart; /* [total] over steps: |gradient|, and the largest difference of its forms */
};

extern const mha__importance_rule mha__importance_rules[MHA_IMPORTANCE_SCORES];

/* Returns where the values of row b of a batch go, by the index of its text in the step. */
static inline double *mha__importance_part(const mha__importance_job *s, const mha__packed *batch, int64_t b)
{
    return s->part + batch->place[b] * s->total;
}
/* Returns the gradient of the gate of head n = l H + h for sequence b. */
static inline double mha__importance_gate(const mha__importance_job *s, const mha__packed *batch, int64_t b, int64_t n)
{
    const int64_t H = s->info->heads;
    return (double)s->gates[(n / H * batch->input.batch + b) * H + n % H];
}

/* Returns true if the Jacobian is that of the log-probabilities of the next token, as for decoders with logits. */
static inline bool mha__jacobian_of_logits(const mha__importance_job *s)
{
    const bool jacobian = s->options.by == MHA_IMPORTANCE_JACOBIAN || s->options.by == MHA_IMPORTANCE_JACOBIAN_PROBE;
    return jacobian && s->info->causal && s->info->logits;
}

static inline bool mha__importance_of_pairs(const mha__importance_job *s)
{
    return s->rule->loss && s->options.loss == MHA_LOSS_PAIRS;
}

/* Opens a measurement: allocates memory for these options. Free with mha__importance_close, also after a failure. */
mha_status mha__importance_open(mha__importance_job *s, const mha_model *model, const mha_head_data *data,
                                const mha_importance_options *options, mha_error *err);
void mha__importance_close(mha__importance_job *s);
/* Runs all steps, or those until the ranking has converged (importance_steps.c). */
mha_status mha__importance_run_steps(mha__importance_job *s, mha_error *err);
/* Returns the number of steps, and the maximum number of units in one, except a last group of pairs with one more. */
int64_t mha__importance_steps(const mha__importance_job *s);
int64_t mha__importance_step_units(const mha__importance_job *s);
/* Returns the number of texts before a step, of a job; all texts for step = steps. */
int64_t mha__importance_texts_before(const void *job, int64_t step);
/* Writes `what` and everything that the result depends on besides model and data to `words`, and returns it. */
enum { MHA__IMPORTANCE_WORDS = 320 };
const char *mha__importance_describe(const mha__importance_job *s, const char *what, char words[MHA__IMPORTANCE_WORDS]);
/* Begins a step: sets the fields above. */
mha_status mha__importance_begin(mha__importance_job *s, int64_t step, mha_error *err);

/* Computes the loss of the step's texts, forward and backward, batch by batch; rule->take is called for each. */
mha_status mha__importance_loss(mha__importance_job *s, mha_error *err);
/* Computes the text embeddings of a batch from its last hidden states. */
void mha__importance_units(mha__importance_job *s, const mha__packed *batch);
/* Reports the progress after a batch. */
mha_status mha__importance_step(mha__importance_job *s, const mha__packed *batch, mha_error *err);

/* on_context callback of a backward pass: computes the Taylor scores of tokens and weights. */
int mha__importance_context(void *user, const mha_model_context_gradient *gradient);
/* Forms of the gradient of gates. They are called at the start of a step, after each batch, after the step if
 * gradients of the projections exist, and at the end, to compare the first `forms` forms. */
void mha__identity_begin(mha__importance_job *s);
void mha__identity_gates(mha__importance_job *s);
mha_status mha__identity_weights(mha__importance_job *s, mha_error *err);
void mha__identity_end(mha__importance_job *s, int forms);
/* Returns the result of the comparisons: the largest sum of differences, relative to the largest sum of gradients. */
double mha__identity(const mha__importance_job *s);

/* Implementations of the scores. */
void mha__take_gate(mha__importance_job *s, const mha__packed *batch);
void mha__take_gate_batch(mha__importance_job *s, const mha__packed *batch);
mha_status mha__group_gradmag(mha__importance_job *s, mha_error *err);
mha_status mha__group_jacobian(mha__importance_job *s, mha_error *err);
mha_status mha__group_confidence(mha__importance_job *s, mha_error *err);
mha_status mha__group_ablation(mha__importance_job *s, mha_error *err);
/* Computes s->means for the ablations that need them. */
mha_status mha__importance_means(mha__importance_job *s, mha_error *err);
mha_status mha__ov_norm(const mha_model *model, int64_t layer, int64_t head, double *value, mha_error *err);
mha_status mha__qk_norm(const mha_model *model, int64_t layer, int64_t head, double *value, mha_error *err);

#endif
