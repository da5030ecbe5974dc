/* shared_texts.h - the functions with which commands divide long texts among the ranks. */
#ifndef MPI_SHARED_TEXTS_H
#define MPI_SHARED_TEXTS_H

#include "command.h"
#include "mha/cluster.h"

/* Returns the functions that divide texts among the ranks of a cluster. They are valid until the program exits or until
 * the next call; only one cluster can be used at a time. Set `divides_models` if the ranks of a tp group open parts of
 * the model. */
const cli_shared_texts *shared_texts_of(mha_cluster *cluster, mha_cluster_mode mode, bool divides_models);
/* Returns true and copies the error to *err if another rank left the command before a text that all ranks must process
 * together. All ranks have then agreed on this error. */
bool shared_texts_ended(mha_error *err);
/* Returns true if this rank failed in a pass of a divided model, while other ranks may wait for it. */
bool shared_texts_broken(void);

#endif
