/* option_values.h - the values that options accept, for completion and checks. */
#ifndef CLI_OPTION_VALUES_H
#define CLI_OPTION_VALUES_H

#include "command.h"

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_FREE, /* a number or a string, which is not completed */
    OPTION_WORD, /* one of the words that option_values returns */
    OPTION_PATH,
    OPTION_MODEL /* a folder, or one of option_models */
} option_kind;

/* Named models, separated by spaces. */
extern const char option_models[];

option_kind option_kind_of(const cli_command *command, const struct poptOption *option);
/* Returns the words that an OPTION_WORD option accepts, separated by spaces; "" for other kinds of options. */
enum { OPTION_VALUES = 512 };
const char *option_values(const cli_command *command, const struct poptOption *option, char words[OPTION_VALUES]);

/* Returns CLI_USAGE and prints a message if the value of an option for a file, folder or model is empty. */
int option_paths_check(const cli_session *session);

#endif
