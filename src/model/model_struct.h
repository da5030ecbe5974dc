/* model_struct.h - what an open model is made of. Filled by open.c, read by forward.c and embed.c. */
#ifndef MHA_MODEL_STRUCT_H
#define MHA_MODEL_STRUCT_H

#include "mha/model.h"
#include "model/weights.h"

struct mha_model {
    mha_ctx *ctx;   /* as resolved */
    mha_ctx *given; /* as the caller gave it */
    mha__config config;
    mha_model_info info;
    int64_t *heads_per_layer; /* [3, layers] what info points to: of queries, and: */
    int64_t *key_heads_per_layer, *value_heads_per_layer;
    char *config_text;
    mha_tokenizer *tokenizer;           /* or NULL */
    mha__shards shards;                 /* the embedding tables and outer norms are used in place */
    mha__weights outer;                 /* and this keeps those that could not be */
    bool packed;                        /* false: opened with no_weights; nothing below is set */
    mha_matrix words, positions, types; /* weight NULL: the family has none */
    mha_norm embed_norm, final_norm, lm_norm;
    mha__role lm_bias;                       /* which of the two names of the logits' bias is used */
    mha_linear *pooler, *lm_dense, *lm_head; /* or NULL */
    mha_block **block;                       /* [layers] */
};

/* Packs a layer again from the tensors that the model was opened with, whose data have changed since. Nobody may run
 * the model meanwhile. After a failure the layer is as it was. */
mha_status mha__model_repack(mha_model *model, int64_t layer, mha_error *err);

#endif
