/* pair_scores.h - prints the importance of all heads of an encoder-decoder, measured on source/target pairs. */
#ifndef CLI_HEADS_PAIR_SCORES_H
#define CLI_HEADS_PAIR_SCORES_H

#include "command.h"

/* Prints the scores as a table, most important first, as JSON or as CSV. Returns an exit code. */
int pair_scores_put(cli_session *session, const mha_model *model, const mha_importance *importance,
                    mha_importance_score by, int64_t pairs);

#endif
