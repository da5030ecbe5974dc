/* memory.c - allocation that succeeds or ends the program (memory.h). */
#define _GNU_SOURCE /* declares fopencookie */
#include "memory.h"

#include "output.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const cli_session *session;
    void (*clean)(void *user);
    void *user;
} at_end;

void cli_memory_end(void)
{
    if (at_end.clean) at_end.clean(at_end.user);
    _exit(cli_error(at_end.session, CLI_FAILED, "out of memory"));
}

void cli_memory_at_end(void (*clean)(void *user), void *user)
{
    at_end.clean = clean;
    at_end.user = user;
}

/* Same as realloc, but ends the program instead of returning NULL. */
static void *resize(void *memory, size_t bytes)
{
    void *more = realloc(memory, bytes ? bytes : 1);
    if (!more) cli_memory_end();
    return more;
}

static void *take(size_t bytes)
{
    return resize(NULL, bytes);
}

void cli_memory_install(const cli_session *session)
{
    at_end.session = session;
    json_set_alloc_funcs(take, free);
}

/* ---- streams ---- */

typedef struct stream {
    char **text;
    size_t *bytes, room;
} stream;

static ssize_t append(void *cookie, const char *from, size_t n)
{
    stream *s = cookie;
    if (n > SIZE_MAX / 4 - *s->bytes) cli_memory_end();
    if (*s->bytes + n >= s->room) {
        s->room = 2 * (*s->bytes + n) + 1;
        *s->text = resize(*s->text, s->room);
    }
    memcpy(*s->text + *s->bytes, from, n);
    *s->bytes += n;
    (*s->text)[*s->bytes] = '\0';
    return (ssize_t)n;
}

static int end(void *cookie)
{
    free(cookie);
    return 0;
}

FILE *cli_memory_open(char **text, size_t *bytes)
{
    stream *s = take(sizeof *s);
    *s = (stream){.text = text, .bytes = bytes, .room = 1};
    *text = take(s->room);
    **text = '\0';
    *bytes = 0;
    FILE *file = fopencookie(s, "w", (cookie_io_functions_t){.write = append, .close = end});
    if (!file) cli_memory_end();
    return file;
}
