/* staging.h - copies of operands in the workspace: rotated keys; in the backward pass also rotated queries, and keys
 * and values that are stored in pages. Every tile reads the copies, so each row is copied once per call. */
#ifndef MHA_ATTN_FORWARD_STAGING_H
#define MHA_ATTN_FORWARD_STAGING_H

#include "attn/plan/plan.h"

/* Sets plan->staging for a plan whose passes need `bytes` bytes of workspace. Returns MHA_ERR_ARG if the workspace
 * overflows size_t. */
mha_status mha__stage_lay_out(mha_attn_plan *plan, size_t bytes, mha_error *err);

/* Copies the operands that a pass requires, and makes the call read the copies. */
mha_status mha__stage_forward(mha__call *call, mha_error *err);
mha_status mha__stage_backward(mha__call *call, mha_error *err);

#endif
