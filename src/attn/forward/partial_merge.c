/* partial_merge.c - mha_attn_merge_partials: merges the partial results of adjacent shards of keys. The output is
 * bitwise identical to one call over all keys.
 *
 * A call stores each row as (max, sum, o) and merges chunks in the tree of chunk_merge.h. A shard that is a subtree has
 * already performed the merges within this subtree, in the same order. Pushing its result at the level of the subtree
 * continues the same tree. Merging normalized outputs (attn_merge.c) would round once more per shard.
 */
#include "attn/forward/chunk_merge.h"
#include "attn/forward/merge_sizes.h"
#include "attn/plan/params.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <inttypes.h>
#include <string.h>

typedef struct joining {
    mha_attn_merge_partials_args a; /* the caller's arguments, with all strides set */
    const mha__kernels *k;
    mha__stored as; /* the storage type of out */
    mha__merge_stack stack;
    mha__partial level[MHA__LEVELS + 2];
    void *inverse, *wide;
} joining;

int64_t mha_attn_subtree(int64_t key, int64_t end)
{
    if (key < 0 || key % MHA_ATTN_CHUNK || end <= key) return 0;
    int64_t keys = mha__min64(MHA_ATTN_CHUNK, end - key);
    while (keys >= MHA_ATTN_CHUNK && keys <= (end - key) / 2 && key % (2 * keys) == 0)
        keys *= 2;
    return keys;
}

/* ---- checks ---- */

static mha_status check_sizes(const mha_attn_merge_partials_args *a, mha_error *err)
{
    const mha__merge_sizes sizes = {a->batch, a->heads, a->q_len,          a->v_head_dim,
                                    a->count, 1,        a->v_head_dim + 2, a->parts};
    MHA__TRY(mha__merge_check_sizes(&sizes, err));
    MHA__TRY(mha__attn_check_dtype("dtype", a->dtype, false, err));
    return mha__attn_check_kernels(a->dtype, err);
}

/* Checks the parts. Each part must be one subtree and begin at the end of the previous part. Only the last part may
 * be short: a part after a short one would be merged at the wrong position in the tree. */
static mha_status check_tree(const mha_attn_merge_partials_args *a, mha_error *err)
{
    for (int64_t n = 0; n < a->count; n++) {
        const mha_attn_partial *p = &a->parts[n];
        const bool valid =
            p->key >= 0 && p->key <= MHA__POSITION_MAX && p->kv_len >= 1 && p->kv_len <= MHA__POSITION_MAX;
        const int level = valid ? mha__chunk_level(p->key, p->kv_len) : -1;
        const bool whole = level >= 0 && p->kv_len == (int64_t)MHA_ATTN_CHUNK << level;
        if (level < 0 || (!whole && n < a->count - 1))
            return mha__fail(err, MHA_ERR_ARG,
                             "parts[%" PRId64 "] must be one %ssubtree of %d-key chunks (got %" PRId64
                             " keys from key %" PRId64 "); see mha_attn_subtree",
                             n, n < a->count - 1 ? "whole " : "", MHA_ATTN_CHUNK, p->kv_len, p->key);
        if (n > 0 && p->key != p[-1].key + p[-1].kv_len)
            return mha__fail(err, MHA_ERR_ARG,
                             "parts[%" PRId64 "].key must be the end of the previous part, %" PRId64 " (got %" PRId64
                             ")",
                             n, p[-1].key + p[-1].kv_len, p->key);
    }
    return MHA_OK;
}

/* Stores the rows of part n, with all strides set, in *rows. */
static mha_status bind_part(const joining *j, int64_t n, mha_cview *rows, mha_error *err)
{
    const mha_attn_merge_partials_args *a = &j->a;
    const int64_t shape[4] = {a->batch, a->heads, a->q_len, 2 + a->v_head_dim};
    *rows = a->parts[n].rows;
    return mha__bind_input("rows", rows, shape, j->k->real_size, err);
}

