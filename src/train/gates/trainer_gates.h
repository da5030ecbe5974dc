/* trainer_gates.h - heads that learn to close: the gates of a trainer. Public side: mha_train_gates of mha/train.h.
 *
 * While a step runs, the model holds the output projections as they learn, and the gates are an input of the pass.
 * Between steps the model holds their products with the gates, so that whoever runs or saves it gets what was learned.
 */
#ifndef MHA_TRAIN_GATES_TRAINER_GATES_H
#define MHA_TRAIN_GATES_TRAINER_GATES_H

#include "mha/train.h"
#include <stdbool.h>

struct mha_trainer;

/* Numbers that are kept with the gates. */
enum { MHA__GATES_BASE, MHA__GATES_TAKEN, MHA__GATES_SETTLED, MHA__GATES_CONTROL };

/* An output projection as it learns, and the tensor of the trainer's list that holds its product. */
typedef struct mha__gated {
    float *raw;
    int64_t heads, parameter; /* heads that the layer has */
    int64_t outer, inner;     /* a head's numbers: `outer` runs of `inner`, all heads' runs side by side */
} mha__gated;

/* Arrays are [layers, H]. The state is double, and so is all arithmetic with it. */
typedef struct mha__gates {
    mha_train_gates o; /* defaults filled in */
    int64_t layers, heads, total;
    double *value, *mean, *square;
    double *control;   /* [MHA__GATES_CONTROL] log of the strength's base, steps taken (0 when settled), 1 = settled */
    double *gradient;  /* of the loss by `value`, sum over labels */
    int64_t drawn;     /* sequences of this step that have their gates */
    float *chosen;     /* scratch: which heads stay */
    float *shown;      /* the gates that the model holds */
    mha__gated *layer; /* [layers] */
    mha_named_tensor *state; /* [state_count] */
    int64_t state_count;
    bool lifted; /* the model holds the projections as they learn */
    void *memory;
} mha__gates;

/* Fills in defaults, and refuses what is out of range. */
mha_status mha__gates_options(mha_train_gates *o, mha_error *err);

/* Makes t->gates of t->o.gates, all open. The model is open already. */
mha_status mha__gates_create(struct mha_trainer *t, mha_error *err);

/* The state has been read: checks it, MHA_ERR_FORMAT. The model holds the products already. */
mha_status mha__gates_resume(struct mha_trainer *t, mha_error *err);

/* Gives the model its projections as they learn, for the next step. After a failure, and after the
 * step, comes mha__gates_end. */
mha_status mha__gates_begin(struct mha_trainer *t, mha_error *err);
/* MHA_ERR_NOT_FINITE for a gradient that is none. */
mha_status mha__gates_check(const struct mha_trainer *t, mha_error *err);
/* The gates after step t->step; `scale` makes the gradient a mean. Fills what the report says of gates. */
void mha__gates_update(struct mha_trainer *t, double scale, mha_train_report *report);
/* Gives the model the products again; it has to be packed after that. */
void mha__gates_end(struct mha_trainer *t);

/* Parts of these: projections as they learn into the model; `shown` from the state; have they taken a step (before
 * that they are 1); heads expected to be open. */
mha_status mha__gates_lift(struct mha_trainer *t, mha_error *err);
void mha__gates_show(mha__gates *g);
bool mha__gates_begun(const mha__gates *g);
double mha__gates_expected(const mha__gates *g);

/* True for L0 gates of which a given number is to stay: `mean` is then how the loss changes when a gate opens, the
 * running mean of `gradient`, which is by u in place of `value`. */
bool mha__gates_priced(const mha__gates *g);
/* One step of these towards `target` open ones. Returns the price of a head, in nats; 0 before there is one. */
double mha__gates_move_priced(mha__gates *g, double target, double scale);

/* Draws the gates of the next `batch` sequences of the step. */
void mha__gates_draw(struct mha_trainer *t, int64_t batch, float *gates, float *slopes);

/* ---- batches ---- */

/* A batch with the gates of this step, if it is to be learned from; without gates, the batch itself. */
typedef struct mha__gates_batch {
    mha_train_batch batch;
    mha_model_input input;
    float *gates, *slopes, *dgates; /* [layers, B, H] slopes: of the gates by `value` */
} mha__gates_batch;

/* Refuses a batch with gates of its own. */
mha_status mha__gates_take(struct mha_trainer *t, const mha_train_batch *batch, bool learn, mha__gates_batch *own,
                           mha_error *err);
/* Adds what dgates say to the gradient, and frees. */
void mha__gates_give(struct mha_trainer *t, mha__gates_batch *own);

/* ---- formulas ---- */

/* P(z > 0) of a hard concrete gate; the gate where nothing is drawn; and the one for u, with its slope by a. */
double mha__gate_open(double a);
double mha__gate_mean(double a);
double mha__gate_drawn(double a, double u, double *slope);

#endif
