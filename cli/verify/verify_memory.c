/* verify_memory.c - allocates the memory of one case of `mha verify`, which is released in one call. */
#include "output.h"
#include "verify/verify.h"
#include <stdlib.h>

void *verify_alloc(verify_memory *memory, int64_t count, size_t size, const verify_entry *e)
{
    if (e->error->status != MHA_OK) return NULL;
    void *block =
        memory->count < (int)(sizeof memory->block / sizeof *memory->block) ? calloc((size_t)count + 1, size) : NULL;
    if (block) return memory->block[memory->count++] = block;
    e->error->status = MHA_ERR_MEMORY;
    snprintf(e->error->message, sizeof e->error->message, "out of memory: %lld elements for \"%s\"", (long long)count,
             cli_shown(e->name));
    return NULL;
}

void verify_release(verify_memory *memory)
{
    while (memory->count)
        free(memory->block[--memory->count]);
}
