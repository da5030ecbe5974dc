/* model_struct.h - the fields of an open model, which model_open.c sets. */
#ifndef MHA_MODEL_STRUCT_H
#define MHA_MODEL_STRUCT_H

#include "layer/ranks/rank_exchange.h"
#include "mha/model.h"
#include "model/vision/preprocessor.h"
#include "model/weights/weights.h"

struct mha_model {
    mha_ctx *ctx;          /* context in use: the caller's context, or the default context */
    mha_ctx *given;        /* context as the caller passed it */
    mha_model_ranks ranks; /* the processes that hold parts of this model; ranks.ranks = 0: the whole model */
    bool tied_on_ranks;    /* mha__model_is_tied for the rows of all ranks */
    mha__config config;
    mha_model_info info;
    int64_t *heads_per_layer; /* [5, layers] counts that `info` points to; the next four pointers point into this
                               * array */
    int64_t *key_heads_per_layer, *value_heads_per_layer, *feed_forward_per_layer, *cross_heads_per_layer;
    mha_model_attention *attention_per_layer; /* [layers] */
    int32_t *head_numbers;     /* [layers, H] head numbers in the unpruned model; -1 after a layer's last head */
    int32_t *cross_numbers;    /* [layers, H] the same for cross-attention; NULL = none */
    int32_t *relative_columns; /* [layers, H] column of each head in the table of relative positions; NULL = its
                                * number */
    float *slopes;             /* [layers, H] ALiBi slopes of the heads of each layer; NULL if no layer has ALiBi */
    char *config_text;
    char *gguf_config;                            /* config.json of a model from a GGUF file; NULL = from a folder */
    mha_tokenizer *tokenizer;                     /* NULL if the model was opened without a tokenizer */
    mha__shards shards;                           /* embedding tables and outer norms are used in place */
    mha__weights outer;                           /* converted tensors outside the layers */
    bool packed;                                  /* false = opened with no_weights; the fields below are not set */
    mha_matrix words, positions, types, relative; /* weight NULL = the family lacks this table */
    mha_norm embed_norm, final_norm, lm_norm;
    mha_matrix distances; /* embeddings of relative positions; weight NULL = none */
    mha_norm distances_norm;
    float *positions_normed;    /* [rows, E] those embeddings after their norm, which the layers project */
    mha_linear *convolution[2]; /* of an encoder that reads audio features, with GELU; NULL = none */
    mha__role lm_bias;          /* role of the output bias, which has two possible names */
    mha_linear *embed_map, *pooler, *lm_dense, *lm_head; /* NULL if the checkpoint lacks the part */
    /* Vision (vision.h): projection of the patches, and the token before them; CLIP: norm of the pooled vector, its
     * projection, and the logarithm of the scale of logits (weight NULL = absent) */
    mha_linear *patches, *projection;
    mha_matrix class_token, logit_scale;
    mha_norm pool_norm;
    mha__preprocessor preprocessor; /* kind NULL = the folder has no file that describes it */
    mha_block **block;              /* [layers]; layers that share tensors share a block */
    void *own;                      /* memory of a created model's tensors (model_create.c), or NULL */
    struct mha__sentence *sentence; /* modules of a sentence-transformers folder; NULL = none */
    /* Encoder-decoders: the model is the decoder, and owns its encoder. An encoder uses the shards and the tokenizer of
     * its decoder. NULL = none */
    struct mha_model *encoder;
    const struct mha_model *decoder;
    /* CLIP: the model is the text tower, and owns the image tower, which uses the shards of the text tower. */
    struct mha_model *vision;
    const struct mha_model *text;
};

/* Returns true if config.json ties the output matrix to the word embeddings, unless the file contains an output matrix
 * whose elements in these rows differ. */
bool mha__model_is_tied(const mha_model *model, mha_model_range rows);
/* Returns the options of a layer's block from the tensors of its roles. `cross` is memory for the options of its
 * cross-attention. */
mha_block_options mha__model_block_options(const mha_model *model, int64_t layer, const mha_matrix *part,
                                           mha_attn_layer_options *cross);
/* ---- models that are divided among processes (mha/model_ranks.h) ---- */

/* Returns the key/value heads of a layer in the cache of this process. */
int64_t mha__model_kv_heads(const mha_model *model, int64_t layer);

