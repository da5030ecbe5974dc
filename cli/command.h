/* command.h - what a command of the program is, and what it is given.
 *
 * A command is one file that defines one `const cli_command`, listed in commands.h. The frame (main.c) parses the
 * options, runs the command, and writes what the command put into `session->out` to stdout - all of it after success,
 * none of it after a failure. (One command streams: generate writes text as it comes.) Everything else that a command
 * has to say goes to stderr through session.h.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <popt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "mha/mha.h"

/* Exit codes of the program; 128 + n after signal n. */
enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,  /* out of memory, disk full ... */
    CLI_USAGE = 2,   /* the command line is wrong */
    CLI_REFUSED = 3, /* an input is malformed or cannot be read */
    CLI_NO = 4       /* a check was made and said no; the result is on stdout */
};

/* Shared options that a command takes. --help, -t, --isa, -q, -v and --no-progress are there always. */
enum {
    CLI_MODEL = 1 << 0,  /* -m MODEL, --no-map */
    CLI_FILE = 1 << 1,   /* -f FILE, --documents */
    CLI_OUT = 1 << 2,    /* -o OUT, --force */
    CLI_JSON = 1 << 3,   /* --json */
    CLI_CSV = 1 << 4,    /* --csv */
    CLI_SEED = 1 << 5,   /* -s SEED */
    CLI_DTYPE = 1 << 6,  /* --dtype */
    CLI_MODELS = 1 << 7, /* with CLI_MODEL: -m is given twice */
    CLI_IDS = 1 << 8     /* --ids */
};

/* Values of the shared options; zero where the user gave none. */
typedef struct cli_options {
    const char *model, *file, *out, *isa, *dtype;
    const char *other_model; /* with CLI_MODELS: the second -m */
    int json, csv, force, no_map, quiet, verbose, no_progress;
    int ids;               /* texts are token ids; the model may lack a tokenizer */
    int threads;           /* 0 = the library's choice */
    long long seed;        /* >= 0 */
    const char *documents; /* what a text of a file is; NULL: a line */
} cli_options;

struct cli_command;

/* One run of the program. */
typedef struct cli_session {
    const struct cli_command *command;
    cli_options options;
    const char **args; /* what is left of the command line, NULL-terminated */
    int arg_count;
    FILE *out;              /* the result: memory until the command has succeeded */
    bool show_colour;       /* colour may be used in `out` */
    int columns;            /* width of the terminal that `out` goes to; 80 when it is none */
    mha_ctx *ctx;           /* made before the command runs, of -t and --isa */
    const char *model;      /* folder of the model (input.h) */
    const char *model_name; /* as the user said it: "minilm", a folder */
} cli_session;

/* Options under a title of their own in the help, "Data:". */
typedef struct cli_option_group {
    const char *title;
    const struct poptOption *options; /* ended by POPT_TABLEEND */
} cli_option_group;

typedef struct cli_command {
    const char *name;
    const char *summary;                   /* one line of `mha --help`, no full stop */
    const char *usage;                     /* what follows the options: "TEXT..." */
    const char *details;                   /* printed, wrapped, under the options by `mha NAME --help`; may be NULL */
    const char *examples;                  /* command lines, each ended by a newline; they work one after another */
    void (*lists)(FILE *out, int columns); /* prints what else belongs under them; may be NULL */
    const char *const *words;              /* what an argument may be, ended by NULL, for completion; NULL = files */
    unsigned shared;                       /* CLI_MODEL | CLI_FILE ... */
    const struct poptOption *options;      /* its own, ended by POPT_TABLEEND; may be NULL */
    const cli_option_group *groups;        /* more of its own, ended by a title NULL; may be NULL */
    int (*run)(cli_session *session);      /* returns an exit code */
} cli_command;

#endif
