/* memory.h - what the program does when there is no memory left.
 *
 * jansson and the streams of stdio drop what they cannot store, and continue. So they get their memory here, from
 * functions that do not return without it: the program ends with a sentence and exit 1, and nothing is half-written.
 * Files are written by single calls of the library, which remove what they have begun when they fail; no memory is
 * taken here while one of them is open. A file that was complete before the memory ran out stays.
 */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include "command.h"

/* Gives jansson its memory; before anything is done for the command of `session`, which outlives the work. */
void cli_memory_install(const cli_session *session);
/* Ends the program: out of memory. */
_Noreturn void cli_memory_end(void);
/* What is to be done before that; NULL: nothing, or nothing any more. */
void cli_memory_at_end(void (*clean)(void *user), void *user);

/* A stream into memory, as open_memstream of POSIX: *text and *bytes are what was written once it has been closed, and
 * *text is freed by the caller. Neither opening nor writing nor closing it fails. */
FILE *cli_memory_open(char **text, size_t *bytes);

#endif
