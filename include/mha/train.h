/* train.h - training a model: loss, gradients, AdamW, learning rate schedule, and checkpoints that resume.
 *
 *     const mha_train_options o = { .size = sizeof o, .rate = 3e-4, .warmup = 100, .steps = 2000, .clip = 1 };
 *     mha_trainer *trainer;
 *     mha_trainer_create(model, &o, &trainer, &err);
 *     while (mha_trainer_step_count(trainer) < o.steps) {
 *         const mha_model_input input = { .size = sizeof input, .batch = 8, .length = 128, .ids = next_ids() };
 *         const mha_train_batch batch = { .input = &input };
 *         mha_train_report report;
 *         if (mha_trainer_step(trainer, &batch, 1, &report, &err) != MHA_OK) break;
 *         printf("%lld %.4f\n", (long long)report.step, report.loss);
 *     }
 *     mha_trainer_save(trainer, "out", NULL, &err);
 *
 * The model may be a new one (model_create.h), one that was opened in any type, or one that was pruned: every family of
 * model.h learns, with all its tensors, or with those that are not frozen. Decoders learn to predict the next token,
 * encoders the tokens that labels name (MLM); the loss is cross entropy, fused with the matrix of logits: rows go
 * through it some at a time, so that [B, L, vocab] never exists.
 *
 * Precision. Weights, moments, activations and gradients are float32; losses and the norm of the gradient are summed in
 * double. With `dtype` bf16, dense products read weights that were rounded to bf16 after the last step, and add in
 * float32 (model_grads.h); weights that learn stay float32, and are what is saved. From the same weights, options and
 * batches come the same bits, for any number of threads. A learning rate changes all weights, so runs on two ISAs drift
 * apart as they do between any two programs: beside PyTorch in eager float32 the losses of small models agree to 1e-4
 * over the first 50 steps, and in bf16 to 1e-2.
 *
 * Memory: 16 bytes for each parameter (weight, gradient, and from the first step or save on two moments), 4 more for
 * the packed form of dense weights (2 in bf16), 4 more for output projections with gates, and what a pass with
 * gradients keeps (model_grads.h); with `recompute` the layers' inputs only (Chen et al. 2016). Where gates learn alone
 * there are no gradients of weights, and moments take memory only if they are saved.
 * Cost of a step: three forward passes over its tokens, with `recompute` most of a fourth, and one pass over all
 * parameters.
 *
 * Several batches in one step are one large batch (gradient accumulation): gradients are added, and divided by the
 * number of all labels. Dropout masks differ from those of one large batch: they are a function of the step, the batch
 * number in the step, and the position in the batch.
 *
 * With a teacher the model learns to match the outputs of another model (distillation, Hinton et al. 2015): a pruned or
 * regrouped model recovers this way from its original. Encoders without logits match last states or text vectors.
 */
#ifndef MHA_TRAIN_H
#define MHA_TRAIN_H

#include "mha/model_grads.h"
#include "mha/model_save.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model in training, with its optimizer state. For one thread at a time. */
typedef struct mha_trainer mha_trainer;

/* Which tensors shrink under weight decay. Biases and norms are vectors. */
typedef enum mha_train_decay {
    MHA_DECAY_MATRICES = 0, /* all but vectors: tables of embeddings too, as scripts that train GPT-2 do */
    MHA_DECAY_DENSE,        /* all but vectors and tables that tokens are looked up in, tied ones too */
    MHA_DECAY_ALL           /* as torch.optim.AdamW does when it is given model.parameters() */
} mha_train_decay;

/* Dropout probabilities of steps, each in [0, 1); see mha_model_dropout. mha_trainer_loss applies none. */
typedef struct mha_train_dropout {
    double embedding; /* embeddings, before the first layer */
    double attention; /* probabilities */
    double residual;  /* what attention and the feed-forward part give, before it is added to the residual */
} mha_train_dropout;

