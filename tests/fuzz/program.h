/* program.h - the session that parts of the program need in a fuzz target, and checks of their error messages.
 */
#ifndef MHA_FUZZ_PROGRAM_H
#define MHA_FUZZ_PROGRAM_H

#include "command.h"

/* The session of all inputs. From now on, every error message must contain `name` and no control characters. */
const cli_session *fuzz_session(const char *name);
/* Checks the exit code of a function that reads input, and its error message if it failed. */
void fuzz_code(int code);

#endif
