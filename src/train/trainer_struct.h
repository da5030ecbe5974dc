/* trainer_struct.h - the state of a trainer: trained weights, their moments, and the model that uses these weights. */
#ifndef MHA_TRAIN_TRAINER_STRUCT_H
#define MHA_TRAIN_TRAINER_STRUCT_H

#include "mha/train.h"
#include "model/backward/model_grads.h"
#include "model/model_struct.h"

/* Returns `a` limited to the range from 0 to `max`. */
static inline int64_t mha__clamp64(int64_t a, int64_t max)
{
    return mha__min64(mha__max64(a, 0), max);
}

/* One tensor; its weight in `list` and its gradient in `gradients` have the same index. */
typedef struct mha__parameter {
    int64_t first, count; /* count: number of elements; first: index of the first element among all parameters */
    int64_t layer;        /* -1 for weights outside the layers */
    mha__role role;
    /* The elements of the tensor that this process updates: all elements, or the elements in its range
     * (optimizer_state.c). */
    int64_t own_first, own_count;
    void *mean, *square; /* [own_count] of type o.moments */
    bool frozen, decays;
} mha__parameter;

struct mha_trainer {
    mha_ctx *ctx;
    mha_train_options o;   /* options with defaults set */
    mha_train_ranks ranks; /* a copy of the caller's struct, to which o.ranks points; unused if o.ranks is NULL */
    int64_t step;          /* number of finished steps */

    mha_named_tensor *list;    /* [count] weights */
    mha_named_tensor *state;   /* [count, 2] mean and square, named as in a state file */
    mha__parameter *parameter; /* [count] */
    int64_t count;
    float *weights;        /* [elements] all weights, in the order of `list` and of the gradients */
    int64_t elements;      /* number of elements in all parameters */
    double *partial;       /* [blocks] sums of squares */
    int64_t blocks;        /* number of blocks in all tensors; see mha__squares_blocks */
    int64_t *starts;       /* [ranks + 1] first element that each rank updates */
    int64_t *own_blocks;   /* [ranks + 1] first block that each rank sums */
    int64_t *piece_starts; /* [ranks + 1] scratch of moments_gather.c */
    void *memory;          /* the allocation of all arrays above except weights and moments */
    void *moments;         /* the allocation of the moments */
    bool *unused;          /* true while no moment has been written; see mha__train_moments */

    mha_model *model; /* uses the weights in `list` */
    mha_model_grads *grads;
    const mha_named_tensor *gradients; /* [count] */
    bool stale;                        /* true if packing failed, so the packed weights are not current */
    struct mha__gates *gates;          /* gates/trainer_gates.h; NULL = no trained gates */
    struct mha__worker_sum *sum;       /* [levels] pending sums of virtual workers (trainer/worker_sums.h) */
    int levels;

    bool compared;    /* true once the ranks have compared weights and options */
    int64_t unsummed; /* MHA_REDUCE_FAST: first element whose gradient sum over the ranks has begun */
    int64_t bucket;   /* minimum size of a gradient bucket [bytes]; see MHA__TRAIN_BUCKET */
    mha_status overlap_status;
    mha_error overlap_error; /* error of a sum that began in the backward pass */
};

/* Return the number of ranks (processes), and the index of this rank. */
static inline int mha__train_ranks(const mha_trainer *t)
{
    return t->o.ranks ? t->o.ranks->ranks : 1;
}

static inline int mha__train_rank(const mha_trainer *t)
{
    return t->o.ranks ? t->o.ranks->rank : 0;
}

/* Copies `given`, sets defaults, and rejects values out of range. options->ranks, unless NULL, then points to `ranks`,
 * a copy of the caller's struct. */
mha_status mha__train_options(mha_train_options *options, mha_train_ranks *ranks, const mha_train_options *given,
                              mha_error *err);
/* Repacks the weights of the model. */
static inline mha_status mha__trainer_refresh(mha_trainer *t, mha_error *err)
{
    const mha_status status = mha__model_refresh(t->model, err);
    t->stale = status != MHA_OK;
    return status;
}

/* Writes a hash of all weights to `mark`. */
void mha__train_mark_weights(const mha_trainer *trainer, char mark[17]);
/* Creates the moments of the elements that this process updates. */
mha_status mha__train_moments_create(mha_trainer *trainer, mha_error *err);
/* Reads the moments of these elements from a state file, after checking names and shapes. */
mha_status mha__train_moments_read(const mha_trainer *trainer, const mha_file *file, mha_error *err);
/* Sets the moments to 0 on the first call. The moments must not be read before this call. Until then, the moments use
 * no physical memory, so that the source model can be freed first. */
void mha__train_moments(const mha_trainer *trainer);
/* Minimum size of a gradient bucket that is summed over the ranks [bytes]; takes 36 ms at 1 Gbit/s. */
enum { MHA__TRAIN_BUCKET = 4 << 20 };
#define MHA__TRAIN_RATE 1e-3 /* the default learning rate */
/* Returns the number of weight updates up to and including a step; 0 while only gates are trained. */
int64_t mha__train_own_step(const mha_train_options *options, int64_t step);
/* Returns true if `name` matches "*end", "begin*", "*middle*" or, without asterisk, equals the pattern. */
bool mha__train_fits(const char *pattern, const char *name);

/* Returns MHA_ERR_NOT_FINITE with a message that names the origin of a non-finite loss, or the error of the forward
 * pass that searches for the origin. */
mha_status mha__train_bad_loss(const mha_trainer *trainer, const mha_train_batch *batch, int64_t number, double loss,
                               mha_error *err);
/* Returns MHA_ERR_NOT_FINITE if a weight is not finite. */
mha_status mha__train_check_weights(const mha_trainer *trainer, mha_error *err);
mha_status mha__train_bad_gradient(const mha_trainer *trainer, int64_t parameter, mha_error *err);

#endif
