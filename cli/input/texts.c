/* texts.c - reads the texts of a command into memory, from its arguments, a file or standard input. */
#include "input/images.h"
#include "input/input.h"
#include "input/text_reader.h"
#include "output.h"
#include "output_is_input.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Memory limit for the texts of a file, including LIST_BYTES per text. With the current line of up to 16 MiB, the
 * program stays below 256 MiB. Arguments are limited by the operating system. */
enum { MIB_MAX = 192 };
enum { LIST_BYTES = sizeof(const char *) + sizeof(size_t) + sizeof(int64_t) }; /* elements of text, bytes and line */

static int no_memory(const cli_session *session)
{
    return cli_error(session, CLI_FAILED, "out of memory for the texts");
}

/* ---- texts of a file ---- */

/* Collects texts in texts->memory, consecutively, each terminated by a NUL. */
typedef struct collector {
    const cli_session *session;
    cli_texts *texts;
    size_t used, room;  /* capacity of texts->memory in bytes */
    int64_t texts_room; /* capacity of the lists of texts */
} collector;

static bool grow_lists(collector *c)
{
    cli_texts *t = c->texts;
    if (t->count < c->texts_room) return true;
    const int64_t room = 2 * c->texts_room + 256;
    const char **text = realloc(t->text, (size_t)room * sizeof *text);
    if (text) t->text = text;
    size_t *bytes = text ? realloc(t->bytes, (size_t)room * sizeof *bytes) : NULL;
    if (bytes) t->bytes = bytes;
    int64_t *line = bytes ? realloc(t->line, (size_t)room * sizeof *line) : NULL;
    if (line) t->line = line;
    if (line) c->texts_room = room;
    return line != NULL;
}

static bool grow_memory(collector *c, size_t more)
{
    if (c->used + more <= c->room) return true;
    const size_t room = 2 * (c->used + more) + 65536;
    char *grown = realloc(c->texts->memory, room);
    if (!grown) return false;
    c->texts->memory = grown;
    c->room = room;
    return true;
}

static int collect(void *user, const char *text, size_t bytes, int64_t line, bool last)
{
    (void)last;
    collector *c = user;
    cli_texts *t = c->texts;
    if (c->used + bytes + (size_t)t->count * LIST_BYTES >= (size_t)MIB_MAX << 20)
        return cli_error(c->session, CLI_REFUSED,
                         "%s: line %lld: the texts must total at most %d MiB, including %d bytes per text",
                         text_reader_name(t->path), (long long)line, MIB_MAX, LIST_BYTES);
    if (!grow_lists(c) || !grow_memory(c, bytes + 1)) return no_memory(c->session);
    memcpy(t->memory + c->used, text, bytes + 1);
    c->used += bytes + 1;
    t->bytes[t->count] = bytes;
    t->line[t->count++] = line;
    return CLI_DONE;
}

static int refuse_empty(const text_reader *reader, const char *path)
{
    const char *name = text_reader_name(path);
    if (reader->blank == 0)
        return cli_error(reader->session, CLI_REFUSED, "%s: must contain a text (got an empty file)", name);
    return cli_error(reader->session, CLI_REFUSED, "%s: must contain a text (got only blank lines)", name);
}

static int read_file(const cli_session *session, const char *path, bool allow_nul, cli_texts *texts)
{
    collector c = {.session = session, .texts = texts};
    text_reader reader = {.session = session, .allow_nul = allow_nul, .take = collect, .user = &c};
    texts->path = path;
    int code = cli_documents_check(session, session->options.documents);
    cli_documents_find(session->options.documents, &reader.how);
    if (code == CLI_DONE) code = text_reader_read(&reader, path);
    if (code != CLI_DONE) return code;
    if (texts->count == 0) return refuse_empty(&reader, path);
    text_reader_log_blank(&reader, path);
    const char *at = texts->memory;
    for (int64_t i = 0; i < texts->count; at += texts->bytes[i++] + 1)
        texts->text[i] = at;
    return CLI_DONE;
}

/* ---- arguments ---- */

