/* trainer.h - inside of a trainer: the weights that learn, their moments, and the model that is run on them. */
#ifndef MHA_TRAIN_TRAINER_H
#define MHA_TRAIN_TRAINER_H

#include "mha/train.h"
#include "model/backward/model_grads.h"
#include "train/gates/trainer_gates.h"

/* One tensor; its weight is in `list`, its gradient in `gradients`, under the same number. */
typedef struct mha__parameter {
    int64_t count; /* of its numbers */
    int64_t layer; /* -1 for parts that exist once */
    mha__role role;
    float *mean, *square;
    bool frozen, decays;
} mha__parameter;

struct mha_trainer {
    mha_ctx *ctx;
    mha_train_options o; /* defaults filled in */
    int64_t step;        /* taken so far */

    mha_named_tensor *list;    /* [count] weights */
    mha_named_tensor *state;   /* [count, 2] mean and square, under their names in a file */
    mha__parameter *parameter; /* [count] */
    int64_t count;
    double *partial; /* of the longest tensor's sum of squares */
    void *memory;    /* of all these but for the moments, ... */
    void *moments;   /* ... which lie here, */
    size_t *unused;  /* bytes of them that were never written: all or none; see mha__train_moments */

    mha_model *model; /* over `list` */
    mha_model_grads *grads;
    const mha_named_tensor *gradients; /* [count] */
    bool stale;                        /* the model could not be packed again */
    mha__gates *gates;                 /* or NULL */
};

/* Fills in defaults and refuses what is out of range. */
mha_status mha__train_options(mha_train_options *options, const mha_train_options *given, mha_error *err);
/* Moments are 0 at first, but only from the first call on: so a model that is freed as soon as there is a trainer of it
 * has made room before they take memory. To be called before any is read. */
void mha__train_moments(const mha_trainer *trainer);
/* Which step of the weights a step is; 0 if they wait for the gates in it. */
int64_t mha__train_own_step(const mha_train_options *options, int64_t step);
/* "*end", "begin*" and "*middle*" fit; anything else is the name itself. */
bool mha__train_fits(const char *pattern, const char *name);

/* MHA_ERR_NOT_FINITE, and a sentence that says where it began; or the failure of looking for it. */
mha_status mha__train_bad_loss(const mha_trainer *trainer, const mha_train_batch *batch, int64_t number, double loss,
                               mha_error *err);
/* MHA_ERR_NOT_FINITE where a weight is not finite. */
mha_status mha__train_check_weights(const mha_trainer *trainer, mha_error *err);
mha_status mha__train_bad_gradient(const mha_trainer *trainer, int64_t parameter, mha_error *err);

#endif
