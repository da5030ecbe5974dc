/* gguf_memory.c - memory that is freed with an open GGUF file. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/gguf/gguf.h"

struct mha__gguf_block {
    struct mha__gguf_block *next;
    max_align_t bytes[];
};

void *mha__gguf_memory(mha_file *file, size_t bytes)
{
    struct mha__gguf_block *block = NULL;
    size_t all;
    if (mha__add(bytes, sizeof *block, &all)) block = mha__alloc(file->ctx, all);
    if (!block) return NULL;
    block->next = file->gguf->blocks;
    file->gguf->blocks = block;
    return block->bytes;
}

void mha__gguf_free(mha_file *file)
{
    while (file->gguf && file->gguf->blocks) {
        struct mha__gguf_block *block = file->gguf->blocks;
        file->gguf->blocks = block->next;
        mha__free(file->ctx, block);
    }
    if (file->gguf) mha__free(file->ctx, file->gguf->values);
    mha__free(file->ctx, file->gguf);
}
