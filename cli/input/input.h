/* input.h - what commands read: texts and models. Functions return an exit code; the message has been printed. */
#ifndef CLI_INPUT_INPUT_H
#define CLI_INPUT_INPUT_H

#include <jansson.h>

#include "command.h"

/* Texts, from the arguments or from a file (text_reader.h has the rule: lines, paragraphs or whole files). Strings are
 * terminated, but may hold NUL when `allow_nul`; bytes[i] is the length. All are valid UTF-8. */
typedef struct cli_texts {
    int64_t count;
    const char **text;
    size_t *bytes;
    int64_t *line;    /* of the file, where each begins; NULL: arguments */
    const char *path; /* of the file */
    char *memory;     /* of a file */
} cli_texts;

/* Takes the arguments, or the file of -f, or standard input: for "-", and where nothing is given and it is a pipe or a
 * file. No text at all is wrong use. */
int cli_texts_read(const cli_session *session, bool allow_nul, cli_texts *texts);
/* Those of a file that an option of the command names; no text may hold NUL. */
int cli_texts_read_file(const cli_session *session, const char *path, cli_texts *texts);
/* One text that the caller keeps. */
int cli_texts_one(const cli_session *session, const char *text, cli_texts *texts);
/* For commands whose texts come from files alone: the argument - is -f -, and if texts are needed, a pipe takes the
 * place of -f. Any other argument is wrong use. */
int cli_texts_of_file(cli_session *session, bool needed);
/* CLI_USAGE with a message on the first argument, which is not taken as a text. */
int cli_texts_refuse(const cli_session *session);
/* Logs a hint if an argument that is taken as a text is the name of a file. */
void cli_texts_hint(const cli_session *session, const char *argument);
/* Where text i comes from, for messages: "FILE: line 7: ", "text 2: ", or "" where it is the only one. */
enum { CLI_WHERE = 360 };
const char *cli_texts_where(const cli_texts *texts, int64_t i, char where[CLI_WHERE]);
/* The library numbers the texts of a call, "text 3 of 260". Between cli_texts_number(texts) and cli_texts_number(NULL)
 * its messages name the lines of the file instead. */
void cli_texts_number(const cli_texts *texts);
void cli_texts_free(cli_texts *texts);

/* A file of JSON without duplicate keys, of at most 16 MiB and 2^20 of the characters , : [ { outside strings: *json
 * is the caller's, NULL if it has been refused, with the line. */
int cli_json_read(const cli_session *session, const char *path, json_t **json);

/* All of a file, or of standard input for "-", at most 16 MiB: *text, with NUL, is the caller's to free, also after an
 * error. */
int cli_file_read(const cli_session *session, const char *path, char **text, size_t *bytes);

/* True if the text has at most that many of these characters: jansson then needs less than 200 MiB for it. */
bool cli_json_fits(const char *text, size_t bytes);

/* JSON in memory; `name` of its file is shown as it is. */
int cli_json_parse(const cli_session *session, const char *name, const char *text, size_t bytes, json_t **json);

/* Opens -m MODEL: a folder, "minilm" (the user's cache folder) or "builtin" (beside the program), which is also what
 * is opened without -m. `options` may be NULL. */
int cli_model_open(cli_session *session, const mha_model_options *options, mha_model **model);
/* The same of any name. */
int cli_model_open_named(cli_session *session, const char *name, const mha_model_options *options, mha_model **model);
/* Only finds the folder, for commands that read parts of it, and stores it and its name in the session. NULL = as
 * without -m. */
int cli_model_find(cli_session *session, const char *name);

#endif