/* Returns MHA_ERR_UNSUPPORTED for a config whose weights cannot be divided. */
mha_status mha__rank_config_check(const mha__config *config, mha_error *err);
/* Collective. Passes the status of this rank and, if it is not MHA_OK, the message in `err`. Returns the status of the
 * first rank that failed, on all ranks. Does nothing in a model that is not divided. */
mha_status mha__rank_parts_agree(const mha_model *model, mha_status status, mha_error *err);
/* Collective. Fails unless all ranks have opened the same config and tensors, of which it compares names, types and
 * shapes, vectors, and the first bytes of matrices. Sets tied_on_ranks, which depends on tensors that no rank reads
 * completely. */
mha_status mha__rank_parts_same(mha_model *model, mha_error *err);
/* Collective. Computes a hash of what mha__rank_parts_same compares and of all word embeddings, the same for any number
 * of processes. */
mha_status mha__rank_parts_hash(const mha_model *model, uint64_t *hash, mha_error *err);

/* ---- tensors ---- */

/* Returns a norm of the model from the tensors of its role. */
mha_norm mha__model_norm(const mha__config *config, mha__role role, const mha_matrix *part);
/* Sets head_numbers, cross_numbers and relative_columns from the text of config.json. */
mha_status mha__model_number_heads(mha_model *model, mha_error *err);
/* Sets m->slopes from the config and m->head_numbers, if a layer has ALiBi. */
mha_status mha__model_slopes(mha_model *model, mha_error *err);
/* Finds all tensors outside the layers, and builds the parts that use them. */
mha_status mha__model_take_outer(mha_model *model, mha_error *err);
/* Returns false for roles whose tensors may be in the file but are not used by this model: output heads that are not
 * supported, or tied. Valid after mha__model_take_outer. */
bool mha__model_uses(const mha_model *model, mha__role role);
/* Returns the tensor that the model uses at a step of mha__tensor_each; NULL if the model uses none. */
const mha_tensor *mha__model_tensor(const mha_model *model, const mha__tensor_step *at);
/* Finds the tensors of a layer and builds its block; in a model without weights, only checks them. */
mha_status mha__model_create_block(mha_model *model, int64_t layer, mha_error *err);
/* Packs a layer again from the tensors that the model was opened with, after their data have changed. No other thread
 * may run the model during the call. The block keeps its address; after a failure it is unchanged. */
mha_status mha__model_repack(mha_model *model, int64_t layer, mha_error *err);
/* Packs all weights of the model again. Fails only if tensors must be converted (weights.h) and memory is exhausted;
 * some parts then have the old elements, and other parts the new elements. */
mha_status mha__model_refresh(mha_model *model, mha_error *err);

/* Returns MHA_ERR_UNSUPPORTED for a model of images, which has no token ids: `what` requires them. */
mha_status mha__model_reads_ids(const mha_model *model, const char *what, mha_error *err);
/* Returns MHA_ERR_UNSUPPORTED for one side of an encoder-decoder: `what` does not support it. */
mha_status mha__model_not_seq2seq(const mha_model *model, const char *what, mha_error *err);

/* Steps of opening a model. mha__model_set_up requires the config. mha__model_take_weights requires the shards and
 * mha__weights_begin; mha__model_fill_info requires the weights. */
mha_status mha__model_set_up(mha_model *model, const mha_model_options *options, mha_error *err);
mha_status mha__model_take_weights(mha_model *model, mha_error *err);
/* Checks that the model reads every tensor of the GGUF file it was opened from (weights/gguf/gguf_unused.c). Errors:
 * MHA_ERR_UNSUPPORTED, naming the first tensor that is not read. */
mha_status mha__gguf_check_unused(const mha_model *model, mha_error *err);
void mha__model_fill_info(mha_model *model);
/* Reads modules.json and the folders that it names, if the file exists, and sets model->sentence, the pooling and the
 * width of the vectors. Modules that are not supported do not prevent the model from opening, since only vectors of
 * texts depend on them. Errors: MHA_ERR_FORMAT and MHA_ERR_IO for damaged files, naming them. */
mha_status mha__sentence_open(mha_model *model, const char *folder, mha_error *err);
void mha__sentence_free(mha_model *model);

/* Returns MHA_ERR_UNSUPPORTED with a message that names `what` if the head count of a layer varies per text. Returns
 * MHA_OK if `what` is NULL (not requested). */
mha_status mha__model_single_heads(const mha_model *model, const char *what, mha_error *err);

#endif
