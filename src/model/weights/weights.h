/* weights.h - tensors of a checkpoint by role: found by the family's names, and checked against the config before
 * use. */
#ifndef MHA_MODEL_WEIGHTS_WEIGHTS_H
#define MHA_MODEL_WEIGHTS_WEIGHTS_H

#include "model/config/family.h"
#include "model/weights/weight_overlay.h"

/* Room for the converted tensors of one layer, or of all that is no layer: every role has at most two. */
#define MHA__MAX_CONVERTED (2 * MHA__ROLES)

/* Longer than any prefix + layer + name + suffix of a family table; a longer name would be cut, and then not be
 * found. */
#define MHA__TENSOR_NAME 160

typedef struct mha__weights {
    mha_ctx *ctx;
    const mha__config *config;
    const mha__shards *shards;
    const char *prefix;                   /* that this file uses */
    mha_dtype packed;                     /* what matrices are to be packed as */
    bool check_only;                      /* shapes are checked, data is not touched; pointers stay NULL */
    int64_t parameters, bytes;            /* of all tensors found so far */
    mha_dtype dtype;                      /* of the first one */
    float *converted[MHA__MAX_CONVERTED]; /* f32 copies of tensors that cannot be used in place */
    int converted_count;
} mha__weights;

/* Finds out which prefix the file uses. The fields before `prefix`, `packed` and
 * `check_only` are set. */
void mha__weights_begin(mha__weights *weights);

/* The tensors of a role in `layer` (-1 for parts that exist once): weight, bias, how it lies, and out = rows. An
 * optional part that the file lacks leaves *part zero. Data lives as long as the file, or until mha__weights_release
 * where it had to be converted. Errors: MHA_ERR_FORMAT for a tensor that is missing or has another shape than
 * config.json says; MHA_ERR_UNSUPPORTED for a type that is no f32, f16 or bf16; MHA_ERR_MEMORY. All name file and
 * tensor. */
mha_status mha__weights_part(mha__weights *weights, mha__role role, int64_t layer, mha_matrix *part, mha_error *err);

/* A step through the places of a model's tensors: weight and bias of each role, those of the model (layer -1) first,
 * then layer by layer:    for (mha__tensor_step s = {0}; mha__tensor_each(config, &s);) */
typedef struct mha__tensor_step {
    int64_t layer;
    mha__role role;
    bool bias;
    int64_t next;
} mha__tensor_step;
bool mha__tensor_each(const mha__config *config, mha__tensor_step *step);

/* The tensor that a role's weight is in, or its bias; NULL if there is none. No shape is checked. */
const mha_tensor *mha__weights_tensor(const mha__weights *weights, mha__role role, int64_t layer, bool bias);
/* The weight of a role that was taken before, as it is stored; it is kept as in mha__weights_part. NULL if there is
 * none. */
mha_status mha__weights_again(mha__weights *weights, mha__role role, int64_t layer, const float **weight,
                              mha_error *err);

/* The weight of a role is packed: its pages of the file need no memory any more. */
void mha__weights_rest(const mha__weights *weights, mha__role role, int64_t layer);

/* Name and shape of the tensor that a new checkpoint of the config has for a role's weight, or its bias; false if the
 * family has none. `name` is MHA__TENSOR_NAME. */
bool mha__weights_expected(const mha__config *config, mha__role role, int64_t layer, bool bias, char *name,
                           mha_named_tensor *tensor);

/* Fails for the missing tensor of an optional part that this checkpoint must have. */
mha_status mha__weights_missing(const mha__weights *weights, mha__role role, mha_error *err);

/* Frees the converted tensors. */
void mha__weights_release(mha__weights *weights);

#endif
