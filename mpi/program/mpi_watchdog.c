/* mpi_watchdog.c - limits the time for starting and ending MPI. The watchdog is a timer signal, because the process is
 * inside an MPI call that does not return. */
#include "program/mpi_watchdog.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static char message[256];
static int message_bytes, exit_code;

/* Prints the message and exits; uses only async-signal-safe functions. */
static void on_alarm(int number)
{
    (void)number;
    const ssize_t written = write(STDERR_FILENO, message, (size_t)message_bytes);
    (void)written; /* the exit status reports the failure as well */
    _exit(exit_code);
}

/* Returns the launcher's rank number; before MPI has started, no other rank number is available. */
static const char *launcher_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    return rank ? rank : "?";
}

void mpi_watchdog_start(const char *step, double seconds, int code)
{
    char host[65] = "unknown host";
    (void)gethostname(host, sizeof host - 1);
    message_bytes = snprintf(message, sizeof message,
                             "mha-mpi: rank %.8s (%.64s): MPI did not %s within %g s: another rank does not respond\n",
                             launcher_rank(), host, step, seconds);
    exit_code = code;
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
    const time_t whole = (time_t)ceil(seconds);
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_sec = whole}, NULL);
}

void mpi_watchdog_stop(void)
{
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
}
