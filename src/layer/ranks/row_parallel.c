/* row_parallel.c - see row_parallel.h.
 *
 * The ranks exchange the sums of their subtrees. For few rows, one exchange suffices: each rank sends its subtrees to
 * all other ranks, and every rank completes the tree. For many rows, these messages would be large, so each rank
 * completes the tree for a part of the elements, and a second exchange distributes the results. Both give bitwise
 * identical results. */
#include "layer/ranks/row_parallel.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/ranks/sum_tree.h"
#include <string.h>

enum { ROWS = 128 };            /* rows per exchange; limits the workspace */
enum { FEW_BYTES = 32 * 1024 }; /* [bytes] size of the rows above which two exchanges are faster than one */

struct mha__row_parallel {
    mha_ctx *ctx;
    const mha_model_ranks *ranks;
    mha_linear *group[MHA_RANK_GROUPS]; /* NULL for groups of other ranks and for groups without columns */
    int64_t items, item_width, out;
    int first, end; /* this rank's groups are [first, end) */
    float *bias;    /* [out], or NULL */
};

/* ---- creation ---- */

static mha_status create_groups(mha__row_parallel *p, const mha__divided_matrix *matrix, mha_error *err)
{
    for (int g = p->first; g < p->end; g++) {
        const int64_t items = mha__group_begin(p->items, g + 1) - mha__group_begin(p->items, g);
        mha_matrix part = matrix->group[g];
        part.out = p->out;
        if (items > 0)
            MHA__TRY(mha_linear_create_stack(p->ctx, items * p->item_width, &part, 1, MHA_ACT_NONE, &p->group[g], err));
    }
    return MHA_OK;
}

mha_status mha__row_parallel_create(mha_ctx *ctx, const mha_model_ranks *ranks, const mha__divided_matrix *matrix,
                                    mha__row_parallel **product, mha_error *err)
{
    const size_t bias_bytes = matrix->bias ? (size_t)matrix->out * sizeof(float) : 0;
    mha__row_parallel *p = mha__calloc(ctx, 1, sizeof *p + bias_bytes);
    *product = p;
    if (!p) return mha__no_memory(err, sizeof *p + bias_bytes, "a divided product");
    p->ctx = ctx;
    p->ranks = ranks;
    p->items = matrix->items;
    p->item_width = matrix->item_width;
    p->out = matrix->out;
    p->first = mha__rank_begin(ranks, ranks->rank);
    p->end = mha__rank_begin(ranks, ranks->rank + 1);
    if (matrix->bias) p->bias = memcpy(p + 1, matrix->bias, bias_bytes);
    return create_groups(p, matrix, err);
}

void mha__row_parallel_free(mha__row_parallel *product)
{
    if (!product) return;
    for (int g = 0; g < MHA_RANK_GROUPS; g++)
        mha_linear_free(product->group[g]);
    mha__free(product->ctx, product);
}

/* ---- workspace ---- */

typedef struct workspace {
    float *own;      /* [depth, rows, out] sums of this rank's groups and subtrees */
    float *received; /* [subtrees of other ranks, elements that this rank completes] sums of these subtrees */
    float *sent;     /* [own subtrees, rows, out] sums ordered by receiving rank, if elements are divided */
    void *left;      /* rounded input of a linear layer */
} workspace;

static mha__sum_tree subtrees_of(const mha__row_parallel *p, int rank)
{
    return mha__sum_tree_of(mha__rank_begin(p->ranks, rank), mha__rank_begin(p->ranks, rank + 1));
}

/* Returns true if every rank completes the tree for all rows. */
static bool is_few(const mha__row_parallel *p, int64_t rows)
{
    return p->ranks->ranks <= 2 || rows * p->out * (int64_t)sizeof(float) <= FEW_BYTES;
}

/* Returns the first of `count` elements that a rank completes, if elements are divided. */
static int64_t share_begin(const mha__row_parallel *p, int64_t count, int rank)
{
    return count * rank / p->ranks->ranks;
}

