/* weight_copying.c - computes copying scores. The non-zero eigenvalues of U W_OV E^T are those of the D x D matrix
 * V (E^T U) O^T, so no matrix of the size of the vocabulary squared is computed. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "circuits/logits/vocabulary_rows.h"
#include "circuits/weights/weight_circuits.h"
#include "math/linalg.h"
#include <math.h>
#include <string.h>

enum { ROWS = 1024, GROUP = 8 }; /* rows of the vocabulary read at a time; rows of V multiplied at a time */

/* ---- the matrix between the embeddings ---- */

/* One of the two tables [vocab, E]. */
typedef struct table {
    const mha_tensor *tensor;
    float *room;       /* [ROWS, E] for rows that cannot be used in place */
    const float *rows; /* the current rows */
    double *sum;       /* [E] */
} table;

static mha_status read_rows(table *t, int64_t first, int64_t rows, int64_t width, mha_error *err)
{
    MHA__TRY(mha__vocabulary_rows(t->tensor, width, first, rows, t->room, &t->rows, err));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            t->sum[i] += (double)t->rows[r * width + i];
    return MHA_OK;
}

/* Adds E^T U of all rows to c->between, and the sums of the rows. */
static mha_status multiply(const mha_model *m, table *words, table *out, mha__copying *c, mha_error *err)
{
    const int64_t E = m->config.hidden, vocab = m->config.vocab;
    for (int64_t first = 0; first < vocab; first += ROWS) {
        const int64_t rows = mha__min64(ROWS, vocab - first);
        MHA__TRY(read_rows(words, first, rows, E, err));
        if (out->tensor != words->tensor) MHA__TRY(read_rows(out, first, rows, E, err));
        const mha__columns x = {words->rows, E, 1, E}, y = {out->rows, E, 1, E};
        MHA__TRY(out->tensor == words->tensor ? mha__gram(m->ctx, rows, &x, c->between, err)
                                              : mha__gram_cross(m->ctx, rows, &x, &y, c->between, err));
        MHA__TRY(mha__progress(m->ctx, "circuits: vocabulary", first + rows, vocab, err));
    }
    if (out->tensor == words->tensor) memcpy(out->sum, words->sum, (size_t)E * sizeof *out->sum);
    return MHA_OK;
}

mha_status mha__copying_create(const mha_model *m, bool folded, mha__copying *c, mha_error *err)
{
    const size_t E = (size_t)m->config.hidden;
    const mha_norm *norm = &m->final_norm;
    float *room = mha__alloc(m->ctx, 2 * ROWS * E * sizeof *room);
    c->between = mha__calloc(m->ctx, E * (E + 2), sizeof *c->between);
    mha_status status = MHA_OK;
    if (!room || !c->between)
        status = mha__no_memory(err, E * (E + 2) * sizeof *c->between, "the product of embeddings and output matrix");
    if (status == MHA_OK) {
        c->words = c->between + E * E;
        c->means = c->words + E;
        table words = {mha__weights_tensor(&m->outer, MHA__WORDS, -1, false), room, NULL, c->words};
        table out = {mha__output_table(m), room + ROWS * E, NULL, c->means};
        status = multiply(m, &words, &out, c, err);
        for (size_t i = 0; i < E; i++)
            c->means[i] /= (double)m->config.vocab;
        const bool centred = folded && norm->weight && norm->kind == MHA_NORM_LAYER;
        mha__circuit_fold((int64_t)E, (int64_t)E, folded ? norm->weight : NULL, centred, c->between);
        mha__circuit_fold(1, (int64_t)E, folded ? norm->weight : NULL, centred, c->means);
    }
    mha__free(m->ctx, room);
    return status;
}

void mha__copying_free(const mha_model *m, mha__copying *c)
{
    mha__free(m->ctx, c->between);
}

/* ---- the score of one head ---- */

int64_t mha__copying_room(const mha_weight_circuits *c, int64_t hidden)
{
    const int64_t D = c->head_dim;
    return GROUP * hidden + 2 * D * D + 2 * D;
}

/* Sets rows of out [D, D] to V between O^T, for `count` rows of V. */
static void multiply_rows(int64_t count, int64_t D, int64_t E, const double *v, const double *between, const double *o,
                          double *room, double *out)
{
    memset(room, 0, (size_t)(count * E) * sizeof *room);
    for (int64_t e = 0; e < E; e++)
        for (int64_t r = 0; r < count; r++)
            for (int64_t i = 0; i < E; i++)
                room[r * E + i] += v[r * E + e] * between[e * E + i];
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < D; c++)
            out[r * D + c] = mha__dot(E, room + r * E, o + c * E);
}

/* Computes Re(sum l) and the score from the eigenvalues l of a [D, D], which is overwritten. */
static bool score(int64_t D, double *a, double *values, double *trace, double *copying)
{
    double sum = 0, sizes = 0;
    if (!mha__eigenvalues(D, a, values, values + D)) return false;
    for (int64_t i = 0; i < D; i++) {
        sum += values[i];
        sizes += hypot(values[i], values[D + i]);
    }
    *trace = sum;
    *copying = sizes > 0 ? sum / sizes : NAN;
    return true;
}

bool mha__copying_score(mha_weight_circuits *c, const mha__copying *copying, int64_t E, int64_t n, const double *v,
                        const double *o, double *room)
{
    const int64_t D = c->head_dim;
    double *matrix = room + GROUP * E, *apart = matrix + D * D, *values = apart + D * D, unused;
    for (int64_t r = 0; r < D; r += GROUP)
        multiply_rows(mha__min64(GROUP, D - r), D, E, v + r * E, copying->between, o, room, matrix + r * D);
    for (int64_t r = 0; r < D; r++) { /* subtracts the part that U's mean contributes */
        const double words = mha__dot(E, v + r * E, copying->words);
        for (int64_t i = 0; i < D; i++)
            apart[r * D + i] = matrix[r * D + i] - words * mha__dot(E, o + i * E, copying->means);
    }
    return score(D, matrix, values, &c->trace[n], &c->copying[n]) && score(D, apart, values, &unused, &c->centred[n]);
}
