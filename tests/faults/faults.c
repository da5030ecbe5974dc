/* faults.c - runs a command once per call of a given kind, makes that call fail, and checks the outcome.
 *
 *   faults [-m MAX] [-s] [-c CHECK] SHIM START KIND ACTION... -- COMMAND...
 * COMMAND runs in a copy of the folder START. The first run has no fault: its stdout and folder are the expected
 * result. Then, for each ACTION (shim.c), COMMAND runs with a fault in call 1, 2, ... of KIND. Each run must either
 *   succeed: exit status 0, and the expected stdout and folder, or
 *   fail: exit status 1 (KIND memory) or 1 or 3 (other kinds), a message, which must contain "memory" for the KIND
 *   memory, no stdout, and the folder unchanged or as expected. A temporary file may remain if the message names it.
 * A short read or write, and EINTR, must have no effect. After a kill, the folder must be unchanged or as expected,
 * except for temporary files, and the command must succeed when run again.
 *   -m MAX   test at most MAX calls, one at random from each of MAX equal ranges; MHA_FAULTS=all tests all calls
 *   -s        the command streams: stdout of a failed run must be a prefix of the expected stdout, with or without a
 *             final newline
 *   -c CHECK  a shell command that must succeed after a failure or a kill, instead of comparing the folder
 * Exit status: 0 all runs are correct, 1 some runs are wrong, 2 the driver failed.
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

enum { COMPLAINTS_MAX = 20 };

/* Hashes of a folder: `whole` includes all files, `bare` excludes the temporary files of a killed process. */
typedef struct state {
    uint64_t whole, bare;
} state;

static struct {
    char shim[PATH_MAX], start[PATH_MAX], counter[PATH_MAX];
    const char *kind, *check;
    char **command;
    uint64_t max; /* number of calls to test; 0: all */
    bool streams, memory;
    uint64_t *calls; /* counter in memory shared with the shim */
    int out, err;    /* output of the last run */
    char *right;     /* stdout of the run without a fault */
    size_t right_bytes;
    state before, after; /* expected hashes of the folder before and after the command */
    int complaints;
} t;

_Noreturn static void give_up(const char *what)
{
    fprintf(stderr, "faults: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- running the command ---- */

/* Returns the contents, terminated by NUL; the caller must free them. */
static char *contents(int fd, size_t *bytes)
{
    const off_t n = lseek(fd, 0, SEEK_END);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (!text || pread(fd, text, (size_t)n, 0) != n) give_up("reading the output of the command");
    text[n] = '\0';
    *bytes = (size_t)n;
    return text;
}

/* Runs the command in the folder with `fault` ("" for none). Returns its wait status. */
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

/* ---- checking the outcome ---- */

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
    if (++t.complaints > COMPLAINTS_MAX) return;
    char *err = contents(t.err, &bytes);
    printf("MHA_FAULT=%s: %s; %s %d, stderr: %.300s\n", fault, why, WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), err);
    free(err);
}

/* Returns NULL if a failed run has the expected exit status, message and stdout, otherwise the violated rule. */
static const char *check_failure(int code, const char *out, size_t out_bytes, const char *err)
{
    if (code != 1 && (t.memory || code != 3))
        return t.memory ? "the exit status must be 1" : "the exit status must be 1 or 3";
    if (!*err) return "must print a message";
    if (t.memory && !strcasestr(err, "memory")) return "the message must name memory";
    if (t.streams && out_bytes > 0 && out[out_bytes - 1] == '\n') out_bytes--; /* allows a final newline */
    if (out_bytes > (t.streams ? t.right_bytes : 0) || memcmp(out, t.right, out_bytes) != 0)
        return "after a failure, stdout must be empty, or a prefix of the expected stdout with -s";
    return NULL;
}

/* Checks the folder after a run that ended with exit status `code`: it must be as expected or, after a failure,
 * unchanged. If a file call failed, a temporary file may remain if the message `err` names it. Returns NULL if the
 * folder is correct, otherwise the violated rule. */
