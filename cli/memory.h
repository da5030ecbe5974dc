/* memory.h - ends the program when memory runs out.
 *
 * jansson and stdio streams silently drop data that they cannot store. They therefore allocate through these functions,
 * which never fail: if memory runs out, the program prints a message and exits with status 1, leaving no half-written
 * file. Files are written by single library calls, which remove their partial output on failure; no memory is
 * allocated here while such a call runs. A file that was complete before memory ran out is kept. */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include "command.h"

/* Sets jansson's allocator; must be called before the command runs; `session` must outlive the command. */
void cli_memory_install(const cli_session *session);
/* Prints "out of memory" and ends the program. */
_Noreturn void cli_memory_end(void);
/* Sets a function to call before the program ends; NULL for none. */
void cli_memory_at_end(void (*clean)(void *user), void *user);

/* Opens a stream into memory, like POSIX open_memstream. After closing, *text and *bytes describe the written text,
 * and the caller must free *text. Opening, writing and closing never fail. */
FILE *cli_memory_open(char **text, size_t *bytes);

#endif
