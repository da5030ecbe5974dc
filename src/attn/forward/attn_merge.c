/* attn_merge.c - mha_attn_merge: merges the results of calls over disjoint keys into the result over all keys.
 *
 * A result (out, lse) equals a partial result of chunk_merge.h with maximum lse and sum 1, so the same kernel merges
 * it. The kernel scales both results to the larger maximum, and an empty result has no effect. A few rows at a time are
 * merged on the stack, with the parts in the given order. */
#include "attn/forward/merge_sizes.h"
#include "attn/plan/operand_table.h"
#include "attn/plan/params.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <inttypes.h>
#include <math.h>

/* Maximum number of elements of o, the unnormalized output, in a partial result on the stack. */
enum { ELEMENTS = MHA__MERGE_ROWS * 512 };

/* A partial result of up to MHA__MERGE_ROWS rows, or fewer if rows are wide; aligned for f32 and f64. */
typedef struct few_rows {
    double max[MHA__MERGE_VECTOR], sum[MHA__MERGE_VECTOR], o[ELEMENTS];
} few_rows;

typedef struct merging {
    const mha_attn_merge_args *args;
    const mha__kernels *k;
    int64_t o_stride;
    mha_view out, lse; /* views of the results, with all strides set */
} merging;

/* Loads rows [first, first + rows) of a part. A row that attends to no key is not read. */
static void take(const merging *m, const mha_attn_part *part, int64_t b, int64_t h, int64_t first, int64_t rows,
                 const mha__partial *to)
{
    const size_t size = m->k->real_size;
    const int64_t Dv = m->args->v_head_dim;
    m->k->clear(rows, m->o_stride, to);
    for (int64_t r = 0; r < rows; r++) {
        const double lse = mha__real_at(mha__at(&part->lse, size, b, h, first + r, 0), 0, size);
        if (lse == -INFINITY) continue;
        mha__put_real(to->max, r, size, lse);
        mha__put_real(to->sum, r, size, isnan(lse) ? lse : 1);
        for (int64_t d = 0; d < Dv; d++)
            mha__put_real(to->o, r * m->o_stride + d, size,
                          mha__real_at(mha__at(&part->out, size, b, h, first + r, d), 0, size));
    }
}

/* Stores part n, with all strides set, in *part. */
static mha_status part_of(const merging *m, int64_t n, mha_attn_part *part, mha_error *err)
{
    const mha_attn_merge_args *a = m->args;
    const int64_t out[4] = {a->batch, a->heads, a->q_len, a->v_head_dim}, lse[4] = {a->batch, a->heads, a->q_len, 1};
    *part = a->parts[n];
    MHA__TRY(mha__bind_input("out", &part->out, out, m->k->real_size, err));
    return mha__bind_input("lse", &part->lse, lse, m->k->real_size, err);
}

static void merge_rows(const merging *m, int64_t b, int64_t h, int64_t first, int64_t rows)
{
    few_rows memory[2];
    double inverse[MHA__MERGE_VECTOR];
    const size_t size = m->k->real_size;
    const mha__partial from = {memory[0].max, memory[0].sum, memory[0].o};
    const mha__partial into = {memory[1].max, memory[1].sum, memory[1].o};
    const int64_t Dv = m->args->v_head_dim;
    m->k->clear(rows, m->o_stride, &into);
    for (int64_t n = 0; n < m->args->count; n++) {
        mha_attn_part part;
        part_of(m, n, &part, NULL); /* cannot fail: `bind` has checked every part */
        take(m, &part, b, h, first, rows, &from);
        m->k->merge(rows, Dv, m->o_stride, &from, &into);
    }
    void *lse = m->lse.data ? mha__at_out(&m->lse, size, b, h, first, 0) : NULL;
    m->k->totals(rows, into.max, into.sum, inverse, lse, m->lse.stride[2]);
    m->k->output(rows, Dv, into.o, m->o_stride, inverse, mha__at_out(&m->out, size, b, h, first, 0), m->out.stride[2],
                 m->out.stride[3]);
}

static mha_status check(const mha_attn_merge_args *a, mha_error *err)
{
    const mha__merge_sizes sizes = {a->batch, a->heads, a->q_len, a->v_head_dim, a->count, 0, a->v_head_dim, a->parts};
    MHA__TRY(mha__merge_check_sizes(&sizes, err));
    if (a->dtype == MHA_DTYPE_DEFAULT || a->dtype == MHA_F32 || a->dtype == MHA_F64)
        return mha__attn_check_kernels(a->dtype, err);
    return mha__fail(err, MHA_ERR_ARG, "dtype must be one of f32, f64 (got %s)",
                     mha__quote_dtype(&(mha__quoted){0}, a->dtype));
}

/* Checks that a result does not overlap part `where`, unless it is exactly the same view. */
static mha_status check_apart(const merging *m, const mha__operand result[2], int64_t where, const mha_attn_part *part,
                              mha_error *err)
{
    const size_t size = m->k->real_size;
    mha__operand of_part[2] = {result[0], result[1]};
    of_part[0].view = part->out;
    of_part[1].view = part->lse;
    for (int x = 0; x < 2 && result[x].view.data; x++)
        for (int y = 0; y < 2; y++) {
            if (x == y && mha__operand_same(&result[x], &of_part[y])) continue;
            if (mha__operand_overlaps(&result[x], size, &of_part[y], size))
                return mha__fail(err, MHA_ERR_ARG,
                                 "%s must not overlap parts[%" PRId64 "].%s, unless it is exactly the %s of a part",
                                 result[x].name, where, result[y].name, result[x].name);
        }
    return MHA_OK;
}

static mha_status bind(merging *m, mha_error *err)
{
    const mha_attn_merge_args *a = m->args;
    const size_t size = m->k->real_size;
    const int64_t out[4] = {a->batch, a->heads, a->q_len, a->v_head_dim}, lse[4] = {a->batch, a->heads, a->q_len, 1};
    mha_attn_part part;
    mha_error why;
    MHA__TRY(mha__bind_output("out", &m->out, out, 4, size, err));
    if (m->lse.data) MHA__TRY(mha__bind_output("lse", &m->lse, lse, 3, size, err));
    const mha__operand result[2] = {mha__operand_of("out", &m->out, out), mha__operand_of("lse", &m->lse, lse)};
    if (m->lse.data && mha__operand_overlaps(&result[0], size, &result[1], size))
        return mha__fail(err, MHA_ERR_ARG, "lse must not overlap out");
    for (int64_t n = 0; n < a->count; n++) {
        if (part_of(m, n, &part, &why) != MHA_OK)
            return mha__fail(err, why.status, "parts[%" PRId64 "].%s", n, why.message);
        MHA__TRY(check_apart(m, result, n, &part, err));
    }
    return MHA_OK;
}

mha_status mha_attn_merge(mha_ctx *ctx, const mha_attn_merge_args *args, mha_error *err)
{
    mha_attn_merge_args own;
    MHA__TRY(mha__options_need(&own, sizeof own, args, "mha_attn_merge_args", err));
    args = &own;
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(check(args, err));
    merging m = {.args = args, .out = args->out, .lse = args->lse};
    m.k = mha__kernels_of(ctx, args->dtype);
    m.o_stride = mha__round_up(args->v_head_dim, m.k->nr);
    MHA__TRY(bind(&m, err));
    const int64_t rows = mha__min64(MHA__MERGE_ROWS, ELEMENTS / m.o_stride);
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t h = 0; h < args->heads; h++)
            for (int64_t first = 0; first < args->q_len; first += rows)
                merge_rows(&m, b, h, first, mha__min64(rows, args->q_len - first));
    return MHA_OK;
}
