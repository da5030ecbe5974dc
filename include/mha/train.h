/* train.h - trains a model: loss, gradients, AdamW, learning rate schedule, checkpoints that resume.
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
 * The model may be new (model_create.h), opened in any type, or pruned. Every encoder and every decoder of texts can be
 * trained; all tensors are trained unless some are frozen. Decoders learn to predict the next token, encoders the
 * labeled tokens (MLM). The loss is cross entropy, fused with the product of the logits: rows are processed in chunks,
 * so that [B, L, vocab] is never stored.
 *
 * Precision. Weights, activations and gradients are float32, and moments float32 or bf16 (`moments`); losses and the
 * norm of the gradient are summed in double. With `dtype` bf16, dense products read weights that were rounded to bf16
 * after the last step and accumulate in float32 (model_grads.h); the trained weights stay float32 and are saved in
 * float32. The same weights, options and batches give bitwise identical results for any number of threads. Runs on two
 * ISAs diverge slowly, like those of any two programs that round differently. Compared with PyTorch in eager float32,
 * the losses of small models agree to 1e-4 over the first 50 steps, and in bf16 to 1e-2.
 *
 * Memory: 16 bytes per parameter (weight, gradient and two moments; moments are allocated at the first step or save),
 * or 12 with moments in bf16; 4 more for the packed form of dense weights (2 in bf16); 4 more for output projections
 * with gates; and the activations of a pass with gradients (model_grads.h). With `recompute` only the inputs of the
 * layers are kept (Chen et al. 2016). If only gates are trained, gradients of weights are not allocated, and moments
 * only if they are saved. Cost of a step: that of three forward passes over its tokens (with `recompute`, nearly four),
 * and one pass over all parameters.
 *
 * Moments in bf16. A step computes both moments and the weight in float32, and stores the moments in 2 bytes each. It
 * rounds them stochastically (Gupta et al. 2015): to the lower or the upper neighbor in bf16, with probabilities for
 * which the expected value is the float32 moment. If moments were rounded to nearest, the second moment would never
 * decrease with beta2 = 0.999, because a step decreases it by less than half the distance between two bf16 numbers.
 * Random bits depend only on the seed, the step and the element. Each tensor is divided into blocks of 16,384 elements.
 * If e is the index of the first element of a block, counted over all tensors, the key of the block is output e + 1 of
 * splitmix64 seeded with the complement of the seed of the step (`seed`, below); a hash of the key and of the index in
 * the block gives 16 bits for each moment. Results are therefore bitwise identical for any number of threads and
 * processes, and after a resume. docs/training.md compares loss curves.
 *
 * Several batches in one step are one large batch (gradient accumulation): gradients are added and divided by the total
 * number of labels. Dropout masks differ from those of one large batch: they are a function of the step, the batch
 * number in the step, and the position in the batch.
 *
 * Virtual workers. With `workers` = V, a power of two, the batches of a step are divided, in order, into V equal
 * groups. The gradients of each group are accumulated, and the V sums are added in a binary tree. Several processes
 * (`ranks`) divide these groups: with 1, 2, 4 ... or V processes, weights, losses and checkpoints are bitwise
 * identical. A run can be resumed with another number of processes. Each process holds all weights and gradients,
 * log2(V / processes) more buffers of the size of the gradients, and the moments of its part of the parameters only.
 *
 * With a teacher the model learns to match the outputs of another model (distillation, Hinton et al. 2015), which
 * restores quality after pruning or regrouping. Encoders without logits learn to match the teacher's last hidden states
 * or text embeddings.
 */
#ifndef MHA_TRAIN_H
#define MHA_TRAIN_H

#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "mha/train_ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model in training, with its optimizer state. Not thread-safe: use it from one thread at a time. */
typedef struct mha_trainer mha_trainer;

/* The tensors to which weight decay applies. Biases and norm weights are vectors. */
typedef enum mha_train_decay {
    MHA_DECAY_MATRICES = 0, /* all tensors but vectors, as in GPT-2 training scripts; includes embedding tables */
    MHA_DECAY_DENSE,        /* all tensors but vectors and embedding tables, tied ones included */
    MHA_DECAY_ALL           /* all tensors, as in torch.optim.AdamW(model.parameters()) */
} mha_train_decay;

