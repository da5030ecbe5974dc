/* generate_print.c - writes generated text to stdout. Several prompts are continued at the same time; the text of a
 * later prompt is kept in memory until the texts before it are printed. */
#include "run/generate_print.h"

#include "memory.h"
#include "output.h"
#include "session.h"
#include <stdlib.h>
#include <string.h>

static void fail(generation *g, int code)
{
    if (g->code == CLI_DONE) g->code = code;
}

/* Formats a part of a text in memory and writes it in one call. */
static void put(generation *g, void (*format)(generation *g, FILE *out, const generated *t), const generated *t)
{
    char *text;
    size_t bytes;
    FILE *out = cli_memory_open(&text, &bytes);
    format(g, out, t);
    fclose(out);
    fail(g, cli_flush(g->session, text, bytes));
    free(text);
}

/* ---- output of one text ---- */

/* Prints the heading of a text, its number and prompt, if there are several texts; then the prompt with --echo. */
static void format_start(generation *g, FILE *out, const generated *t)
{
    const cli_session *s = g->session;
    if (g->count > 1)
        fprintf(out, "%s%s%lld%s  %s%s%s\n", g->at ? "\n" : "", cli_bold(s), (long long)g->at + 1, cli_plain(s),
                cli_dim(s), cli_shown_start(t->prompt, s->columns - 12), cli_plain(s));
    if (!g->echo) return;
    fputs(cli_dim(s), out);
    cli_put_running(out, t->prompt, t->prompt_bytes);
    fputs(cli_plain(s), out);
}

static void format_text(generation *g, FILE *out, const generated *t)
{
    (void)g;
    cli_put_running(out, t->text + t->shown, t->bytes - t->shown);
}

static void format_newline(generation *g, FILE *out, const generated *t)
{
    (void)g, (void)t;
    fputc('\n', out);
}

/* Prints the available part of the current text; if it is complete, continues with the next text. */
static void show(generation *g)
{
    while (g->stream && g->at < g->count && g->code == CLI_DONE) {
        generated *t = &g->list[g->at];
        if (!g->begun) put(g, format_start, t);
        g->begun = true;
        if (t->bytes > t->shown) put(g, format_text, t);
        t->shown = t->bytes;
        if (!t->ended) return;
        put(g, format_newline, t);
        g->begun = false;
        g->at++;
    }
}

/* ---- callbacks ---- */

static int go_on(const generation *g)
{
    return g->code != CLI_DONE || cli_stopped() || cli_stdout_closed();
}

void generation_prompt(void *user, int64_t prompt, int64_t shared)
{
    generation *g = user;
    (void)prompt;
    g->shared += shared;
    g->prompts++;
    g->since = cli_seconds();
}

int generation_token(void *user, int64_t prompt, int32_t id)
{
    generation *g = user;
    (void)prompt, (void)id;
    g->made++;
    if (g->since >= 0) g->reading += cli_seconds() - g->since;
    g->since = -1;
    return go_on(g);
}

static bool reserve(generated *t, size_t more)
{
    enum { FIRST = 256 };
    if (t->room - t->bytes >= more) return true;
    size_t room = t->room ? t->room : FIRST;
    while (room - t->bytes < more && room <= SIZE_MAX / 2)
        room *= 2;
    char *text = room - t->bytes >= more ? realloc(t->text, room) : NULL;
    if (text) t->text = text, t->room = room;
    return text != NULL;
}

int generation_text(void *user, int64_t prompt, const char *text, size_t bytes)
{
    generation *g = user;
    generated *t = &g->list[prompt];
    if (!reserve(t, bytes)) {
        fail(g, cli_error(g->session, CLI_FAILED, "out of memory for the text"));
        return 1;
    }
    memcpy(t->text + t->bytes, text, bytes);
    t->bytes += bytes;
    show(g);
    return go_on(g);
}

/* Logs why a continuation is empty, since empty output would look like a failure. */
static void log_empty(const generation *g, int64_t prompt)
{
    const generated *t = &g->list[prompt];
    if (t->bytes || t->why == MHA_END_LENGTH) return;
    const char *what = t->why == MHA_END_EOS ? "the model ended the text" : "a stop string ended the text";
    if (g->count > 1)
        cli_say(g->session, "text %lld: %s immediately", (long long)prompt + 1, what);
    else
        cli_say(g->session, "%s immediately", what);
}

void generation_end(void *user, int64_t prompt, mha_ending why)
{
    generation *g = user;
    g->list[prompt].ended = true;
    g->list[prompt].why = why;
    log_empty(g, prompt);
    show(g);
}

/* ---- end of the run: newline, timing, cleanup ---- */

void generation_break(generation *g)
{
    if (g->stream && g->begun && !cli_stdout_closed()) put(g, format_newline, NULL);
}

static void say_rate(char *out, size_t room, int64_t tokens, double seconds)
{
    out[0] = 0;
    const double rate = seconds > 0 ? (double)tokens / seconds : 0;
    if (rate > 0) snprintf(out, room, ", %.*f tokens/s", rate < 100, rate);
}

void generation_times(const generation *g)
{
    char reading[48], making[48], shared[48] = "";
    /* The first new token of a prompt is computed by its prefill, so it is not counted as generated. */
    say_rate(reading, sizeof reading, g->read - g->shared, g->reading);
    say_rate(making, sizeof making, g->made - g->prompts, cli_seconds() - g->start - g->reading);
    if (g->shared > 0) snprintf(shared, sizeof shared, " (%lld of these tokens shared)", (long long)g->shared);
    cli_say(g->session, "prompt: %lld tokens%s%s; new: %lld tokens%s", (long long)g->read, shared, reading,
            (long long)g->made, making);
}

void generation_free(generation *g)
{
    for (int64_t n = 0; g->list && n < g->count; n++)
        free(g->list[n].text);
    free(g->list);
}
