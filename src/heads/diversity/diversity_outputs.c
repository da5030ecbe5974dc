/* diversity_outputs.c - compares what heads add to the output of their layer: X = C W^T, where C [tokens, D] contains
 * the contexts of a head, and W [E, D] its columns of the output projection.
 *
 * With W = U R, where U is an orthonormal basis [E, D], the coordinates of X in U are Z = C R^T. All norms, products
 * and regressions among heads can be computed from Z, with D elements per token. Therefore no array of width E is
 * accumulated. The products of all contexts of a layer, C^T C [H D, H D], are summed separately for the two halves of
 * the tokens, and transformed to Z^T Z at the end. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/diversity/diversity.h"
#include "layer/linear/linear.h"
#include "math/linalg.h"
#include "model/model_struct.h"
#include <math.h>
#include <string.h>

enum { RUN = 64 }; /* consecutive tokens of a text that belong to the same half */

/* ---- accumulation ---- */

/* Copies the context rows that belong to `half` of the tokens to `buffer`, text by text; text b gets rows runs[b] to
 * runs[b + 1]. */
static void gather(const mha_model_activations *a, int half, const int64_t *texts, int64_t count, const int64_t *starts,
                   float *buffer, int64_t *runs)
{
    const int64_t width = a->heads * a->head_dim;
    runs[0] = 0;
    for (int64_t b = 0; b < count; b++) {
        runs[b + 1] = runs[b];
        for (int64_t r = starts[b]; r < starts[b + 1]; r++)
            if ((texts[b] + (r - starts[b]) / RUN) % MHA__HALVED == half)
                memcpy(buffer + runs[b + 1]++ * width, a->context + r * width, (size_t)width * sizeof *buffer);
    }
}

/* Adds the column sums of the contexts. Each run of tokens is summed in double. */
static void add_columns(const mha__diversity_tally *sums, const int64_t *runs, int64_t count, int64_t width,
                        const float *buffer, mha__fixed *to)
{
    for (int64_t b = 0; b < count; b++) {
        if (runs[b] == runs[b + 1]) continue;
        for (int64_t r = runs[b]; r < runs[b + 1]; r++)
            for (int64_t n = 0; n < width; n++)
                sums->text[n] += (double)buffer[r * width + n];
        mha__fixed_add_array(to, sums->text, width);
    }
}

mha_status mha__diversity_add_contexts(const mha_diversity *d, const mha__diversity_tally *sums,
                                       const mha_model_activations *a, const int64_t *texts, int64_t count,
                                       const int64_t *starts, float *buffer, int64_t *runs, mha_error *err)
{
    const int64_t width = a->heads * a->head_dim;
    int64_t square = 0, column = 0;
    for (int64_t l = 0; l < a->layer; l++) {
        square += mha__triangle(mha__diversity_width(d, l) * a->head_dim);
        column += mha__diversity_width(d, l) * a->head_dim;
    }
    for (int half = 0; half < MHA__HALVED; half++) {
        gather(a, half, texts, count, starts, buffer, runs);
        const mha__columns x = {buffer, width, 1, width};
        MHA__TRY(mha__gram_runs(d->ctx, runs, count, &x, sums->gram[half] + square, err));
        add_columns(sums, runs, count, width, buffer, sums->column[half] + column);
        if (a->layer == 0) mha__fixed_add(&sums->tokens[half], (double)runs[count]);
    }
    return MHA_OK;
}

/* ---- comparison within one layer ---- */

typedef struct layer {
    mha_ctx *ctx;
    mha_diversity *d;
    int64_t number, heads, D, E, width;
    double *w, *basis;         /* [H D, E] columns of W as rows, and U^T of each head */
    double *r;                 /* [H, D, D] R of each head */
    int64_t *rank;             /* [H] */
    double *z[MHA__HALVED];    /* [H D, H D] Z^T Z of each half */
    double *mean[MHA__HALVED]; /* [H D] mean of Z */
    double *all, *scratch;     /* [H D, H D] Z^T Z of both halves; scratch */
    double *left;              /* [H] */
} layer;

static void lay_out(mha__arena *arena, layer *l)
{
    const size_t width = (size_t)l->width;
    size_t wide = 0, all = 0;
    if (!mha__mul(width, (size_t)l->E, &wide) || !mha__mul(width, width, &all)) arena->overflow = true;
    double **const of_weights[] = {&l->w, &l->basis};
    double **const of_width[] = {&l->z[0], &l->z[1], &l->all, &l->scratch};
    double **const means[] = {&l->mean[0], &l->mean[1]};
    for (int i = 0; i < 2; i++) {
        *of_weights[i] = mha__take(arena, wide, sizeof(double));
        *means[i] = mha__take(arena, width, sizeof(double));
    }
    for (int i = 0; i < 4; i++)
        *of_width[i] = mha__take(arena, all, sizeof(double));
    l->r = mha__take(arena, width, (size_t)l->D * sizeof(double));
    l->left = mha__take(arena, (size_t)l->heads, sizeof(double));
    l->rank = mha__take(arena, (size_t)l->heads, sizeof *l->rank);
}

