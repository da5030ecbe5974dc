/* session.c - handles signals and draws the progress line. Messages of output.c clear this line, so this file must not
 * call them. */
#include "session.h"

#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- signals ---- */

static volatile sig_atomic_t caught;
static bool held;

static void note_signal(int number)
{
    caught = number;
}

/* The message of the signal handler, formatted in advance because a handler must not format text. */
static char lost_page[1024] = "mha: a mapped file shrank while being read; ";
static const char advice[] = "it must not change while the program runs, unless --no-map is given\n";

void cli_signals_reading(const char *name)
{
    snprintf(lost_page, sizeof lost_page, "mha: %s: a mapped file shrank while being read; ", cli_shown(name));
}

/* Files are mapped (mha/io.h); access to a page that no longer exists raises SIGBUS in whichever thread touched it. The
 * thread cannot continue, so the program ends; no part of the result has been written, except text that `generate` has
 * streamed. Any other SIGBUS, such as a memory error, gets the default action. The handler calls only
 * async-signal-safe functions. */
static void on_lost_page(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL);
        return; /* the instruction is repeated and raises SIGBUS again, with the default action */
    }
    static atomic_flag told = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&told))
        pause(); /* waits until the first thread ends the program */
    bool written = write(STDERR_FILENO, lost_page, strlen(lost_page)) >= 0;
    written = write(STDERR_FILENO, advice, sizeof advice - 1) >= 0 && written;
    _exit(!written ? CLI_FAILED : CLI_REFUSED);
}

/* Opens missing descriptors so that using them fails: a closed stdout is then an error when the result is written, not
 * a file that was opened later. */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(CLI_FAILED);
}

void cli_signals_install(void)
{
    fill_descriptors();
    struct sigaction ignore = {.sa_handler = SIG_IGN},
                     note = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
    sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO}, NULL);
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct sigaction before;
        sigaction(stops[i], NULL, &before);
        if (before.sa_handler != SIG_IGN) sigaction(stops[i], &note, NULL); /* keeps SIGHUP ignored under nohup */
    }
}

int cli_signal(void)
{
    return caught;
}

void cli_signals_hold(void)
{
    held = true;
}

bool cli_signals_held(void)
{
    return held;
}

int cli_stopped(void)
{
    return caught ? 128 + caught : 0;
}

int cli_open_at(int dir, const char *path, int flags, mode_t mode)
{
    for (;;) {
        const int fd = openat(dir, path, flags, mode);
        if (fd >= 0 || errno != EINTR || cli_signal()) return fd;
    }
}

const char *cli_file_kind(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a fifo" : "a special file";
}

/* ---- progress ---- */

enum { PROGRESS_DELAY_MS = 400, PROGRESS_PAUSE_MS = 100 };

static struct {
    bool on, shown;
    char what[64];
    int64_t start_ms, last_ms;
    int64_t start_done; /* steps done before this run; > 0 if resumed from a state file */
} progress;

double cli_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int64_t now_ms(void)
{
    return (int64_t)(cli_seconds() * 1000);
}

void cli_progress_clear(void)
{
    if (progress.shown) fputs("\r\033[K", stderr);
    progress.shown = false;
}

void cli_progress_on(void)
{
    progress.on = isatty(STDERR_FILENO);
}

void cli_progress_off(void)
{
    cli_progress_clear();
    progress.on = false;
}

const char *cli_duration(double seconds, char text[CLI_DURATION])
{
    if (seconds < 120)
        snprintf(text, CLI_DURATION, "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(text, CLI_DURATION, "%.0f min", seconds / 60);
    else
        snprintf(text, CLI_DURATION, "%.1f h", seconds / 3600);
    return text;
}

/* Draws "measure heads 12/24   31.0/s   45 s left"; the rate is the mean since the operation started. */
static void draw_progress(int64_t now, int64_t done, int64_t total)
{
    char left[CLI_DURATION];
    double seconds = (double)(now - progress.start_ms) / 1000, rate = (double)(done - progress.start_done) / seconds;
    fprintf(stderr, "\r\033[K%s %lld/%lld", progress.what, (long long)done, (long long)total);
    if (rate > 0)
        fprintf(stderr, "   %.*f/s   %s left",
                rate < 10    ? 2
                : rate < 100 ? 1
                             : 0,
                rate, cli_duration((double)(total - done) / rate, left));
    fflush(stderr);
    progress.shown = true;
    progress.last_ms = now;
}

void cli_progress_line(const char *line)
{
    const int64_t now = now_ms();
    if (!progress.on || now - progress.last_ms < PROGRESS_PAUSE_MS) return;
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    progress.shown = true;
    progress.last_ms = now;
}

void cli_progress(const char *what, int64_t done, int64_t total)
{
    if (!progress.on) return;
    int64_t now = now_ms();
    if (strncmp(progress.what, what, sizeof progress.what - 1) != 0) {
        snprintf(progress.what, sizeof progress.what, "%s", what);
        progress.start_ms = now;
        progress.start_done = done;
    }
    if (done >= total)
        cli_progress_clear();
    else if (now - progress.start_ms >= PROGRESS_DELAY_MS && now - progress.last_ms >= PROGRESS_PAUSE_MS)
        draw_progress(now, done, total);
}
