/* shim.c - a preloaded library that makes one call of the process fail. It intercepts dynamically linked allocations
 * and file calls of the program and all libraries. It cannot intercept reads and writes of streams, which are calls
 * inside libc.
 * MHA_FAULT=KIND:N:ACTION   applies ACTION to the N-th call of KIND, counted from 1 after the constructors have run
 * MHA_FAULT_COUNT=FILE      an 8-byte file with the number of calls so far, valid even after a kill
 * KIND is memory, files (all file calls), slow (file calls that a signal may interrupt), bytes (reads and writes),
 * change (calls that change the contents or the name of a file) or mmap. ACTION is one of
 *   once    the allocation fails
 *   from    this and all later allocations fail
 *   NUMBER  the call returns an error and sets errno to NUMBER
 *   kill    the process is killed before the call
 *   half    the process is killed after the first half of a write
 *   short   half of the bytes are read or written
 *   cut     the mapped file is truncated to size 0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The allocation functions of glibc under their internal names, because dlsym itself may allocate. */
extern void *__libc_malloc(size_t bytes), *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes), *__libc_memalign(size_t align, size_t bytes);

/* Kinds of calls. CHANGE modifies file contents; NAME modifies names and permissions, and cannot be interrupted. */
typedef enum call { MEMORY, OPEN, READ, MAP, CHANGE, NAME, CLOSE } call;
enum { ONCE = -1, FROM = -2, KILL = -3, HALF = -4, SHORT = -5, CUT = -6 };

static unsigned kinds; /* mask of `call` values to count; 0 before the constructor has run */
static uint64_t wanted;
static int action;
static _Atomic uint64_t own, *count = &own;

/* ---- options in the environment ---- */

static const struct word {
    const char *name;
    int value;
} kind_words[] = {{"memory", 1 << MEMORY},
                  {"files", 1 << OPEN | 1 << READ | 1 << MAP | 1 << CHANGE | 1 << NAME | 1 << CLOSE},
                  {"slow", 1 << OPEN | 1 << READ | 1 << CHANGE | 1 << CLOSE},
                  {"bytes", 1 << READ | 1 << CHANGE},

                  {"change", 1 << CHANGE | 1 << NAME},
                  {"mmap", 1 << MAP},
                  {NULL, 0}},
  action_words[] = {{"once", ONCE}, {"from", FROM},   {"kill", KILL}, {"half", HALF},
                    {"cut", CUT},   {"short", SHORT}, {NULL, 0}};

static int value_of(const struct word *list, const char *name)
{
    for (; list->name; list++)
        if (strcmp(list->name, name) == 0) return list->value;
    return atoi(name);
}

__attribute__((constructor)) static void begin(void)
{
    char kind[16], what[16];
    const char *fault = getenv("MHA_FAULT"), *file = getenv("MHA_FAULT_COUNT");
    unsigned long long n;
    if (!fault || sscanf(fault, "%15[^:]:%llu:%15s", kind, &n, what) != 3) return;
    const int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (map != MAP_FAILED) count = map;
    wanted = n;
    action = value_of(action_words, what);
    kinds = (unsigned)value_of(kind_words, kind);
}

/* Counts a call and returns true if the fault applies to it. Does not return if the action is kill. */
static bool strikes(call c)
{
    if (!(kinds & 1u << c)) return false;
    const uint64_t n = atomic_fetch_add(count, 1) + 1;
    if (n != wanted && !(action == FROM && n > wanted)) return false;
    if (action == KILL) raise(SIGKILL);
    return true;
}

/* Returns true, and sets errno, if the call must fail. */
static bool fails(call c)
{
    if (!strikes(c)) return false;
    if (action == HALF) raise(SIGKILL); /* these calls transfer no bytes, so half means kill */
    if (action > 0) errno = action;
    return action > 0;
}

/* ---- intercepted allocations ---- */

