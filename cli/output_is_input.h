/* output_is_input.h - rejects an output that is also an input of the run. Files are compared by device and inode, so
 * hard links, symbolic links and other spellings of a path are recognized. */
#ifndef CLI_OUTPUT_IS_INPUT_H
#define CLI_OUTPUT_IS_INPUT_H

#include "command.h"

/* Returns CLI_USAGE and prints a message if `path` of option `output` is `input` of option `option`, or if one is a
 * folder that contains the other. Either path may be NULL or not exist. */
int cli_input_check(const cli_session *session, const char *output, const char *path, const char *option,
                    const char *input);
/* Checks every input on the command line and standard input in the same way. */
int cli_inputs_check(const cli_session *session, const char *output, const char *path);
/* Checks all options of the command line that are marked with CLI_OUTPUT in this way. */
int cli_outputs_check(const cli_session *session);

/* Returns CLI_USAGE and prints a message if "-" is given more than once, or if it is given and texts are read from a
 * pipe by default (`piped`), because standard input can be read only once. */
int cli_stdin_check(const cli_session *session, bool piped);

#endif
