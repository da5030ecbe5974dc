/* rotary.c - rotary embedding: arguments, positions, rotation of rows. */
#include "attn/plan/rotary.h"

#include "attn/plan/kv_fetch.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "math/types/e4m3.h"
#include "math/types/q4_0.h"
#include "math/types/q8_0.h"
#include <inttypes.h>
#include <string.h>

/* ---- checks ---- */

static mha_status check_table(const char *name, const void *data, int64_t elements, size_t size, mha_error *err)
{
    mha_cview view = {data, {0}};
    return mha__bind_input(name, &view, (const int64_t[4]){1, 1, 1, elements}, size, err);
}

mha_status mha__rope_resolve(const mha_attn_rope *from, int64_t width, size_t size, mha_attn_rope *rope, mha_error *err)
{
    MHA__TRY(mha__options_need(rope, sizeof *rope, from, "mha_attn_rope", err));
    if (rope->first < 0 || rope->first > width - 2)
        return mha__fail(err, MHA_ERR_ARG, "rope.first must be from 0 to head_dim - 2 = %" PRId64 " (got %" PRId64 ")",
                         width - 2, rope->first);
    if (rope->rotary_dim == 0) rope->rotary_dim = width - rope->first;
    if (rope->rotary_dim < 2 || rope->rotary_dim > width - rope->first || rope->rotary_dim % 2 != 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "rope.rotary_dim must be even and from 2 to head_dim - first = %" PRId64 " (got %" PRId64 ")",
                         width - rope->first, rope->rotary_dim);
    if (rope->interleaved != 0 && rope->interleaved != 1)
        return mha__fail_int(err, "rope.interleaved", rope->interleaved, "0 or 1");
    if (rope->positions < 0 || rope->positions > INT32_MAX)
        return mha__fail_int(err, "rope.positions", rope->positions, "from 0 to 2^31-1");
    const int64_t elements = rope->positions * (rope->rotary_dim / 2);
    MHA__TRY(check_table("rope.cos", rope->cos, elements, size, err));
    return check_table("rope.sin", rope->sin, elements, size, err);
}

static mha_status bind_positions(const mha__call *call, const char *name, int64_t longest, mha_cview *view,
                                 mha_error *err)
{
    const int64_t shape[4] = {call->plan->desc.batch, longest, 1, 1};
    return view->data ? mha__bind_input(name, view, shape, sizeof(int64_t), err) : MHA_OK;
}

mha_status mha__rope_position_error(const mha_attn_rope *rope, const char *name, bool given, const char *what,
                                    int64_t i, int64_t b, int64_t at, mha_error *err)
{
    if (given)
        return mha__fail(err, MHA_ERR_ARG,
                         "rope.%s: %s %" PRId64 " of sequence %" PRId64 " must have a position from 0 to %" PRId64
                         " (got %" PRId64 ")",
                         name, what, i, b, rope->positions - 1, at);
    if (at < 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "%s %" PRId64 " of sequence %" PRId64
                         " must have a position of at least 0 unless rope.%s is given (got %" PRId64 ")",
                         what, i, b, name, at);
    return mha__fail(err, MHA_ERR_ARG,
                     "rope.positions must be above the position %" PRId64 " of %s %" PRId64 " of sequence %" PRId64
                     " (got %" PRId64 ")",
                     at, what, i, b, rope->positions);
}

/* Checks the positions of `count` rows or keys (`what`) of sequence b. Default positions ascend, so that the first and
 * the last one limit them. */
static mha_status check_positions(const mha__call *call, int64_t b, int64_t count, const char *what, const char *name,
                                  bool given, int64_t (*position)(const mha__call *call, int64_t b, int64_t i),
                                  mha_error *err)
{
    for (int64_t i = 0; i < count; i += given ? 1 : mha__max64(1, count - 1)) {
        const int64_t at = position(call, b, i);
        if (at < 0 || at >= call->rope.positions)
            return mha__rope_position_error(&call->rope, name, given, what, i, b, at, err);
    }
    return MHA_OK;
}

mha_status mha__rope_bind(mha__call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    mha_attn_rope *rope = &call->rope;
    if (!(d->inputs & (MHA_ATTN_ROPE_Q | MHA_ATTN_ROPE_K))) return MHA_OK;
    MHA__TRY(mha__rope_resolve(call->args.rope, d->head_dim, plan->kernels->real_size, rope, err));
    MHA__TRY(bind_positions(call, "rope.q_positions", d->max_q_len, &rope->q_positions, err));
    MHA__TRY(bind_positions(call, "rope.k_positions", d->max_kv_len, &rope->k_positions, err));
    call->args.rope = rope;
    return MHA_OK;
}

mha_status mha__rope_check(const mha__call *call, mha_error *err)
{
    const mha_attn_plan *plan = call->plan;
    const mha_attn_desc *d = &plan->desc;
    const mha_attn_rope *rope = &call->rope;
    if (!(d->inputs & (MHA_ATTN_ROPE_Q | MHA_ATTN_ROPE_K))) return MHA_OK;
    const bool alone = !plan->packed && !call->args.q_lens && !call->args.kv_lens && !call->args.offsets;
    const bool same = alone && !rope->q_positions.data && !rope->k_positions.data; /* one sequence represents all */
    for (int64_t b = 0; b < (same ? 1 : d->batch); b++) {
        if (d->inputs & MHA_ATTN_ROPE_Q)
            MHA__TRY(check_positions(call, b, mha__mask_queries(call, b), "row", "q_positions", rope->q_positions.data,
                                     mha__rope_of_row, err));
        if (d->inputs & MHA_ATTN_ROPE_K)
            MHA__TRY(check_positions(call, b, mha__mask_keys(call, b), "key", "k_positions", rope->k_positions.data,
                                     mha__rope_of_key, err));
    }
    return MHA_OK;
}