static bool no_memory(void)
{
    if (!strikes(MEMORY)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return no_memory() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return no_memory() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return no_memory() ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return no_memory() ? NULL : __libc_memalign(align, bytes);
}

void *memalign(size_t align, size_t bytes)
{
    return aligned_alloc(align, bytes);
}

int posix_memalign(void **memory, size_t align, size_t bytes)
{
    void *made = aligned_alloc(align, bytes);
    if (!made) return ENOMEM;
    *memory = made;
    return 0;
}

/* ---- intercepted file calls ---- */

#define NEXT(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

/* Declares `mode`, and reads it from the variable arguments of an open call that may create a file. */
#define MODE(flags)                  \
    mode_t mode = 0;                 \
    if ((flags)&O_CREAT) {           \
        va_list rest;                \
        va_start(rest, flags);       \
        mode = va_arg(rest, mode_t); \
        va_end(rest);                \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags)
    return fails(OPEN) ? -1 : NEXT(open)(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    MODE(flags)
    return fails(OPEN) ? -1 : NEXT(openat)(dir, path, flags, mode);
}

int close(int fd)
{
    const bool failed = fails(CLOSE);
    const int saved = errno, result = NEXT(close)(fd); /* closes the descriptor in any case, as Linux does */
    if (failed) errno = saved;
    return failed ? -1 : result;
}

/* The outcome of a call that transfers bytes. */
typedef enum move { WHOLE, FAILED, LAST } move; /* LAST: the process is killed after the call */

static move strike_bytes(call c, size_t *bytes)
{
    if (!strikes(c)) return WHOLE;
    if (action > 0) errno = action;
    if (action > 0) return FAILED;
    if (*bytes > 1 && (action == SHORT || action == HALF)) *bytes /= 2;
    return action == HALF ? LAST : WHOLE;
}

static ssize_t moved(move m, ssize_t result)
{
    if (m == LAST) raise(SIGKILL);
    return result;
}

ssize_t read(int fd, void *to, size_t bytes)
{
    const move m = strike_bytes(READ, &bytes);
    return m == FAILED ? -1 : NEXT(read)(fd, to, bytes);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    const move m = strike_bytes(READ, &bytes);
    return m == FAILED ? -1 : NEXT(pread)(fd, to, bytes, offset);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    const move m = fd == STDERR_FILENO ? WHOLE : strike_bytes(CHANGE, &bytes);
    return m == FAILED ? -1 : moved(m, NEXT(write)(fd, from, bytes));
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    const move m = strike_bytes(CHANGE, &bytes);
    return m == FAILED ? -1 : moved(m, NEXT(pwrite)(fd, from, bytes, offset));
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    const bool struck = fd >= 0 && strikes(MAP);
    if (struck && action > 0) errno = action;
    if (struck && action > 0) return MAP_FAILED;
    void *map = NEXT(mmap)(at, bytes, protection, flags, fd, offset);
    if (struck && action == CUT) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (truncate(name, 0) != 0) abort();
    }
    return map;
}

int fsync(int fd)
{
    return fails(CHANGE) ? -1 : NEXT(fsync)(fd);
}

int ftruncate(int fd, off_t bytes)
{
    return fails(CHANGE) ? -1 : NEXT(ftruncate)(fd, bytes);
}

int fchmod(int fd, mode_t mode)
{
    return fails(NAME) ? -1 : NEXT(fchmod)(fd, mode);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
    return fails(NAME) ? -1 : NEXT(mkdirat)(dir, path, mode);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return fails(NAME) ? -1 : NEXT(renameat)(from_dir, from, to_dir, to);
}

int unlinkat(int dir, const char *path, int flags)
{
    return fails(NAME) ? -1 : NEXT(unlinkat)(dir, path, flags);
}

/* Intercepts renameat2, which the library calls by its system call number. */
long syscall(long number, ...)
{
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_renameat2 && fails(NAME)) return -1;
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