static mha_status read_weights(const mha_model *m, layer *l, mha_error *err)
{
    mha__weights weights = m->outer; /* a copy with its own list of converted tensors */
    const float *w;
    weights.converted = NULL;
    MHA__TRY(mha__weights_again(&weights, MHA__ATTN_OUT, l->number, &w, err));
    const bool transposed = m->config.family->parts[MHA__ATTN_OUT].kind == MHA__PART_CONV1D;
    for (int64_t j = 0; j < l->width; j++)
        for (int64_t e = 0; e < l->E; e++)
            l->w[j * l->E + e] = (double)(transposed ? w[j * l->E + e] : w[e * l->width + j]);
    mha__weights_release(&weights);
    return MHA_OK;
}

static void find_bases(layer *l)
{
    memcpy(l->basis, l->w, (size_t)(l->width * l->E) * sizeof *l->w);
    for (int64_t h = 0; h < l->heads; h++) {
        double *u = l->basis + h * l->D * l->E, *r = l->r + h * l->D * l->D;
        l->rank[h] = mha__orthonormal_rows(l->D, l->E, u);
        for (int64_t i = 0; i < l->D * l->D; i++)
            r[i] = mha__dot(l->E, u + i / l->D * l->E, l->w + (h * l->D + i % l->D) * l->E);
    }
}

/* Returns the squared Frobenius norm of the block [D, D] of heads a and b. */
static double block_square(const layer *l, const double *from, int64_t a, int64_t b)
{
    double sum = 0;
    for (int64_t r = a * l->D; r < (a + 1) * l->D; r++)
        for (int64_t c = b * l->D; c < (b + 1) * l->D; c++)
            sum += from[r * l->width + c] * from[r * l->width + c];
    return sum;
}

static double *value_at(const layer *l, mha_diversity_kind what, int64_t a, int64_t b)
{
    const int64_t first = l->d->first[l->number];
    return l->d->value[what] + (first + a) * mha_diversity_heads(l->d) + first + b;
}

/* Computes c [m, n] = a [m, k] b [k, n]; the elements of b have strides b_row and b_col, the rows of c stride
 * l->width. */
static mha_status multiply(const layer *l, const int64_t mnk[3], const double *a, int64_t a_row, const double *b,
                           int64_t b_row, int64_t b_col, double *c, mha_error *err)
{
    const mha__matmul product = {.dtype = MHA_F64,
                                 .m = mnk[0],
                                 .n = mnk[1],
                                 .k = mnk[2],
                                 .a = a,
                                 .a_row = a_row,
                                 .a_col = 1,
                                 .b = b,
                                 .b_row = b_row,
                                 .b_col = b_col,
                                 .c = c,
                                 .c_row = l->width};
    return mha__matmul_run(l->ctx, &product, err);
}

static mha_status compare_subspaces(layer *l, mha_error *err)
{
    const int64_t n = l->width, E = l->E;
    MHA__TRY(multiply(l, (int64_t[]){n, n, E}, l->basis, E, l->basis, 1, E, l->scratch, err));
    for (int64_t a = 0; a < l->heads; a++)
        for (int64_t b = 0; b <= a; b++) {
            const int64_t rank = mha__max64(l->rank[a], l->rank[b]);
            const bool none = l->rank[a] == 0 || l->rank[b] == 0;
            const double share = none ? NAN : fmin(1, block_square(l, l->scratch, a, b) / (double)rank);
            *value_at(l, MHA_DIVERSITY_SUBSPACE, a, b) = *value_at(l, MHA_DIVERSITY_SUBSPACE, b, a) = share;
        }
    return MHA_OK;
}

/* Computes z = R gram R^T block by block, where `gram` contains the products of contexts, and the column sums of Z from
 * `column`. */
static mha_status to_coordinates(const layer *l, const double *gram, const double *column, double *z, double *sum,
                                 mha_error *err)
{
    const int64_t D = l->D, n = l->width;
    for (int64_t h = 0; h < l->heads; h++) {
        const double *r = l->r + h * D * D;
        MHA__TRY(multiply(l, (int64_t[]){D, n, D}, r, D, gram + h * D * n, n, 1, l->scratch + h * D * n, err));
        for (int64_t i = 0; i < D; i++)
            sum[h * D + i] = mha__dot(D, r + i * D, column + h * D);
    }
    for (int64_t h = 0; h < l->heads; h++)
        MHA__TRY(multiply(l, (int64_t[]){n, D, D}, l->scratch + h * D, n, l->r + h * D * D, 1, D, z + h * D, err));
    return MHA_OK;
}

/* Computes to = from - s s^T / tokens, the products of centered columns. */
static void centre(int64_t n, const double *from, const double *sum, double tokens, double *to)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++)
            to[r * n + c] = from[r * n + c] - (tokens > 0 ? sum[r] * sum[c] / tokens : 0);
}