static mha_status check_apart(const joining *j, const mha__operand *result, size_t size, mha_error *err)
{
    mha_error why;
    for (int64_t n = 0; n < j->a.count; n++) {
        mha__operand part = {"rows", {0}, {j->a.batch, j->a.heads, j->a.q_len, 2 + j->a.v_head_dim}, false};
        if (bind_part(j, n, &part.view, &why) != MHA_OK)
            return mha__fail(err, why.status, "parts[%" PRId64 "].%s", n, why.message);
        if (mha__operand_overlaps(result, size, &part, j->k->real_size))
            return mha__fail(err, MHA_ERR_ARG, "%s must not overlap parts[%" PRId64 "].rows", result->name, n);
    }
    return MHA_OK;
}

static mha_status bind_per_head(const joining *j, const char *name, mha_cview *view, mha_error *err)
{
    mha__operand o = {name, *view, {j->a.batch, j->a.heads, 1, 1}, true};
    if (!view->data) return MHA_OK;
    MHA__TRY(mha__operand_bind(&o, err));
    MHA__TRY(mha__operand_check_addresses(&o, j->k->real_size, err));
    *view = o.view;
    return MHA_OK;
}

/* Checks out and lse and sets their strides. */
static mha_status bind_results(joining *j, mha_error *err)
{
    mha_attn_merge_partials_args *a = &j->a;
    const int64_t out[4] = {a->batch, a->heads, a->q_len, a->v_head_dim}, lse[4] = {a->batch, a->heads, a->q_len, 1};
    const size_t size = j->k->real_size;
    MHA__TRY(mha__bind_output("out", &a->out, out, 4, j->as.size, err));
    const mha__operand outputs = mha__operand_of("out", &a->out, out);
    MHA__TRY(check_apart(j, &outputs, j->as.size, err));
    MHA__TRY(bind_per_head(j, "sinks", &a->sinks, err));
    MHA__TRY(bind_per_head(j, "gates", &a->gates, err));
    if (!a->lse.data) return MHA_OK;
    MHA__TRY(mha__bind_output("lse", &a->lse, lse, 3, size, err));
    const mha__operand sums = mha__operand_of("lse", &a->lse, lse);
    if (mha__operand_overlaps(&outputs, j->as.size, &sums, size))
        return mha__fail(err, MHA_ERR_ARG, "lse must not overlap out");
    return check_apart(j, &sums, size, err);
}

