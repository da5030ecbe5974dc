/* rotated.c - implements rotated.h. */
#include "support/attn/rotated.h"

#include "math/types/q4_0.h"
#include "math/types/q8_0.h"
#include "mha/rope.h"
#include "support/check.h"
#include "support/reference/half.h"
#include <stdlib.h>
#include <string.h>

static mha_rope_options options_of(const rotated *r)
{
    return (mha_rope_options){.size = sizeof(mha_rope_options),
                              .head_dim = r->rope.rotary_dim,
                              .interleaved = r->rope.interleaved,
                              .theta = 50};
}

/* Computes cos and sin in both types. */
static void make_tables(rotated *r, const problem *p)
{
    const int64_t rows = r->rope.positions, pairs = r->rope.rotary_dim / 2;
    const mha_rope_options options = options_of(r);
    double *frequencies = calloc((size_t)pairs, sizeof *frequencies), gain;
    mha_error err = {0};
    for (int n = 0; n < 2; n++) {
        r->f64[n] = calloc((size_t)(rows * pairs), sizeof **r->f64);
        r->f32[n] = calloc((size_t)(rows * pairs), sizeof **r->f32);
    }
    assert_int_equal(mha_rope_frequencies(&options, rows, frequencies, &gain, &err), MHA_OK);
    assert_int_equal(mha_rope_angles(&options, NULL, rows, r->f32[0], r->f32[1], &err), MHA_OK);
    for (int64_t n = 0; n < rows * pairs; n++) {
        r->f64[0][n] = cos((double)(n / pairs) * frequencies[n % pairs]);
        r->f64[1][n] = sin((double)(n / pairs) * frequencies[n % pairs]);
    }
    free(frequencies);
    const bool wide = p->desc.dtype == MHA_F64;
    r->rope.cos = wide ? (void *)r->f64[0] : r->f32[0];
    r->rope.sin = wide ? (void *)r->f64[1] : r->f32[1];
}

static int64_t *positions(rng *r, int64_t count, int64_t max)
{
    int64_t *list = malloc((size_t)(count + 1) * sizeof *list);
    for (int64_t n = 0; n < count; n++)
        list[n] = rng_range(r, 0, max);
    return list;
}

void rotated_make(rotated *r, problem *p, uint64_t seed, uint64_t number)
{
    rng random = rng_make(seed, number ^ UINT64_C(1) << 59);
    mha_attn_desc *d = &p->desc;
    const int64_t D = d->head_dim, Lq = d->q_len, Lk = d->kv_len;
    *r = (rotated){.rope = {.size = sizeof r->rope}, .row_stride = Lq, .key_stride = Lk};
    if (D < 2) return;
    r->rope.first = D > 2 && rng_chance(&random, 0.3) ? rng_range(&random, 0, D - 2) : 0;
    r->rope.rotary_dim = 2 * rng_range(&random, 1, (D - r->rope.first) / 2);
    r->rope.interleaved = rng_chance(&random, 0.4);
    r->rope.positions = Lq + Lk + 5;
    make_tables(r, p);
    uint32_t flags = (uint32_t)rng_range(&random, 1, 3) * MHA_ATTN_ROPE_Q;
    d->inputs |= flags;
    const bool moved = Lq != Lk || (d->inputs & (MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS));
    const bool natural = d->align == MHA_ALIGN_TOP_LEFT || (d->align == MHA_ALIGN_UNSET && !moved);
    if (!natural || rng_chance(&random, 0.5)) {
        r->rows = positions(&random, d->batch * Lq, r->rope.positions - 1);
        r->rope.q_positions = (mha_cview){r->rows, {Lq, 1, 0, 0}};
    }
    if (rng_chance(&random, 0.5)) {
        r->keys = positions(&random, d->batch * Lk, r->rope.positions - 1);
        r->rope.k_positions = (mha_cview){r->keys, {Lk, 1, 0, 0}};
    }
}

void rotated_free(rotated *r)
{
    for (int n = 0; n < 2; n++) {
        free(r->f64[n]);
        free(r->f32[n]);
    }
    free(r->rows);
    free(r->keys);
}

int64_t rotated_row(const rotated *r, const problem *p, int64_t b, int64_t i)
{
    (void)p; /* without explicit positions, offsets are 0 */
    return r->rows ? r->rows[b * r->row_stride + i] : i;
}

int64_t rotated_key(const rotated *r, int64_t b, int64_t j)
{
    return r->keys ? r->keys[b * r->key_stride + j] : j;
}

static void turn_f64(const rotated *r, int64_t position, bool back, double *x)
{
    const int64_t pairs = r->rope.rotary_dim / 2;
    for (int64_t i = 0; i < pairs; i++) {
        const double c = r->f64[0][position * pairs + i];
        const double s = back ? -r->f64[1][position * pairs + i] : r->f64[1][position * pairs + i];
        double *u = r->rope.interleaved ? x + 2 * i : x + i, *v = r->rope.interleaved ? u + 1 : u + pairs;
        const double a = *u, b = *v;
        *u = a * c - b * s;
        *v = b * c + a * s;
    }
}

