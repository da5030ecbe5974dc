/* text_reader.c - see text_reader.h. Only one line and one text, or part of a text, are in memory at a time. */
#include "input/text_reader.h"

#include "output.h"
#include "session.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_BYTES_MAX = 16 << 20, LINE_BYTES_MAX = TEXT_BYTES_MAX + 2 }; /* a line includes CR and newline */

typedef struct reading {
    text_reader *reader;
    const char *path;
    int64_t line, first; /* number of the current line, and of the line where the text begins */
    char *raw;           /* the current line, unchanged */
    size_t raw_room;
    char *text; /* the current text so far */
    size_t bytes, room;
    bool inside; /* a part of the current text has been passed to the caller */
} reading;

/* ---- unit and file ---- */

bool cli_documents_find(const char *name, cli_documents *how)
{
    static const struct {
        const char *name;
        cli_documents how;
    } words[] = {{"line", CLI_LINE},
                 {"paragraph", CLI_PARAGRAPH},
                 {"whole", CLI_WHOLE},
                 /* names that version 0.1 wrote to training.json */
                 {"lines", CLI_LINE},
                 {"blank", CLI_PARAGRAPH}};
    *how = CLI_LINE;
    for (size_t i = 0; name && i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i].name) == 0) {
            *how = words[i].how;
            return true;
        }
    return !name;
}

int cli_documents_check(const cli_session *session, const char *name)
{
    cli_documents how;
    if (cli_documents_find(name, &how)) return CLI_DONE;
    return cli_usage(session, "--documents must be one of line, paragraph, whole (got \"%s\")", cli_shown(name));
}

int cli_documents_unused(const cli_session *session)
{
    return session->options.documents ? cli_usage(session, "--documents requires texts from a file or a pipe")
                                      : CLI_DONE;
}

const char *text_reader_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : cli_shown(path);
}

static int refuse(const cli_session *session, const char *path, const char *why)
{
    return cli_error(session, CLI_REFUSED, "%s: %s", text_reader_name(path), why);
}

int text_reader_open(const cli_session *session, const char *path, int *fd)
{
    if (strcmp(path, "-") == 0) {
        *fd = STDIN_FILENO;
        return CLI_DONE;
    }
    *fd = cli_open_at(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (*fd < 0) return refuse(session, path, strerror(errno));
    struct stat st = {0};
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) return CLI_DONE;
    close(*fd);
    return cli_error(session, CLI_REFUSED, "%s: must be a regular file (got %s)%s", text_reader_name(path),
                     cli_file_kind(st.st_mode), S_ISFIFO(st.st_mode) ? "; read a pipe with -f -" : "");
}

