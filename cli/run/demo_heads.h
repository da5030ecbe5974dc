/* demo_heads.h - what the most telling heads of a decoder do with a text, in words. */
#ifndef CLI_RUN_DEMO_HEADS_H
#define CLI_RUN_DEMO_HEADS_H

#include "command.h"

/* At most `count` heads, the best of each label, each with a pair of tokens of the text; `heads` was measured with
 * maps. */
void demo_heads_tell(const cli_session *session, const mha_model *model, const mha_heads *heads, int count, int indent);

#endif