/* Heads pruned by learning: each head's output is multiplied by a gate, one number for all tokens of a sequence, and
 * the gates learn, under a penalty, which of them can close.
 *
 *     L0   hard concrete gates (Louizos et al. 2018; Voita et al. 2019). With a the gate's number, its log-alpha, and u
 *          drawn anew in (0, 1) for each step, sequence and head:
 *              s = sigmoid((log u - log(1 - u) + a) / (2/3)),    z = min(1, max(0, 1.2 s - 0.1))
 *          z, exactly 0 or 1 much of the time, is the gate of this step. The penalty is on the number of gates that are
 *          expected to be open: sum of P(z > 0) = sigmoid(a + 2/3 log 11). Where nothing is drawn (the loss alone, the
 *          model, what is saved) the gate is min(1, max(0, 1.2 sigmoid(a) - 0.1)). a stays within -6 .. 4.
 *          With a number of heads to leave nothing descends. The mean of dL/dz dz/du over the draws is the loss with
 *          the gate open less that with it closed, others as drawn, whatever a is. Its running mean (it keeps 0.9 a
 *          step), the sign turned, is the worth w of the head, and
 *              a = 4 (w / price - 1), within -4 .. 2.5
 *          with the price, in nats, at which as many gates are expected to be open as are to be: from the eleventh step
 *          on; and whenever that falls a whole one below the number of gates that are left, the one of least worth is
 *          closed for good, so that the others are measured without it.
 *     L1   the gate is its number, and that stays >= 0: where a step would make it less, it is 0. The penalty is on the
 *          sum of the gates. With weights that learn too, these can make up for a gate that shrinks; give them decay.
 *
 * Otherwise the loss plus strength times penalty is minimised, by Adam with a rate of its own for the gates, and beta1,
 * beta2 and eps as of the weights. Neither clipping nor the norm of the report counts the gates. Behind step `end` they
 * are settled: some heads are closed for good, the others open, and the weights learn without noise or penalty. */
typedef enum mha_gates_penalty { MHA_GATES_NONE = 0, MHA_GATES_L0, MHA_GATES_L1 } mha_gates_penalty;

typedef struct mha_train_gates {
    mha_gates_penalty penalty; /* none: there are no gates, and the other fields are 0 */
    double strength;           /* [0.01] > 0, nats for each open head; of L0 without `heads`, and of L1 */
    double rate;               /* [0.1] > 0, learning rate of such gates, the same at every step */
    double initial;            /* [2.5 = a gate of 1; L1: 1] number of every gate at first, -6 .. 4; of L1 > 0 */
    int64_t start;             /* steps before the gates join in: they are 1 */
    int64_t ramp;              /* [half of start .. end, 0.8 of it for L0 with `heads`; without an end 0] steps over
                                * which the penalty sets in */
    int64_t end;               /* step behind which gates are settled, > start; 0 = never */
    /* How many are to stay open, of all layers together; 0 = as many as the strength leaves. During the ramp the number
     * that is to be open goes from all heads to this one, evenly; without a target the strength goes from 0 to its
     * value. The strength of L1 follows: with d the number of open heads beyond those that are to be, at each step
     * base exp(2 d) up to 1e3, and then base *= exp(0.05 d), within 1e-8 .. 1e3; `strength` is the first base.
     * When gates settle, this many stay open: those with the highest numbers, of equal ones those that the loss pulls
     * up most. Without a target those stay whose gate is at least 0.5, of L1 those above 0. Either way
     * the best of each layer stays, as in prune.h; so `heads` is at least one for each layer. An open L0 gate is 1 from
     * then on; open L1 gates go on learning, by an Adam that begins anew, without the penalty that made them small, and
     * are at least 0.01. */
    int64_t heads;
    int only; /* 1 = gates learn and weights do not, at half the cost of a way back */
    /* 1 = gates learn first, at that cost, and weights wait from `start` to `end`, which is needed: with their moments,
     * and with their schedule, as mha_train_rate tells. They learn then with the heads that stay, and without noise: of
     * as many steps this is mostly the better use (docs/training.md), but for a model that has learned nothing yet. Not
     * with `only`. */
    int first;
} mha_train_gates;