/* Returns the most elements that a rank completes in a call with at most `rows` rows. */
static int64_t max_completed(const mha__row_parallel *p, int64_t rows)
{
    int64_t few = rows;
    while (!is_few(p, few))
        few--;
    return few == rows ? rows * p->out : mha__max64(few * p->out, mha__ceil_div(rows * p->out, p->ranks->ranks));
}

static workspace lay_out(mha__arena *arena, const mha__row_parallel *p, int64_t rows)
{
    const size_t row = (size_t)p->out * sizeof(float), n = (size_t)mha__min64(rows, ROWS);
    size_t others = 0;
    workspace w = {0};
    for (int rank = 0; rank < p->ranks->ranks; rank++)
        others += rank == p->ranks->rank ? 0 : (size_t)subtrees_of(p, rank).count;
    w.own = mha__take(arena, (size_t)mha__sum_tree_depth(p->first, p->end) * n, row);
    w.received = mha__take(arena, others * (size_t)max_completed(p, (int64_t)n), sizeof(float));
    if (!is_few(p, (int64_t)n)) w.sent = mha__take(arena, (size_t)subtrees_of(p, p->ranks->rank).count * n, row);
    w.left = mha__take(
        arena, 1, mha__linear_max_left((const mha_linear *const *)&p->group[p->first], p->end - p->first, (int64_t)n));
    return w;
}

size_t mha__row_parallel_bytes(const mha__row_parallel *product, int64_t rows)
{
    mha__arena arena = {0};
    lay_out(&arena, product, rows);
    return arena.overflow ? SIZE_MAX : arena.used;
}

/* ---- the sums of this rank ---- */

/* Computes the product of one group. */
static void multiply(const mha__row_parallel *p, int group, const float *x, int64_t x_stride, int64_t rows, void *left,
                     float *y)
{
    const int64_t begin = mha__group_begin(p->items, p->first);
    const float *from = x + (mha__group_begin(p->items, group) - begin) * p->item_width;
    if (p->group[group])
        mha__linear_run(p->group[group],
                        &(mha__linear_call){.x = from, .x_stride = x_stride, .rows = rows, .y = y, .left = left});
    else
        memset(y, 0, (size_t)(rows * p->out) * sizeof *y);
}

/* Computes the subtrees of this rank. Subtree n is the n-th array of w->own. */
static mha__sum_tree add_own(const mha__row_parallel *p, const float *x, int64_t x_stride, int64_t rows,
                             const workspace *w)
{
    const int64_t count = rows * p->out;
    mha__sum_tree tree = {0};
    for (int g = p->first; g < p->end; g++) {
        float *sum = w->own + tree.count * count;
        multiply(p, g, x, x_stride, rows, w->left, sum);
        mha__sum_tree_add(p->ctx, &tree, (mha__subtree){g, 1, sum}, count);
    }
    return tree;
}

/* ---- the whole tree ---- */

/* Adds the bias to `count` elements of y, the first of which is element `begin` of the rows. */
static void add_bias(const mha__row_parallel *p, int64_t begin, int64_t count, float *y)
{
    int64_t column = begin % p->out;
    for (int64_t i = 0; p->bias && i < count; i++) {
        y[i] += p->bias[column];
        if (++column == p->out) column = 0;
    }
}

/* Adds `count` elements of all subtrees, from element `begin` on, and the bias. Subtrees of other ranks are in
 * w->received, by rank; `own` has the subtrees of this rank. */
static void complete(const mha__row_parallel *p, const mha__sum_tree *own, const workspace *w, int64_t begin,
                     int64_t count, float *y)
{
    float *received = w->received;
    mha__sum_tree tree = {0};
    for (int rank = 0; rank < p->ranks->ranks; rank++) {
        mha__sum_tree part = rank == p->ranks->rank ? *own : subtrees_of(p, rank);
        for (int n = 0; n < part.count; n++) {
            part.subtree[n].sum = rank == p->ranks->rank ? own->subtree[n].sum + begin : received;
            if (rank != p->ranks->rank) received += count;
            mha__sum_tree_add(p->ctx, &tree, part.subtree[n], count);
        }
    }
    memcpy(y, tree.subtree[0].sum, (size_t)count * sizeof *y);
    add_bias(p, begin, count, y);
}

