/* model_pass.h - helpers that the functions of cluster_model.h share. */
#ifndef MHA_MPI_MODEL_PASS_H
#define MHA_MPI_MODEL_PASS_H

#include "library/cluster_struct.h"
#include "mha/cluster_model.h"

/* Checks the arguments that all functions of cluster_model.h have. */
mha_status mha__pass_check(const mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode, mha_error *err);
/* Ends a collective call: adds rank and host to the message in `why`. The cluster counts as broken after failures that
 * may affect only this rank. Returns `status`. */
mha_status mha__pass_end(mha_cluster *cluster, mha_status status, const mha_error *why, mha_error *err);
/* Returns the cp rank that computes a token of a sequence (mha_cluster_part_of). */
int mha__rank_of_token(int64_t length, int cp, int64_t token);

#endif
