/* generate_config.h - settings of a model's generation_config.json that the library does not apply. */
#ifndef CLI_RUN_GENERATE_CONFIG_H
#define CLI_RUN_GENERATE_CONFIG_H

#include "command.h"

/* The library reads only the end-of-text tokens from generation_config.json. Logs once which options correspond to its
 * other settings, except options that are set in `o`; `most` is true if -n was given. Logs nothing if the file has no
 * other settings. */
void generate_config_say(const cli_session *session, const mha_generate_options *o, bool most);

#endif
