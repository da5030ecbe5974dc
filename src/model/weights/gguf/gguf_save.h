/* gguf_save.h - the parts of saving a model as a GGUF file: checks that the file expresses it, keys and tensors. */
#ifndef MHA_MODEL_WEIGHTS_GGUF_GGUF_SAVE_H
#define MHA_MODEL_WEIGHTS_GGUF_GGUF_SAVE_H

#include "io/gguf/gguf_writer.h"
#include "model/gguf/gguf_parts.h"
#include "model/model_struct.h"

/* Checks what can be checked before the file is written: layers of equal head counts, and no options of
 * "mha.attention". Errors: MHA_ERR_UNSUPPORTED, naming the key. */
mha_status mha__gguf_expressible(const mha_model *model, const mha__gguf_arch *arch, mha_error *err);

/* Checks that the config of the model opened from the written file computes the same. */
mha_status mha__gguf_compare(const mha_model *model, const mha_model *written, const char *arch, mha_error *err);

/* Adds the keys of the config and of the tokenizer (gguf_save_keys.c). */
mha_status mha__gguf_save_keys(const mha_model *model, const mha__gguf_arch *arch, mha__gguf_keys *keys,
                               mha_error *err);

typedef struct mha__gguf_item mha__gguf_item;

/* The tensors of the file (gguf_save_tensors.c). */
typedef struct mha__gguf_tensors {
    const mha_model *m;
    const mha__gguf_arch *arch;
    mha_dtype dtype;          /* of matrices; MHA_DTYPE_DEFAULT = that of each tensor */
    mha__gguf_item *items;    /* [count] */
    mha__gguf_outgoing *list; /* [count] points to names and shapes of the items */
    int64_t count;
    float rope_factors[2][MHA_HEAD_DIM_MAX / 2];
    float *read, *changed; /* the elements of the largest tensor */
} mha__gguf_tensors;

/* Lists the tensors: m, arch and dtype must be set. Call mha__gguf_tensors_free even after an error. */
mha_status mha__gguf_list_tensors(mha__gguf_tensors *tensors, mha_error *err);
void mha__gguf_tensors_free(mha__gguf_tensors *tensors);
/* Reads the elements of a tensor of the list, for mha__gguf_write; `user` are the tensors. */
mha_status mha__gguf_read_tensor(void *user, int64_t index, const float **elements, mha_error *err);

#endif