/* Dropout probabilities of a step, each in [0, 1); see mha_model_dropout. mha_trainer_loss applies no dropout. */
typedef struct mha_train_dropout {
    double embedding; /* embeddings, before the first layer */
    double attention; /* attention probabilities */
    double residual;  /* outputs of attention and feed-forward, before they are added to the residual */
} mha_train_dropout;

/* Learned head pruning: the output of each head is multiplied by a gate, one value for all tokens of a sequence. A
 * penalty favors closed gates, so training closes the gates that matter least.
 *
 *     L0   hard concrete gates (Louizos et al. 2018; Voita et al. 2019). a is the parameter of the gate (its
 *          log-alpha), and u is sampled from (0, 1) for each step, sequence and head:
 *              s = sigmoid((log u - log(1 - u) + a) / (2/3)),    z = min(1, max(0, 1.2 s - 0.1))
 *          z, which is often exactly 0 or 1, is the gate of this step. The penalty is on the expected number of open
 *          gates: sum of P(z > 0) = sigmoid(a + 2/3 log 11). Without sampling (in mha_trainer_loss, the model and
 *          checkpoints) the gate is min(1, max(0, 1.2 sigmoid(a) - 0.1)). a is limited to -6 .. 4.
 *          With a target `heads`, a is not trained by gradient descent. The mean of dL/dz dz/du over the samples is the
 *          loss with the gate open minus the loss with it closed, for any a. The negated running mean of this
 *          difference (factor 0.9 per step) is the worth w of the head, and
 *              a = 4 (w / price - 1), within -4 .. 2.5
 *          The price, in nats, makes the expected number of open gates equal to the target of the step; this holds
 *          from the eleventh step on. Whenever the target falls to one less than the number of remaining gates, the
 *          gate of least worth is closed permanently, so that the remaining gates are measured without it.
 *     L1   the gate equals its parameter, which stays >= 0: a step that would make it negative sets it to 0. The
 *          penalty is on the sum of the gates. Weights that are trained at the same time can compensate for a shrinking
 *          gate, so use weight decay.
 *
 * Otherwise Adam minimizes the loss plus strength times penalty, with a separate learning rate for the gates and beta1,
 * beta2 and eps as for the weights. Clipping and the norm in the report exclude the gates. After step `end` the gates
 * are frozen: some gates are permanently closed, the other gates are open, and the weights are trained without sampling
 * or penalty. */
typedef enum mha_gates_penalty { MHA_GATES_NONE = 0, MHA_GATES_L0, MHA_GATES_L1 } mha_gates_penalty;

typedef struct mha_train_gates {
    mha_gates_penalty penalty; /* MHA_GATES_NONE: no gates; the other fields must be 0 */
    double strength;           /* [0.01] > 0, nats per open head; for L0 without `heads`, and for L1 */
    double rate;               /* [0.1] > 0, constant learning rate of these gates */
    double initial;            /* [2.5, which is a gate of 1; L1: 1] initial parameter of every gate, -6 .. 4; L1: >
                                * 0 */
    int64_t start;             /* number of steps at the beginning in which all gates are 1 */
    int64_t ramp;              /* [half of the steps from start to end; 0.8 of them for L0 with `heads`; 0 without an
                                * end] number of steps over which the penalty increases */
    int64_t end;               /* step after which the gates are frozen, > start; 0 = never */
    /* Target: number of open heads in all layers; 0 = determined by the strength. During the ramp the target falls
     * evenly from all heads to this number; without a target the strength rises from 0 to its value. With a target, the
     * strength of L1 is adapted. If d is the number of open heads above the target of the step, the strength is base
     * exp(2 d), at most 1e3, and base is then multiplied by exp(0.05 d), within 1e-8 .. 1e3; `strength` is the initial
     * base. When the gates are frozen, `heads` gates stay open: those with the largest parameters, or among equal
     * parameters, those with the largest descent direction. Without a target, gates of at least 0.5 stay open; for L1,
     * gates above 0. The best head of each layer always stays, as in prune.h, so `heads` must be at least the number of
     * layers. An open L0 gate is then 1; open L1 gates continue to be trained, by a restarted Adam without the penalty
     * that made them small, and are at least 0.01. */
    int64_t heads;
    int only; /* 1 = train only the gates, at half the cost of a backward pass */
    /* 1 = train the gates first, at the same cost. The weights, their moments and their schedule (mha_train_rate) do
     * not advance from `start` to `end`, which is required. The weights are then trained with the remaining heads and
     * without sampling. For a given number of steps, this is usually better (docs/training.md), except for an untrained
     * model. Excludes `only`. */
    int first;
} mha_train_gates;

