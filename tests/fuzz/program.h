/* program.h - a session and checks of error messages, for fuzz targets that test sources of the program.
 */
#ifndef MHA_FUZZ_PROGRAM_H
#define MHA_FUZZ_PROGRAM_H

#include "command.h"

/* Returns the session, which is the same for all inputs. After this call, every error message must contain `name`
 * and no control characters. */
const cli_session *fuzz_session(const char *name);
/* Checks the exit code that a function returned for the input and, if it failed, its error message. */
void fuzz_code(int code);

#endif
