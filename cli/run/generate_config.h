/* generate_config.h - logs the settings of generation_config.json that the library does not apply. */
#ifndef CLI_RUN_GENERATE_CONFIG_H
#define CLI_RUN_GENERATE_CONFIG_H

#include "command.h"

/* Logs the options that correspond to settings of the model's generation_config.json. Options that are set in `o` and
 * the end-of-text tokens, which the library applies, are not logged; `has_max` is true if -n was given. Logs nothing if
 * there are no such settings. */
void generate_config_say(const cli_session *session, const mha_generate_options *o, bool has_max);

#endif
