/* texts.c - texts from the command line or from a file, checked: regular file or stdin, bounded, valid UTF-8. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "output.h"
#include "session.h"

enum { MAX_FILE_MIB = 256, MAX_TEXT_MIB = 16 };
#define MIB ((size_t)1 << 20)

static int refuse(const cli_session *session, const char *path, const char *why)
{
    return cli_error(session, CLI_REFUSED, "%s: %s", cli_shown(path), why);
}

static int no_memory(const cli_session *session)
{
    return cli_error(session, CLI_FAILED, "out of memory for the texts");
}

int cli_texts_open(const cli_session *session, const char *path, int *fd)
{
    if (strcmp(path, "-") == 0) {
        *fd = STDIN_FILENO;
        return CLI_DONE;
    }
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return refuse(session, path, strerror(errno));
    struct stat st;
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) return CLI_DONE;
    close(*fd);
    return refuse(session, path, "not a regular file; texts from a pipe are read with -f -");
}

/* Reads to the end into growing memory; the caller frees *data. */
static int read_all(const cli_session *session, const char *path, int fd, char **data, size_t *bytes)
{
    size_t capacity = 0;
    *data = NULL;
    *bytes = 0;
    for (;;) {
        if (*bytes == capacity) {
            if (capacity >= MAX_FILE_MIB * MIB) return refuse(session, path, "larger than 256 MiB");
            capacity = capacity ? capacity * 2 : 65536;
            char *grown = realloc(*data, capacity + 1); /* room for the end of the last line */
            if (!grown) return no_memory(session);
            *data = grown;
        }
        ssize_t n = read(fd, *data + *bytes, capacity - *bytes);
        if (n < 0 && errno == EINTR) {
            if (cli_signal()) return 128 + cli_signal();
            continue;
        }
        if (n < 0) return refuse(session, path, strerror(errno));
        if (n == 0) return CLI_DONE;
        *bytes += (size_t)n;
    }
}

/* Room for `count` texts. */
static bool reserve(cli_texts *texts, size_t count)
{
    texts->text = calloc(count, sizeof *texts->text);
    texts->bytes = calloc(count, sizeof *texts->bytes);
    return texts->text && texts->bytes;
}

/* What is wrong with a text. */
typedef struct complaint {
    char text[64];
} complaint;

static bool check_text(const char *text, size_t bytes, bool allow_nul, complaint *why)
{
    const char *wrong = bytes > MAX_TEXT_MIB * MIB                     ? "text longer than 16 MiB"
                        : !allow_nul && memchr(text, 0, bytes) != NULL ? "text holds a NUL character"
                                                                       : NULL;
    if (wrong) snprintf(why->text, sizeof why->text, "%s", wrong);
    if (wrong) return false;
    const size_t good = cli_utf8_bytes(text, bytes);
    if (good == bytes) return true;
    snprintf(why->text, sizeof why->text, "not valid UTF-8: byte %zu (0x%02X)", good, (unsigned char)text[good]);
    return false;
}

/* Cuts the file into lines, in place. */
static int split_lines(const cli_session *session, const char *path, char *data, size_t bytes, bool allow_nul,
                       cli_texts *texts)
{
    size_t lines = bytes > 0 && data[bytes - 1] != '\n';
    for (size_t i = 0; i < bytes; i++)
        lines += data[i] == '\n';
    if (lines == 0) return refuse(session, path, "holds no text");
    if (!reserve(texts, lines)) return no_memory(session);
    char *line = data, *end = data + bytes;
    for (; line < end; texts->count++) {
        char *newline = memchr(line, '\n', (size_t)(end - line)), *stop = newline ? newline : end;
        size_t n = (size_t)(stop - line);
        if (n > 0 && line[n - 1] == '\r') n--;
        complaint wrong;
        if (!check_text(line, n, allow_nul, &wrong)) {
            char why[128];
            snprintf(why, sizeof why, "line %lld: %s", (long long)texts->count + 1, wrong.text);
            return refuse(session, path, why);
        }
        line[n] = 0;
        texts->text[texts->count] = line;
        texts->bytes[texts->count] = n;
        line = stop + 1;
    }
    return CLI_DONE;
}

static int read_file(const cli_session *session, const char *path, bool allow_nul, cli_texts *texts)
{
    int fd;
    size_t bytes = 0;
    int code = cli_texts_open(session, path, &fd);
    if (code != CLI_DONE) return code;
    code = read_all(session, path, fd, &texts->memory, &bytes);
    if (fd != STDIN_FILENO) close(fd);
    if (code == CLI_DONE) code = split_lines(session, path, texts->memory, bytes, allow_nul, texts);
    return code;
}

static int take_arguments(const cli_session *session, cli_texts *texts)
{
    if (!reserve(texts, (size_t)session->arg_count)) return no_memory(session);
    for (int i = 0; i < session->arg_count; i++) {
        texts->text[i] = session->args[i];
        texts->bytes[i] = strlen(session->args[i]);
        complaint wrong;
        if (!check_text(texts->text[i], texts->bytes[i], true, &wrong)) {
            char what[32];
            snprintf(what, sizeof what, "text %d", i + 1);
            return refuse(session, what, wrong.text);
        }
        texts->count++;
    }
    return CLI_DONE;
}

int cli_texts_read(const cli_session *session, bool allow_nul, cli_texts *texts)
{
    *texts = (cli_texts){0};
    if (session->options.file && session->arg_count > 0) return cli_usage(session, "give texts or -f FILE, not both");
    if (!session->options.file && session->arg_count == 0)
        return cli_usage(session, "no text: give one or more, or -f FILE");
    int code = session->options.file ? read_file(session, session->options.file, allow_nul, texts)
                                     : take_arguments(session, texts);
    if (code != CLI_DONE) cli_texts_free(texts);
    return code;
}

int cli_texts_read_file(const cli_session *session, const char *path, cli_texts *texts)
{
    *texts = (cli_texts){0};
    const int code = read_file(session, path, false, texts);
    if (code != CLI_DONE) cli_texts_free(texts);
    return code;
}

void cli_texts_free(cli_texts *texts)
{
    free(texts->text);
    free(texts->bytes);
    free(texts->memory);
    *texts = (cli_texts){0};
}
