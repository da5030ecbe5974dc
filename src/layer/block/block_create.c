/* block_create.c - checks the options of a transformer block, creates its parts, and packs them again. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/block/block_convolution.h"
#include "layer/block/cross_block.h"
#include "layer/norm.h"
#include "layer/repack.h"
#include <math.h>
#include <string.h>

static const char *const norm_names[MHA__BLOCK_NORMS] = {"block: attn_norm", "block: mlp_norm", "block: attn_out_norm",
                                                         "block: mlp_out_norm", "block: cross_norm"};

static bool feeds(const mha_block_options *o)
{
    return o->intermediate || o->up.weight || o->down.weight || o->gate.weight;
}

/* Checks that options that require pre_norm are not set without it, and that residual_scale is finite. */
static mha_status check_pre_norm(const mha_block_options *o, mha_error *err)
{
    const char *name = o->attn_out_norm.weight    ? "attn_out_norm"
                       : o->mlp_out_norm.weight   ? "mlp_out_norm"
                       : o->parallel              ? "parallel"
                       : o->residual_scale != 0.0 ? "residual_scale"
                                                  : NULL;
    if (!o->pre_norm && name) return mha__fail(err, MHA_ERR_ARG, "block: pre_norm must be set if %s is set", name);
    if (isfinite(o->residual_scale) && isfinite((float)o->residual_scale)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "block: residual_scale must be finite (got %g)", o->residual_scale);
}

static mha_status check_options(const mha_block_options *o, mha_error *err)
{
    if (o->attn.hidden < 1 || o->attn.hidden > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "block: attn.hidden must be from 1 to 2^31-1 (got %lld)",
                         (long long)o->attn.hidden);
    const mha_norm *norms[MHA__BLOCK_NORMS] = {&o->attn_norm, &o->mlp_norm, &o->attn_out_norm, &o->mlp_out_norm,
                                               &o->cross_norm};
    for (int i = 0; i < MHA__BLOCK_NORMS; i++) {
        const bool needed = !o->pre_norm && (i == MHA__BLOCK_ATTN_NORM || (i == MHA__BLOCK_MLP_NORM && feeds(o)) ||
                                             (i == MHA__BLOCK_CROSS_NORM && o->cross));
        if (needed || norms[i]->weight) MHA__TRY(mha__norm_check(norm_names[i], norms[i], err));
    }
    MHA__TRY(mha__block_cross_check(o, err));
    return check_pre_norm(o, err);
}

void mha__block_keep_norms(mha_block *b, const mha_block_options *o)
{
    const mha_norm *from[MHA__BLOCK_NORMS] = {&o->attn_norm, &o->mlp_norm, &o->attn_out_norm, &o->mlp_out_norm,
                                              &o->cross_norm};
    const size_t bytes = (size_t)b->hidden * sizeof *b->norms;
    for (int i = 0; i < MHA__BLOCK_NORMS; i++) {
        float *copy = b->norms + 2 * i * b->hidden;
        b->norm[i] = *from[i];
        if (from[i]->weight) b->norm[i].weight = memcpy(copy, from[i]->weight, bytes);
        if (from[i]->weight && from[i]->bias) b->norm[i].bias = memcpy(copy + b->hidden, from[i]->bias, bytes);
    }
}

static mha__feed_options feed_of(const mha_block_options *o)
{
    return (mha__feed_options){
        .width = o->intermediate, .activation = o->activation, .gate = o->gate, .up = o->up, .down = o->down};
}

/* Checks the width and the matrices of the feed-forward part. */
static mha_status check_feed(const mha_block *b, const mha_block_options *o, mha_error *err)
{
    if (o->intermediate < 1 || o->intermediate > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "block: intermediate must be from 1 to 2^31-1 if up, down or gate is set (got %lld)",
                         (long long)o->intermediate);
    const char *name = !o->up.weight ? "up" : !o->down.weight && !b->down_sum ? "down" : NULL;
    if (!name) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "block: %s.weight must not be NULL with intermediate = %lld", name,
                     (long long)o->intermediate);
}

