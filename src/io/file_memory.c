/* file_memory.c - memory that is freed with an open file. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/tensor_file.h"

struct mha__file_block {
    struct mha__file_block *next;
    max_align_t bytes[];
};

void *mha__file_memory(mha_file *file, size_t bytes)
{
    struct mha__file_block *block = NULL;
    size_t all;
    if (mha__add(bytes, sizeof *block, &all)) block = mha__alloc(file->ctx, all);
    if (!block) return NULL;
    block->next = file->blocks;
    file->blocks = block;
    return block->bytes;
}

void mha__file_memory_free(mha_file *file)
{
    while (file->blocks) {
        struct mha__file_block *block = file->blocks;
        file->blocks = block->next;
        mha__free(file->ctx, block);
    }
}