/* ---- positions ---- */

static int64_t at(const mha_cview *positions, int64_t b, int64_t i)
{
    return *(const int64_t *)mha__at(positions, sizeof(int64_t), b, i, 0, 0);
}

int64_t mha__rope_of_row(const mha__call *call, int64_t b, int64_t i)
{
    if (call->rope.q_positions.data) return at(&call->rope.q_positions, b, i);
    return i + mha__offset_of(call, b) + call->plan->desc.shard.key;
}

int64_t mha__rope_of_key(const mha__call *call, int64_t b, int64_t j)
{
    return call->rope.k_positions.data ? at(&call->rope.k_positions, b, j) : j + call->plan->desc.shard.key;
}

/* ---- rotation ---- */

/* The two layouts of pairs have separate loops, so that compilers vectorize each of them. */
#define ROTATE(name, real)                                                                              \
    static void name##_halves(int64_t pairs, const real *c, const real *s, real sign, real *restrict x, \
                              real *restrict y)                                                         \
    {                                                                                                   \
        for (int64_t i = 0; i < pairs; i++) {                                                           \
            const real a = x[i], b = y[i], sine = sign * s[i];                                          \
            x[i] = a * c[i] - b * sine;                                                                 \
            y[i] = b * c[i] + a * sine;                                                                 \
        }                                                                                               \
    }                                                                                                   \
    void name(int64_t pairs, bool interleaved, const real *c, const real *s, bool back, real *x)        \
    {                                                                                                   \
        const real sign = back ? -1 : 1;                                                                \
        if (!interleaved) name##_halves(pairs, c, s, sign, x, x + pairs);                               \
        for (int64_t i = 0; i < pairs && interleaved; i++) {                                            \
            const real a = x[2 * i], b = x[2 * i + 1], sine = sign * s[i];                              \
            x[2 * i] = a * c[i] - b * sine;                                                             \
            x[2 * i + 1] = b * c[i] + a * sine;                                                         \
        }                                                                                               \
    }

ROTATE(mha__rotate_f32, float)
ROTATE(mha__rotate_f64, double)

void mha__rope_turn_row(const mha_attn_rope *rope, int64_t position, bool back, size_t size, void *x)
{
    const int64_t pairs = rope->rotary_dim / 2, from = position * pairs;
    if (size == sizeof(double))
        mha__rotate_f64(pairs, rope->interleaved, (const double *)rope->cos + from, (const double *)rope->sin + from,
                        back, (double *)x + rope->first);
    else
        mha__rotate_f32(pairs, rope->interleaved, (const float *)rope->cos + from, (const float *)rope->sin + from,
                        back, (float *)x + rope->first);
}

/* Rounds a rotated row to its stored type. */
static void round_row(const mha__stored *as, int64_t width, const float *wide, void *to)
{
    if (as->narrow)
        as->narrow(1, width, wide, width, to, width, 1);
    else if (as->dtype == MHA_Q8_0)
        mha__q8_round(wide, 1, width, to);
    else if (as->dtype == MHA_Q4_0)
        mha__q4_round_rotated(wide, 1, width, to);
    else
        mha__e4m3_round(wide, 1, width, to);
}

void mha__rope_copy_row(const mha__call *call, const mha__stored *as, int64_t width, int64_t position, const void *from,
                        int64_t col, void *to)
{
    float wide[MHA_HEAD_DIM_MAX];
    if (!as->widen) {
        if (from != to) mha__copy_row(width, as->size, from, col, to);
        mha__rope_turn_row(&call->rope, position, false, as->size, to);
        return;
    }
    as->widen(1, width, from, width, col, wide, width);
    if (as->dtype == MHA_Q4_0) mha__rotate_rows(1, width, wide, width); /* restores the row before it was rounded */
    mha__rope_turn_row(&call->rope, position, false, sizeof *wide, wide);
    round_row(as, width, wide, to);
}

void mha__copy_queries(const mha__call *call, int64_t b, int64_t h, int64_t first, int64_t rows, void *to)
{
    const mha_attn_plan *plan = call->plan;
    const mha_cview *q = &call->args.q;
    const int64_t d = plan->desc.head_dim, size = (int64_t)plan->q.size, queries = mha__mask_queries(call, b);
    const bool turns = plan->desc.inputs & MHA_ATTN_ROPE_Q;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t i = mha__query_of(plan, first + r), head = plan->folded ? (first + r) / plan->desc.q_len : 0;
        const char *from = mha__at(q, plan->q.size, b, h, plan->folded && plan->desc.q_len == 1 ? 0 : i, 0);
        char *row = (char *)to + r * d * size;
        from += head * mha__folded_stride(plan, q->stride) * size;
        if (turns && i < queries)
            mha__rope_copy_row(call, &plan->q, d, mha__rope_of_row(call, b, i), from, q->stride[3], row);
        else
            mha__copy_row(d, plan->q.size, from, q->stride[3], row);
    }
}
