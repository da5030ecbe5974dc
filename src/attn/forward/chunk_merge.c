/* chunk_merge.c - implements the merge stack that chunk_merge.h declares. The left sibling is always the destination,
 * because the order of the operands affects the rounding. */
#include "attn/forward/chunk_merge.h"

static void swap(mha__partial *a, mha__partial *b)
{
    const mha__partial t = *a;
    *a = *b;
    *b = t;
}

/* Merges level[l] and level[levels], its right sibling, into level[levels]. */
static void merge_left(mha__merge_stack *s, int l)
{
    s->kernels->merge(s->rows, s->dv, s->o_stride, &s->level[s->levels], &s->level[l]);
    swap(&s->level[l], &s->level[s->levels]);
    s->held &= ~(UINT64_C(1) << l);
}

void mha__merge_push(mha__merge_stack *s, int64_t chunk, int level)
{
    int l = level;
    for (; (uint64_t)chunk >> l & 1; l++)
        if (s->held >> l & 1) merge_left(s, l);
    swap(&s->level[l], &s->level[s->levels]);
    s->held |= UINT64_C(1) << l;
}

void mha__merge_finish(mha__merge_stack *s)
{
    int l = 0;
    while (!(s->held >> l & 1))
        l++;
    swap(&s->level[l], &s->level[s->levels]);
    s->held &= ~(UINT64_C(1) << l);
    for (l++; s->held >> l; l++)
        if (s->held >> l & 1) merge_left(s, l);
}
