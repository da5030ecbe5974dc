/* model_create.h - a new model from a config, with random weights: where training begins.
 *
 *     const char *config = "{\"model_type\": \"gpt2\", \"n_embd\": 128, \"n_layer\": 2, \"n_head\": 8}";
 *     const mha_model_create_options o = { .size = sizeof o, .seed = 1 };
 *     mha_model_create(NULL, config, &o, &model, &err);
 *
 * What config.json leaves out takes the family's default, as in a folder. All families of model.h; BERT comes with its
 * MLM head and without a pooler. Tensors have the names that transformers gives them, in f32.
 */
#ifndef MHA_MODEL_CREATE_H
#define MHA_MODEL_CREATE_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_model_create_options {
    size_t size;
    uint64_t seed; /* of mha_rng_manual_seed: the low 32 bits count */
    /* Its tokenizer is the model's, and goes along when that is saved. It may have more ids than the vocabulary, as in
     * a folder that is opened: what runs the model refuses those. NULL = none. */
    const char *folder;
} mha_model_create_options;

/* `config_json` is what config.json would hold: UTF-8 JSON, terminated. `options` may be NULL. `ctx` must outlive the
 * model. The model is as one that was opened: freed, saved, run, taught by a trainer (train.h).
 *
 * Weights are drawn as transformers' _init_weights does: matrices and tables normal with mean 0 and a deviation of
 * "initializer_range" (0.02 without the key), biases 0, norms 1; of GPT-2 the matrices that write into the residual
 * (attention's and feed-forward's c_proj) with that deviation / sqrt(2 layers); the row of the padding token 0 (Radford
 * et al. 2019; Devlin et al. 2018). A pad_token_id below 0 counts from the end of the table, and one outside of it is
 * MHA_ERR_FORMAT here; stored models that have such a one are opened as if they had none. One mha_rng_normal for each
 * matrix: first what is no layer, then the layers in order. The order is this library's own, so a seed gives other
 * numbers than in PyTorch, and the same ones everywhere.
 *
 * Errors: MHA_ERR_ARG for a NULL; MHA_ERR_FORMAT and MHA_ERR_UNSUPPORTED as mha_model_open says of config.json; those
 * of mha_tokenizer_open for a folder that is given; MHA_ERR_MEMORY. Memory: 4 bytes for each parameter, and what
 * opening needs. Cost: some nanoseconds for each. */
MHA_API mha_status mha_model_create(mha_ctx *ctx, const char *config_json, const mha_model_create_options *options,
                                    mha_model **out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
