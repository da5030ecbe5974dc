/* generate_print.h - prints the output of `mha generate`: texts in the order of the prompts, streamed one at a time. */
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

/* State of the output of a run. All fields after `echo` must be zero at the start. */
typedef struct generation {
    cli_session *session;
    generated *list; /* [count] continuations */
    int64_t count;
    bool stream, echo; /* stream text to stdout; print the prompt first */
    int64_t at;        /* the first unfinished text, printed as it grows */
    bool begun;        /* true if a part of text `at` is on stdout */
    int code;          /* exit code; any value other than CLI_DONE stops the generation */
    /* Counts: prompt tokens, prompt tokens whose keys and values were shared, new tokens, prefilled prompts. */
    int64_t read, shared, made, prompts;
    /* Seconds: start of the run, start of the current prefill (negative if none is running), time of all prefills. */
    double start, since, reading;
} generation;

/* Callbacks of mha_generate_options; `user` is the generation. */
void generation_prompt(void *user, int64_t prompt, int64_t shared);
int generation_token(void *user, int64_t prompt, int32_t id);
int generation_text(void *user, int64_t prompt, const char *text, size_t bytes);
void generation_end(void *user, int64_t prompt, mha_ending why);

/* Writes a newline after a text that a failure or signal interrupted. */
void generation_break(generation *g);
/* Logs the numbers of prompt tokens and new tokens, and tokens per second. */
void generation_times(const generation *g);
void generation_free(generation *g);

#endif