typedef struct mha_train_options {
    size_t size;

    /* AdamW (Loshchilov & Hutter 2019), as torch.optim.AdamW computes it. 0 = the value in brackets. */
    double rate;         /* [1e-3] the largest learning rate, > 0 */
    double beta1, beta2; /* [0.9, 0.999] in (0, 1) */
    double eps;          /* [1e-8] FLT_MIN .. 1 */
    double decay;        /* [none] weight decay, >= 0: each step takes rate * decay of a weight away */
    mha_train_decay decays;

    /* The rate of step n = 1, 2, ... is that of mha_train_rate. */
    int64_t warmup; /* steps over which it rises from 0, the last of them at `rate` */
    int64_t steps;  /* 0 = it stays there; else it falls along a cosine, and is `floor` from this step on, which comes
                     * first: with warmup = steps no step has `rate` */
    double floor;   /* [0] 0 .. rate */

    double clip; /* [none] a longer gradient of all that learns is cut to this length (Pascanu et al. 2013) */

    int recompute; /* 1 = less memory, about a quarter more time: see above */

    /* Names of tensors that stay as they are; "*" at the beginning or end of one stands for anything. One that fits no
     * tensor is MHA_ERR_ARG, and so are all tensors where there are no gates. Not kept. */
    const char *const *frozen;
    int64_t frozen_count;

    mha_train_dropout dropout; /* [none] */
    /* Seed of all random draws. Batch m = 1, 2, ... of step n has the mha_model_dropout.seed that is number m of
     * splitmix64 from number n of splitmix64 from `seed`; the gates of step n by Philox4x32-10 with number n of
     * splitmix64 from `seed` as the key, low word first: u = (x + 0.5) / 2^32, x the first word at the counter (b,
     * b / 2^32, layer, head), b the number of the sequence in the step, counted on from batch to batch. */
    uint64_t seed;
    mha_train_gates gates; /* heads that learn to close */

    /* A model to learn from, and the terms of the loss then (model_grads.h). It is only read, must outlive the trainer,
     * and may belong to another context. NULL = the labels alone. */
    const mha_model *teacher;
    mha_model_distill distill;

    mha_dtype dtype; /* [f32] of dense products, there and back: f32 or bf16; see above */
} mha_train_options;

/* The learning rate of a step, from 1 on. With gates.first it is 0 for the end - start steps that weights wait, which
 * the schedule leaves out: step n behind them has the rate of step n - (end - start) of a training that has so many
 * steps less, and AdamW corrects its means as in that one. `options` as for mha_trainer_create: not NULL, and checked
 * there. */
MHA_API double mha_train_rate(const mha_train_options *options, int64_t step);

/* Copies the weights of the model, which may be freed afterwards. `options` may be NULL. The context is the model's.
 * Tensors that no term of the loss reaches (poolers; the head of logits, where only states are compared) stay as they
 * are. Errors: MHA_ERR_ARG for an option out of its range, naming it, a model without weights, or a teacher of another
 * vocabulary, width or kind; MHA_ERR_UNSUPPORTED for one without the logits that the loss needs, and with gates for a
 * model whose layers choose heads for each text; MHA_ERR_MEMORY; those of mha_model_open, since the folder of the model
 * is read once more, and MHA_ERR_FORMAT where its tensors have changed since. */
MHA_API mha_status mha_trainer_create(const mha_model *model, const mha_train_options *options, mha_trainer **out,
                                      mha_error *err);
MHA_API void mha_trainer_free(mha_trainer *trainer);

/* The model with the weights as they are after the last step: to run, to measure, to generate with, between steps. It
 * belongs to the trainer. */
MHA_API const mha_model *mha_trainer_model(const mha_trainer *trainer);
/* Steps taken so far; those before it was saved count. */
MHA_API int64_t mha_trainer_step_count(const mha_trainer *trainer);
/* The tensors that learn or are frozen, under their names in the checkpoint, in the order of mha_model_grads_list.
 * Their data are the weights. Who changes them calls mha_trainer_refresh before anything else. */
MHA_API const mha_named_tensor *mha_trainer_weights(const mha_trainer *trainer, int64_t *count);
MHA_API mha_status mha_trainer_refresh(mha_trainer *trainer, mha_error *err);

/* The gates as they are after the last step, where nothing is drawn: gates [layers, H], H as in mha_model_info.heads,
 * 0 = closed, 0 too where a layer has no such head, ones for a trainer without gates. Returns how many are not 0.
 * `gates` and `expected` (heads expected to be open when gates are drawn; all before they join in) may be NULL.
 *
 * With gates the output projections among mha_trainer_weights, and so in mha_trainer_model and in what is saved, are
 * the products of weight and gate: columns of zeros for a closed head, whose model every program computes as it was
 * trained, and which mha_prune makes small. Their own numbers are kept apart, 4 bytes each: once gates
 * have joined in, what the caller writes into these tensors is lost with the next step. */
MHA_API int64_t mha_trainer_gates(const mha_trainer *trainer, float *gates, double *expected);

