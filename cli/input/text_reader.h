/* text_reader.h - the texts of a file or of standard input, one after another. Every command reads its texts with this
 * reader, so one rule holds for all of them:
 *
 * - A text is a line, a paragraph (lines up to a blank one) or the whole file (--documents).
 * - Blank lines, which have nothing but white space as Unicode defines it, are skipped and counted; in a whole file
 *   they are part of the text.
 * - A byte order mark at the beginning is dropped, and so are the line end of a text's last line and each CR before a
 *   newline or the end of the file.
 * - Texts are valid UTF-8 and have at most 16 MiB, unless the caller takes them in parts.
 */
#ifndef CLI_INPUT_TEXT_READER_H
#define CLI_INPUT_TEXT_READER_H

#include "command.h"

typedef enum cli_documents { CLI_LINE, CLI_PARAGRAPH, CLI_WHOLE } cli_documents;

/* What --documents names; NULL (not given) is a line. False: unknown. */
bool cli_documents_find(const char *name, cli_documents *how);
/* CLI_USAGE with a message if it is unknown. */
int cli_documents_check(const cli_session *session, const char *name);

typedef struct text_reader {
    const cli_session *session;
    cli_documents how;
    bool allow_nul;
    size_t part; /* a whole file is passed on in parts of at least this many bytes, each of whole lines; 0: as one */
    /* Takes a text, or a part of one: terminated, valid during the call. `line` of the file is where the text begins,
     * from 1; `last`: the text ends here. Returns an exit code. */
    int (*take)(void *user, const char *text, size_t bytes, int64_t line, bool last);
    void *user;
    int64_t blank;       /* lines skipped so far */
    int64_t done, total; /* bytes read, and bytes that there are (regular files) for the progress line; 0 = unknown */
} text_reader;

/* Reads the file, or standard input for "-". Returns an exit code; the message has been printed. */
int text_reader_read(text_reader *reader, const char *path);
/* Logs how many blank lines were skipped; nothing if there were none. `path` names the file, or is NULL for several. */
void text_reader_log_blank(const text_reader *reader, const char *path);
/* The name of a file in messages: that of standard input for "-". */
const char *text_reader_name(const char *path);
/* A descriptor to read from: standard input for "-", else a regular file, opened without waiting for a fifo's
 * writer. */
int text_reader_open(const cli_session *session, const char *path, int *fd);
/* Is standard input a pipe or a file, and no terminal or device? Then commands that need a text read it unasked. */
bool text_reader_piped(void);

#endif