static void compare_outputs(const layer *l, const double *tokens)
{
    const int64_t n = l->width;
    double *sum = l->scratch;
    for (int64_t i = 0; i < n * n; i++)
        l->all[i] = l->z[0][i] + l->z[1][i];
    for (int64_t i = 0; i < n; i++)
        sum[i] = l->mean[0][i] + l->mean[1][i];
    centre(n, l->all, sum, tokens[0] + tokens[1], l->all);
    for (int64_t a = 0; a < l->heads; a++)
        for (int64_t b = 0; b <= a; b++) {
            const double size = sqrt(block_square(l, l->all, a, a) * block_square(l, l->all, b, b));
            const double alike = size > 0 ? fmin(1, block_square(l, l->all, a, b) / size) : NAN;
            *value_at(l, MHA_DIVERSITY_CKA, a, b) = *value_at(l, MHA_DIVERSITY_CKA, b, a) = alike;
        }
}

/* Returns the trace of head h's block of Z^T Z, summed over both halves of the tokens. */
static double variance(const layer *l, int64_t h)
{
    double sum = 0;
    for (int64_t i = h * l->D; i < (h + 1) * l->D; i++)
        sum += l->z[0][i * l->width + i] + l->z[1][i * l->width + i];
    return sum;
}

/* Computes the unique output of each head. Each half of the tokens is centered on its own means. */
static mha_status find_unique(const layer *l, const double *tokens, mha_error *err)
{
    double *unique = l->d->value[MHA_DIVERSITY_UNIQUE] + l->d->first[l->number];
    memset(l->left, 0, (size_t)l->heads * sizeof *l->left);
    for (int half = 0; half < MHA__HALVED; half++)
        centre(l->width, l->z[half], l->mean[half], tokens[half], l->z[half]);
    for (int half = 0; half < MHA__HALVED; half++)
        MHA__TRY(mha__unique_outputs(l->ctx, l->heads, l->D, l->z[half], tokens[half], l->z[1 - half], l->left, err));
    for (int64_t h = 0; h < l->heads; h++) {
        const double all = variance(l, h);
        unique[h] = all > 0 && tokens[0] > 1 && tokens[1] > 1 ? fmin(1, l->left[h] / all) : NAN;
    }
    return MHA_OK;
}

static mha_status check_finite(const layer *l, const double *gram, mha_error *err)
{
    for (int64_t i = 0; i < l->width; i++)
        if (!isfinite(gram[i * l->width + i]))
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_diversity_measure: the output of head %lld of layer %lld must be finite",
                             (long long)(i / l->D), (long long)l->number);
    return MHA_OK;
}

static mha_status compare_layer(const mha_model *m, layer *l, const double *gram[MHA__HALVED],
                                const double *column[MHA__HALVED], const double *tokens, mha_error *err)
{
    MHA__TRY(read_weights(m, l, err));
    find_bases(l);
    if (l->d->value[MHA_DIVERSITY_SUBSPACE]) MHA__TRY(compare_subspaces(l, err));
    if (!gram[0]) return MHA_OK;
    for (int half = 0; half < MHA__HALVED; half++) {
        MHA__TRY(check_finite(l, gram[half], err));
        MHA__TRY(to_coordinates(l, gram[half], column[half], l->z[half], l->mean[half], err));
    }
    if (l->d->value[MHA_DIVERSITY_CKA]) compare_outputs(l, tokens);
    return l->d->value[MHA_DIVERSITY_UNIQUE] ? find_unique(l, tokens, err) : MHA_OK;
}

/* Initializes a layer and allocates its buffers. */
static mha_status open_layer(const mha_model *m, mha_diversity *d, int64_t number, layer *l, void **memory,
                             mha_error *err)
{
    const mha_model_info *info = mha_model_describe(m);
    *l = (layer){.ctx = d->ctx, .d = d, .number = number, .heads = mha__diversity_width(d, number)};
    l->D = info->head_dim, l->E = info->hidden, l->width = l->heads * l->D;
    mha__arena arena = {0};
    lay_out(&arena, l);
    arena.base = arena.overflow ? NULL : mha__alloc(d->ctx, arena.used);
    *memory = arena.base;
    if (!arena.base)
        return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the outputs of the heads of a layer");
    arena.used = 0;
    lay_out(&arena, l);
    return MHA_OK;
}

mha_status mha__diversity_of_outputs(const mha_model *model, mha_diversity *d, const mha__diversity_sums *sums,
                                     mha_error *err)
{
    const double *gram[] = {sums->gram[0], sums->gram[1]}, *column[] = {sums->column[0], sums->column[1]};
    mha_status status = MHA_OK;
    for (int64_t n = 0; n < d->layers && status == MHA_OK; n++) {
        layer l;
        void *memory;
        MHA__TRY(open_layer(model, d, n, &l, &memory, err));
        status = compare_layer(model, &l, gram, column, sums->tokens, err);
        mha__free(d->ctx, memory);
        for (int half = 0; half < MHA__HALVED && gram[half]; half++) {
            gram[half] += l.width * l.width;
            column[half] += l.width;
        }
    }
    return status;
}
