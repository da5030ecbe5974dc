/* options.h - parses the command line: the shared options (cli_options) and a command's own options. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "command.h"

enum { CLI_MAX_OPTIONS = 96 };

/* Sets `table` to the options of a command, the shared options, and --help, terminated by POPT_TABLEEND. Help, parsing,
 * completion and the manual page all use this table. */
void cli_option_table(const cli_command *command, struct poptOption table[CLI_MAX_OPTIONS]);

/* Writes the name of an option for messages to `name` and returns it: "-f", or "--test" if the option has no letter. */
enum { CLI_OPTION_NAME = 64 };
const char *cli_option_name(const struct poptOption *option, char name[CLI_OPTION_NAME]);

/* Parses `text`, the value of `option` ("-t"): digits only, a number from min to max. For any other text, prints a
 * message with the option and the value, and returns CLI_USAGE. NULL (option not given) leaves *value unchanged. */
int cli_whole(const cli_session *session, const char *option, const char *text, long long min, long long max,
              long long *value);

/* Parses the decimal number at the start of `text`, such as "-1.5e3", and sets *end to the text after it, or to `text`
 * if there is none. Hexadecimal numbers, infinity and NaN are not decimal numbers. */
double cli_decimal(const char *text, char **end);
/* Same as cli_whole, for a decimal number from min to max. */
int cli_number(const cli_session *session, const char *option, const char *text, double min, double max, double *value);

/* Parses a head in the form LAYER.HEAD, such as "3.11". Returns the text after it; NULL if `text` has another form. */
const char *cli_head(const char *text, mha_model_head *head);
/* Prints that `option` lists a head twice, and returns CLI_USAGE. `part` is the kind of the head in a model with
 * several kinds, such as "encoder", otherwise "". */
int cli_head_twice(const cli_session *session, const char *option, const char *part, mha_model_head head);

/* Return the dtype of --dtype (f32, bf16, f16 or int8) and of --kv-dtype (also int4 and e4m3); f32 for NULL (not
 * given), MHA_DTYPE_OTHER if unknown. */
mha_dtype cli_dtype(const char *name);
mha_dtype cli_kv_dtype(const char *name);

/* Parses argv (argv[0] is shown as the command's name) into the session. Returns -1 to continue, or an exit code: 0
 * after printing --help to stdout, 2 after printing an error to stderr. The parser owns all strings; free it with
 * cli_options_free when the command is done. */
int cli_options_parse(cli_session *session, int argc, const char **argv, poptContext *parser);
void cli_options_free(poptContext parser);

#endif