static bool reserve(cli_texts *texts, size_t count)
{
    texts->text = calloc(count, sizeof *texts->text);
    texts->bytes = calloc(count, sizeof *texts->bytes);
    return texts->text && texts->bytes;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Suggests -f if the argument is the name of a file. */
void cli_texts_hint(const cli_session *session, const char *argument)
{
    if (!is_file(argument) || cli_names_image(argument)) return; /* models of images read these files */
    const char *name = cli_shown(argument);
    cli_say(session, "\"%s\" is used as a text, but a file has this name: did you mean -f %s?", name, name);
}

static int take_argument(const cli_session *session, int i, cli_texts *texts)
{
    const char *text = session->args[i];
    const size_t bytes = strlen(text), good = cli_utf8_bytes(text, bytes);
    if (good < bytes)
        return cli_error(session, CLI_REFUSED, "text %d: not valid UTF-8: byte %zu (0x%02X)", i + 1, good,
                         (unsigned char)text[good]);
    if (strcmp(text, "-") == 0)
        return cli_usage(session, "- (standard input) must be the only text (got %d texts)", session->arg_count);
    cli_texts_hint(session, text);
    texts->text[i] = text;
    texts->bytes[i] = bytes;
    texts->count++;
    return CLI_DONE;
}

static int take_arguments(const cli_session *session, cli_texts *texts)
{
    int code = cli_documents_unused(session);
    if (code == CLI_DONE && !reserve(texts, (size_t)session->arg_count)) return no_memory(session);
    for (int i = 0; i < session->arg_count && code == CLI_DONE; i++)
        code = take_argument(session, i, texts);
    return code;
}

/* ---- texts of a command ---- */

/* Returns the file of -f, or "-" if the only argument is "-" or if no text is given and standard input is a pipe or a
 * file. Otherwise returns NULL: the texts are the arguments. */
static const char *find_file(const cli_session *session)
{
    if (session->options.file) return session->options.file;
    if (session->arg_count == 1 && strcmp(session->args[0], "-") == 0) return "-";
    return session->arg_count == 0 && text_reader_piped() ? "-" : NULL;
}

const char *cli_unshared_stdin(const cli_session *session)
{
    const char *from = session->options.file     ? session->options.file
                       : session->arg_count == 1 ? session->args[0]
                       : session->arg_count == 0 ? "-"
                                                 : "";
    return strcmp(from, "-") == 0 ? "texts from standard input (give arguments or -f FILE)" : NULL;
}

int cli_texts_read(const cli_session *session, bool allow_nul, cli_texts *texts)
{
    const char *path = find_file(session);
    *texts = (cli_texts){0};
    if (session->options.file && session->arg_count > 0) return cli_usage(session, "give texts or -f FILE, not both");
    if (!path && session->arg_count == 0) return cli_usage(session, "missing text: give one or more texts, or -f FILE");
    int code = cli_stdin_check(session, path && !session->options.file && session->arg_count == 0);
    if (code == CLI_DONE) code = path ? read_file(session, path, allow_nul, texts) : take_arguments(session, texts);
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

int cli_texts_of_file(cli_session *session, bool needed)
{
    cli_options *o = &session->options;
    const bool dash = session->arg_count == 1 && strcmp(session->args[0], "-") == 0;
    if (session->arg_count && (o->file || !dash)) return cli_texts_refuse(session);
    if (o->file || !(dash || (needed && text_reader_piped()))) return CLI_DONE;
    o->file = "-";
    return dash ? CLI_DONE : cli_stdin_check(session, true);
}

int cli_texts_refuse(const cli_session *session)
{
    const char *name = cli_shown(session->args[0]);
    if (is_file(session->args[0]))
        return cli_usage(session, "unexpected argument \"%s\": did you mean -f %s?", name, name);
    return cli_usage(session, "unexpected argument \"%s\": give texts with -f FILE", name);
}

const char *cli_texts_where(const cli_texts *texts, int64_t i, char where[CLI_WHERE])
{
    if (texts->line)
        snprintf(where, CLI_WHERE, "%.300s: line %lld: ", text_reader_name(texts->path), (long long)texts->line[i]);
    else if (texts->count > 1)
        snprintf(where, CLI_WHERE, "text %lld: ", (long long)i + 1);
    else
        *where = '\0';
    return where;
}

static const cli_texts *numbered;

static const char *with_line(const char *message, char text[CLI_MESSAGE])
{
    char where[CLI_WHERE];
    long long first, last, count;
    int end = 0;
    const bool several = sscanf(message, "texts %lld to %lld of %lld%n", &first, &last, &count, &end) == 3;
    if (!several && sscanf(message, "text %lld of %lld%n", &first, &count, &end) != 2) return message;
    if (!several) last = first;
    if (count != numbered->count || first < 1 || last < first || last > count) return message;
    if (several)
        snprintf(where, CLI_WHERE, "%.300s: lines %lld to %lld: ", text_reader_name(numbered->path),
                 (long long)numbered->line[first - 1], (long long)numbered->line[last - 1]);
    else
        cli_texts_where(numbered, first - 1, where);
    snprintf(text, CLI_MESSAGE, "%.*s%s", (int)strlen(where) - 2, where, message + end);
    return text;
}

void cli_texts_number(const cli_texts *texts)
{
    numbered = texts && texts->line ? texts : NULL;
    cli_message_rewrite(numbered ? with_line : NULL);
}

void cli_texts_free(cli_texts *texts)
{
    free(texts->text);
    free(texts->bytes);
    free(texts->line);
    free(texts->memory);
    *texts = (cli_texts){0};
}