static const char *check_folder(int code, const char *err)
{
    const state now = look();
    const bool told = strstr(err, ".tmp.") || strstr(err, ".old.") || strstr(err, ".lock");
    if (code == 0 && now.whole == t.after.whole) return NULL;
    if (code != 0 && t.check) return system(t.check) == 0 ? NULL : "-c CHECK failed after a failed run";
    if (code != 0 && (now.whole == t.after.whole || now.whole == t.before.whole)) return NULL;
    if (told && !t.memory && (now.bare == t.after.bare || (code != 0 && now.bare == t.before.bare))) return NULL;
    return code == 0 ? "with exit status 0, the folder must be as expected"
                     : "the folder must be unchanged or as expected";
}

/* Checks exit status, output and folder of a run that was not killed. Returns NULL or the violated rule. */
static const char *check_run(int status, bool must_succeed)
{
    size_t out_bytes, err_bytes;
    if (!WIFEXITED(status)) return "the process must not be ended by a signal";
    const int code = WEXITSTATUS(status);
    char *out = contents(t.out, &out_bytes), *err = contents(t.err, &err_bytes);
    const char *wrong = check_folder(code, err);
    if (!wrong && code != 0) wrong = must_succeed ? "must succeed" : check_failure(code, out, out_bytes, err);
    if (!wrong && code == 0 && text_hash(out, out_bytes) != text_hash(t.right, t.right_bytes))
        wrong = "with exit status 0, stdout must be as expected";
    free(out);
    free(err);
    return wrong;
}

/* Checks the folder after a kill, runs the command again, and checks the result. Returns NULL or the violated rule. */
static const char *check_killed(int status)
{
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return "the process must be ended by SIGKILL";
    if (t.check && system(t.check) != 0) return "-c CHECK failed after a kill";
    const uint64_t bare = look().bare;
    if (!t.check && bare != t.before.bare && bare != t.after.bare)
        return "after a kill, the folder must be unchanged or as expected";
    if (run("") != 0) return "the run after the kill must succeed";
    return hash_of(false) == t.after.whole ? NULL : "after a kill and another run, the folder must be as expected";
}

/* ---- testing all calls ---- */

static void try_fault(const char *action, uint64_t n, uint64_t ended[3])
{
    char fault[64];
    const bool kills = strcmp(action, "kill") == 0 || strcmp(action, "half") == 0;
    const bool harmless = strcmp(action, "short") == 0 || atoi(action) == EINTR;
    snprintf(fault, sizeof fault, "%s:%llu:%s", t.kind, (unsigned long long)n, action);
    const int status = run(fault);
    const char *wrong = kills ? check_killed(status) : check_run(status, harmless);
    if (wrong) complain(fault, status, wrong);
    ended[wrong ? 2 : status != 0]++;
    if (hash_of(false) != t.before.whole) reset_folder();
}

/* Tests one action in calls 1 to `calls`, or in a pseudorandom sample of t.most calls, the same in each test. */
static void try_action(const char *action, uint64_t calls)
{
    uint64_t ended[3] = {0}, state = 88172645463325252u;
    const uint64_t tries = t.max && t.max < calls ? t.max : calls;
    for (uint64_t i = 0; i < tries; i++) {
        const uint64_t low = calls * i / tries, high = calls * (i + 1) / tries;
        state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* the random generator xorshift64 */
        try_fault(action, low + 1 + state % (high - low), ended);
    }
    printf("%s %s: %llu of %llu calls, %llu succeeded, %llu failed or were killed as expected, %llu wrong\n", t.kind,
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
    if (status != 0) complain("", status, "the command must succeed without a fault");
    if (*t.calls == 0) complain("", status, "the shim must intercept a call");
    t.after = look();
    reset_folder();
}

/* Creates a temporary folder with the counter of calls and the folder in which the command runs. */
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
        if (option == 'm') t.max = strtoull(optarg, NULL, 10);
        if (option == 's') t.streams = true;
        if (option == 'c') t.check = optarg;
        if (option == '?') return 2;
    }
    if (all && strcmp(all, "all") == 0) t.max = 0;
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
    if (t.complaints > COMPLAINTS_MAX) printf("... and %d more\n", t.complaints - COMPLAINTS_MAX);
    return t.complaints ? 1 : 0;
}
