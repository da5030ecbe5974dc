/* text_reader.h - reads the texts of a file or of standard input one at a time. Every command uses this reader, so the
 * same rules apply to all commands:
 *
 * - A text is a line, a paragraph (lines up to a blank line) or the whole file (--documents).
 * - Blank lines, which contain only Unicode white space, are skipped and counted; in a whole file they are part of the
 *   text.
 * - A byte order mark at the start, the line end of a text's last line, and each CR before a newline or the end of
 *   the file are removed.
 * - Texts are valid UTF-8 of at most 16 MiB, unless the caller reads them in parts.
 */
#ifndef CLI_INPUT_TEXT_READER_H
#define CLI_INPUT_TEXT_READER_H

#include "command.h"

typedef enum cli_documents { CLI_LINE, CLI_PARAGRAPH, CLI_WHOLE } cli_documents;

/* Parses the value of --documents; NULL (not given) means lines. Returns false if the value is unknown. */
bool cli_documents_find(const char *name, cli_documents *how);
/* Returns CLI_USAGE and prints a message if the value of --documents is unknown. */
int cli_documents_check(const cli_session *session, const char *name);
/* Returns CLI_USAGE and prints a message if --documents is given, for runs that read no file of texts. */
int cli_documents_unused(const cli_session *session);

typedef struct text_reader {
    const cli_session *session;
    cli_documents how;
    bool allow_nul;
    /* with CLI_WHOLE: the text is passed in parts of complete lines of at least this many bytes; 0 = in one part */
    size_t part;
    /* Receives a text or a part of a text, NUL-terminated and valid during the call. `line` is the line where the text
     * begins, counted from 1; `last` is true for the last part of the text. Returns an exit code. */
    int (*take)(void *user, const char *text, size_t bytes, int64_t line, bool last);
    void *user;
    int64_t blank;       /* blank lines skipped so far */
    int64_t done, total; /* bytes read and total bytes, for the progress line; total 0 = unknown */
} text_reader;

/* Reads the file, or standard input for "-". Returns an exit code and prints any error. */
int text_reader_read(text_reader *reader, const char *path);
/* Logs the number of skipped blank lines unless it is 0. `path` is the file; NULL for several files. */
void text_reader_log_blank(const text_reader *reader, const char *path);
/* Returns the escaped name of a file for messages; "standard input" for "-". */
const char *text_reader_name(const char *path);
/* Opens standard input for "-", otherwise a regular file; rejects a FIFO without waiting for its writer. */
int text_reader_open(const cli_session *session, const char *path, int *fd);
/* Returns true if standard input is a pipe, socket or regular file. Commands that require a text then read it by
 * default. */
bool text_reader_piped(void);

#endif
