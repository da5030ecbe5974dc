/* read_json.c - reads JSON files named by options, with bounded memory. */
#include "input/input.h"
#include "input/text_reader.h"
#include "memory.h"
#include "output.h"
#include "session.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Limits of a JSON file. Every value and key except the first follows one of the marks , : [ { and jansson allocates up
 * to 150 bytes per mark, so memory stays below 200 MiB including the text. The largest file that a command writes, the
 * scores of 16,000 heads with all statistics, has 400,000 marks in 5 MiB. */
enum { MIB_MAX = 16, MARKS_MAX = 1 << 20 };

static int no_memory(const cli_session *session, const char *name)
{
    return cli_error(session, CLI_FAILED, "%s: out of memory", name);
}

/* ---- reading a file into memory ---- */

static int read_stream(const cli_session *session, const char *name, FILE *file, char **text, size_t *bytes)
{
    size_t room = 0, more = 1;
    for (*bytes = 0; more > 0; *bytes += more) {
        if (*bytes > (size_t)MIB_MAX << 20)
            return cli_error(session, CLI_REFUSED, "%s: must be at most %d MiB", name, MIB_MAX);
        if (*bytes + 1 >= room) {
            room = 2 * room + 65536;
            char *grown = realloc(*text, room);
            if (!grown) return no_memory(session, name);
            *text = grown;
        }
        more = fread(*text + *bytes, 1, room - *bytes - 1, file);
        (*text)[*bytes + more] = '\0';
    }
    if (cli_stopped()) return cli_stopped();
    return ferror(file) ? cli_error(session, CLI_REFUSED, "%s: %s", name, strerror(errno)) : CLI_DONE;
}

/* Opens a file for reading; returns NULL and sets errno on failure. The file may be a FIFO, such as <(COMMAND) of a
 * shell. */
static FILE *open_stream(const char *path)
{
    const int fd = cli_open_at(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file && errno == ENOMEM) cli_memory_end(); /* fdopen could not allocate the stream */
    if (!file && fd >= 0) close(fd);
    return file;
}

int cli_file_check(const cli_session *session, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return CLI_DONE;
    return cli_error(session, CLI_REFUSED, "%s: must be a regular file (got %s)", text_reader_name(path),
                     cli_file_kind(st.st_mode));
}

int cli_file_read(const cli_session *session, const char *path, char **text, size_t *bytes)
{
    const char *name = text_reader_name(path);
    *text = NULL;
    if (cli_stopped()) return cli_stopped(); /* before a FIFO is opened, which may wait forever */
    FILE *file = strcmp(path, "-") == 0 ? stdin : open_stream(path);
    if (!file && cli_stopped()) return cli_stopped();
    if (!file) return cli_error(session, CLI_REFUSED, "%s: %s", name, strerror(errno));
    const int code = read_stream(session, name, file, text, bytes);
    if (file != stdin) fclose(file);
    return code;
}

/* ---- JSON ---- */

/* Returns true if the text has at most MARKS_MAX of the characters , : [ { outside strings. */
static bool json_fits(const char *text, size_t bytes)
{
    size_t count = 0;
    bool inside = false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') inside = !inside;
        if (inside)
            i += text[i] == '\\';
        else
            count += memchr(",:[{", text[i], 4) != NULL;
    }
    return count <= MARKS_MAX;
}

int cli_json_parse(const cli_session *session, const char *name, long long line, const char *text, size_t bytes,
                   json_t **json)
{
    json_error_t wrong;
    *json = NULL;
    if (!json_fits(text, bytes))
        return cli_error(session, CLI_REFUSED,
                         "%s: must contain at most %d structural characters (',' ':' '[' '{') outside strings", name,
                         MARKS_MAX);
    *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (*json) return CLI_DONE;
    if (json_error_code(&wrong) == json_error_out_of_memory) return no_memory(session, name);
    return cli_error(session, CLI_REFUSED, "%s: line %lld: %s", name, line + wrong.line - 1, cli_shown(wrong.text));
}

int cli_json_read(const cli_session *session, const char *path, json_t **json)
{
    char *text;
    size_t bytes;
    *json = NULL;
    int code = cli_file_read(session, path, &text, &bytes);
    if (code == CLI_DONE) code = cli_json_parse(session, text_reader_name(path), 1, text, bytes, json);
    free(text);
    return code;
}
