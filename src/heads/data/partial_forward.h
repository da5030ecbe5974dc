/* partial_forward.h - runs a forward pass that an internal callback may stop once it has its results. */
#ifndef MHA_HEADS_DATA_PARTIAL_FORWARD_H
#define MHA_HEADS_DATA_PARTIAL_FORWARD_H

#include "mha/model.h"
#include <stdbool.h>

/* Runs mha_model_forward; a pass that is stopped with *done set returns MHA_OK and leaves *err unchanged. */
mha_status mha__forward_until(const mha_model *model, const mha_model_input *input, const mha_model_output *output,
                              const bool *done, mha_error *err);

#endif
