/* faults.c - runs a command once for each call of a kind, lets that call fail, and looks what has become of it.
 *
 *   faults [-m MOST] [-s] [-c CHECK] SHIM START KIND ACTION... -- COMMAND...
 *
 * COMMAND runs in a copy of the folder START. First without a fault: what it prints and leaves there is what is right.
 * Then for each ACTION (shim.c) with a fault in call 1, 2, ... of KIND. Each run must end in one of two ways:
 *   exit 0, and the same stdout and folder
 *   exit 1 (memory; the sentence names it) or 1 or 3 (files), a sentence, no stdout, and the folder is as it was, or is
 *   right already; where a call that removes a file fails, a temporary one may stay, and the sentence names it
 * A short read or write, and EINTR, must make no difference. After a kill the folder must be as it was, or right, but
 * for temporary files; and the command, run again, must end well.
 *   -m MOST   no more than MOST calls, one drawn from each of MOST equal ranges; MHA_FAULTS=all: all of them
 *   -s        the command streams: stdout of a failure is the beginning of what is right, and perhaps a newline
 *   -c CHECK  a shell command that must succeed after a failure or a kill, in place of the comparison of the folder
 * Exit: 0 all is right, 1 something is not, 2 the test itself went wrong.
 */
#define _GNU_SOURCE
#include "faults/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_COMPLAINTS = 20 };

/* Hashes of a folder: of all that is in it, and without what a killed process may leave. */
typedef struct state {
    uint64_t whole, bare;
} state;

static struct {
    char shim[PATH_MAX], start[PATH_MAX], counter[PATH_MAX];
    const char *kind, *check;
    char **command;
    uint64_t most; /* calls that are tried; 0: all */
    bool streams, memory;
    uint64_t *calls; /* shared with the shim */
    int out, err;    /* what the last run printed */
    char *right;     /* stdout of the run without a fault */
    size_t right_bytes;
    state before, after; /* before a run, and after one that is right */
    int complaints;
} t;

_Noreturn static void give_up(const char *what)
{
    fprintf(stderr, "faults: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- running ---- */

/* NULL after a message; NUL-terminated, freed by the caller. */
static char *contents(int fd, size_t *bytes)
{
    const off_t n = lseek(fd, 0, SEEK_END);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (!text || pread(fd, text, (size_t)n, 0) != n) give_up("what the command printed");
    text[n] = '\0';
    *bytes = (size_t)n;
    return text;
}

/* Runs the command with `fault` ("" = none) in the folder; its wait status. */
static int run(const char *fault)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    if (setenv("LD_PRELOAD", t.shim, 1) || setenv("MHA_FAULT", fault, 1) || setenv("MHA_FAULT_COUNT", t.counter, 1) ||
        ftruncate(t.out, 0) || ftruncate(t.err, 0) || posix_spawn_file_actions_init(&actions))
        give_up("setting up");
    lseek(t.out, 0, SEEK_SET);
    lseek(t.err, 0, SEEK_SET);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, t.out, 1);
    posix_spawn_file_actions_adddup2(&actions, t.err, 2);
    *t.calls = 0;
    errno = posix_spawnp(&pid, t.command[0], &actions, NULL, t.command, environ);
    if (errno || waitpid(pid, &status, 0) != pid) give_up(t.command[0]);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("LD_PRELOAD");
    return status;
}

static void reset_folder(void)
{
    if (!tree_clear(".") || !tree_copy(t.start, ".")) give_up("the folder");
}

/* ---- judging ---- */

static uint64_t hash_of(bool no_leftovers)
{
    uint64_t hash;
    if (!tree_hash(".", no_leftovers, &hash)) give_up("the folder");
    return hash;
}

static state look(void)
{
    return (state){hash_of(false), hash_of(true)};
}

static void complain(const char *fault, int status, const char *why)
{
    size_t bytes;
    if (++t.complaints > MOST_COMPLAINTS) return;
    char *err = contents(t.err, &bytes);
    printf("MHA_FAULT=%s: %s; %s %d, stderr: %.300s\n", fault, why, WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), err);
    free(err);
}

/* Does a failure say what it must, and print nothing else? NULL, or what is wrong. */
static const char *judge_failure(int code, const char *out, size_t out_bytes, const char *err)
{
    if (code != 1 && (t.memory || code != 3)) return "not this exit code";
    if (!*err) return "a failure without a sentence";
    if (t.memory && !strcasestr(err, "memory")) return "the sentence does not name memory";
    if (t.streams && out_bytes > 0 && out[out_bytes - 1] == '\n') out_bytes--; /* the line is ended in any case */
    if (out_bytes > (t.streams ? t.right_bytes : 0) || memcmp(out, t.right, out_bytes) != 0)
        return "stdout of a failure";
    return NULL;
}

/* The folder after an exit: right, or, after a failure, as it was. Where calls fail that touch files, a temporary one
 * may stay; the sentence names it. */
static const char *judge_folder(int code, const char *err)
{
    const state now = look();
    const bool told = strstr(err, ".tmp.") || strstr(err, ".old.") || strstr(err, ".lock");
    if (code == 0 && now.whole == t.after.whole) return NULL;
    if (code != 0 && t.check) return system(t.check) == 0 ? NULL : "the check after the failure fails";
    if (code != 0 && (now.whole == t.after.whole || now.whole == t.before.whole)) return NULL;
    if (told && !t.memory && (now.bare == t.after.bare || (code != 0 && now.bare == t.before.bare))) return NULL;
    return code == 0 ? "exit 0 with another folder" : "the folder is neither as before nor right";
}