static mha_status create_parts(mha_block *b, const mha_block_options *o, const mha__experts_options *experts,
                               bool latent, mha_error *err)
{
    const mha__feed_options feed = feed_of(o);
    const unsigned without = (latent ? MHA__WITHOUT_QKV : 0) | (b->o_sum ? MHA__WITHOUT_OUTPUT : 0);
    if (feeds(o) || b->down_sum) MHA__TRY(check_feed(b, o, err));
    MHA__TRY(mha__attn_layer_create(b->ctx, &o->attn, without, &b->attn, err));
    if (o->cross) MHA__TRY(mha_attn_layer_create(b->ctx, o->cross, &b->cross, err));
    if (b->down_sum) return mha__feed_create_middle(b->ctx, b->hidden, &feed, &b->feed, err);
    if (feeds(o)) MHA__TRY(mha__feed_create(b->ctx, b->hidden, &feed, &b->feed, err));
    return experts ? mha__experts_create(b->ctx, b->hidden, experts, &b->experts, err) : MHA_OK;
}

/* Allocates a block and sets everything but its parts. */
static mha_status allocate(mha_ctx *ctx, const mha_block_options *o, mha_block **block, mha_error *err)
{
    MHA__TRY(check_options(o, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    const size_t bytes = sizeof(mha_block) + 2 * MHA__BLOCK_NORMS * (size_t)o->attn.hidden * sizeof(float);
    mha_block *b = mha__calloc(ctx, 1, bytes);
    if (!b) return mha__no_memory(err, bytes, "a block");
    b->ctx = ctx;
    b->hidden = o->attn.hidden;
    b->pre_norm = o->pre_norm != 0;
    b->parallel = o->parallel != 0;
    b->residual_scale = o->residual_scale != 0 ? (float)o->residual_scale : 1;
    mha__block_keep_norms(b, o);
    *block = b;
    return MHA_OK;
}

/* Creates the parts of an allocated block, which is freed after a failure. */
static mha_status complete(mha_block *b, const mha_block_options *o, const mha__experts_options *experts, bool latent,
                           mha_block **block, mha_error *err)
{
    const mha_status status = create_parts(b, o, experts, latent, err);
    if (status != MHA_OK)
        mha_block_free(b);
    else
        *block = b;
    return status;
}

mha_status mha__block_create_part(mha_ctx *ctx, const mha_block_options *options, mha__row_parallel *o,
                                  mha__row_parallel *down, mha_block **block, mha_error *err)
{
    mha_block *b = NULL;
    *block = NULL;
    const mha_status status = allocate(ctx, options, &b, err);
    if (status != MHA_OK) {
        mha__row_parallel_free(o);
        mha__row_parallel_free(down);
        return status;
    }
    b->o_sum = o;
    b->down_sum = down;
    return complete(b, options, NULL, false, block, err);
}

mha_status mha_block_create(mha_ctx *ctx, const mha_block_options *options, mha_block **block, mha_error *err)
{
    return mha__block_create(ctx, options, NULL, false, block, err);
}

mha_status mha__block_create(mha_ctx *ctx, const mha_block_options *options, const mha__experts_options *experts,
                             bool latent, mha_block **block, mha_error *err)
{
    if (!block) return mha__fail(err, MHA_ERR_ARG, "block: the output pointer must not be NULL");
    *block = NULL;
    mha_block_options o;
    mha_block *b = NULL;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_block_options", err));
    MHA__TRY(allocate(ctx, &o, &b, err));
    return complete(b, &o, experts, latent, block, err);
}

void mha_block_free(mha_block *block)
{
    if (!block) return;
    mha_attn_layer_free(block->attn);
    mha_attn_layer_free(block->cross);
    mha__feed_free(&block->feed);
    mha__experts_free(block->ctx, block->experts);
    mha__block_convolution_free(block->convolution);
    mha__row_parallel_free(block->o_sum);
    mha__row_parallel_free(block->down_sum);
    mha__free(block->ctx, block);
}

void mha__block_repack(mha_block *block, const mha_block_options *o, const mha__experts_options *experts)
{
    const mha__feed_options feed = feed_of(o);
    mha__attn_layer_repack(block->attn, &o->attn);
    if (o->cross) mha__attn_layer_repack(block->cross, o->cross);
    mha__feed_repack(&block->feed, block->hidden, &feed);
    if (experts) mha__experts_repack(block->experts, experts);
    mha__block_keep_norms(block, o);
}
