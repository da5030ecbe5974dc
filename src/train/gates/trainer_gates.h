/* trainer_gates.h - the head gates that a trainer trains. The public interface is mha_train_gates in mha/train.h.
 *
 * During a step, the model contains the trained output projections, and the gates are an input of the forward pass.
 * Between steps, the model contains the products of projections and gates, so that it can be run and saved like any
 * other model. */
#ifndef MHA_TRAIN_GATES_TRAINER_GATES_H
#define MHA_TRAIN_GATES_TRAINER_GATES_H

#include "mha/train.h"
#include <stdbool.h>

struct mha_trainer;

/* Indices into mha__gates.control. */
enum { MHA__GATES_BASE, MHA__GATES_TAKEN, MHA__GATES_SETTLED, MHA__GATES_CONTROL };

/* A trained output projection, and the tensor in the trainer's list that contains its product with the gates. */
typedef struct mha__gated {
    float *raw;
    int64_t heads, parameter; /* heads: head count of the layer; parameter: index in the trainer's list */
    /* layout of a head's weights: `outer` runs of `inner` elements; the runs of all heads are adjacent */
    int64_t outer, inner;
} mha__gated;

/* Gates of a trainer. Arrays are [layers, H] unless noted. State and arithmetic are double. */
typedef struct mha__gates {
    mha_train_gates o; /* options with defaults set */
    int64_t layers, heads, total;
    double *value, *mean, *square;
    double *control;         /* [MHA__GATES_CONTROL] log of base strength, steps (0 once frozen), 1 = frozen */
    double *gradient;        /* gradient of the loss with respect to `value`, summed over labels */
    int64_t sampled;         /* number of sequences in this step with sampled gates */
    float *chosen;           /* scratch: heads to keep */
    float *shown;            /* the gates that are multiplied into the model */
    mha__gated *layer;       /* [layers] */
    mha_named_tensor *state; /* [state_count] */
    int64_t state_count;
    bool lifted; /* true if the model contains the trained projections, without gates */
    void *memory;
} mha__gates;

/* Sets the defaults of the gate options and rejects values out of range. */
mha_status mha__gates_options(mha_train_gates *o, mha_error *err);

/* Creates t->gates from t->o.gates; all gates are open. t->model must be open. */
mha_status mha__gates_create(struct mha_trainer *t, mha_error *err);

/* Checks the state of the gates after it was read. The model must contain the products of projections and gates.
 * Errors: MHA_ERR_FORMAT. */
mha_status mha__gates_resume(struct mha_trainer *t, mha_error *err);

/* Copies the trained projections into the model for the next step. Call mha__gates_end afterwards, even on failure. */
mha_status mha__gates_begin(struct mha_trainer *t, mha_error *err);
/* Returns MHA_ERR_NOT_FINITE if the gradient of a gate is not finite. */
mha_status mha__gates_check(const struct mha_trainer *t, mha_error *err);
/* Updates the gates after step t->step; `scale` converts the summed gradient to a mean. Sets the gate fields of the
 * report. */
void mha__gates_update(struct mha_trainer *t, double scale, mha_train_report *report);
/* Writes the products of projections and gates into the model. The caller must repack its weights. */
void mha__gates_end(struct mha_trainer *t);

/* mha__gates_settled returns true once the set of open gates is final. mha__gates_has returns true if the layer of gate
 * `at` has the head of that gate. */
static inline bool mha__gates_settled(const mha__gates *g)
{
    return g->control[MHA__GATES_SETTLED] != 0;
}

static inline bool mha__gates_has(const mha__gates *g, int64_t at)
{
    return at % g->heads < g->layer[at / g->heads].heads;
}

/* Functions shared by the source files of this folder. mha__gates_lift copies the trained projections into the model.
 * mha__gates_show updates `shown` from the state. mha__gates_begun returns true once the gates have taken a step; until
 * then, all gates are 1. mha__gates_expected returns the expected number of open heads. */
mha_status mha__gates_lift(struct mha_trainer *t, mha_error *err);
void mha__gates_show(mha__gates *g);
bool mha__gates_begun(const mha__gates *g);
double mha__gates_expected(const mha__gates *g);

/* Returns true for L0 gates with a target head count. For these gates, `gradient` is the derivative with respect to u
 * instead of `value`, and `mean` is its running mean: the change in the loss when the gate opens. */
bool mha__gates_priced(const mha__gates *g);
/* Moves priced gates one step towards `target` open gates. Returns the price of a head [nats]; 0 until the price is
 * known. */
double mha__gates_move_priced(mha__gates *g, double target, double scale);

/* Samples the gates of the next `batch` sequences of the step. */
void mha__gates_draw(struct mha_trainer *t, int64_t batch, float *gates, float *slopes);

/* ---- gates of a batch ---- */

/* A training batch with the gates of this step. If no gates are trained, or for evaluation, it is the unchanged
 * batch. */
typedef struct mha__gates_batch {
    mha_train_batch batch;
    mha_model_input input;
    float *gates, *slopes, *dgates; /* [layers, B, H]; slopes: derivatives of the gates with respect to `value` */
} mha__gates_batch;

/* Samples the gates of a batch and adds them to its input. Fails if the batch already has gates. */
mha_status mha__gates_take(struct mha_trainer *t, const mha_train_batch *batch, bool learn, mha__gates_batch *own,
                           mha_error *err);
/* Adds dgates to the gradient and frees the batch. */
void mha__gates_give(struct mha_trainer *t, mha__gates_batch *own);

/* ---- hard concrete formulas ---- */

/* Formulas for a hard concrete gate z with log-alpha a. mha__gate_open returns P(z > 0), mha__gate_mean the
 * deterministic z for evaluation, mha__gate_sampled the sample z for a uniform u and its derivative with respect to
 * a. */
double mha__gate_open(double a);
double mha__gate_mean(double a);
double mha__gate_sampled(double a, double u, double *slope);

#endif
