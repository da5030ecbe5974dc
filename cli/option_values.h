/* option_values.h - the values of options that have a fixed set of them, for completion. */
#ifndef CLI_OPTION_VALUES_H
#define CLI_OPTION_VALUES_H

#include "command.h"

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_FREE, /* numbers and texts: nothing to complete */
    OPTION_WORD, /* option_values has the words */
    OPTION_PATH,
    OPTION_MODEL /* a folder, or one of option_models */
} option_kind;

/* Models that have a name, separated by spaces. */
extern const char option_models[];

option_kind option_kind_of(const cli_command *command, const struct poptOption *option);
/* The words of an option, separated by spaces; "" for other kinds. */
enum { OPTION_VALUES = 512 };
const char *option_values(const cli_command *command, const struct poptOption *option, char words[OPTION_VALUES]);

#endif
