/* state_path.h - the option --state FILE, with which a command saves the progress of its measurements and resumes them.
 * Each measurement is saved in its own file, FILE.WORD, such as FILE.gate; for the second model of a comparison, the
 * file is FILE.2.WORD. */
#ifndef CLI_HEADS_STATE_PATH_H
#define CLI_HEADS_STATE_PATH_H

#include "command.h"

/* Value of --state as given; NULL if absent. */
extern char *state_path_given;

#define STATE_PATH_OPTION(help)                                                       \
    {                                                                                 \
        "state", 0, POPT_ARG_STRING, &state_path_given, CLI_OUTPUT_BASE, help, "FILE" \
    }

/* Memory for the path of a state file. */
typedef struct state_path {
    char path[4096];
} state_path;
enum { STATE_PATH_WORD = 32 }; /* maximum length of a word in bytes */

/* Returns CLI_USAGE and prints a message if the value of --state is not a file name. */
int state_path_check(const cli_session *s);
/* Writes the path of a state file to `memory` and returns it; NULL without --state. `model` is 0, or 1 for the second
 * model of a comparison. */
const char *state_path_of(int model, const char *word, state_path *memory);

#endif
