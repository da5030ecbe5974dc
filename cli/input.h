/* input.h - what commands read: texts and models. Functions return an exit code; the message has been printed. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include <jansson.h>

#include "command.h"

/* Texts, from the arguments or from -f FILE (one a line; a last line need not end in a newline; CR before it is
 * dropped). Strings are terminated, but may hold NUL when `allow_nul`; bytes[i] is the length. All are valid UTF-8. */
typedef struct cli_texts {
    int64_t count;
    const char **text;
    size_t *bytes;
    char *memory; /* of a file */
} cli_texts;

/* Takes exactly one of the two sources. No text at all is wrong use. */
int cli_texts_read(const cli_session *session, bool allow_nul, cli_texts *texts);
/* Those of a file that an option of the command names; no text may hold NUL. */
int cli_texts_read_file(const cli_session *session, const char *path, cli_texts *texts);
void cli_texts_free(cli_texts *texts);
/* A descriptor to read from: stdin for "-", else a regular file, opened without waiting for a fifo's writer. */
int cli_texts_open(const cli_session *session, const char *path, int *fd);

/* A file of JSON, in which no key stands twice: *json is the caller's, NULL if it has been refused, with the line. */
int cli_json_read(const cli_session *session, const char *path, json_t **json);

/* Opens -m MODEL: a folder, "minilm" (the user's cache folder) or "builtin" (beside the program), which is also what
 * is opened without -m. `options` may be NULL. */
int cli_model_open(cli_session *session, const mha_model_options *options, mha_model **model);
/* The same of any name. */
int cli_model_open_named(cli_session *session, const char *name, const mha_model_options *options, mha_model **model);
/* Only finds the folder, for commands that read parts of it, and stores it and its name in the session. NULL = as
 * without -m. */
int cli_model_find(cli_session *session, const char *name);

#endif
