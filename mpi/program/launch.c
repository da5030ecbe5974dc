/* launch.c - the options of `mha-mpi launch`, and the mpirun command.
 *
 * By default, Open MPI 4 waits forever for a host that no longer responds; with keepalive messages the job ends after
 * 10 s. A process that still runs but does not respond is detected by the other ranks (--timeout). */
#include "program/launch.h"

#include "command.h"
#include "output.h"
#include "program/launch_job.h"
#include "program/rank_options.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 100000, RETRIES_MAX = 1000, WORDS = 64 };

typedef struct launch_options {
    const char *hosts;
    long ranks, retries;
    bool print;
    const char *own[12]; /* options that are passed on to the ranks */
    int own_count;
} launch_options;

static const char usage[] =
    "Usage: mha-mpi launch [-np P] [--hosts FILE] [--timeout S] [--record S] [--attention MODE] [--tp N] "
    "[--mixed-isa]\n"
    "                      [--retries N] [--print] COMMAND ...\n\n"
    "Starts P ranks of `mha-mpi COMMAND ...` with mpirun, on this machine or on the hosts of FILE (one per line,\n"
    "in mpirun's format: NAME slots=N). Reports a rank or host that fails, and ends the job.\n\n"
    "  -np P          number of ranks; default: one, or the slots of FILE\n"
    "  --hosts FILE   the hosts; each rank is bound to a NUMA domain and uses its cores\n"
    "  --timeout S    end the job if a rank waits S seconds for another rank (300)\n"
    "  --record S     with a state file: seconds between two records of a rank (10)\n"
    "  --attention M  how ranks exchange the keys of a distributed text: tree (default) and ordered\n"
    "                 are bitwise identical to one process, ring is not; see docs/cluster.md\n"
    "  --tp N         divide the weights of the model among N ranks, from 1 to 8 (score, embed, logits, generate)\n"
    "  --mixed-isa    let each rank use the newest ISA of its CPU; results then depend on the hosts\n"
    "  --retries N    restart the job after a temporary failure, at most N times (0)\n"
    "  --print        print the mpirun command and exit\n";

/* ---- options ---- */

/* Checks an option of the ranks, and passes it on unchanged. */
static int read_own(int left, char **argv, launch_options *o)
{
    rank_options checked = {0};
    const int words = rank_options_read_one(left, argv, &checked);
    const int max = sizeof o->own / sizeof *o->own;
    if (o->own_count + words > max) return fputs("mha-mpi launch: too many options\n", stderr), -1;
    for (int n = 0; n < words; n++)
        o->own[o->own_count++] = argv[n];
    return words;
}

/* Reads the option at argv[n]. Returns its number of arguments including the name, 0 if argv[n] is not an option, or -1
 * after printing an error. */
static int read_option(int left, char **argv, launch_options *o)
{
    const char *value = left > 1 ? argv[1] : NULL;
    if (strcmp(argv[0], "-np") == 0) return rank_options_whole("-np", value, 1, RANKS_MAX, &o->ranks) ? 2 : -1;
    if (strcmp(argv[0], "--retries") == 0)
        return rank_options_whole("--retries", value, 0, RETRIES_MAX, &o->retries) ? 2 : -1;
    if (strcmp(argv[0], "--hosts") == 0) {
        o->hosts = value;
        if (!value) fprintf(stderr, "mha-mpi launch: --hosts requires a file\n");
        return value ? 2 : -1;
    }
    if (strcmp(argv[0], "--print") == 0) return o->print = true, 1;
    return read_own(left, argv, o);
}

/* Returns the index of the command in argv, or -1 after printing an error. */
static int read_options(int argc, char **argv, launch_options *o)
{
    int n = 1;
    while (n < argc && argv[n][0] == '-') {
        const int words = read_option(argc - n, argv + n, o);
        if (words == 0) fprintf(stderr, "mha-mpi launch: unknown option %s\n%s", cli_shown(argv[n]), usage);
        if (words <= 0) return -1;
        n += words;
    }
    if (n == argc) fputs(usage, stderr);
    return n < argc ? n : -1;
}

/* ---- mpirun command ---- */

typedef struct words {
    const char **word; /* [WORDS + the command's arguments], terminated by NULL */
    int count;
} words;

static void put(words *w, const char *word)
{
    w->word[w->count++] = word;
    w->word[w->count] = NULL;
}

static void put_all(words *w, const char *const *list)
{
    for (; *list; list++)
        put(w, *list);
}

/* Binds ranks to NUMA domains if mpirun chooses their number; otherwise the ranks of a host divide its CPUs. */
static void put_places(words *w, const launch_options *o, const char *ranks)
{
    if (o->hosts) put_all(w, (const char *const[]){"--hostfile", o->hosts, NULL});
    if (o->hosts && o->ranks == 0)
        put_all(w, (const char *const[]){"--map-by", "ppr:1:numa", "--bind-to", "numa", NULL});
    else
        put_all(w, (const char *const[]){"-np", ranks, "--bind-to", "none", NULL});
    if (!o->hosts) put(w, "--oversubscribe");
}

static void make_command(words *w, const launch_options *o, const char *ranks, const char *self, char **command)
{
    static const char *const parameters[] = {
        "--mca", "oob_tcp_keepalive_time",   "5", "--mca", "oob_tcp_keepalive_intvl", "2",
        "--mca", "oob_tcp_keepalive_probes", "3", "--mca", "btl_tcp_progress_thread", "1",
        "--mca", "mpi_yield_when_idle",      "1", NULL};
    put(w, "mpirun");
    if (geteuid() == 0) put(w, "--allow-run-as-root");
    put_all(w, parameters);
    put_places(w, o, ranks);
    put(w, self);
    for (int n = 0; n < o->own_count; n++)
        put(w, o->own[n]);
    for (; *command; command++)
        put(w, *command);
}

/* Prints a word as an argument that a POSIX shell reads back unchanged. */
static void print_word(const char *word, char after)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%_+=:,./-";
    if (*word && word[strspn(word, plain)] == 0) {
        printf("%s%c", word, after);
        return;
    }
    putchar('\'');
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, stdout);
    printf("'%c", after);
}

int launch(int argc, char **argv)
{
    launch_options o = {0};
    char self[4096], ranks[24];
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return fputs(usage, stdout), CLI_DONE;
    const int command = read_options(argc, argv, &o);
    if (command < 0) return CLI_USAGE;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    snprintf(ranks, sizeof ranks, "%ld", o.ranks > 0 ? o.ranks : 1);
    if (length < 0) {
        fprintf(stderr, "mha-mpi launch: cannot find the mha-mpi executable: %s\n", strerror(errno));
        return CLI_FAILED;
    }
    self[length] = 0;
    words w = {.word = calloc((size_t)argc + WORDS, sizeof *w.word)};
    if (!w.word) return fputs("mha-mpi launch: out of memory\n", stderr), CLI_FAILED;
    make_command(&w, &o, ranks, self, argv + command);
    for (int n = 0; o.print && n < w.count; n++)
        print_word(w.word[n], n + 1 < w.count ? ' ' : '\n');
    const int code = o.print ? CLI_DONE : launch_job(w.word, o.retries);
    free(w.word);
    return code;
}
