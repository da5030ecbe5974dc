/* options.h - from the command line to cli_options: the shared options, and the merging with a command's own. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "command.h"

enum { CLI_MAX_OPTIONS = 96 };

/* The options of a command, its own first, then the shared ones, then --help; ended by POPT_TABLEEND. Help, parsing,
 * completion and the manual page are all made from this one table. */
void cli_option_table(const cli_command *command, struct poptOption table[CLI_MAX_OPTIONS]);

/* How messages call an option: "-f", or "--test" if it has no letter. Returns `name`. */
enum { CLI_OPTION_NAME = 64 };
const char *cli_option_name(const struct poptOption *option, char name[CLI_OPTION_NAME]);

/* The value of `option` ("-t"): digits and nothing else, min..max. CLI_USAGE, naming the option and the value,
 * otherwise; `text` NULL (not given) leaves *value alone. */
int cli_whole(const cli_session *session, const char *option, const char *text, long long min, long long max,
              long long *value);

/* The same for a number with a fraction, min..max. */
int cli_number(const cli_session *session, const char *option, const char *text, double min, double max, double *value);

/* "3.11", layer 3 and head 11: digits and one dot. Returns what stands behind it; NULL if that is not what it is. */
const char *cli_head(const char *text, mha_model_head *head);

/* What --dtype or --kv-dtype names: f32, bf16, f16 or int8. f32 for NULL (not given), MHA_DTYPE_OTHER for any other. */
mha_dtype cli_dtype(const char *name);

/* Parses argv (argv[0] is shown as the name of the command) into the session. Returns -1 to go on; otherwise the exit
 * code:
 * --help has been printed to stdout (0), or the mistake to stderr (2). The parser owns all strings: it is freed with
 * cli_options_free when the command is done. */
int cli_options_parse(cli_session *session, int argc, const char **argv, poptContext *parser);
void cli_options_free(poptContext parser);

#endif
