/* optimizer_state.c - allocates the moments of AdamW, which are distributed over the processes of a training run.
 *
 * A process updates one range of the parameters, and has only the moments of this range. Ranges begin at block
 * boundaries of the sum of squares, so that the norm of the gradient is summed over the same blocks for every number of
 * processes. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "io/safetensors/named_tensors.h"
#include "layer/adamw.h"
#include "train/trainer_struct.h"
#include <string.h>

/* Divides the parameters evenly among the ranks; each range begins at a block boundary. */
static void divide(mha_trainer *t)
{
    const int ranks = mha__train_ranks(t);
    int rank = 1;
    int64_t block = 0;
    for (int64_t n = 0; n < t->count; n++)
        for (int64_t at = 0; at < t->parameter[n].count; at += MHA__SQUARES_BLOCK, block++)
            for (; rank < ranks && t->parameter[n].first + at >= t->elements / ranks * rank; rank++) {
                t->starts[rank] = t->parameter[n].first + at;
                t->own_blocks[rank] = block;
            }
    for (; rank <= ranks; rank++) {
        t->starts[rank] = t->elements;
        t->own_blocks[rank] = t->blocks;
    }
}

static void find_own(const mha_trainer *t, mha__parameter *p)
{
    const int64_t *starts = t->starts + mha__train_rank(t);
    const int64_t end = mha__clamp64(starts[1] - p->first, p->count);
    p->own_first = mha__clamp64(starts[0] - p->first, p->count);
    p->own_count = mha__max64(end - p->own_first, 0);
}

static void take_moments(mha__arena *arena, mha_trainer *t)
{
    const size_t size = mha_dtype_size(t->o.moments);
    for (int64_t n = 0; n < t->count; n++) {
        mha__parameter *p = &t->parameter[n];
        t->state[2 * n].data = p->mean = mha__take(arena, (size_t)p->own_count, size);
        t->state[2 * n + 1].data = p->square = mha__take(arena, (size_t)p->own_count, size);
    }
}

mha_status mha__train_moments_create(mha_trainer *t, mha_error *err)
{
    mha__arena arena = {0};
    divide(t);
    for (int64_t n = 0; n < t->count; n++)
        find_own(t, &t->parameter[n]);
    take_moments(&arena, t);
    arena.base = t->moments = arena.overflow ? NULL : mha__alloc(t->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the moments of the weights");
    *t->unused = true;
    arena.used = 0;
    take_moments(&arena, t);
    return MHA_OK;
}

void mha__train_moments(const mha_trainer *t)
{
    const size_t size = mha_dtype_size(t->o.moments);
    for (int64_t n = 0; n < t->count && *t->unused; n++) {
        const mha__parameter *p = &t->parameter[n];
        memset(p->mean, 0, (size_t)p->own_count * size);
        memset(p->square, 0, (size_t)p->own_count * size);
    }
    *t->unused = false;
}

mha_status mha__train_moments_read(const mha_trainer *t, const mha_file *file, mha_error *err)
{
    const size_t count = 2 * (size_t)t->count;
    mha__element_range *ranges = mha__calloc(t->ctx, count, sizeof *ranges);
    if (!ranges) return mha__no_memory(err, count * sizeof *ranges, "the ranges of moments");
    for (size_t n = 0; n < count; n++)
        ranges[n] = (mha__element_range){t->parameter[n / 2].own_first, t->parameter[n / 2].own_count};
    const mha_status status = mha__tensors_read_ranges(file, t->state, ranges, (int64_t)count, err);
    mha__free(t->ctx, ranges);
    return status;
}
