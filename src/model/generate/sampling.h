/* sampling.h - applies sampling options to logits; the options must be checked first. */
#ifndef MHA_MODEL_GENERATE_SAMPLING_H
#define MHA_MODEL_GENERATE_SAMPLING_H

#include "mha/generate.h"

mha_status mha__sampling_check(const mha_sampling *sampling, mha_error *err);
/* Runs mha_sampling_apply without its checks; `ctx` must not be NULL. */
mha_status mha__sampling_run(mha_ctx *ctx, const mha_sampling *sampling, const int32_t *ids, int64_t count,
                             int64_t vocab, float *logits, mha_error *err);

#endif
