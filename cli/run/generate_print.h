/* generate_print.h - the output of `mha generate`: texts in the order of their prompts, streaming the current text. */
#ifndef CLI_RUN_GENERATE_PRINT_H
#define CLI_RUN_GENERATE_PRINT_H

#include "command.h"

/* One continuation of a prompt. */
typedef struct generated {
    const char *prompt; /* text of the prompt */
    size_t prompt_bytes;
    char *text; /* text generated so far */
    size_t bytes, room;
    size_t shown; /* bytes already written to stdout */
    bool ended;
    mha_ending why;
} generated;

/* State of a run. All fields except the first four must start as zero. */
typedef struct generation {
    cli_session *session;
    generated *list; /* [count] continuations */
    int64_t count;
    bool stream, echo; /* stream text to stdout; print the prompt first */
    int64_t at;        /* the first unfinished text, printed as it grows */
    bool begun;        /* true if a part of text `at` is on stdout */
    int code;          /* exit code; any value but CLI_DONE stops the work */
    /* Token counts and times: `since` is the start of the current prefill, negative if none is running. */
    int64_t read, shared, made, prompts;
    double start, since, reading;
} generation;

/* Callbacks of mha_generate_options; `user` is the generation. */
void generation_prompt(void *user, int64_t prompt, int64_t shared);
int generation_token(void *user, int64_t prompt, int32_t id);
int generation_text(void *user, int64_t prompt, const char *text, size_t bytes);
void generation_end(void *user, int64_t prompt, mha_ending why);

/* Ends the line of a text interrupted by a failure or signal. */
void generation_break(generation *g);
/* Logs tokens and tokens per second. */
void generation_times(const generation *g);
void generation_free(generation *g);

#endif
