/* program.h - the program session for fuzz targets that use sources of the program, and checks of error messages.
 */
#ifndef MHA_FUZZ_PROGRAM_H
#define MHA_FUZZ_PROGRAM_H

#include "command.h"

/* Returns the session, which is the same for all inputs. After this call, every error message must contain `name`
 * and no control characters. */
const cli_session *fuzz_session(const char *name);
/* Checks the exit code of a function that reads input, and its error message if it failed. */
void fuzz_code(int code);

#endif
