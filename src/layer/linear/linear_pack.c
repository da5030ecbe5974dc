/* linear_pack.c - creates linear layers: checks the matrices of a stack, divides their columns into blocks and packs
 * the weights. Packing a layer again, after a training step, needs no memory and cannot fail. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/activation.h"
#include "layer/linear/packed_linear.h"
#include "layer/repack.h"
#include <string.h>

enum {
    BLOCK_WEIGHTS = 65536,     /* 256 KiB of f32: a quarter of the smallest supported level-2 cache */
    DIMENSION_MAX = INT32_MAX, /* limit of in, out and the number of parts: the product of any two fits in int64_t */
    PARTS_MAX = 64,            /* maximum number of matrices in mha_linear_create_stack */
};

/* Returns the functions for packed weights of type `dtype`; NULL for f32 and f64. */
static const mha__dense *dense_of(const mha__kernels *kernels, mha_dtype dtype)
{
    static const mha__half types[] = {[MHA_BF16] = MHA__BF16, [MHA_F16] = MHA__F16, [MHA_Q8_0] = MHA__Q8};
    return dtype == MHA_BF16 || dtype == MHA_F16 || dtype == MHA_Q8_0 ? kernels->dense[types[dtype]] : NULL;
}

/* Returns the number of columns per block: whole panels, at least one. */
static int64_t block_width(const mha__kernels *kernels, int64_t in)
{
    return mha__max64(1, BLOCK_WEIGHTS / in / kernels->nr) * kernels->nr;
}

static mha_status check_parts(int64_t in, const mha__matrix *parts, int64_t count, mha_error *err)
{
    if (in < 1 || in > DIMENSION_MAX)
        return mha__fail(err, MHA_ERR_ARG, "linear: in must be from 1 to 2^31-1 (got %lld)", (long long)in);
    for (int64_t p = 0; p < count; p++) {
        if (parts[p].out < 1 || parts[p].out > DIMENSION_MAX)
            return mha__fail(err, MHA_ERR_ARG, "linear: out must be from 1 to 2^31-1 (got %lld)",
                             (long long)parts[p].out);
        if (!parts[p].weight) return mha__fail(err, MHA_ERR_ARG, "linear: weight must not be NULL");
    }
    return MHA_OK;
}

/* Allocates the linear layer, its bias, its blocks and their panels from the arena, and initializes them once the arena
 * has memory. */
static mha_linear *lay_out(mha__arena *arena, const mha__kernels *kernels, const mha__dense *dense, int64_t in,
                           const mha__matrix *parts, int64_t count)
{
    const int64_t width = block_width(kernels, in);
    int64_t blocks = 0, out = 0;
    bool biased = false;
    for (int64_t p = 0; p < count; p++) {
        blocks += mha__ceil_div(parts[p].out, width);
        out += parts[p].out;
        biased |= parts[p].bias != NULL;
    }
    mha_linear *linear = mha__take(arena, 1, sizeof *linear);
    char *bias = biased ? mha__take(arena, (size_t)out, kernels->real_size) : NULL;
    mha__column_block *block = mha__take(arena, (size_t)blocks, sizeof *block);
    if (linear) *linear = (mha_linear){.in = in, .out = out, .blocks = blocks, .bias = bias, .block = block};
    for (int64_t p = 0, column = 0; p < count; column += parts[p++].out)
        for (int64_t row = 0; row < parts[p].out; row += width) {
            const int64_t columns = mha__min64(width, parts[p].out - row);
            char *panels = mha__take(arena, (size_t)mha__ceil_div(columns, kernels->nr),
                                     (size_t)mha__panel_bytes(kernels, dense, in));
            if (block)
                *block++ = (mha__column_block){
                    .column = column + row, .columns = columns, .part = p, .part_row = row, .panels = panels};
        }
    return linear;
}

typedef struct pack_job {
    const mha_linear *linear;
    const mha__matrix *parts;
} pack_job;

static void pack_bias(const mha_linear *linear, const mha__column_block *b, const mha__matrix *part)
{
    const size_t real = linear->kernels->real_size, bytes = (size_t)b->columns * real;
    char *bias = linear->bias + (size_t)b->column * real;
    if (part->bias)
        memcpy(bias, (const char *)part->bias + (size_t)b->part_row * real, bytes);
    else
        memset(bias, 0, bytes);
}

static void pack_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const pack_job *job = arg;
    const mha_linear *l = job->linear;
    const mha__column_block *b = &l->block[i];
    const mha__matrix *part = &job->parts[b->part];
    const int64_t row_stride = part->transposed ? 1 : l->in, col_stride = part->transposed ? part->out : 1;
    const void *weight = (const char *)part->weight + (size_t)(b->part_row * row_stride) * l->kernels->real_size;
    if (l->dense)
        l->dense->pack(b->columns, l->in, weight, row_stride, col_stride, b->panels);
    else if (part->transposed)
        l->kernels->pack_cols(l->in, b->columns, weight, col_stride, row_stride, b->panels);
    else
        l->kernels->pack_rows(b->columns, l->in, weight, row_stride, col_stride, b->panels);
    if (l->bias) pack_bias(l, b, part);
}

