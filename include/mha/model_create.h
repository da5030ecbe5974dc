/* model_create.h - creates a model from a config, with random weights, to train from scratch.
 *
 *     const char *config = "{\"model_type\": \"gpt2\", \"n_embd\": 128, \"n_layer\": 2, \"n_head\": 8}";
 *     const mha_model_create_options o = { .size = sizeof o, .seed = 1 };
 *     mha_model_create(NULL, config, &o, &model, &err);
 *
 * Keys absent from the config take the family's defaults, as in a checkpoint folder. All families of model.h are
 * supported; BERT has its MLM head and no pooler. Tensors are f32 and have the names that transformers uses. */
#ifndef MHA_MODEL_CREATE_H
#define MHA_MODEL_CREATE_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_model_create_options {
    size_t size;
    uint64_t seed; /* seed for mha_rng_manual_seed, which uses only the low 32 bits */
    /* Folder of the tokenizer, which is saved with the model; NULL = none. The tokenizer may have more ids than the
     * vocabulary, as in a checkpoint folder; running the model rejects those ids. */
    const char *folder;
} mha_model_create_options;

/* Creates a model. `config_json` is the content of config.json: NUL-terminated UTF-8 JSON. `options` may be NULL. `ctx`
 * must outlive the model. The model behaves like an opened model: it can be saved, run and trained (train.h), and must
 * be freed.
 *
 * Weights are initialized as by transformers' _init_weights: matrices and embedding tables from a normal distribution
 * with mean 0 and standard deviation "initializer_range" (0.02 if absent), biases 0, norms 1. In GPT-2, the matrices
 * that write into the residual (c_proj of attention and feed-forward) have this standard deviation divided by sqrt(2
 * layers). The row of the padding token is 0 (Radford et al. 2019; Devlin et al. 2018). A pad_token_id below 0 counts
 * from the end of the table. An out-of-range pad_token_id is MHA_ERR_FORMAT here; a stored model with such an id opens
 * as if it had none. Each matrix is one call of mha_rng_normal: first the matrices outside the layers, then the layers
 * in order. The order is specific to this library, so a seed gives different values than in PyTorch, but the same
 * values on every machine.
 *
 * Errors: MHA_ERR_ARG for a NULL argument; MHA_ERR_FORMAT and MHA_ERR_UNSUPPORTED for config.json as in mha_model_open;
 * those of mha_tokenizer_open if a folder is given; MHA_ERR_MEMORY. Memory: 4 bytes per parameter, plus that of
 * mha_model_open. Cost: a few nanoseconds per parameter. */
MHA_API mha_status mha_model_create(mha_ctx *ctx, const char *config_json, const mha_model_create_options *options,
                                    mha_model **out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
