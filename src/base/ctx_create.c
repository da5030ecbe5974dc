/* ctx_create.c - creates a context from options and environment variables. No other file reads the environment. An
 * empty variable counts as unset, and a variable overridden by an option is ignored. */
#define _GNU_SOURCE /* for sched_getaffinity() */
#include "base/ctx_struct.h"
#include "base/error.h"
#include "base/struct_size.h"
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { THREADS_MAX = 1024 };

/* ---- the default allocator ---- */

/* Large arrays are aligned to huge pages and request them, because hardware prefetchers stop at the end of a page: CPUs
 * read weights and caches in pages of 4 KiB at 60 to 80 % of the speed. The system may decline the request. */
static void *malloc_alloc(void *user, size_t bytes, size_t align)
{
    void *memory = NULL;
    (void)user;
#ifdef __linux__
    const size_t huge_page = 2 << 20;
    const bool large = bytes >= 2 * huge_page;
    if (large && align < huge_page) align = huge_page;
#endif
    if (bytes > PTRDIFF_MAX || posix_memalign(&memory, align, bytes)) return NULL;
#ifdef __linux__
    if (large) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

static void malloc_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- threads ---- */

/* Returns the number of CPUs that the calling thread may run on. A job restricted to 2 of 64 CPUs thus gets 2
 * threads. */
static int cpus(void)
{
    long count = 0;
#ifdef __linux__
    cpu_set_t small; /* has bits for 1024 CPUs; with more CPUs, the call below fails with EINVAL */
    if (sched_getaffinity(0, sizeof small, &small) == 0)
        count = CPU_COUNT(&small);
    else
#endif
        count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : (int)count;
}

static mha_status choose_threads(int option, int *threads, mha_error *err)
{
    if (option < 0 || option > THREADS_MAX)
        return mha__fail(err, MHA_ERR_ARG, "threads must be from 0 (all CPUs) to %d (got %d)", (int)THREADS_MAX,
                         option);
    const char *text = option == 0 ? environment("MHA_THREADS") : NULL;
    if (!text) {
        *threads = option > 0 ? option : cpus();
        return MHA_OK;
    }
    const size_t digits = strspn(text, "0123456789"); /* digits only: signs, blanks and other bases are rejected */
    const long value = digits <= 9 && text[digits] == '\0' ? strtol(text, NULL, 10) : 0;
    if (value < 1 || value > THREADS_MAX)
        return mha__fail(err, MHA_ERR_ARG, "MHA_THREADS must be a whole number from 1 to %d (got \"%s\")",
                         (int)THREADS_MAX, mha__quote(&(mha__quoted){0}, text, strlen(text)));
    *threads = (int)value;
    return MHA_OK;
}

/* ---- instruction set ---- */

int mha_isa_list(const char **names, int capacity)
{
    int count = 0;
    for (int isa = 0; isa < MHA__ISAS; isa++) {
        if (!mha__cpu_has((mha__isa)isa)) continue;
        if (count < capacity) names[count] = mha__isa_name((mha__isa)isa);
        count++;
    }
    return count;
}

/* Writes the names of the ISAs that this CPU supports to `text`, oldest first: "scalar, avx2, avx512". */
static void list_isas(char *text, size_t capacity)
{
    const char *names[MHA__ISAS];
    int count = mha_isa_list(names, MHA__ISAS);
    size_t used = 0;
    for (int i = 0; i < count && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i > 0 ? ", " : "", names[i]);
}

static mha_status choose_isa(const char *option, mha__isa *isa, mha_error *err)
{
    const char *name = option ? option : environment("MHA_ISA");
    if (!name) {
        *isa = mha__cpu_best();
        return MHA_OK;
    }
    int found = 0;
    while (found < MHA__ISAS && strcmp(name, mha__isa_name((mha__isa)found)) != 0)
        found++;
    if (found < MHA__ISAS && mha__cpu_has((mha__isa)found)) {
        *isa = (mha__isa)found;
        return MHA_OK;
    }
    char list[128];
    list_isas(list, sizeof list);
    return mha__fail(err, MHA_ERR_ARG, "%s must be one of %s (got \"%s\", which %s)", option ? "isa" : "MHA_ISA", list,
                     mha__quote(&(mha__quoted){0}, name, strlen(name)),
                     found < MHA__ISAS ? "this CPU does not support" : "is unknown");
}

/* ---- the context ---- */

static mha_status fill(mha_ctx *ctx, const mha_ctx_options *options, mha_error *err)
{
    bool own = !options->allocator.alloc && !options->allocator.free;
    if (!own && (!options->allocator.alloc || !options->allocator.free))
        return mha__fail(err, MHA_ERR_ARG, "allocator.%s must not be NULL if allocator.%s is set",
                         options->allocator.alloc ? "free" : "alloc", options->allocator.alloc ? "alloc" : "free");
    *ctx = (mha_ctx){
        .allocator = own ? (mha_allocator){.alloc = malloc_alloc, .free = malloc_free} : options->allocator,
        .log = options->log,
        .log_user = options->log_user,
        .progress = options->progress,
        .progress_user = options->progress_user,
        .parallel_for = options->parallel_for,
        .parallel_for_user = options->parallel_for_user,
        .between_tiles = options->between_tiles,
        .between_tiles_user = options->between_tiles_user,
    };
    MHA__TRY(choose_threads(options->threads, &ctx->threads, err));
    return choose_isa(options->isa, &ctx->isa, err);
}

static void log_line(const mha_ctx *ctx, int level, const char *line)
{
    if (ctx->log) ctx->log(ctx->log_user, level, line);
}

/* Starts the thread pool. If the system refuses some workers (for example at the process limit), the context uses
 * fewer threads and logs a warning. */
static mha_status start_pool(mha_ctx *ctx, mha_error *err)
{
    char line[80];
    if (ctx->threads == 1 || ctx->parallel_for) return MHA_OK;
    ctx->pool = mha__pool_create(ctx, ctx->threads);
    if (!ctx->pool) return mha__fail(err, MHA_ERR_MEMORY, "out of memory for a pool of %d threads", ctx->threads);
    int wanted = ctx->threads;
    ctx->threads = mha__pool_threads(ctx->pool);
    snprintf(line, sizeof line, "only %d of %d threads could be started", ctx->threads, wanted);
    if (ctx->threads < wanted) log_line(ctx, 0, line);
    return MHA_OK;
}

mha_status mha_ctx_create(const mha_ctx_options *options, mha_ctx **out, mha_error *err)
{
    mha_ctx_options own;
    mha_ctx plain;
    char line[80];
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_ctx_create: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_ctx_options", err));
    MHA__TRY(fill(&plain, &own, err));
    mha_ctx *ctx = mha__ctx_alloc(&plain, sizeof *ctx);
    if (!ctx) return mha__fail(err, MHA_ERR_MEMORY, "out of memory: %zu bytes for a context", sizeof *ctx);
    memcpy(ctx, &plain, sizeof *ctx);
    mha_status status = start_pool(ctx, err);
    if (status != MHA_OK) {
        mha__ctx_release(&plain, ctx);
        return status;
    }
    snprintf(line, sizeof line, "context: %d threads, isa %s", ctx->threads, mha__isa_name(ctx->isa));
    log_line(ctx, 2, line);
    *out = ctx;
    return MHA_OK;
}

void mha_ctx_free(mha_ctx *ctx)
{
    if (!ctx) return;
    mha__pool_free(ctx, ctx->pool);
    mha_allocator allocator = ctx->allocator; /* copied first, because the context that contains the allocator is
                                               * freed */
    allocator.free(allocator.user, ctx);
}
