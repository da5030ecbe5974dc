/* weights.h - the tensors of a checkpoint by role: finds them under the family's names, and checks them against the
 * config before use. */
#ifndef MHA_MODEL_WEIGHTS_WEIGHTS_H
#define MHA_MODEL_WEIGHTS_WEIGHTS_H

#include "model/config/family.h"
#include "model/weights/weight_overlay.h"

/* Longer than any prefix + layer + name + suffix of a family table; a longer name would be truncated and not found. */
enum { MHA__TENSOR_NAME = 160 };

typedef struct mha__weights {
    mha_ctx *ctx;
    const mha__config *config;
    const mha__shards *shards;
    const char *prefix;        /* the prefix that this file uses */
    mha_dtype packed;          /* type in which matrices are packed */
    bool check_only;           /* only shapes are checked; data is not read, pointers stay NULL */
    int64_t parameters, bytes; /* totals of all tensors found so far */
    mha_dtype dtype;           /* stored type of the first tensor */
    void *converted;           /* f32 copies of tensors that cannot be used in place, as a list; NULL = none */
} mha__weights;

/* Replaces the codes and scales among the tensors of a file by the weights that they represent (quantized_tensors.c),
 * if the config states that a folder stores codes. Errors: MHA_ERR_FORMAT for codes without scales, scales without
 * codes, and shapes that do not match; MHA_ERR_UNSUPPORTED for types that are not supported. All messages name file
 * and tensor. */
mha_status mha__quantized_tensors(mha_file *file, const mha__config *config, mha_error *err);

/* Detects the prefix that the file uses. The fields before `prefix`, `packed` and `check_only` must be set. */
void mha__weights_begin(mha__weights *weights);

/* Finds the tensors of a role in `layer` (-1 for parts outside the layers): weight, bias, orientation, and out = rows.
 * An optional part that the file lacks leaves *part zero. Data is valid as long as the file, or, if it had to be
 * converted, until mha__weights_release. Errors: MHA_ERR_FORMAT for a tensor that is missing or whose shape differs
 * from config.json; MHA_ERR_UNSUPPORTED for a type other than f32, f16 or bf16; MHA_ERR_MEMORY. All messages name the
 * file and the tensor. */
mha_status mha__weights_part(mha__weights *weights, mha__role role, int64_t layer, mha_matrix *part, mha_error *err);

/* Computes the position table of families that do not store it (sine_positions.c). */
mha_status mha__sine_positions(mha__weights *weights, mha_matrix *part, mha_error *err);

/* Iterator over the tensors of a model: weight and bias of each role, first outside the layers (layer -1), then layer
 * by layer, and in a layer expert by expert. Tensors that layers share appear once, in the first of these layers:
 *
 *     for (mha__tensor_step s = {0}; mha__tensor_each(config, &s);) */
typedef struct mha__tensor_step {
    int64_t layer;
    mha__role role;
    bool bias;
    int64_t next;
} mha__tensor_step;
bool mha__tensor_each(const mha__config *config, mha__tensor_step *step);

/* Returns the tensor of a role's weight, or of its bias; NULL if the checkpoint lacks it. The shape is not checked. */
const mha_tensor *mha__weights_tensor(const mha__weights *weights, mha__role role, int64_t layer, bool bias);
/* Fetches an already loaded weight in its stored layout, kept as in mha__weights_part. *weight is NULL if the role has
 * no tensor. */
mha_status mha__weights_again(mha__weights *weights, mha__role role, int64_t layer, const float **weight,
                              mha_error *err);

/* Returns true if the rows of the role are stored head by head (mha__part). mha__weights_part and mha__weights_again
 * return tensors in the order of the model (tensor_order.h). */
bool mha__weights_per_head(const mha__config *config, mha__role role);

/* Releases the file pages of a role's weight, after the weight has been packed. */
void mha__weights_rest(const mha__weights *weights, mha__role role, int64_t layer);

/* Writes the name and shape that a role's weight, or its bias, has in a new checkpoint of the config; returns false if
 * the family lacks it. `name` has MHA__TENSOR_NAME bytes. */
bool mha__weights_expected(const mha__config *config, mha__role role, int64_t layer, bool bias, char *name,
                           mha_named_tensor *tensor);

/* Fails with the name of the missing tensor of an optional part that this checkpoint must have. */
mha_status mha__weights_missing(const mha__weights *weights, mha__role role, mha_error *err);

/* Allocates memory for a converted tensor, or for a part of one; returns NULL if memory is exhausted. */
float *mha__weights_keep(mha__weights *weights, size_t bytes);
/* Sets *bias to `count` zeros. */
mha_status mha__weights_zeros(mha__weights *weights, int64_t count, const float **bias, mha_error *err);
/* Replaces *weight with a copy to which 1 is added. */
mha_status mha__weights_add_one(mha__weights *weights, int64_t count, const float **weight, mha_error *err);
/* Frees all converted tensors, or those that were converted after `kept`, a previous value of `converted`. */
void mha__weights_release(mha__weights *weights);
void mha__weights_release_after(mha__weights *weights, const void *kept);

#endif
