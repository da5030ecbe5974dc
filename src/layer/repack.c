/* repack.c - packs new weights into linear layers and blocks; attention_create.c does so for attention layers. */
#include "layer/repack.h"
#include "layer/block/transformer_block.h"
#include "layer/linear/linear.h"

void mha__linear_repack(mha_linear *linear, const mha_matrix *parts, int64_t count)
{
    mha__matrix inner[3];
    for (int64_t p = 0; p < count; p++)
        inner[p] = (mha__matrix){parts[p].weight, parts[p].bias, parts[p].transposed != 0, parts[p].out};
    mha__linear_pack(linear, inner);
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