/* How the gradients of several processes are added. */
typedef enum mha_train_reduce {
    MHA_REDUCE_TREE = 0, /* gradients are added in the tree of the virtual workers */
    /* Gradients are added during the last backward pass of a step, in an order that depends on the number of processes.
     * Each process adds its batches in order, without additional buffers. Reproducible for a given number of processes;
     * with one process, `workers` has no effect. */
    MHA_REDUCE_FAST
} mha_train_reduce;

typedef struct mha_train_options {
    size_t size;

    /* AdamW (Loshchilov & Hutter 2019), as in torch.optim.AdamW. 0 = the value in brackets. */
    double rate;         /* [1e-3] maximum learning rate, > 0 */
    double beta1, beta2; /* [0.9, 0.999] in (0, 1) */
    double eps;          /* [1e-8] FLT_MIN .. 1 */
    double decay;        /* [none] weight decay, >= 0: each step subtracts rate * decay * weight */
    mha_train_decay decays;

    /* mha_train_rate defines the learning rate of step n = 1, 2, ... */
    int64_t warmup; /* steps of linear warm-up from 0; the last of them uses `rate` */
    int64_t steps;  /* 0 = constant after the warm-up; else cosine decay to `floor`, reached at this step. This step has
                     * precedence: with warmup = steps, no step reaches `rate` */
    double floor;   /* [0] 0 .. rate */

    double clip; /* [none] maximum norm of the gradient; a larger gradient is scaled down (Pascanu et al. 2013) */

    int recompute; /* 1 = recompute activations in the backward pass: less memory, about a quarter more time */

    /* Names of frozen tensors; "*" at the beginning or end of a name matches anything. MHA_ERR_ARG for a name without a
     * matching tensor, and if all tensors are frozen and there are no gates. The list is not used after the call. */
    const char *const *frozen;
    int64_t frozen_count;

    mha_train_dropout dropout; /* [none] dropout probabilities */
    /* Seed of all random numbers. The seed of step n = 1, 2, ... is output n of splitmix64 seeded with `seed`. For
     * batch m = 1, 2, ... of the step, mha_model_dropout.seed is output m of splitmix64 seeded with the seed of the
     * step. The gates of the step use Philox4x32-10 with the seed of the step as the key, low word first: u = (x + 0.5)
     * / 2^32, where x is the first word at the counter (b, b / 2^32, layer, head) and b is the index of the sequence in
     * the step, counted over its batches. */
    uint64_t seed;
    mha_train_gates gates; /* learned head pruning */

    /* Teacher of a distillation, and the terms of its loss (model_grads.h). It is not modified, must outlive the
     * trainer, and may belong to another context. NULL = train on the labels only. */
    const mha_model *teacher;
    mha_model_distill distill;

    mha_dtype dtype;   /* [f32] type of dense products, forward and backward: f32 or bf16 (Precision, above) */
    mha_dtype moments; /* [f32] type of the stored moments: f32 or bf16 (Moments in bf16, above) */

    /* Data parallelism (Virtual workers, above). The number of workers must be a multiple of the number of ranks, and
     * the number of batches of each step a multiple of the workers. */
    int64_t workers; /* [1] virtual workers: a power of two, at most 2^20 */
    mha_train_reduce reduce;
    /* The processes that take part in this training run. The struct is copied; ranks->user must outlive the trainer.
     * NULL = this process only. */
    const mha_train_ranks *ranks;
} mha_train_options;

/* Returns the learning rate of a step (the first is 1). With gates.first, it is 0 for the end - start steps in which
 * only the gates are trained. The schedule omits these steps: a later step n has the rate of step n - (end - start) of
 * a run that is shorter by these steps, and AdamW corrects its bias likewise. `options` are those of
 * mha_trainer_create, which checks them; must not be NULL. */
