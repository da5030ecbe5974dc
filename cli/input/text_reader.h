/* text_reader.h - the texts of a file or of standard input, one after another. Every command reads texts with this
 * reader, so the same rules hold everywhere:
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

/* Parses the value of --documents; NULL (not given) means lines. Returns false if it is unknown. */
bool cli_documents_find(const char *name, cli_documents *how);
/* Returns CLI_USAGE and prints a message if the value is unknown. */
int cli_documents_check(const cli_session *session, const char *name);

typedef struct text_reader {
    const cli_session *session;
    cli_documents how;
    bool allow_nul;
    /* a whole file is passed in parts of complete lines, each of at least this many bytes; 0 = in one part */
    size_t part;
    /* Receives a text or a part of one: terminated, valid during the call. `line` is where the text begins, counted
     * from 1; `last` marks the end of the text. Returns an exit code. */
    int (*take)(void *user, const char *text, size_t bytes, int64_t line, bool last);
    void *user;
    int64_t blank;       /* blank lines skipped so far */
    int64_t done, total; /* bytes read, and size of a regular file, for the progress line; 0 = unknown */
} text_reader;

/* Reads the file, or standard input for "-". Returns an exit code and prints any error. */
int text_reader_read(text_reader *reader, const char *path);
/* Logs how many blank lines were skipped, if any. `path` is the file; NULL for several files. */
void text_reader_log_blank(const text_reader *reader, const char *path);
/* Returns the name of a file for messages: "-" is named standard input. */
const char *text_reader_name(const char *path);
/* Opens a file for reading: standard input for "-", else a regular file; does not wait for the writer of a FIFO. */
int text_reader_open(const cli_session *session, const char *path, int *fd);
/* Returns true if standard input is a pipe or a file, not a terminal or device: commands that require a text then read
 * it by default. */
bool text_reader_piped(void);

#endif