void rotated_turn(const rotated *r, const problem *p, int64_t width, int64_t position, bool back, double *row)
{
    const mha_rope_options options = options_of(r);
    const int64_t pairs = r->rope.rotary_dim / 2, R = 2 * pairs;
    float x[MHA_HEAD_DIM_MAX];
    mha_error err = {0};
    assert_true(r->rope.first + R <= width);
    if (p->desc.dtype == MHA_F64) {
        turn_f64(r, position, back, row + r->rope.first);
        return;
    }
    for (int64_t d = 0; d < R; d++)
        x[d] = (float)row[r->rope.first + d];
    assert_int_equal(mha_rope_turn(NULL, &options, r->f32[0] + position * pairs, r->f32[1] + position * pairs, 1, 1, x,
                                   R, R, back, &err),
                     MHA_OK);
    for (int64_t d = 0; d < R; d++)
        row[r->rope.first + d] = (double)x[d];
}

/* Rotates row (b, h, l) of `from`, at the position of a row or key, to `to`. */
static void turn_row(const rotated *r, const problem *p, const tensor *from, tensor *to, int64_t b, int64_t h,
                     int64_t l, int64_t position)
{
    const int64_t D = p->desc.head_dim;
    double row[MHA_HEAD_DIM_MAX];
    for (int64_t d = 0; d < D; d++)
        row[d] = tensor_get(from, b, h, l, d);
    rotated_turn(r, p, D, position, false, row);
    for (int64_t d = 0; d < D; d++)
        tensor_set(to, b, h, l, d, row[d]);
}

/* Restores D elements of a row of blocks in f32. */
static void restore_blocks(const tensor *t, int64_t b, int64_t h, int64_t l, int64_t D, float *x)
{
    for (int64_t d = 0; d < D; d++) {
        const char *block = tensor_at(t, b, h, l, d / Q8_ELEMENTS);
        const int at = (int)(d % Q8_ELEMENTS);
        uint16_t scale;
        memcpy(&scale, block, sizeof scale);
        x[d] = (float)(t->dtype == MHA_Q8_0 ? q8_value(block, at)
                                            : half_value(scale, F16_FRACTION) * q4_rotated(block, at));
    }
    if (t->dtype == MHA_Q4_0) mha__rotate_rows(1, D, x, D);
}

/* Rotates row (b, h, l) of blocks: restores its elements, which are exact in f32 except for the inverse rotation of
 * q4_0, and rounds the rotated row as an append to a cache does. */
static void turn_blocks(const rotated *r, const problem *p, const tensor *from, tensor *to, int64_t b, int64_t h,
                        int64_t l, int64_t position)
{
    const int64_t D = p->desc.head_dim;
    double row[MHA_HEAD_DIM_MAX];
    float x[MHA_HEAD_DIM_MAX];
    restore_blocks(from, b, h, l, D, x);
    for (int64_t d = 0; d < D; d++)
        row[d] = (double)x[d];
    rotated_turn(r, p, D, position, false, row);
    for (int64_t d = 0; d < D; d++)
        x[d] = (float)row[d];
    if (to->dtype == MHA_Q4_0)
        mha__q4_round_rotated(x, 1, D, tensor_at(to, b, h, l, 0));
    else
        mha__q8_round(x, 1, D, tensor_at(to, b, h, l, 0));
}

static void replace(tensor *t, const tensor *from)
{
    static const tensor_layout plain;
    tensor copy;
    tensor_make(&copy, from->dtype, from->dim, &plain, TEST_POISON);
    tensor_copy(&copy, from);
    tensor_free(t);
    *t = copy;
}

static void turn_queries(const rotated *r, const problem *p, problem *twin)
{
    const mha_attn_desc *d = &p->desc;
    replace(&twin->q, &p->q);
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = 0; i < (d->inputs & MHA_ATTN_Q_LENS ? p->q_lens[b] : d->q_len); i++)
                turn_row(r, p, &p->q, &twin->q, b, h, i, rotated_row(r, p, b, i));
}

static void turn_keys(const rotated *r, const problem *p, problem *twin)
{
    const mha_attn_desc *d = &p->desc;
    const int64_t heads = d->kv_heads ? d->kv_heads : d->heads, size = d->page_size;
    const bool blocks = p->k.dtype == MHA_Q8_0 || p->k.dtype == MHA_Q4_0;
    replace(&twin->k, &p->k);
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t g = 0; g < heads; g++)
            for (int64_t j = 0; j < (d->inputs & MHA_ATTN_KV_LENS ? p->kv_lens[b] : d->kv_len); j++) {
                const int64_t page = p->table ? p->table[b * p->table_width + j / size] : b;
                if (page >= 0)
                    (blocks ? turn_blocks : turn_row)(r, p, &p->k, &twin->k, page, g, p->table ? j % size : j,
                                                      rotated_key(r, b, j));
            }
}

void rotated_twin(const rotated *r, const problem *p, problem *twin)
{
    if (p->desc.inputs & MHA_ATTN_ROPE_Q) turn_queries(r, p, twin);
    if (p->desc.inputs & MHA_ATTN_ROPE_K) turn_keys(r, p, twin);
    problem_bind(twin);
}
