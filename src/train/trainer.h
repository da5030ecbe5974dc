/* trainer.h - the struct of a trainer: trained weights, their moments, and the model that runs on them. */
#ifndef MHA_TRAIN_TRAINER_H
#define MHA_TRAIN_TRAINER_H

#include "mha/train.h"
#include "model/backward/model_grads.h"
#include "model/model_struct.h"
#include "train/gates/trainer_gates.h"

/* One tensor; its weight in `list` and its gradient in `gradients` have the same index. */
typedef struct mha__parameter {
    int64_t count; /* number of elements */
    int64_t layer; /* -1 for weights outside the layers */
    mha__role role;
    float *mean, *square;
    bool frozen, decays;
} mha__parameter;

struct mha_trainer {
    mha_ctx *ctx;
    mha_train_options o; /* defaults are filled in */
    int64_t step;        /* steps taken */

    mha_named_tensor *list;    /* [count] weights */
    mha_named_tensor *state;   /* [count, 2] mean and square, named as in a state file */
    mha__parameter *parameter; /* [count] */
    int64_t count;
    double *partial; /* scratch for the sum of squares of the largest tensor */
    void *memory;    /* memory of all arrays above except the moments */
    void *moments;   /* memory of the moments */
    size_t *unused;  /* bytes of the moments until they are first written, then 0; see mha__train_moments */

    mha_model *model; /* runs on the weights in `list` */
    mha_model_grads *grads;
    const mha_named_tensor *gradients; /* [count] */
    bool stale;                        /* packing failed; the packed weights are not current */
    mha__gates *gates;                 /* NULL = no trained gates */
};

/* Fills in defaults and rejects values out of range. */
mha_status mha__train_options(mha_train_options *options, const mha_train_options *given, mha_error *err);
/* Repacks the weights of the model. */
static inline mha_status mha__trainer_refresh(mha_trainer *t, mha_error *err)
{
    const mha_status status = mha__model_refresh(t->model, err);
    t->stale = status != MHA_OK;
    return status;
}

/* Zeroes the moments on the first call, which must precede reading them. Until then, they take no physical memory, so
 * that the source model can be freed first. */
void mha__train_moments(const mha_trainer *trainer);
#define MHA__TRAIN_RATE 1e-3 /* the default learning rate */
/* Returns the number of weight updates up to a step; 0 while only gates are trained. */
int64_t mha__train_own_step(const mha_train_options *options, int64_t step);
/* Returns true if `name` matches "*end", "begin*", "*middle*" or, without asterisk, equals the pattern. */
bool mha__train_fits(const char *pattern, const char *name);

/* Returns MHA_ERR_NOT_FINITE with a message that names the origin, or the error of the forward pass that searches for
 * it. */
mha_status mha__train_bad_loss(const mha_trainer *trainer, const mha_train_batch *batch, int64_t number, double loss,
                               mha_error *err);
/* Returns MHA_ERR_NOT_FINITE if a weight is not finite. */
mha_status mha__train_check_weights(const mha_trainer *trainer, mha_error *err);
mha_status mha__train_bad_gradient(const mha_trainer *trainer, int64_t parameter, mha_error *err);

#endif