void mha__linear_pack(mha_linear *linear, const mha__matrix *parts)
{
    pack_job job = {linear, parts};
    mha__parallel(linear->ctx, linear->blocks, pack_task, &job);
}

mha_status mha__linear_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, const mha__matrix *parts, int64_t count,
                              mha_activation activation, mha_linear **linear, mha_error *err)
{
    mha__row_fn act = NULL;
    MHA__TRY(check_parts(in, parts, count, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    const mha__kernels *kernels = mha__kernels_of(ctx, dtype);
    const mha__dense *dense = dense_of(kernels, dtype);
    MHA__TRY(mha__activation_find(ctx, dense, activation, &act, err));
    mha__arena arena = {0};
    lay_out(&arena, kernels, dense, in, parts, count);
    arena.base = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.used, "the packed weights of a linear layer");
    arena.used = 0;
    mha_linear *l = lay_out(&arena, kernels, dense, in, parts, count);
    l->ctx = ctx;
    l->kernels = kernels;
    l->dense = dense;
    l->activation = act;
    l->product = !dense && parts->many_rows && mha__splits(kernels, in) ? kernels->product_split : kernels->product;
    mha__linear_pack(l, parts);
    *linear = l;
    return MHA_OK;
}

mha_status mha__linear_keep(mha_ctx *ctx, mha_dtype dtype, int64_t in, const mha__matrix *parts, int64_t count,
                            mha_linear **linear, mha_error *err)
{
    if (!*linear) return mha__linear_create(ctx, dtype, in, parts, count, MHA_ACT_NONE, linear, err);
    mha__linear_pack(*linear, parts);
    return MHA_OK;
}

static mha__matrix inner_of(const mha_matrix *m)
{
    return (mha__matrix){.weight = m->weight,
                         .bias = m->bias,
                         .transposed = m->transposed != 0,
                         .many_rows = m->many_rows != 0,
                         .out = m->out};
}

static mha_dtype packed_of(const mha_matrix *part)
{
    return part->packed == MHA_DTYPE_DEFAULT ? MHA_F32 : part->packed;
}

mha_status mha_linear_create_stack(mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count,
                                   mha_activation activation, mha_linear **linear, mha_error *err)
{
    if (!linear) return mha__fail(err, MHA_ERR_ARG, "linear: the output pointer must not be NULL");
    *linear = NULL;
    if (count < 1 || count > PARTS_MAX)
        return mha__fail(err, MHA_ERR_ARG, "linear: count must be from 1 to %d (got %lld)", PARTS_MAX,
                         (long long)count);
    if (!parts) return mha__fail(err, MHA_ERR_ARG, "linear: parts must not be NULL");
    mha__matrix inner[PARTS_MAX];
    const mha_dtype packed = packed_of(&parts[0]);
    if (packed != MHA_F32 && packed != MHA_BF16 && packed != MHA_F16 && packed != MHA_Q8_0)
        return mha__fail(err, MHA_ERR_ARG, "linear: packed must be one of f32, bf16, f16, q8_0 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, packed));
    for (int64_t p = 0; p < count; p++) {
        if (packed_of(&parts[p]) != packed)
            return mha__fail(err, MHA_ERR_ARG,
                             "linear: packed must be that of matrix 0, %s, in all matrices of a stack (got %s in "
                             "matrix %lld)",
                             mha_dtype_name(packed), mha__quote_dtype(&(mha__quoted){0}, packed_of(&parts[p])),
                             (long long)p);
        inner[p] = inner_of(&parts[p]);
    }
    return mha__linear_create(ctx, packed, in, inner, count, activation, linear, err);
}

mha_status mha__linear_create_named(const char *name, mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count,
                                    mha_activation activation, mha_linear **linear, mha_error *err)
{
    static const char start[] = "linear: ";
    const mha_status status = mha_linear_create_stack(ctx, in, parts, count, activation, linear, err);
    if (status == MHA_OK || !err || strncmp(err->message, start, sizeof start - 1) != 0) return status;
    const mha_error own = *err;
    return mha__fail(err, status, "%s: %s", name, own.message + sizeof start - 1);
}

mha_status mha_linear_create(mha_ctx *ctx, int64_t in, int64_t out, const float *weight, const float *bias,
                             mha_linear **linear, mha_error *err)
{
    const mha_matrix part = {.weight = weight, .bias = bias, .out = out};
    return mha_linear_create_stack(ctx, in, &part, 1, MHA_ACT_NONE, linear, err);
}

void mha__linear_repack(mha_linear *linear, const mha_matrix *parts, int64_t count)
{
    mha__matrix inner[3];
    for (int64_t p = 0; p < count; p++)
        inner[p] = inner_of(&parts[p]);
    mha__linear_pack(linear, inner);
}

const float *mha__linear_bias(const mha_linear *linear)
{
    return (const float *)(const void *)linear->bias;
}

void mha_linear_free(mha_linear *linear)
{
    if (linear) mha__free(linear->ctx, linear);
}
