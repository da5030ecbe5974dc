/* ctx_count.c - see ctx_count.h. */
#include "base/ctx_count.h"

#include "base/error.h"
#include "base/size.h"

enum { PREFIX = 64 }; /* bytes before each block, which store its size; a multiple of the alignment of a context */

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    mha__memory_count *count = user;
    size_t total;
    (void)align; /* mha__alloc aligns to 64 bytes, the only alignment that a context requests */
    char *memory = mha__add(bytes, PREFIX, &total) ? mha__alloc(count->parent, total) : NULL;
    if (!memory) return NULL;
    *(size_t *)(void *)memory = bytes;
    const size_t now = atomic_fetch_add(&count->now, bytes) + bytes;
    size_t peak = atomic_load(&count->peak);
    while (now > peak && !atomic_compare_exchange_weak(&count->peak, &peak, now)) {
    }
    return memory + PREFIX;
}

static void count_free(void *user, void *memory)
{
    mha__memory_count *count = user;
    char *const block = (char *)memory - PREFIX;
    atomic_fetch_sub(&count->now, *(size_t *)(void *)block);
    mha__free(count->parent, block);
}

void mha__memory_restart(mha__memory_count *count)
{
    atomic_store(&count->peak, atomic_load(&count->now));
}

static void forward_parallel(void *user, int64_t tasks, mha__task_fn task, void *arg)
{
    const mha__memory_count *count = user;
    mha__parallel(count->parent, tasks, task, arg);
}

static void forward_log(void *user, int level, const char *line)
{
    const mha__memory_count *count = user;
    mha__log(count->parent, level, "%s", line);
}

static int forward_progress(void *user, const char *what, int64_t done, int64_t total)
{
    const mha__memory_count *count = user;
    return mha__progress(count->parent, what, done, total, NULL) != MHA_OK;
}

static int forward_between_tiles(void *user, int64_t begun, int64_t total)
{
    const mha__memory_count *count = user;
    return mha__between_tiles(count->parent, begun, total, NULL) != MHA_OK;
}

mha_status mha__ctx_counting(mha_ctx *parent, mha__memory_count *count, mha_ctx **out, mha_error *err)
{
    const mha_ctx_options options = {.size = sizeof options,
                                     .threads = mha__threads(parent),
                                     .isa = mha_ctx_isa(parent),
                                     .allocator = {.alloc = count_alloc, .free = count_free, .user = count},
                                     .log = forward_log,
                                     .log_user = count,
                                     .progress = forward_progress,
                                     .progress_user = count,
                                     .parallel_for = forward_parallel,
                                     .parallel_for_user = count,
                                     .between_tiles = forward_between_tiles,
                                     .between_tiles_user = count};
    count->parent = parent;
    atomic_init(&count->now, 0);
    atomic_init(&count->peak, 0);
    return mha_ctx_create(&options, out, err);
}
