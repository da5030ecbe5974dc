/* scratch.c - the layout of scratch memory. The same function counts the bytes and assigns the addresses, so that the
 * two always agree. The checks of params.c and the constants of plan.h limit the sizes, so that no sum overflows. */
#include "attn/plan/scratch.h"

#include "attn/plan/kv_fetch.h"
#include "base/size.h"
#include "math/types/element.h"

enum { WIDE_ROWS = (int)MHA__TILE_Q > (int)MHA__KEY_BLOCK ? (int)MHA__TILE_Q : (int)MHA__KEY_BLOCK };

static void lay_out_stats(const mha_attn_plan *plan, mha__arena *arena, mha__scratch *scratch)
{
    const bool stats = plan->desc.outputs & MHA_ATTN_STATS, shown = plan->desc.outputs & MHA_ATTN_ROWS;
    const bool wanted = stats || shown;
    const size_t size = plan->kernels->real_size;
    const int64_t lanes = wanted ? plan->kernels->nr : 0, rows = wanted ? MHA__TILE_Q : 0;
    mha__row_stat_sums *m = &scratch->moments;
    void **pieces[] = {&m->total, &m->depth, &m->reach, &m->peak, &m->where};
    for (size_t n = 0; n < sizeof pieces / sizeof *pieces; n++)
        *pieces[n] = mha__take(arena, lanes, size);
    scratch->row_sums = mha__take(arena, rows, sizeof *scratch->row_sums);
    scratch->top_keys = mha__take(arena, rows * plan->desc.top_keys, sizeof *scratch->top_keys);
    scratch->received = mha__take(arena, stats ? mha__received_keys(plan) : 0, sizeof *scratch->received);
    scratch->kept = mha__take(arena, mha__kept_keys(plan) * MHA__TILE_Q, size);
    scratch->shown = mha__take(arena, shown ? plan->desc.max_kv_len : 0, (size_t)plan->kernels->nr * size);
}

size_t mha__scratch_lay_out(const mha_attn_plan *plan, char *base, mha__scratch *scratch)
{
    const mha_attn_desc *d = &plan->desc;
    const size_t size = plan->kernels->real_size;
    const int64_t nr = plan->kernels->nr, panel = MHA__KEY_BLOCK * nr;
    const int64_t gathered = mha__pages_gathered(&plan->desc) ? MHA__KEY_BLOCK : 0;
    mha__arena arena = {.base = base};
    /* With bf16 pairs, head_dim is padded to a multiple of the step, so if head_dim is small, the packed queries can
     * take more bytes than in f32. */
    const int64_t depth = plan->pairs ? mha__round_up(d->head_dim, plan->pairs->step) : d->head_dim;
    scratch->q = mha__take(&arena, depth * MHA__TILE_Q, size);
    const bool turns = d->inputs & MHA_ATTN_ROPE_Q, copies = turns || (plan->folded && d->q_len > 1);
    const int64_t copied = copies ? mha__min64(plan->rows, MHA__TILE_Q) * d->head_dim : 0;
    scratch->folded = mha__take(&arena, copied, plan->q.size);
    if (!copies) scratch->folded = NULL;
    scratch->extra = mha__take(&arena, panel, size);
    const bool widens = plan->q.widen || plan->kv.widen || plan->wide;
    const int64_t widest = mha__padded(plan->kernels, mha__max64(depth, d->v_head_dim));
    const int64_t panels = plan->wide ? MHA__TILE_Q / nr : 1;
    scratch->wide = mha__take(&arena, widens ? WIDE_ROWS * widest : 0, size);
    scratch->s = mha__take(&arena, panels * panel, size);
    scratch->bias = mha__take(&arena, plan->bias.widen ? panel : 0, size);
    scratch->strip = mha__take(&arena, plan->kernels->decode_lanes * MHA__STRIP, size);
    scratch->mask = mha__take(&arena, panel, size);
    scratch->v =
        mha__take(&arena, MHA__KEY_BLOCK * mha__max64(plan->o_stride, plan->wide ? MHA__COLUMNS + nr : 0), size);
    scratch->gathered_k = mha__take(&arena, gathered * mha__element_count(plan->kv.dtype, d->head_dim), plan->kv.size);
    scratch->gathered_v =
        mha__take(&arena, gathered * mha__element_count(plan->kv.dtype, d->v_head_dim), plan->kv.size);
    scratch->bytes = mha__take(&arena, panel, 1);
    scratch->top = mha__take(&arena, nr, size);
    scratch->alpha = mha__take(&arena, panels * nr, size);
    scratch->inverse = mha__take(&arena, MHA__TILE_Q, size);
    scratch->gated = mha__take(&arena, MHA__TILE_Q, size);
    scratch->lo = mha__take(&arena, MHA__TILE_Q, sizeof(int64_t));
    scratch->hi = mha__take(&arena, MHA__TILE_Q, sizeof(int64_t));
    scratch->prefix = mha__take(&arena, MHA__TILE_Q, sizeof(int64_t));
    lay_out_stats(plan, &arena, scratch);
    for (int i = 0; i <= plan->levels; i++) {
        scratch->partial[i].max = mha__take(&arena, MHA__TILE_Q, size);
        scratch->partial[i].sum = mha__take(&arena, MHA__TILE_Q, size);
        scratch->partial[i].o = mha__take(&arena, MHA__TILE_Q * plan->o_stride, size);
    }
    return arena.used;
}

size_t mha__part_lay_out(const mha_attn_plan *plan, char *base, mha__partial *part)
{
    const size_t size = plan->kernels->real_size;
    const int64_t rows = mha__min64(plan->rows, MHA__TILE_Q), lanes = mha__round_up(rows, plan->kernels->nr);
    mha__arena arena = {.base = base};
    part->max = mha__take(&arena, lanes, size);
    part->sum = mha__take(&arena, lanes, size);
    part->o = mha__take(&arena, rows * plan->o_stride, size);
    return arena.used;
}