/* The input of a step. */
typedef struct mha_train_batch {
    const mha_model_input *input; /* as in mha_model_grads_forward: no cache, fills or hidden; with gates that learn
                                   * none of its own */
    /* As in mha_model_loss_args: [B, L] of token ids or MHA_IGNORE, shifted here for decoders; NULL: a decoder's own
     * real tokens. */
    const int32_t *labels;
} mha_train_batch;

typedef struct mha_train_report {
    int64_t step;   /* number of the step taken, from 1 on */
    int64_t labels; /* that the loss is the mean of; where a teacher's logits are in no term, real tokens */
    double loss;    /* in nats, of the weights before the step */
    double norm;    /* length of the gradient before it was cut; 0 where weights do not learn, as with gates.first */
    double rate;    /* learning rate; 0 where weights wait for gates */
    double open;    /* heads: with gates that have joined in those expected to be open before the step; else all */
    double penalty; /* of the gates, before the step; the loss does not include it */
} mha_train_report;

/* One step on `count` >= 1 batches, which count as one. `report` may be NULL. On failure no weight has changed, and the
 * step may be tried again; but where there is no memory to pack the changed weights for the next step, this one has
 * been taken, as mha_trainer_step_count tells, and the next call packs them first. Errors: MHA_ERR_ARG for batches
 * without any label (token, text); those of mha_model_grads_loss; and MHA_ERR_NOT_FINITE where loss or gradient is NaN
 * or infinite, naming the step, the first layer whose output is not finite, or the tensor whose gradient is not. */
MHA_API mha_status mha_trainer_step(mha_trainer *trainer, const mha_train_batch *batches, int64_t count,
                                    mha_train_report *report, mha_error *err);

/* The same loss, and nothing learned or drawn: mean over all labels. Memory and errors as of a step. */
MHA_API mha_status mha_trainer_loss(mha_trainer *trainer, const mha_train_batch *batches, int64_t count, double *loss,
                                    int64_t *labels, mha_error *err);

/* ---- saving and resuming ---- */

/* An additional file of a checkpoint: a log, a page, settings. */
typedef struct mha_train_file {
    /* Begins with "training.", is not training.safetensors, and has no '/' or control character; no two are alike. */
    const char *name;
    const void *data; /* may be NULL if bytes is 0 */
    size_t bytes;
} mha_train_file;

typedef struct mha_trainer_save_options {
    size_t size;
    int overwrite;               /* as in mha_model_save_options */
    int model_only;              /* 1 = without optimizer state: a checkpoint to run, not to resume from */
    mha_dtype dtype;             /* with model_only: as in mha_model_save_options, default f32 */
    const mha_train_file *files; /* [file_count] further files of the folder, which appear with it */
    int64_t file_count;
    /* With overwrite: the checkpoint that is replaced gets this name in the same folder, and is not removed; another
     * checkpoint of that name is. NULL = none. */
    const char *aside;
} mha_trainer_save_options;

/* Writes a checkpoint folder as mha_model_save does, whole or not at all, also under kill -9: weights in f32, and
 * beside them training.safetensors with the step, the moments of each tensor, of gates also their numbers and the
 * output projections without them, and a number by which it knows its weights (a hash of 64 bits: against accidents,
 * not against malice). transformers loads the folder (model_save.h says which it does not), and does not look at that
 * file. `options` may be NULL. Errors: those of mha_model_save; MHA_ERR_ARG for files that are not as above;
 * MHA_ERR_NOT_FINITE for weights that are not finite, naming the tensor: what was saved before stays. */
MHA_API mha_status mha_trainer_save(const mha_trainer *trainer, const char *folder,
                                    const mha_trainer_save_options *options, mha_error *err);

/* Opens such a folder and resumes: with the same options and batches every later step is bitwise identical to that of
 * an uninterrupted run. Options may differ from those of the saved run: gates may be added (their `start` and `end`
 * count from the first step of the run) or left out, and the model then trains as they left it; frozen gates stay
 * frozen. Errors: those of mha_model_open and mha_trainer_create; MHA_ERR_FORMAT for a state that lacks a tensor, has
 * one of another shape, a moment that is not finite, a second moment below 0, or no step, or that was saved with other
 * weights than the folder holds now; MHA_ERR_ARG for gates under another penalty than those of the state, and for gates
 * that are added after their `end`. */
MHA_API mha_status mha_trainer_resume(mha_ctx *ctx, const char *folder, const mha_train_options *options,
                                      mha_trainer **out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
