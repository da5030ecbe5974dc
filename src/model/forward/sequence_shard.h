/* sequence_shard.h - a pass over one process's tokens of a sequence that is distributed over processes
 * (mha_model_shard). */
#ifndef MHA_MODEL_FORWARD_SEQUENCE_SHARD_H
#define MHA_MODEL_FORWARD_SEQUENCE_SHARD_H

#include "model/forward/batch.h"

/* Fails for ids or types of the whole input that are out of range. */
mha_status mha__ids_check(const mha_model *m, const mha_model_input *in, mha_error *err);
/* Checks the shard of a batch that mha__batch_read has read, copies it to `shard`, which the batch then points to, and
 * reduces the batch to the tokens of the shard. Outputs whose row the shard does not contain are set to NULL. Does
 * nothing without a shard. */
mha_status mha__shard_read(const mha_model *m, mha__batch *batch, mha_model_shard *shard, mha_model_output *out,
                           mha_error *err);
void mha__shard_lay_out(mha__arena *arena, mha__batch *batch);
/* Sets the ids, types and positions of the shard's tokens. */
void mha__shard_fill(const mha_model *m, mha__batch *batch);

#endif
