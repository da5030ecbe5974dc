/* model_struct.h - what an open model is made of. Filled by model_open.c, read by model_forward.c and
 * text_embedding.c. */
#ifndef MHA_MODEL_STRUCT_H
#define MHA_MODEL_STRUCT_H

#include "mha/model.h"
#include "model/weights/weights.h"

struct mha_model {
    mha_ctx *ctx;   /* as resolved */
    mha_ctx *given; /* as the caller gave it */
    mha__config config;
    mha_model_info info;
    int64_t *heads_per_layer; /* [4, layers] what info points to: of queries, and: */
    int64_t *key_heads_per_layer, *value_heads_per_layer, *feed_forward_per_layer;
    mha_model_attention *attention_per_layer; /* [layers] */
    int32_t *head_numbers; /* [layers, H] in the unpruned model; meaningless after the last head of a layer */
    float *slopes;         /* [layers, H] of ALiBi, for the heads that a layer has; NULL where none has it */
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
    void *own; /* tensors in memory that belong to the model (model_create.c); NULL otherwise */
};

/* A norm of the model, of the tensors that weights.h has found. */
mha_norm mha__model_norm(const mha__config *config, mha__role role, const mha_matrix *part);
/* Fills m->head_numbers of the config's text. */
mha_status mha__model_number_heads(mha_model *model, mha_error *err);
/* Fills m->slopes of the config and m->head_numbers, where a layer has ALiBi. */
mha_status mha__model_slopes(mha_model *model, mha_error *err);
/* Finds the tensors of all that is no layer, and makes what they are for. */
mha_status mha__model_take_outer(mha_model *model, mha_error *err);
/* False for roles whose tensors may stand in the file, but not in this model: heads of logits that are not built, or
 * tied. Known once the outer parts are taken. */
bool mha__model_uses(const mha_model *model, mha__role role);
/* The tensor at a place (mha__tensor_each) that the model uses; NULL if there is none. */
const mha_tensor *mha__model_tensor(const mha_model *model, const mha__tensor_step *at);
/* Finds the tensors of a layer and makes its block; checks them alone in a model without weights. */
mha_status mha__model_create_block(mha_model *model, int64_t layer, mha_error *err);
/* Packs a layer again from the tensors that the model was opened with, whose data have changed since. Nobody may run
 * the model meanwhile. The block stays where it is; after a failure it is as it was. */
mha_status mha__model_repack(mha_model *model, int64_t layer, mha_error *err);
/* The same for the whole model. Fails only where tensors must be converted (weights.h), and there is no memory for it;
 * some parts then hold the old elements, and some the new. */
mha_status mha__model_refresh(mha_model *model, mha_error *err);

/* MHA_ERR_UNSUPPORTED, saying `what` is not to be had, if a layer has another number of heads for each text. NULL: it
 * is not wanted. */
mha_status mha__model_single_heads(const mha_model *model, const char *what, mha_error *err);

#endif
