/* cross_block.c - the cross-attention of a transformer block. It runs after the output projection of the block's
 * attention, so both use the same workspace. */
#include "layer/block/cross_block.h"

#include "base/error.h"
#include "base/struct_size.h"

mha_status mha__block_cross_check(const mha_block_options *o, mha_error *err)
{
    mha_attn_layer_options cross;
    if (!o->cross) return MHA_OK;
    if (o->parallel) return mha__fail(err, MHA_ERR_ARG, "block: parallel must be 0 with cross (got %d)", o->parallel);
    MHA__TRY(mha__options_need(&cross, sizeof cross, o->cross, "mha_attn_layer_options", err));
    if (!cross.cross) return mha__fail(err, MHA_ERR_ARG, "block: the field cross of cross must be 1 (got 0)");
    if (cross.hidden == o->attn.hidden) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "block: cross.hidden must be attn.hidden = %lld (got %lld)",
                     (long long)o->attn.hidden, (long long)cross.hidden);
}

mha_layer_input mha__block_cross_input(const mha_layer_input *in)
{
    return (mha_layer_input){.size = sizeof(mha_layer_input),
                             .batch = in->batch,
                             .length = in->length,
                             .starts = in->starts,
                             .sequences = in->sequences,
                             .source = in->source,
                             .probs = in->source ? in->source->probs : NULL,
                             .map_heads = in->source ? in->source->map_heads : NULL,
                             .map_count = in->source ? in->source->map_count : 0,
                             .gates = in->source ? in->source->gates : (mha_cview){0},
                             .fills = in->source ? in->source->fills : NULL,
                             .activations = in->source ? in->source->activations : NULL,
                             .workspace = in->workspace,
                             .workspace_bytes = in->workspace_bytes};
}

mha_status mha__block_cross_bytes(const mha_block *block, const mha_layer_input *in, size_t *bytes, mha_error *err)
{
    size_t own = 0;
    if (!block->cross) return MHA_OK;
    const mha_layer_input inner = mha__block_cross_input(in);
    MHA__TRY(mha__cross_input(block->cross, &inner, false, err));
    MHA__TRY(mha__attn_layer_bytes(block->cross, &(mha__attn_call){.plan = in->source->plan, .in = &inner}, &own, err));
    if (own > *bytes) *bytes = own;
    return MHA_OK;
}

mha_status mha__block_cross_attend(const mha_block *block, const mha_layer_input *in, const float *x,
                                   mha__cross_call *c, mha_error *err)
{
    c->in = mha__block_cross_input(in);
    c->call = (mha__attn_call){.plan = in->source->plan, .in = &c->in};
    MHA__TRY(mha__cross_input(block->cross, &c->in, true, err));
    mha__attn_layer_place(block->cross, &c->call, &c->trace, &c->scratch);
    return mha__attn_attend(block->cross, &c->call, x, &c->trace, &c->scratch, err);
}

mha_status mha__block_cross_plan(const mha_block *block, mha_layer_input *in, mha_layer_source *source,
                                 mha_attn_plan **plan, mha_error *err)
{
    const mha_layer_input inner = mha__block_cross_input(in);
    *plan = NULL;
    if (!block->cross) return MHA_OK;
    MHA__TRY(mha__cross_input(block->cross, &inner, false, err));
    if (in->source->plan) return MHA_OK;
    MHA__TRY(mha__attn_plan(block->cross, &(mha__attn_call){.in = &inner}, plan, err));
    *source = *in->source;
    source->plan = *plan;
    in->source = source;
    return MHA_OK;
}
