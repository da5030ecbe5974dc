/* pair_gates.h - the effect of the heads of an encoder-decoder: the change of the loss of the target if the gate of a
 * head is 0. */
#ifndef CLI_REPORT_PAIR_GATES_H
#define CLI_REPORT_PAIR_GATES_H

#include "command.h"
#include "input/sequence.h"
#include <jansson.h>

typedef enum pair_heads { PAIR_ENCODER, PAIR_DECODER, PAIR_CROSS } pair_heads;

/* Measures every head of the encoder, of the decoder's self-attention or of its cross-attention, in one pass per head.
 * The loss is that of mha score and mha heads: the mean cross entropy of the tokens of the target, with the token that
 * the template adds after the text. The sequence must have a target. *importance gets the object of
 * importance_scores_json, with the score loo_loss and no intervals. Returns an exit code. */
int pair_gates_measure(const cli_session *session, const mha_model *model, const cli_sequence *sequence, pair_heads of,
                       json_t **importance);

#endif
