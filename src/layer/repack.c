/* repack.c - packs new weights into existing linear layers, attention layers and blocks. */
#include "layer/repack.h"
#include "layer/block/transformer_block.h"
#include "layer/linear/linear.h"
#include "layer/selection/computed_heads.h"

void mha__linear_repack(mha_linear *linear, const mha_matrix *parts, int64_t count)
{
    mha__matrix inner[3];
    for (int64_t p = 0; p < count; p++)
        inner[p] = (mha__matrix){parts[p].weight, parts[p].bias, parts[p].transposed != 0, parts[p].out};
    mha__linear_pack(linear, inner);
}

void mha__attn_layer_repack(mha_attn_layer *layer, const mha_attn_layer_options *o)
{
    mha_matrix parts[] = {o->q, o->k, o->v}, one = o->qkv, out = o->o;
    parts[0].out = o->heads * o->head_dim;
    parts[1].out = layer->k_heads * o->head_dim;
    parts[2].out = layer->v_heads * o->head_dim;
    one.out = parts[0].out + parts[1].out + parts[2].out;
    out.out = o->hidden;
    if (layer->head_part)
        mha__heads_repack(layer, o);
    else
        mha__linear_repack(layer->qkv, one.weight ? &one : parts, one.weight ? 1 : 3);
    mha__linear_repack(layer->o, &out, 1);
    mha__attn_layer_keep_norms(layer, o);
    mha__attn_choice_keep(layer, o);
}

void mha__block_repack(mha_block *block, const mha_block_options *o)
{
    mha_matrix gate = o->gate, up = o->up, down = o->down;
    gate.out = up.out = o->intermediate;
    down.out = o->attn.hidden;
    mha__attn_layer_repack(block->attn, &o->attn);
    if (block->gate) mha__linear_repack(block->gate, &gate, 1);
    if (block->up) mha__linear_repack(block->up, &up, 1);
    if (block->down) mha__linear_repack(block->down, &down, 1);
    mha__block_keep_norms(block, o);
}
