/* generate_config.h - generation_config.json beside a model, as far as the library does not follow it. */
#ifndef CLI_RUN_GENERATE_CONFIG_H
#define CLI_RUN_GENERATE_CONFIG_H

#include "command.h"

/* Of generation_config.json the library takes the tokens that end a text. Says once on stderr which options give the
 * rest of it, those of `o` that are set excepted; `most`: -n was given. Nothing where the file says nothing else. */
void generate_config_say(const cli_session *session, const mha_generate_options *o, bool most);

#endif
