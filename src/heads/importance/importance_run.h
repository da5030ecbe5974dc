/* importance_run.h - one measurement of importance while it runs. Public side: mha/importance.h.
 *
 * Units (texts, or pairs of them) are taken in groups: those whose loss is one mean, or a handful where there is no
 * loss. A score reads one group at a time and returns the value of each of its texts; these are added up in the given
 * order, whatever order they ran in.
 */
#ifndef MHA_HEADS_IMPORTANCE_IMPORTANCE_RUN_H
#define MHA_HEADS_IMPORTANCE_IMPORTANCE_RUN_H

#include <stdbool.h>

#include "heads/data/batch_packer.h"
#include "heads/importance/importance_intervals.h"
#include "mha/importance.h"
#include "mha/model_grads.h"

typedef struct mha__importance_job mha__importance_job;

/* What becomes of the mean over units. */
typedef enum mha__importance_form { MHA__FORM_MEAN, MHA__FORM_ABS, MHA__FORM_LAYER_L2 } mha__importance_form;

/* Ways to the gradient of a gate, of all texts of a group. */
enum { MHA__FORM_GATE, MHA__FORM_CONTEXT, MHA__FORM_OUT, MHA__FORM_VALUE, MHA__FORMS };

enum { MHA__KEPT = 11 };

typedef struct mha__importance_rule {
    /* One group: fills s->part, or adds to s->tally itself. */
    mha_status (*group)(mha__importance_job *s, mha_error *err);
    /* Of scores with a loss: the values of one batch, after its backward pass; NULL = only sums. */
    void (*take)(mha__importance_job *s, const mha__packed *batch);
    /* Of scores of the weights alone, in place of all that: every head's value. */
    mha_status (*weights)(const mha_model *model, int64_t layer, int64_t head, double *value, mha_error *err);
    mha__importance_form form;
    bool loss;       /* needs one */
    bool parameters; /* needs gradients of the projections */
    bool taylor;     /* needs what single weights of a row are worth */
    bool forward;    /* needs no gradients at all */
    bool negative;   /* may be below 0 */
    bool adds;       /* `group` adds to the tally: its units are groups */
} mha__importance_rule;

struct mha__importance_job {
    mha_ctx *ctx;
    const mha_model *model;
    const mha_model_info *info;
    const mha_head_data *data;
    const mha__importance_rule *rule;
    mha_importance_options options; /* defaults filled in */
    int64_t total;                  /* layers H */
    int64_t units, per_group;       /* of the data */

    int64_t first, count; /* the group: its first unit, and how many */
    int64_t texts;        /* its texts: count, or 2 count */
    int64_t *text;        /* [texts] as the data counts them: the units, or all a, then all b */
    int64_t done;         /* texts of the groups before */
    int64_t done_here;    /* and of this group */
    double *part;         /* [texts, total] what each gave */
    double *weight;       /* [texts] */

    mha__packer packer;
    int64_t *label_at;
    mha_model_grads *grads;
    float *gates;   /* [layers, B, H] gradients of a batch's gates */
    float *hidden;  /* [tokens, E] last hidden states of a batch, and their gradient */
    double *unit;   /* [texts, E] sentence vectors */
    double *dunit;  /* [texts, E] their gradient */
    double *length; /* [texts] */
    double *means;  /* [layers, H, D] of ablation; NULL = not there */
    void *memory;   /* of all that */

    float *logits;     /* [B, vocab] decoders: probabilities of what follows a batch's texts */
    float *dlogits;    /* [B, vocab] */
    double *direction; /* [E or vocab] */

    const mha__packed *batch;  /* under way */
    double *forms[MHA__FORMS]; /* [total] */
    double identity;           /* the largest difference of forms so far, beside the largest gradient */

    bool before, settled;   /* by the last but one group, and by the last */
    double kept[MHA__KEPT]; /* what a state file has beside the tally's arrays */

    mha__tally tally;
    double loss; /* sum over groups */
    int64_t groups;
};

extern const mha__importance_rule mha__importance_rules[MHA_IMPORTANCE_SCORES];

/* Which text of the group row b of a batch is, and where that text's numbers go. */
static inline double *mha__importance_part(const mha__importance_job *s, const mha__packed *batch, int64_t b)
{
    return s->part + batch->place[b] * s->total;
}
/* The gradient of the gates of sequence b: head h of layer l at [l B H + h]. */
static inline double mha__importance_gate(const mha__importance_job *s, const mha__packed *batch, int64_t b, int64_t n)
{
    const int64_t H = s->info->heads;
    return (double)s->gates[(n / H * batch->input.batch + b) * H + n % H];
}

/* Scoring in steps: memory and groups of these options. Freed with mha__importance_close, also after a failure. */
mha_status mha__importance_open(mha__importance_job *s, const mha_model *model, const mha_head_data *data,
                                const mha_importance_options *options, mha_error *err);
void mha__importance_close(mha__importance_job *s);
/* Runs all groups, from where the state file of the options has come to (importance_state.c). */
mha_status mha__importance_groups(mha__importance_job *s, mha_error *err);
/* Begins the next group; false after the last one. And runs it. */
bool mha__importance_next(mha__importance_job *s);
mha_status mha__importance_group(mha__importance_job *s, mha_error *err);

/* The group's loss, forward and back, batch by batch; rule->take sees each. */
mha_status mha__importance_loss(mha__importance_job *s, mha_error *err);
/* Sentence vectors of a batch, from its last hidden states. */
void mha__importance_units(mha__importance_job *s, const mha__packed *batch);
/* A batch is done: progress. */
mha_status mha__importance_step(mha__importance_job *s, const mha__packed *batch, mha_error *err);

/* on_context of a backward pass: the Taylor scores of tokens and weights. */
int mha__importance_context(void *user, const mha_model_context_gradient *gradient);
/* Forms of the gates' gradients: at the beginning of a group, behind each batch, behind the group where the gradients
 * of the projections are there, and the comparison of the first `forms`. */
void mha__identity_begin(mha__importance_job *s);
void mha__identity_gates(mha__importance_job *s);
mha_status mha__identity_weights(mha__importance_job *s, mha_error *err);
void mha__identity_end(mha__importance_job *s, int forms);

/* The scores. */
void mha__take_gate(mha__importance_job *s, const mha__packed *batch);
void mha__take_gate_batch(mha__importance_job *s, const mha__packed *batch);
mha_status mha__group_gradmag(mha__importance_job *s, mha_error *err);
/* True if its e is the log-probabilities of what follows: of decoders with logits. */
bool mha__jacobian_of_logits(const mha__importance_job *s);
mha_status mha__group_jacobian(mha__importance_job *s, mha_error *err);
mha_status mha__group_confidence(mha__importance_job *s, mha_error *err);
mha_status mha__group_ablation(mha__importance_job *s, mha_error *err);
mha_status mha__ov_norm(const mha_model *model, int64_t layer, int64_t head, double *value, mha_error *err);
mha_status mha__qk_norm(const mha_model *model, int64_t layer, int64_t head, double *value, mha_error *err);

#endif
