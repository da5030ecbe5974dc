/* layout_training.h - measures what head layouts are worth: trains a small model for each variant of multi-head
 * attention, on the same batches, with the same number of parameters and steps.
 *
 *     mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
 *     mha_layout_models(ctx, &options, models, &err);
 *     for (uint64_t seed = 0; seed < 5; seed++)
 *         for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
 *             if (!models[v].refused) mha_layout_train(ctx, &options, &models[v], seed, &trials[v][seed], &err);
 *     mha_mean_interval(losses of a variant, 5, &mean, &half);                                 (mean_interval.h)
 *
 * The feed-forward width of each variant is adapted, so that its number of parameters is that of variant mha; the
 * counts differ by at most 1 %. The seed defines the initial weights and the order of the batches, and a variant has
 * the batches of every other variant with this seed. Therefore the differences between two variants with equal seeds
 * are paired measurements, whose interval is narrower than those of the two losses.
 *
 * The models are decoders of the family llama (rotary positions, RMSNorm, SwiGLU, tied embeddings, no biases), or
 * encoders of the family bert that predict masked tokens. A decoder cannot have the variants dynamic, moe and adaptive:
 * they select heads by the mean of all tokens of a text, which includes the tokens to be predicted. Variant pruned is
 * trained with all heads for a quarter of the steps; until half of the steps, learned gates (train.h, L0) select the
 * heads that are removed; the remaining heads are trained for the rest of the steps.
 *
 * `mha train` trains the same models: with config.json of a variant, the same data, options and seed, its losses have
 * the same digits. Losses are bitwise identical for any number of threads. */
#ifndef MHA_LAYOUT_TRAINING_H
#define MHA_LAYOUT_TRAINING_H

#include "mha/head_layouts.h"
#include "mha/train.h"
#include "mha/train_data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_layout_training {
    size_t size;
    /* Shape of the models: d_model, heads, layers, vocab, prune and top_k. seq is the number of tokens per sequence,
     * batch the number of sequences per step, and dtype the type of cached keys and values. `parameters` is not used,
     * and `experts` must equal heads. Required, with at most 1024 layers and a vocab of at most 2^24 */
    const mha_head_layout_options *layout;
    /* Required: optimizer, schedule, dropout. `steps` is required; seed, gates, teacher, ranks and frozen must be 0 */
    const mha_train_options *train;
    const mha_train_data *data;     /* finished data with sequences of layout->seq tokens. Required */
    const mha_train_data *held_out; /* data for the loss after training, of the same length; NULL = the end of `data` */
    double held_out_fraction;       /* without held_out: fraction of the sequences of `data`, rounded up; 0 = 0.1 */
    int64_t held_out_sequences;     /* maximum number of sequences for the loss, selected by the seed; 0 = 512 */
    int64_t feed_forward;           /* feed-forward width of variant mha; 0 = 22 / 8 d_model, in encoders 4 d_model */
    /* 1 = encoders. The next fields are for encoders only */
    int encoder;
    const mha_tokenizer *tokenizer; /* tokenizer of the data. Required */
    int32_t mask;                   /* token id of [MASK] */
    double mask_fraction;           /* fraction of the tokens that are predicted; 0 = 0.15 */
} mha_layout_training;

/* The model of a variant. */
typedef struct mha_layout_model {
    mha_head_layout_variant variant;
    const char *refused;  /* reason why the variant cannot be trained; NULL = all other fields are set */
    int64_t feed_forward; /* feed-forward width */
    int64_t parameters;   /* number of parameters, of pruned without the removed heads */
    int64_t kept_heads;   /* pruned: number of heads in all layers that remain; 0 for other variants */
    double kv_bytes;      /* size of the cached keys and values of a token, in all layers [bytes]; 0 for encoders */
    double train_bytes;   /* predicted memory of a training step (host_layouts.h, job train) [bytes] */
    char config[1024];    /* config.json of the model, before heads are removed */
} mha_layout_model;

/* Writes one row per variant. Parameters are counted from config.json: no weights are allocated, for models of any
 * size. Errors: MHA_ERR_ARG for a missing or invalid field, which the message names; those of mha_head_layout_resolve
 * and mha_host_model_of_config; MHA_ERR_MEMORY. */
MHA_API mha_status mha_layout_models(mha_ctx *ctx, const mha_layout_training *options,
                                     mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS], mha_error *err);

/* The result of one training run. */
typedef struct mha_layout_trial {
    double first_loss;             /* loss of the first step, with the initial weights [nats per label] */
    double loss;                   /* mean loss on `held_out` sequences after the last step [nats per label] */
    int64_t held_out;              /* number of held-out sequences of which the loss was measured */
    double step_best, step_median; /* time of a step [s]; with one thread, its CPU time */
    int64_t peak_bytes;            /* maximum memory of the trainer, its model and its activations, during the steps */
    /* Time per token of the trained model [s], best of several runs. Decoders: one more token after seq - 1 cached
     * tokens of one sequence. Encoders: a pass over one sequence, divided by its tokens. Pruned: after removal */
    double token_time;
} mha_layout_trial;

/* Trains `model`, a row of mha_layout_models with the same options, and measures it. Times depend on the load of the
 * machine: alternate the variants, instead of running all seeds of a variant in a row. Memory is that of
 * mha_trainer_step; peak_bytes counts allocations of the library only. Reports progress as "steps". Errors: MHA_ERR_ARG
 * for a refused variant; those of mha_model_create, mha_trainer_create, mha_trainer_step and mha_prune;
 * MHA_ERR_CANCELED. */
MHA_API mha_status mha_layout_train(mha_ctx *ctx, const mha_layout_training *options, const mha_layout_model *model,
                                    uint64_t seed, mha_layout_trial *trial, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