/* Sends the messages in `m`, and receives the subtrees of the other ranks; a subtree has `bytes` bytes. */
static mha_status exchange_subtrees(const mha__row_parallel *p, mha__messages *m, size_t bytes, const workspace *w,
                                    mha_error *err)
{
    char *received = (char *)w->received;
    for (int rank = 0; rank < p->ranks->ranks; rank++) {
        if (rank == p->ranks->rank) continue;
        m->receive[rank] = received;
        m->receive_bytes[rank] = (size_t)subtrees_of(p, rank).count * bytes;
        received += m->receive_bytes[rank];
    }
    return mha__exchange(p->ranks, m, err);
}

/* Sends the subtrees of this rank to all other ranks, and completes all elements. */
static mha_status sum_at_once(const mha__row_parallel *p, const mha__sum_tree *own, const workspace *w, int64_t count,
                              float *y, mha_error *err)
{
    const size_t bytes = (size_t)count * sizeof *y;
    mha__messages m = {0};
    for (int rank = 0; rank < p->ranks->ranks; rank++) {
        m.send[rank] = w->own;
        m.send_bytes[rank] = (size_t)own->count * bytes;
    }
    MHA__TRY(exchange_subtrees(p, &m, bytes, w, err));
    complete(p, own, w, 0, count, y);
    return MHA_OK;
}

/* Copies the elements that each rank completes to contiguous memory, for one message per rank. */
static void pack_shares(const mha__row_parallel *p, const mha__sum_tree *own, const workspace *w, int64_t count,
                        mha__messages *m)
{
    float *to = w->sent;
    for (int rank = 0; rank < p->ranks->ranks; rank++) {
        const int64_t begin = share_begin(p, count, rank), share = share_begin(p, count, rank + 1) - begin;
        m->send[rank] = to;
        m->send_bytes[rank] = (size_t)(own->count * share) * sizeof *to;
        for (int n = 0; n < own->count; n++, to += share)
            memcpy(to, own->subtree[n].sum + begin, (size_t)share * sizeof *to);
    }
}

/* Completes this rank's part of the elements, and exchanges the results with the other ranks. */
static mha_status sum_by_shares(const mha__row_parallel *p, const mha__sum_tree *own, const workspace *w, int64_t count,
                                float *y, mha_error *err)
{
    const int me = p->ranks->rank;
    const int64_t begin = share_begin(p, count, me), mine = share_begin(p, count, me + 1) - begin;
    mha__messages m = {0}, results = {0};
    pack_shares(p, own, w, count, &m);
    MHA__TRY(exchange_subtrees(p, &m, (size_t)mine * sizeof *y, w, err));
    complete(p, own, w, begin, mine, y + begin);
    for (int rank = 0; rank < p->ranks->ranks; rank++) {
        const int64_t first = share_begin(p, count, rank);
        results.send[rank] = y + begin;
        results.send_bytes[rank] = (size_t)mine * sizeof *y;
        results.receive[rank] = y + first;
        results.receive_bytes[rank] = (size_t)(share_begin(p, count, rank + 1) - first) * sizeof *y;
    }
    return mha__exchange(p->ranks, &results, err);
}

mha_status mha__row_parallel_run(const mha__row_parallel *product, const float *x, int64_t x_stride, int64_t rows,
                                 void *workspace_memory, float *y, mha_error *err)
{
    const mha__row_parallel *p = product;
    mha__arena arena = {.base = workspace_memory};
    const workspace w = lay_out(&arena, p, rows);
    for (int64_t r = 0; r < rows; r += ROWS) {
        const int64_t chunk = mha__min64(ROWS, rows - r);
        const mha__sum_tree own = add_own(p, x + r * x_stride, x_stride, chunk, &w);
        MHA__TRY((is_few(p, chunk) ? sum_at_once : sum_by_shares)(p, &own, &w, chunk * p->out, y + r * p->out, err));
    }
    return MHA_OK;
}
