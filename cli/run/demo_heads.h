/* demo_heads.h - describes in words what the most interesting heads of a decoder do with a text. */
#ifndef CLI_RUN_DEMO_HEADS_H
#define CLI_RUN_DEMO_HEADS_H

#include "command.h"

/* Describes at most `count` heads: per label the head with the highest score, with a pair of tokens as an example.
 * `heads` must be measured with keep_maps. */
void demo_heads_tell(const cli_session *session, const mha_model *model, const mha_heads *heads, int count, int indent);

#endif
