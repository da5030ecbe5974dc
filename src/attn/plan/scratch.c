/* scratch.c - one function lays the scratch memory out and counts it, so that the two cannot differ. */
#include "attn/plan/scratch.h"

#include "attn/plan/kv_fetch.h"
#include "base/size.h"
#include "math/q8_0.h"

enum { LINE = 64, WIDE_ROWS = (int)MHA__TILE_Q > (int)MHA__KEY_BLOCK ? (int)MHA__TILE_Q : (int)MHA__KEY_BLOCK };

/* Takes `count` elements of `size` bytes. Sizes are bounded by MHA_HEAD_DIM_MAX and the constants of plan.h. */
static void *take(char *base, size_t *used, int64_t count, size_t size)
{
    void *piece = base ? base + *used : NULL;
    *used += (size_t)mha__round_up(count * (int64_t)size, LINE);
    return piece;
}

static void carve_stats(const mha_attn_plan *plan, char *base, size_t *used, mha__scratch *scratch)
{
    const bool stats = plan->desc.outputs & MHA_ATTN_STATS, shown = plan->desc.outputs & MHA_ATTN_ROWS;
    const bool wanted = stats || shown;
    const size_t size = plan->kernels->real_size;
    const int64_t lanes = wanted ? plan->kernels->nr : 0, rows = wanted ? MHA__TILE_Q : 0;
    mha__moments *m = &scratch->moments;
    void **pieces[] = {&m->total, &m->depth, &m->reach, &m->peak, &m->where};
    for (size_t n = 0; n < sizeof pieces / sizeof *pieces; n++)
        *pieces[n] = take(base, used, lanes, size);
    scratch->row_sums = take(base, used, rows, sizeof *scratch->row_sums);
    scratch->top_keys = take(base, used, rows * plan->desc.top_keys, sizeof *scratch->top_keys);
    scratch->received = take(base, used, stats ? mha__received_keys(plan) : 0, sizeof *scratch->received);
    scratch->shown = take(base, used, shown ? plan->desc.max_kv_len * plan->kernels->nr : 0, size);
}

size_t mha__scratch_carve(const mha_attn_plan *plan, char *base, mha__scratch *scratch)
{
    const mha_attn_desc *d = &plan->desc;
    const size_t size = plan->kernels->real_size;
    const int64_t nr = plan->kernels->nr, panel = MHA__KEY_BLOCK * nr;
    const int64_t gathered = mha__pages_gathered(&plan->desc) ? MHA__KEY_BLOCK : 0;
    size_t used = 0;
    /* Pairs of bf16 fill head_dim up to whole steps, so that a short one needs more bytes than reals do. */
    const int64_t depth = plan->pairs ? mha__round_up(d->head_dim, plan->pairs->step) : d->head_dim;
    scratch->q = take(base, &used, depth * MHA__TILE_Q, size);
    scratch->folded = take(base, &used, plan->folded && d->q_len > 1 ? plan->rows * d->head_dim : 0, plan->q.size);
    scratch->s = take(base, &used, panel, size);
    scratch->extra = take(base, &used, panel, size);
    const bool widens = plan->q.widen || plan->kv.widen;
    scratch->wide = take(base, &used, widens ? WIDE_ROWS * mha__max64(depth, d->v_head_dim) : 0, size);
    scratch->bias = take(base, &used, plan->bias.widen ? panel : 0, size);
    scratch->strip = take(base, &used, plan->kernels->few * MHA__STRIP, size);
    scratch->mask = take(base, &used, panel, size);
    scratch->v = take(base, &used, MHA__KEY_BLOCK * plan->o_stride, size);
    scratch->gathered_k = take(base, &used, gathered * mha__element_count(plan->kv.dtype, d->head_dim), plan->kv.size);
    scratch->gathered_v =
        take(base, &used, gathered * mha__element_count(plan->kv.dtype, d->v_head_dim), plan->kv.size);
    scratch->bytes = take(base, &used, panel, 1);
    scratch->top = take(base, &used, nr, size);
    scratch->alpha = take(base, &used, nr, size);
    scratch->inverse = take(base, &used, MHA__TILE_Q, size);
    scratch->gated = take(base, &used, MHA__TILE_Q, size);
    scratch->lo = take(base, &used, MHA__TILE_Q, sizeof(int64_t));
    scratch->hi = take(base, &used, MHA__TILE_Q, sizeof(int64_t));
    scratch->prefix = take(base, &used, MHA__TILE_Q, sizeof(int64_t));
    carve_stats(plan, base, &used, scratch);
    for (int i = 0; i <= plan->levels; i++) {
        scratch->partial[i].max = take(base, &used, MHA__TILE_Q, size);
        scratch->partial[i].sum = take(base, &used, MHA__TILE_Q, size);
        scratch->partial[i].o = take(base, &used, MHA__TILE_Q * plan->o_stride, size);
    }
    return used;
}

size_t mha__part_carve(const mha_attn_plan *plan, char *base, mha__partial *part)
{
    const size_t size = plan->kernels->real_size;
    const int64_t rows = mha__min64(plan->rows, MHA__TILE_Q), lanes = mha__round_up(rows, plan->kernels->nr);
    size_t used = 0;
    part->max = take(base, &used, lanes, size);
    part->sum = take(base, &used, lanes, size);
    part->o = take(base, &used, rows * plan->o_stride, size);
    return used;
}
