/* edited_forward.h - a forward pass whose activations a function may read and change. */
#ifndef MHA_MODEL_FORWARD_EDITED_FORWARD_H
#define MHA_MODEL_FORWARD_EDITED_FORWARD_H

#include "layer/block/activation_edit.h"
#include "mha/model.h"

/* Like mha_model_forward, and passes the activations of every layer to `edit` (NULL = none). Only for models in f32
 * without cross-attention. The edit's begin function is also called before the layers run, to measure their
 * workspace. */
mha_status mha__model_forward_edited(const mha_model *model, const mha_model_input *input,
                                     const mha_model_output *output, mha__site_edit *edit, mha_error *err);

#endif
