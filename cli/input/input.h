/* input.h - inputs of commands: texts and models. Functions print their error messages and return an exit code. */
#ifndef CLI_INPUT_INPUT_H
#define CLI_INPUT_INPUT_H

#include "command.h"
#include <jansson.h>

/* Texts from the arguments or from a file, split into lines or paragraphs or read whole (text_reader.h). Every text is
 * valid UTF-8, has bytes[i] bytes and is followed by a NUL; with `allow_nul`, it may also contain NUL. */
typedef struct cli_texts {
    int64_t count;
    const char **text;
    size_t *bytes;
    int64_t *line;    /* line of the file where each text begins; NULL if the texts are arguments */
    const char *path; /* name of the file; NULL if the texts are arguments */
    char *memory;     /* the texts of a file */
} cli_texts;

/* Reads texts from the arguments, the file of -f, or standard input (for "-", or if no text is given and standard input
 * is a pipe or a file). Returns CLI_USAGE if no text is given. */
int cli_texts_read(const cli_session *session, bool allow_nul, cli_texts *texts);
/* Returns NULL if cli_texts_read does not read standard input, even if it is a pipe or a file; otherwise its name in
 * messages. Only rank 0 of mha-mpi has a standard input, so ranks cannot share its texts (cli_command.unshared). */
const char *cli_unshared_stdin(const cli_session *session);
/* Reads the texts of a file named by an option; a text must not contain NUL. */
int cli_texts_read_file(const cli_session *session, const char *path, cli_texts *texts);
/* For commands that read texts only from files: sets -f to "-" if the only argument is "-" or if texts are required and
 * standard input is a pipe or a file. Returns CLI_USAGE for any other argument. */
int cli_texts_of_file(cli_session *session, bool needed);
/* Reports that the command does not accept texts as arguments; returns CLI_USAGE. */
int cli_texts_refuse(const cli_session *session);
/* Logs a hint if a text argument is the name of a file. */
void cli_texts_hint(const cli_session *session, const char *argument);
/* Returns the origin of text i for messages: "FILE: line 7: ", "text 2: ", or "" for a single text. */
enum { CLI_WHERE = 360 };
const char *cli_texts_where(const cli_texts *texts, int64_t i, char where[CLI_WHERE]);
/* The library's messages number the texts of a call, such as "text 3 of 260" or "texts 1 to 4 of 260". Between
 * cli_texts_number(texts) and cli_texts_number(NULL), messages name the lines of the file instead. */
void cli_texts_number(const cli_texts *texts);
void cli_texts_free(cli_texts *texts);

/* Reads a JSON file. It must have no duplicate keys, at most 16 MiB, and at most 2^20 characters , : [ { outside
 * strings. The caller owns *json; on failure *json is NULL and the message names the line. */
int cli_json_read(const cli_session *session, const char *path, json_t **json);

/* Returns CLI_REFUSED and prints a message if `path` exists but is not a regular file. Files found in a folder must be
 * checked before they are read, because opening a FIFO waits for its writer. */
int cli_file_check(const cli_session *session, const char *path);
/* Reads a whole file, or standard input for "-", of at most 16 MiB. *text is terminated; the caller must free it,
 * even after an error. */
int cli_file_read(const cli_session *session, const char *path, char **text, size_t *bytes);

/* Parses JSON in memory; `name` is the file name in messages, already escaped, and `line` the line of the file at
 * which the text begins. */
int cli_json_parse(const cli_session *session, const char *name, long long line, const char *text, size_t bytes,
                   json_t **json);

/* Opens -m MODEL: a folder, "minilm" (in the user's cache) or "builtin" (installed with the program), the default.
 * `options` may be NULL. */
int cli_model_open(cli_session *session, const mha_model_options *options, mha_model **model);
/* Same as cli_model_open, for the model `name`; NULL = the default. */
int cli_model_open_named(cli_session *session, const char *name, const mha_model_options *options, mha_model **model);
/* Format of the message about a folder without a tokenizer. */
#define CLI_NO_TOKENIZER "%s: texts require tokenizer.json; give token ids with --ids instead"
/* Returns CLI_REFUSED and prints a message if the model reads audio instead of texts. */
int cli_model_check_text(const cli_session *session, const mha_model *model);
/* Finds the folder of the model without opening it and stores both the folder and the name in the session. `name` NULL
 * = the default model. */
int cli_model_find(cli_session *session, const char *name);

#endif