bool text_reader_piped(void)
{
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* ---- texts ---- */

static int no_memory(const reading *r)
{
    return cli_error(r->reader->session, CLI_FAILED, "out of memory for the texts");
}

static int refuse_long(const reading *r)
{
    return cli_error(r->reader->session, CLI_REFUSED, "%s: line %lld: a text must be at most 16 MiB",
                     text_reader_name(r->path), (long long)(r->bytes ? r->first : r->line));
}

static int pass_on(reading *r, bool last)
{
    r->text[r->bytes] = '\0';
    const int code = r->reader->take(r->reader->user, r->text, r->bytes, r->first, last);
    r->bytes = 0;
    r->inside = !last;
    return code;
}

/* Passes on the current text, if any, without its last newline. */
static int end_text(reading *r)
{
    if (!r->bytes && !r->inside) return CLI_DONE;
    if (r->bytes && r->text[r->bytes - 1] == '\n') r->bytes--;
    return pass_on(r, true);
}

/* Characters with the Unicode property White_Space, in UTF-8. */
static const char *const white[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
    "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
    "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F",
    "\xE3\x80\x80"};

/* Returns the length in bytes of the white-space character at the start of `text`; 0 if it starts with another
 * character. */
static size_t white_bytes(const char *text)
{
    for (size_t i = 0; i < sizeof white / sizeof *white; i++)
        if (*text == *white[i] && strncmp(text, white[i], strlen(white[i])) == 0) return strlen(white[i]);
    return 0;
}

/* Returns true if the NUL-terminated string `text` consists only of white space. */
static bool is_blank(const char *text, size_t bytes)
{
    size_t at = 0, more;
    while ((more = white_bytes(text + at)) > 0)
        at += more;
    return at == bytes;
}

/* Passes on the last text of the file. With CLI_WHOLE, a file that has only blank lines contains no text. */
static int end_file(reading *r)
{
    const bool blank = r->reader->how == CLI_WHOLE && !r->inside && is_blank(r->text, r->bytes);
    return blank ? CLI_DONE : end_text(r);
}

static int join(reading *r, const char *line, size_t bytes)
{
    if (!r->bytes && !r->inside) r->first = r->line;
    if (r->bytes + bytes > TEXT_BYTES_MAX) return refuse_long(r);
    if (r->bytes + bytes + 1 > r->room) {
        const size_t room = 2 * (r->bytes + bytes) + 4096;
        char *grown = realloc(r->text, room);
        if (!grown) return no_memory(r);
        r->text = grown;
        r->room = room;
    }
    if (bytes) memcpy(r->text + r->bytes, line, bytes);
    r->bytes += bytes;
    r->text[r->bytes] = '\0';
    return CLI_DONE;
}

/* ---- reading lines ---- */

static int check_line(const reading *r, const char *line, size_t bytes)
{
    const char *nul = r->reader->allow_nul ? NULL : memchr(line, 0, bytes);
    const size_t good = nul ? (size_t)(nul - line) : cli_utf8_bytes(line, bytes);
    if (good == bytes) return CLI_DONE;
    return cli_error(r->reader->session, CLI_REFUSED, "%s: line %lld: %s: byte %zu (0x%02X)", text_reader_name(r->path),
                     (long long)r->line, nul ? "texts must not contain a NUL character" : "not valid UTF-8", good,
                     (unsigned char)line[good]);
}

/* Processes the current line: a blank line ends a text, except with CLI_WHOLE; any other line is appended to the text
 * with its newline. */
static int take_line(reading *r, size_t bytes)
{
    static const char mark[] = "\xEF\xBB\xBF";
    const cli_documents how = r->reader->how;
    char *line = r->raw;
    if (r->line == 1 && bytes >= 3 && memcmp(line, mark, 3) == 0) line += 3, bytes -= 3;
    const bool ended = bytes > 0 && line[bytes - 1] == '\n';
    size_t n = bytes - ended;
    if (n && line[n - 1] == '\r') n--; /* also removes the CR of a last line without a newline */
    int code = check_line(r, line, n);
    if (code != CLI_DONE) return code;
    line[n] = '\0';
    if (is_blank(line, n) && how != CLI_WHOLE) {
        r->reader->blank += how == CLI_LINE;
        return end_text(r);
    }
    if (ended) line[n++] = '\n';
    /* n is 0 if the last line is only a CR: the text then ends with the previous line, without its newline. */
    if (n && how == CLI_WHOLE && r->reader->part && r->bytes >= r->reader->part) code = pass_on(r, false);
    if (code == CLI_DONE) code = join(r, line, n);
    return code == CLI_DONE && how == CLI_LINE ? end_text(r) : code;
}

/* Grows the line buffer if it cannot hold one more byte and a NUL after `bytes` bytes. */
static int widen(reading *r, size_t bytes)
{
    if (bytes == LINE_BYTES_MAX) return refuse_long(r);
    if (bytes + 1 < r->raw_room) return CLI_DONE;
    const size_t room = 2 * r->raw_room + 4096;
    char *grown = realloc(r->raw, room);
    if (!grown) return no_memory(r);
    r->raw = grown;
    r->raw_room = room;
    return CLI_DONE;
}

/* Reads the next line; *bytes is 0 at the end of the file. getline is not used, because it allocates lines of any
 * length and ferror does not report when it runs out of memory. */
static int next_line(reading *r, FILE *file, size_t *bytes)
{
    int c = 0;
    r->line++;
    for (*bytes = 0; c != '\n'; r->raw[(*bytes)++] = (char)c) {
        const int code = widen(r, *bytes);
        if (code != CLI_DONE) return code;
        c = getc_unlocked(file);
        if (c == EOF) break;
    }
    if (cli_stopped()) return cli_stopped();
    return ferror(file) ? refuse(r->reader->session, r->path, strerror(errno)) : CLI_DONE;
}

static int read_lines(reading *r, FILE *file)
{
    text_reader *reader = r->reader;
    size_t bytes = 1;
    int code = join(r, "", 0); /* terminates the text */
    while (code == CLI_DONE && bytes) {
        code = next_line(r, file, &bytes);
        if (code == CLI_DONE && bytes) code = take_line(r, bytes);
        reader->done += (int64_t)bytes;
        if (reader->done < reader->total) cli_progress("read", reader->done, reader->total);
    }
    return code == CLI_DONE ? end_file(r) : code;
}

int text_reader_read(text_reader *reader, const char *path)
{
    int fd;
    reading r = {.reader = reader, .path = path};
    int code = text_reader_open(reader->session, path, &fd);
    if (code != CLI_DONE) return code;
    FILE *file = fd == STDIN_FILENO ? stdin : fdopen(fd, "r");
    code = file ? read_lines(&r, file) : no_memory(&r);
    if (file && file != stdin) fclose(file);
    if (!file) close(fd);
    free(r.raw);
    free(r.text);
    return code;
}

void text_reader_log_blank(const text_reader *reader, const char *path)
{
    const char *name = path ? text_reader_name(path) : "all files together";
    if (reader->blank)
        cli_say(reader->session, "%s: skipped %lld blank line%s", name, (long long)reader->blank,
                reader->blank == 1 ? "" : "s");
}
