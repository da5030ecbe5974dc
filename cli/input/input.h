/* input.h - inputs of commands: texts and models. Functions print their error messages and return an exit code. */
#ifndef CLI_INPUT_INPUT_H
#define CLI_INPUT_INPUT_H

#include <jansson.h>

#include "command.h"

/* Texts from the arguments or from a file (text_reader.h defines them: lines, paragraphs or whole files). Strings are
 * terminated, but may contain NUL with `allow_nul`; bytes[i] is the length. All texts are valid UTF-8. */
typedef struct cli_texts {
    int64_t count;
    const char **text;
    size_t *bytes;
    int64_t *line;    /* line of the file where each text begins; NULL: arguments */
    const char *path; /* name of the file */
    char *memory;     /* contents of a file */
} cli_texts;

/* Reads the arguments, the file of -f, or standard input (for "-", or if no text is given and it is a pipe or a file).
 * Without any text, returns CLI_USAGE. */
int cli_texts_read(const cli_session *session, bool allow_nul, cli_texts *texts);
/* Returns true if cli_texts_read never reads standard input, even if it is a pipe or a file. Only rank 0 of mha-mpi has
 * it, so processes can share texts only then (cli_command.shares). */
bool cli_reads_no_stdin(const cli_session *session);
/* Reads the texts of a file named by an option; a text must not contain NUL. */
int cli_texts_read_file(const cli_session *session, const char *path, cli_texts *texts);
/* Stores one text, which the caller still owns. */
int cli_texts_one(const cli_session *session, const char *text, cli_texts *texts);
/* For commands that read texts only from files: the argument - means -f -, and if texts are required, a pipe replaces
 * -f. Any other argument is CLI_USAGE. */
int cli_texts_of_file(cli_session *session, bool needed);
/* Prints that the command accepts no text as an argument; returns CLI_USAGE. */
int cli_texts_refuse(const cli_session *session);
/* Logs a hint if a text argument is the name of a file. */
void cli_texts_hint(const cli_session *session, const char *argument);
/* Returns the origin of text i for messages: "FILE: line 7: ", "text 2: ", or "" for a single text. */
enum { CLI_WHERE = 360 };
const char *cli_texts_where(const cli_texts *texts, int64_t i, char where[CLI_WHERE]);
/* The library numbers the texts of a call, "text 3 of 260". Between cli_texts_number(texts) and cli_texts_number(NULL),
 * messages name the lines of the file instead. */
void cli_texts_number(const cli_texts *texts);
void cli_texts_free(cli_texts *texts);

/* Reads a JSON file without duplicate keys, of at most 16 MiB and 2^20 of the characters , : [ { outside strings.
 * The caller owns *json; on failure it is NULL and the message names the line. */
int cli_json_read(const cli_session *session, const char *path, json_t **json);

/* Reads a whole file, or standard input for "-", of at most 16 MiB. *text is terminated; the caller must free it,
 * even after an error. */
int cli_file_read(const cli_session *session, const char *path, char **text, size_t *bytes);

/* Parses JSON in memory; `name` is the file name in messages, already escaped. */
int cli_json_parse(const cli_session *session, const char *name, const char *text, size_t bytes, json_t **json);

/* Opens -m MODEL: a folder, "minilm" (in the user's cache) or "builtin" (installed with the program), the default.
 * `options` may be NULL. */
int cli_model_open(cli_session *session, const mha_model_options *options, mha_model **model);
/* Opens the model with the given name in the same way. */
int cli_model_open_named(cli_session *session, const char *name, const mha_model_options *options, mha_model **model);
/* Finds only the folder, for commands that read parts of it; stores the folder and its name in the session. NULL =
 * the default. */
int cli_model_find(cli_session *session, const char *name);

#endif