/* After an exit of any kind. */
static const char *judge(int status, bool must_succeed)
{
    size_t out_bytes, err_bytes;
    if (!WIFEXITED(status)) return "ended by a signal";
    const int code = WEXITSTATUS(status);
    char *out = contents(t.out, &out_bytes), *err = contents(t.err, &err_bytes);
    const char *wrong = judge_folder(code, err);
    if (!wrong && code != 0) wrong = must_succeed ? "a failure" : judge_failure(code, out, out_bytes, err);
    if (!wrong && code == 0 && text_hash(out, out_bytes) != text_hash(t.right, t.right_bytes))
        wrong = "exit 0 with another stdout";
    free(out);
    free(err);
    return wrong;
}

/* After a kill: the folder first, then another run in it. */
static const char *judge_killed(int status)
{
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return "not killed";
    if (t.check && system(t.check) != 0) return "the check after the kill fails";
    const uint64_t bare = look().bare;
    if (!t.check && bare != t.before.bare && bare != t.after.bare)
        return "killed: the folder is neither as before nor right";
    if (run("") != 0) return "the run after the kill fails";
    return hash_of(true) == t.after.bare ? NULL : "after the kill and another run the folder is not right";
}

/* ---- all calls ---- */

static void try_fault(const char *action, uint64_t n, uint64_t ended[3])
{
    char fault[64];
    const bool kills = strcmp(action, "kill") == 0 || strcmp(action, "half") == 0;
    const bool harmless = strcmp(action, "short") == 0 || atoi(action) == EINTR;
    snprintf(fault, sizeof fault, "%s:%llu:%s", t.kind, (unsigned long long)n, action);
    const int status = run(fault);
    const char *wrong = kills ? judge_killed(status) : judge(status, harmless);
    if (wrong) complain(fault, status, wrong);
    ended[wrong ? 2 : status != 0]++;
    if (hash_of(false) != t.before.whole) reset_folder();
}

/* Of call n = 1 ... calls, those that are tried. The same ones each time. */
static void try_action(const char *action, uint64_t calls)
{
    uint64_t ended[3] = {0}, state = 88172645463325252u;
    const uint64_t tries = t.most && t.most < calls ? t.most : calls;
    for (uint64_t i = 0; i < tries; i++) {
        const uint64_t low = calls * i / tries, high = calls * (i + 1) / tries;
        state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64 */
        try_fault(action, low + 1 + state % (high - low), ended);
    }
    printf("%s %s: %llu of %llu calls, %llu without effect, %llu failed or killed in order, %llu wrong\n", t.kind,
           action, (unsigned long long)tries, (unsigned long long)calls, (unsigned long long)ended[0],
           (unsigned long long)ended[1], (unsigned long long)ended[2]);
}

static void learn_what_is_right(void)
{
    char fault[64];
    snprintf(fault, sizeof fault, "%s:0:once", t.kind);
    t.before = look();
    const int status = run(fault);
    t.right = contents(t.out, &t.right_bytes);
    if (status != 0) complain("", status, "the command fails without a fault");
    if (*t.calls == 0) complain("", status, "no call passes through the shim");
    t.after = look();
    reset_folder();
}

/* The folder that the command runs in, and the files around it. */
static void make_places(void)
{
    char name[PATH_MAX] = "faults.XXXXXX", file[PATH_MAX + 8];
    if (!mkdtemp(name) || !realpath(name, t.counter)) give_up(name);
    strcat(t.counter, "/calls");
    const int fd = open(t.counter, O_RDWR | O_CREAT, 0600);
    snprintf(file, sizeof file, "%s/now", name);
    t.calls = fd < 0 || ftruncate(fd, sizeof *t.calls) != 0
                  ? MAP_FAILED
                  : mmap(NULL, sizeof *t.calls, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    t.out = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    t.err = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    if (t.calls == MAP_FAILED || t.out < 0 || t.err < 0 || mkdir(file, 0777) != 0 || chdir(file) != 0) give_up(file);
    reset_folder();
}

int main(int argc, char **argv)
{
    const char *all = getenv("MHA_FAULTS");
    for (int option; (option = getopt(argc, argv, "+m:sc:")) != -1;) {
        if (option == 'm') t.most = strtoull(optarg, NULL, 10);
        if (option == 's') t.streams = true;
        if (option == 'c') t.check = optarg;
        if (option == '?') return 2;
    }
    if (all && strcmp(all, "all") == 0) t.most = 0;
    char **actions = argv + optind + 3;
    if (argc - optind < 6 || !realpath(argv[optind], t.shim) || !realpath(argv[optind + 1], t.start)) give_up("usage");
    t.kind = argv[optind + 2];
    t.memory = strcmp(t.kind, "memory") == 0;
    int count = 0;
    while (actions[count] && strcmp(actions[count], "--") != 0)
        count++;
    t.command = actions + count + 1;
    make_places();
    learn_what_is_right();
    const uint64_t calls = *t.calls;
    for (int n = 0; n < count && !t.complaints; n++)
        try_action(actions[n], calls);
    if (t.complaints > MOST_COMPLAINTS) printf("... and %d more\n", t.complaints - MOST_COMPLAINTS);
    return t.complaints ? 1 : 0;
}
