/* partial_forward.c - runs a forward pass that an internal callback may stop early. */
#include "heads/data/partial_forward.h"

mha_status mha__forward_until(const mha_model *model, const mha_model_input *input, const mha_model_output *output,
                              const bool *done, mha_error *err)
{
    mha_error own = {0};
    const mha_status status = mha_model_forward(model, input, output, &own);
    if (status == MHA_OK || (status == MHA_ERR_CANCELED && *done)) return MHA_OK;
    if (err) *err = own;
    return status;
}