MHA_API double mha_train_rate(const mha_train_options *options, int64_t step);

/* Creates a trainer with a copy of the weights of the model, which may be freed afterwards. `options` may be NULL.
 * The trainer uses the context of the model. Tensors that no term of the loss depends on do not change: poolers, and
 * the language-model head if the loss has only the hidden and text terms. Errors: MHA_ERR_ARG if an option is out of
 * range (the message names it), the model has no weights, or the vocabulary, width or kind of the teacher differs.
 * MHA_ERR_UNSUPPORTED if the model lacks the logits that the loss requires, or if gates are set and a layer selects
 * heads per text or shares its tensors with another layer (albert). MHA_ERR_FORMAT if the tensors of the model folder,
 * which is read again, have changed. MHA_ERR_MEMORY, and the errors of mha_model_open. */
MHA_API mha_status mha_trainer_create(const mha_model *model, const mha_train_options *options, mha_trainer **out,
                                      mha_error *err);
MHA_API void mha_trainer_free(mha_trainer *trainer);

/* Returns the model with the weights after the last step, to run, measure or generate between steps. Owned by the
 * trainer. */
MHA_API const mha_model *mha_trainer_model(const mha_trainer *trainer);
/* Returns the number of steps taken, including those before a resume. */
MHA_API int64_t mha_trainer_step_count(const mha_trainer *trainer);
/* Returns the trained and frozen tensors under their names in the checkpoint, in the order of mha_model_grads_list, and
 * among them the constants that this list omits: the biases that correct the routers of deepseek_v3. Their data are the
 * weights themselves. After changing data, call mha_trainer_refresh before any other function. */
MHA_API const mha_named_tensor *mha_trainer_weights(const mha_trainer *trainer, int64_t *count);
MHA_API mha_status mha_trainer_refresh(mha_trainer *trainer, mha_error *err);
/* Checks that all ranks have the same options, step, weights and teacher; otherwise MHA_ERR_ARG on all ranks, naming
 * the difference. Collective: all ranks must call it. The first step makes the same check if no call preceded it; a
 * program that calls it earlier detects a difference before it writes files. Does nothing without ranks. */
MHA_API mha_status mha_trainer_compare_ranks(mha_trainer *trainer, mha_error *err);

/* Writes the gates after the last step, without sampling: gates [layers, H], where H is mha_model_info.heads; 0 =
 * closed, or not a head of the layer; ones for a trainer without gates. Returns the number of gates that are not 0.
 * `gates` and `expected` (expected number of open heads with sampling; all heads before `start`) may be NULL.
 *
 * With gates, the output projections in mha_trainer_weights, mha_trainer_model and checkpoints are the product of
 * weight and gate: a closed head has columns of zeros. Because these columns are zeros, every program that loads the
 * checkpoint computes the same results as the trainer, and mha_prune can remove the head. The weights without gates are
 * stored separately, 4 bytes each. From step `start` on, changes by the caller to these tensors are lost in the next
 * step. */
MHA_API int64_t mha_trainer_gates(const mha_trainer *trainer, float *gates, double *expected);

/* One batch of a step. */
typedef struct mha_train_batch {
    const mha_model_input *input; /* as in mha_model_grads_forward: no cache, fills or hidden; `gates` must be NULL if
                                   * gates are trained */
    /* As in mha_model_loss_args: [B, L] token ids or MHA_IGNORE, shifted by the function for decoders; NULL = the real
     * tokens of the input, for decoders. */
    const int32_t *labels;
} mha_train_batch;

typedef struct mha_train_report {
    int64_t step;   /* number of the step; the first step is 1 */
    int64_t labels; /* number of labels in the mean loss; with a teacher, the number of unmasked tokens if distill
                       has only the hidden and text terms */
    double loss;    /* loss in nats, with the weights before the step */
    double norm;    /* norm of the gradient before clipping; 0 if weights are not trained, as with gates.first */
    double rate;    /* learning rate; 0 while only the gates are trained */
    double open;    /* expected number of open heads before the step; without gates, the number of heads */
    double penalty; /* penalty of the gates before the step; not included in the loss */
} mha_train_report;

