/* partial_forward.h - forward passes that a callback of ours ends early, when it has what it came for. */
#ifndef MHA_HEADS_DATA_PARTIAL_FORWARD_H
#define MHA_HEADS_DATA_PARTIAL_FORWARD_H

#include <stdbool.h>

#include "mha/model.h"

/* mha_model_forward; but a pass stopped while *done is set is MHA_OK, and the caller's error does not hear of it. */
mha_status mha__forward_until(const mha_model *model, const mha_model_input *input, const mha_model_output *output,
                              const bool *done, mha_error *err);

#endif
