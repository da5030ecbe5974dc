/* generate_print.h - what `mha generate` shows: texts in the order of their prompts, the first of them as they come. */
#ifndef CLI_RUN_GENERATE_PRINT_H
#define CLI_RUN_GENERATE_PRINT_H

#include "command.h"

/* One continuation. */
typedef struct generated {
    const char *prompt; /* its text */
    size_t prompt_bytes;
    char *text; /* what has come of it */
    size_t bytes, room;
    size_t shown; /* bytes of it that are on stdout */
    bool ended;
    mha_ending why;
} generated;

/* All of a run. Zero but for the first four. */
typedef struct generation {
    cli_session *session;
    generated *list; /* [count] */
    int64_t count;
    bool stream, echo; /* to stdout as text comes; the prompt before it */
    int64_t at;        /* the first that has not ended: all of it that has come is shown */
    bool begun;        /* something of `at` is on stdout */
    int code;          /* exit code; anything but CLI_DONE stops the work */
    /* Work and time: `since` is when the present prompt began to be read, < 0 when none is. */
    int64_t read, shared, made, prompts;
    double start, since, reading;
} generation;

/* The callbacks of mha_generate_options; `user` is the generation. */
void generation_prompt(void *user, int64_t prompt, int64_t shared);
int generation_token(void *user, int64_t prompt, int32_t id);
int generation_text(void *user, int64_t prompt, const char *text, size_t bytes);
void generation_end(void *user, int64_t prompt, mha_ending why);

/* Ends the line of a text that was cut off by a failure or a signal. */
void generation_break(generation *g);
/* Tokens and tokens per second, on stderr. */
void generation_times(const generation *g);
void generation_free(generation *g);

#endif