/* Takes one step on `count` >= 1 batches, which count as one batch. `report` may be NULL. With ranks, this call is
 * collective: each rank passes all batches and runs those of its workers, and all ranks get the same report. The first
 * step checks that weights and options are the same on all ranks. On failure no weight has changed, and the step may be
 * tried again, unless a callback of the ranks failed. Exception: if memory for packing the changed weights cannot be
 * allocated, the step has been taken, as mha_trainer_step_count shows, and the next call packs them first. Errors:
 * MHA_ERR_ARG for batches without labels (tokens, texts); those of mha_model_grads_loss; MHA_ERR_NOT_FINITE if the loss
 * or a gradient is NaN or infinite, naming the step and the first layer whose output is not finite, or the tensor whose
 * gradient is not. */
MHA_API mha_status mha_trainer_step(mha_trainer *trainer, const mha_train_batch *batches, int64_t count,
                                    mha_train_report *report, mha_error *err);

/* Computes the loss of mha_trainer_step without training or sampling: the mean over all labels. Memory and errors
 * are those of a step. */
MHA_API mha_status mha_trainer_loss(mha_trainer *trainer, const mha_train_batch *batches, int64_t count, double *loss,
                                    int64_t *labels, mha_error *err);

/* ---- saving and resuming ---- */

/* An additional file of a checkpoint, such as a log, a page or settings. */
typedef struct mha_train_file {
    /* Must begin with "training.", be unique, contain neither '/' nor control characters, and not be
     * training.safetensors. */
    const char *name;
    const void *data; /* may be NULL if bytes is 0 */
    size_t bytes;
} mha_train_file;

typedef struct mha_trainer_save_options {
    size_t size;
    int overwrite;               /* as in mha_model_save_options */
    int model_only;              /* 1 = omit the optimizer state: the checkpoint cannot be resumed */
    mha_dtype dtype;             /* with model_only: as in mha_model_save_options, default f32 */
    const mha_train_file *files; /* [file_count] additional files, written atomically with the folder */
    int64_t file_count;
    /* With overwrite: the replaced checkpoint is renamed to this name, next to the new one, instead of being removed; a
     * checkpoint that already has this name is removed. NULL = remove the replaced checkpoint. */
    const char *aside;
} mha_trainer_save_options;

/* Writes a checkpoint folder like mha_model_save, completely or not at all, even under kill -9: weights in f32, and
 * training.safetensors with the step, the moments of each tensor in their type, the parameters of the gates, the output
 * projections without gates, and a 64-bit hash of the weights, which detects accidental changes only. transformers
 * loads the folder (exceptions in model_save.h) and ignores that file. `options` may be NULL. Errors: those of
 * mha_model_save; MHA_ERR_ARG for invalid files; MHA_ERR_NOT_FINITE for weights that are not finite, naming the tensor.
 * After an error the previous checkpoint is unchanged.
 *
 * With ranks, this call is collective unless `model_only` is 1: rank 0 writes the folder and gets the moments of the
 * other ranks in pieces of 4 MiB. On the other ranks `folder` and `options` are not used. A failure of rank 0 is
 * returned on all ranks. */
MHA_API mha_status mha_trainer_save(const mha_trainer *trainer, const char *folder,
                                    const mha_trainer_save_options *options, mha_error *err);

/* Opens a folder written by mha_trainer_save and resumes: with the same options and batches every later step is
 * bitwise identical to that of an uninterrupted run. Options may differ from those of the saved run. Gates may be
 * added (their `start` and `end` count from the first step of the run) or omitted; if they are omitted, the model is
 * trained with the current gates. Frozen gates stay frozen. Errors: those of mha_model_open and mha_trainer_create;
 * MHA_ERR_FORMAT for a state that lacks a tensor or the step, has a tensor of another shape, a moment that is not
 * finite or a negative second moment, or belongs to other weights than those in the folder; MHA_ERR_ARG for moments of
 * another type than in the state, for gates with another penalty than in the state, and for gates that are added after
 * their `end`. */
MHA_API mha_status mha_trainer_resume(mha_ctx *ctx, const char *folder, const mha_train_options *options,
                                      mha_trainer **out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