static bool same_view(const mha_view *a, const mha_cview *b)
{
    return a->data == b->data && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* Checks `partial` and sets its strides. `partial` is written row by row after the parts have been read, so it may be
 * exactly the rows of one part. Other overlaps are errors. */
static mha_status bind_partial(joining *j, mha_error *err)
{
    mha_attn_merge_partials_args *a = &j->a;
    const int64_t shape[4] = {a->batch, a->heads, a->q_len, 2 + a->v_head_dim};
    const int64_t key = a->parts[0].key, end = a->parts[a->count - 1].key + a->parts[a->count - 1].kv_len;
    const size_t size = j->k->real_size;
    if (!a->partial.data) return MHA_OK;
    if (mha__chunk_level(key, end - key) < 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "parts must be one subtree of %d-key chunks with partial (got %" PRId64
                         " keys from key %" PRId64 "); see mha_attn_subtree",
                         MHA_ATTN_CHUNK, end - key, key);
    MHA__TRY(mha__bind_output("partial", &a->partial, shape, 4, size, err));
    const mha__operand result = mha__operand_of("partial", &a->partial, shape);
    for (int64_t n = 0; n < a->count; n++) {
        mha__operand part = {"rows", {0}, {shape[0], shape[1], shape[2], shape[3]}, false};
        MHA__TRY(bind_part(j, n, &part.view, err));
        if (!same_view(&a->partial, &part.view) && mha__operand_overlaps(&result, size, &part, size))
            return mha__fail(err, MHA_ERR_ARG,
                             "partial must not overlap parts[%" PRId64 "].rows, unless it is exactly the same view", n);
    }
    return MHA_OK;
}

static mha_status check_other_results(const joining *j, mha_error *err)
{
    const mha_attn_merge_partials_args *a = &j->a;
    if (!a->partial.data) return MHA_OK;
    const int64_t rows[4] = {a->batch, a->heads, a->q_len, 2 + a->v_head_dim},
                  out[4] = {rows[0], rows[1], rows[2], a->v_head_dim}, lse[4] = {rows[0], rows[1], rows[2], 1};
    const mha__operand partial = mha__operand_of("partial", &a->partial, rows);
    const mha__operand outputs = mha__operand_of("out", &a->out, out), sums = mha__operand_of("lse", &a->lse, lse);
    if ((a->out.data && mha__operand_overlaps(&partial, j->k->real_size, &outputs, j->as.size)) ||
        (a->lse.data && mha__operand_overlaps(&partial, j->k->real_size, &sums, j->k->real_size)))
        return mha__fail(err, MHA_ERR_ARG, "partial must not overlap out or lse");
    return MHA_OK;
}

static mha_status bind(joining *j, mha_error *err)
{
    if (!j->a.out.data && j->a.partial.data && j->a.lse.data)
        return mha__fail(err, MHA_ERR_ARG, "out must not be NULL with lse");
    if (j->a.out.data || !j->a.partial.data) MHA__TRY(bind_results(j, err));
    MHA__TRY(bind_partial(j, err));
    return check_other_results(j, err);
}

/* ---- merging ---- */

static void take(const joining *j, const mha_cview *from, int64_t b, int64_t h, int64_t first)
{
    const mha__merge_stack *s = &j->stack;
    const mha__partial *to = &s->level[s->levels];
    const size_t size = j->k->real_size;
    j->k->clear(s->rows, s->o_stride, to);
    for (int64_t r = 0; r < s->rows; r++) {
        const void *row = mha__at(from, size, b, h, first + r, 0);
        mha__put_real(to->max, r, size, mha__real_at(row, 0, size));
        mha__put_real(to->sum, r, size, mha__real_at(row, from->stride[3], size));
        for (int64_t d = 0; d < s->dv; d++)
            mha__put_real(to->o, r * s->o_stride + d, size, mha__real_at(row, (2 + d) * from->stride[3], size));
    }
}

/* Writes rows of out and lse, by the same steps as at the end of a forward call. */
static void write_rows(const joining *j, const mha__partial *p, int64_t b, int64_t h, int64_t first)
{
    const mha_attn_merge_partials_args *a = &j->a;
    const mha__merge_stack *s = &j->stack;
    const size_t size = j->k->real_size;
    void *lse = a->lse.data ? mha__at_out(&a->lse, size, b, h, first, 0) : NULL;
    void *out = mha__at_out(&a->out, j->as.size, b, h, first, 0);
    if (a->sinks.data)
        j->k->sink(s->rows, s->dv, s->o_stride, mha__real_at(mha__at(&a->sinks, size, b, h, 0, 0), 0, size), p);
    j->k->totals(s->rows, p->max, p->sum, j->inverse, lse, a->lse.stride[2]);
    if (a->gates.data)
        j->k->gate(s->rows, mha__real_at(mha__at(&a->gates, size, b, h, 0, 0), 0, size), j->inverse, j->inverse);
    if (!j->as.narrow) {
        j->k->output(s->rows, s->dv, p->o, s->o_stride, j->inverse, out, a->out.stride[2], a->out.stride[3]);
        return;
    }
    j->k->output(s->rows, s->dv, p->o, s->o_stride, j->inverse, j->wide, s->dv, 1);
    j->as.narrow(s->rows, s->dv, j->wide, s->dv, out, a->out.stride[2], a->out.stride[3]);
}

static void write_partial(const joining *j, const mha__partial *p, int64_t b, int64_t h, int64_t first)
{
    const mha__merge_stack *s = &j->stack;
    const size_t size = j->k->real_size;
    const int64_t step = j->a.partial.stride[3];
    for (int64_t r = 0; r < s->rows; r++) {
        void *row = mha__at_out(&j->a.partial, size, b, h, first + r, 0);
        mha__put_real(row, 0, size, mha__real_at(p->max, r, size));
        mha__put_real(row, step, size, mha__real_at(p->sum, r, size));
        for (int64_t d = 0; d < s->dv; d++)
            mha__put_real(row, (2 + d) * step, size, mha__real_at(p->o, r * s->o_stride + d, size));
    }
}

static void merge_rows(joining *j, int64_t b, int64_t h, int64_t first)
{
    mha__merge_stack *s = &j->stack;
    s->rows = mha__min64(MHA__MERGE_ROWS, j->a.q_len - first);
    for (int64_t n = 0; n < j->a.count; n++) {
        const mha_attn_partial *part = &j->a.parts[n];
        mha_cview rows;
        bind_part(j, n, &rows, NULL); /* cannot fail: `bind` has checked every part */
        take(j, &rows, b, h, first);
        mha__merge_push(s, part->key / MHA_ATTN_CHUNK, mha__chunk_level(part->key, part->kv_len));
    }
    mha__merge_finish(s);
    if (j->a.partial.data) write_partial(j, &s->level[s->levels], b, h, first);
    if (j->a.out.data) write_rows(j, &s->level[s->levels], b, h, first);
}

/* Lays out one partial result per level of the tree from `base` on; if `base` is NULL, only counts the bytes. */
static size_t lay_out(joining *j, char *base)
{
    const size_t size = j->k->real_size, lanes = MHA__MERGE_VECTOR * size,
                 rows = MHA__MERGE_ROWS * (size_t)j->stack.o_stride * size;
    size_t used = 0;
    for (int l = 0; l <= j->stack.levels; l++, used += 2 * lanes + rows)
        if (base) j->level[l] = (mha__partial){base + used, base + used + lanes, base + used + 2 * lanes};
    if (base) j->inverse = base + used, j->wide = base + used + lanes;
    return used + lanes + rows;
}

static void merge_all(joining *j)
{
    for (int64_t b = 0; b < j->a.batch; b++)
        for (int64_t h = 0; h < j->a.heads; h++)
            for (int64_t first = 0; first < j->a.q_len; first += MHA__MERGE_ROWS)
                merge_rows(j, b, h, first);
}

mha_status mha_attn_merge_partials(mha_ctx *ctx, const mha_attn_merge_partials_args *args, mha_error *err)
{
    joining j;
    MHA__TRY(mha__options_need(&j.a, sizeof j.a, args, "mha_attn_merge_partials_args", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(check_sizes(&j.a, err));
    MHA__TRY(check_tree(&j.a, err));
    const mha_dtype dtype = j.a.dtype == MHA_DTYPE_DEFAULT ? MHA_F32 : j.a.dtype;
    j.k = mha__kernels_of(ctx, dtype);
    j.as = mha__operand_stored(j.k, dtype);
    MHA__TRY(bind(&j, err));
    const mha_attn_partial *last = &j.a.parts[j.a.count - 1];
    j.stack = (mha__merge_stack){.kernels = j.k, .dv = j.a.v_head_dim, .level = j.level};
    j.stack.levels = mha__merge_levels(last->key + last->kv_len);
    j.stack.o_stride = mha__round_up(j.a.v_head_dim, j.k->nr);
    const size_t bytes = lay_out(&j, NULL);
    char *memory = mha__alloc(ctx, bytes);
    if (!memory) return mha__no_memory(err, bytes, "the merge of partial results");
    lay_out(&j, memory);
    merge_all(&j);
    mha__free(ctx, memory);
    return MHA_OK;
}
