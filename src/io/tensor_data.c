/* tensor_data.c - maps the bytes of an open file, or copies them into memory. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/derived_tensor.h"
#include "io/tensor_file.h"
#include <string.h>
#include <unistd.h>
#if !defined(__wasi__)
#include <sys/mman.h>
#endif

mha_status mha__data_memory(mha_ctx *ctx, const char *name, size_t n, void **memory, mha_error *err)
{
    const double gib = 1073741824.0;
    mha__quoted q;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t have = SIZE_MAX;
    if (pages > 0 && page > 0 && !mha__mul((size_t)pages, (size_t)page, &have)) have = SIZE_MAX;
    *memory = n <= have ? mha__alloc(ctx, n) : NULL;
    if (*memory) return MHA_OK;
    if (n <= have) return mha__no_memory(err, n, mha__quote(&q, name, strlen(name)));
    return mha__fail(err, MHA_ERR_MEMORY, "%s: requires %.3f GiB (%zu bytes), but this machine has only %.3f GiB",
                     mha__quote(&q, name, strlen(name)), (double)n / gib, n, (double)have / gib);
}

static mha_status copy_data(mha_file *file, const mha__source *source, size_t offset, size_t n, mha_error *err)
{
    MHA__TRY(mha__data_memory(file->ctx, source->name, n, &file->copy, err));
    return mha__source_read(source, offset, file->copy, n, err);
}

/* Maps the whole file. Returns NULL if the file system, or WASI, cannot map files. */
static void *map_file(const mha__source *source)
{
#if defined(__wasi__)
    (void)source;
    return NULL;
#else
    void *map = mmap(NULL, source->size, PROT_READ, MAP_PRIVATE, source->fd, 0);
    return map == MAP_FAILED ? NULL : map;
#endif
}

mha_status mha__data_load(mha_file *file, const mha__source *source, size_t offset, size_t n, const char **data,
                          mha_error *err)
{
    if (n == 0) {
        *data = ""; /* a valid pointer for tensors without elements */
        return MHA_OK;
    }
    if (source->memory) {
        *data = source->memory + offset;
        return MHA_OK;
    }
    void *map = file->no_map ? NULL : map_file(source);
    if (!map) {
        MHA__TRY(copy_data(file, source, offset, n, err));
        *data = file->copy;
        return MHA_OK;
    }
    file->map = map;
    file->map_bytes = source->size;
    *data = (const char *)map + offset;
    return MHA_OK;
}

void mha__data_drop(mha_file *file)
{
#if !defined(__wasi__)
    if (file->map) munmap(file->map, file->map_bytes);
#endif
    mha__free(file->ctx, file->copy);
    file->map = NULL;
    file->copy = NULL;
}

void mha__data_rest(const mha_file *file, const mha_tensor *tensor)
{
    const mha__derived *derived = mha__derived_of(tensor);
    for (int n = 0; derived && n < derived->part_count; n++)
        mha__data_rest(file, &derived->parts[n]);
    if (derived) return;
    const uintptr_t map = (uintptr_t)file->map, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)tensor->data, from = begin - begin % page;
    for (int64_t n = 0; n < file->shard_count; n++)
        mha__data_rest(file->shard[n], tensor);
    if (tensor->bytes == 0 || begin < map || begin - map >= file->map_bytes) return;
#if !defined(__wasi__)
    madvise((void *)from, begin + tensor->bytes - from, MADV_DONTNEED); /* madvise is only an optimization, so failures
                                                                         * are ignored */
#else
    (void)from;
#endif
}
