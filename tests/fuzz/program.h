/* program.h - what parts of the program need around them in a fuzz target: a session, and sentences that are checked in
 * place of being printed.
 */
#ifndef MHA_FUZZ_PROGRAM_H
#define MHA_FUZZ_PROGRAM_H

#include "command.h"

/* The session of all inputs. Every sentence of a refusal must hold `name` from now on, and no control character. */
const cli_session *fuzz_session(const char *name);
/* Checks the exit code of a function that reads input, and that a refusal came with one sentence. */
void fuzz_code(int code);

#endif
