/* output_is_input.h - an output is never one of the inputs of the same run. Files are compared by device and inode, so
 * that hard links, symbolic links and other spellings of a path make no difference. */
#ifndef CLI_OUTPUT_IS_INPUT_H
#define CLI_OUTPUT_IS_INPUT_H

#include "command.h"

/* CLI_USAGE with a message if `path`, which the option `output` names, is `input`, which `option` names, or if one is a
 * folder that holds the other. Either path may be NULL, or name nothing that exists. */
int cli_input_check(const cli_session *session, const char *output, const char *path, const char *option,
                    const char *input);
/* The same for every input that the command line names, and for standard input. */
int cli_inputs_check(const cli_session *session, const char *output, const char *path);

/* CLI_USAGE with a message if more than one option or argument is "-", or one and texts come from a pipe that nothing
 * names: standard input has one reader. */
int cli_stdin_check(const cli_session *session, bool piped);

#endif
