/* launch_job.c - runs mpirun, ends it if it hangs, and restarts failed jobs.
 *
 * After a job that failed, mpirun of Open MPI 4.1 sometimes waits forever for one of its own threads, in
 * PMIx_server_finalize, or does not end a rank that is frozen. All ranks of a job end together, so an mpirun that still
 * runs some seconds after one of its processes has ended is killed. */
#include "program/launch_job.h"

#include "command.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Time between two checks whether mpirun has ended [ms]; number of these checks between two searches for its processes,
 * which read all of /proc; time after the first end of a process until mpirun is killed [s]. */
enum { POLL = 100, POLLS_PER_SEARCH = 10, LONGEST_END = 10 };

static volatile sig_atomic_t job, stopped;

static void on_signal(int number)
{
    stopped = number;
    if (job > 0) kill((pid_t)job, number);
}

/* ---- detecting an mpirun that hangs ---- */

/* Returns true if `pid` is a child of `parent` that still runs, according to /proc/PID/stat: "PID (NAME) STATE PARENT
 * ...", where NAME may contain spaces and parentheses. */
static bool is_running_child(const char *pid, pid_t parent)
{
    char path[300], line[512] = "", state = 'Z';
    long of = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *stat = fopen(path, "r");
    if (!stat) return false;
    const char *name_end = fgets(line, sizeof line, stat) ? strrchr(line, ')') : NULL;
    fclose(stat);
    return name_end && sscanf(name_end + 1, " %c %ld", &state, &of) == 2 && state != 'Z' && of == (long)parent;
}

/* Returns the number of running children of a process, and sends them a signal (0 = none). 0 if /proc cannot be
 * read. */
static int count_children(pid_t parent, int number)
{
    DIR *processes = opendir("/proc");
    int count = 0;
    if (!processes) return 0;
    for (const struct dirent *entry; (entry = readdir(processes));) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !is_running_child(entry->d_name, parent)) continue;
        if (number) kill((pid_t)atol(entry->d_name), number);
        count++;
    }
    closedir(processes);
    return count;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits until mpirun ends, and returns its status. Kills mpirun and its processes if it still runs LONGEST_END seconds
 * after one of its processes has ended; *killed is then true. */
static int wait_for(pid_t mpirun, bool *killed)
{
    int status = 0;
    int max = 0;
    double since = now();
    for (long n = 1; waitpid(mpirun, &status, WNOHANG) == 0; n++) {
        nanosleep(&(struct timespec){0, POLL * 1000000L}, NULL);
        if (n % POLLS_PER_SEARCH != 0 && max > 0) continue;
        const int count = count_children(mpirun, 0);
        if (count >= max) max = count, since = now();
        if (*killed || max == 0 || now() - since < LONGEST_END) continue;
        *killed = true;
        count_children(mpirun, SIGKILL);
        kill(mpirun, SIGKILL);
    }
    return status;
}

/* ---- the job ---- */

/* Runs the command once. Returns its exit code, or 128 + n if signal n killed it. */
static int run_job(const char *const *word)
{
    bool killed = false;
    const pid_t child = fork();
    if (child == 0) {
        execvp(word[0], (char *const *)word);
        fprintf(stderr, "mha-mpi launch: cannot run mpirun: %s\n", strerror(errno));
        _exit(CLI_USAGE);
    }
    if (child < 0) {
        fprintf(stderr, "mha-mpi launch: cannot start a process: %s\n", strerror(errno));
        return CLI_FAILED;
    }
    job = child;
    const int status = wait_for(child, &killed);
    job = 0;
    if (killed) {
        fprintf(stderr, "mha-mpi launch: killed mpirun, which did not end within %d s after one of its processes\n",
                LONGEST_END);
        return CLI_FAILED;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Returns true if a restart may succeed. Usage errors, invalid inputs and failed checks would only fail again. */
static bool may_pass(int code)
{
    return code != CLI_DONE && code != CLI_USAGE && code != CLI_REFUSED && code != CLI_NO && !stopped;
}

int launch_job(const char *const *word, long retries)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t n = 0; n < sizeof stops / sizeof *stops; n++)
        sigaction(stops[n], &(struct sigaction){.sa_handler = on_signal}, NULL);
    int code = run_job(word);
    for (long n = 1; n <= retries && may_pass(code); n++) {
        fprintf(stderr, "mha-mpi launch: the job ended with exit status %d; starting it again (%ld of %ld)\n", code, n,
                retries);
        code = run_job(word);
    }
    return stopped ? 128 + stopped : code;
}
