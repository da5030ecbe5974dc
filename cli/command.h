/* command.h - the interface between the program and its commands.
 *
 * Each command is a file that defines one `const cli_command` and is listed in commands.h. main.c parses the options,
 * runs the command and, if it succeeds, copies `session->out` to stdout. (Only `generate` streams its text instead.)
 * All other output is written to stderr.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "mha/generate.h"
#include "mha/mha.h"
#include <popt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit codes of the program. If signal n ended it, the exit code is 128 + n. */
enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,  /* failure of the system: out of memory, disk full, ... */
    CLI_USAGE = 2,   /* invalid command line */
    CLI_REFUSED = 3, /* an input is malformed or cannot be read */
    CLI_NO = 4       /* a check ran and failed; the result is on stdout */
};

/* Shared options that a command accepts. --help, -t, --isa, -q, -v and --no-progress are always accepted. */
enum {
    CLI_MODEL = 1 << 0,  /* -m MODEL, --no-map */
    CLI_FILE = 1 << 1,   /* -f FILE, --documents */
    CLI_OUT = 1 << 2,    /* -o OUT, --force */
    CLI_JSON = 1 << 3,   /* --json */
    CLI_CSV = 1 << 4,    /* --csv */
    CLI_SEED = 1 << 5,   /* -s SEED */
    CLI_DTYPE = 1 << 6,  /* --dtype */
    CLI_MODELS = 1 << 7, /* with CLI_MODEL: -m must be given twice */
    CLI_IDS = 1 << 8     /* --ids */
};

/* Values of `val` that mark options for output in the tables of options. All other options for files, folders and
 * models are inputs. */
enum {
    CLI_OUTPUT = 1,     /* the command replaces the file or folder, which must not be an input of the run */
    CLI_OUTPUT_BASE = 2 /* the command writes files in this folder, or whose names begin with this value */
};

/* Values of the shared options; an option that is not given is zero. */
typedef struct cli_options {
    const char *model, *file, *out, *isa, *dtype;
    const char *other_model; /* second -m, with CLI_MODELS */
    int json, csv, force, no_map, quiet, verbose, no_progress;
    int ids;               /* texts are token ids; the model may have no tokenizer */
    int threads;           /* number of threads; 0 = chosen by the library */
    long long seed;        /* value of -s, at least 0 */
    const char *documents; /* how a file is split into texts: line, paragraph or whole; NULL = line */
} cli_options;

struct cli_command;

/* Opening of models, and forward passes distributed over the ranks, with the contracts of mha_model_open,
 * mha_model_forward, mha_model_score, mha_model_embed and mha_model_generate. All ranks make the same calls. */
typedef struct cli_shared_texts {
    void *user;
    /* May open only a part of the model on each rank. */
    mha_status (*open)(void *user, mha_ctx *ctx, const char *folder, const mha_model_options *options,
                       mha_model **model, mha_error *err);
    /* `input` must contain one sequence. Computes last_logits on all ranks and logits on rank 0; no other output. */
    mha_status (*forward)(void *user, const mha_model *model, const mha_model_input *input,
                          const mha_model_output *output, mha_error *err);
    mha_status (*score)(void *user, const mha_model *model, const int32_t *ids, int64_t count, float *logprob,
                        mha_error *err);
    mha_status (*embed)(void *user, const mha_model *model, const char *const *texts, int64_t count,
                        const mha_embed_options *options, float *out, mha_error *err);
    mha_status (*generate)(void *user, const mha_model *model, const mha_prompt *prompts, int64_t count,
                           const mha_generate_options *options, int32_t *out, int64_t *lengths, mha_error *err);
} cli_shared_texts;

/* The processes that run one command together: mha-mpi (mpi/program) provides these functions; mha is a single
 * process. A command that can divide its work runs on all ranks; any other command runs on rank 0 while the other
 * ranks wait. Only rank 0 writes results and log lines. A failure of any rank ends the command on all ranks, and
 * rank 0 prints the message of the first rank that failed. */
typedef struct cli_ranks {
    void *user;
    int rank;
    const char *label;             /* prefix of this rank's messages, such as "rank 1 (HOST): " */
    const cli_shared_texts *texts; /* divides passes over long texts among the ranks */
    bool divides_models;           /* each rank opens a part of the model; only commands that divide texts can run */
    /* Called by all ranks; same contract as mha_ctx_create. */
    mha_status (*ctx_create)(void *user, const mha_ctx_options *options, mha_ctx **out, mha_error *err);
    /* Called by all ranks at the end of a command, with this rank's exit code and error message ("" if it did not
     * fail). Returns `code` or, if only other ranks failed, their exit code. `message` receives the message of the
     * first rank that failed. `everywhere`: the command ran on all ranks. */
    int (*finish)(void *user, bool everywhere, int code, mha_error *message);
    const mha_work *work;         /* divides a measurement among the ranks */
    const mha_train_ranks *train; /* divides a training run among the ranks */
} cli_ranks;

/* One run of the program. */
typedef struct cli_session {
    const struct cli_command *command;
    cli_options options;
    const char **args; /* arguments that are not options, NULL-terminated */
    int arg_count;
    FILE *out;                      /* the result; kept in memory until the command succeeds */
    bool show_color;                /* color may be used in `out` */
    int columns;                    /* width of the terminal that receives `out`; 80 without a terminal */
    mha_ctx *ctx;                   /* created from -t and --isa before the command runs */
    const char *model;              /* folder of the model (input.h) */
    const char *model_name;         /* as given by the user: "minilm" or a folder */
    const cli_ranks *ranks;         /* the processes of mha-mpi; NULL in mha */
    const mha_work *work;           /* divides measurements among the processes; NULL in a single process */
    const cli_shared_texts *shared; /* divides long texts among the processes; NULL in a single process */
} cli_session;

/* Options that the help lists under a separate heading, such as "Data:". */
typedef struct cli_option_group {
    const char *title;
    const struct poptOption *options; /* terminated by POPT_TABLEEND */
} cli_option_group;

typedef struct cli_command {
    const char *name;
    const char *summary; /* one line of `mha --help`, without a period */
    const char *usage;   /* arguments in the usage line, such as "TEXT..." */
    const char *details; /* printed, wrapped, below the options by `mha NAME --help`; may be NULL */
    /* command lines, each ended by a newline, to be run in this order */
    const char *examples;
    void (*lists)(FILE *out, int columns); /* prints additional help below the details; may be NULL */
    const char *const *words;         /* values of an argument for completion, terminated by NULL; NULL = file names */
    unsigned shared;                  /* accepted shared options: CLI_MODEL | CLI_FILE ... */
    const struct poptOption *options; /* own options, terminated by POPT_TABLEEND; may be NULL */
    const cli_option_group *groups;   /* more own options, terminated by a NULL title; may be NULL */
    bool (*resumes)(void);            /* true if the command continues the run in the folder of -o; NULL = never */
    bool (*divides)(void);            /* true if processes can divide the work for these options; NULL = never */
    /* Returns NULL if processes can divide long texts, otherwise the option or input that prevents it, such as
     * "--gates". Must depend on the command line only. NULL = processes can never divide them. */
    const char *(*unshared)(const cli_session *session);
    int (*run)(cli_session *session); /* returns an exit code */
} cli_command;

/* Runs the command of argv (main.c) and returns the exit code. `ranks` is NULL for mha. */
int cli_main(int argc, char **argv, const cli_ranks *ranks);

#endif
