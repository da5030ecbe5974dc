/* ref.c - implements ref.h. Reads views and masks, and includes ref.inc once per type. */
#include "support/reference/ref.h"

#include "support/attn/functions.h"
#include "support/reference/half.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A view with explicit strides and an element type; paged if it has a block table. */
typedef struct reader {
    const char *data;
    int64_t stride[4];
    mha_dtype dtype;
    const mha_cview *table;
    int64_t page_size;
} reader;

/* The description and arguments of a call, with default sizes applied. */
typedef struct problem_view {
    const mha_attn_desc *desc;
    const mha_attn_args *args;
    int64_t Hkv, Lk, D, Dv;
    double scale;
    reader q, k, v, bias;
} problem_view;

typedef struct row_at {
    int64_t b, h, g, i; /* batch entry, query head, key/value head, row */
} row_at;

static int32_t page_of(const mha_cview *table, int64_t b, int64_t page)
{
    return ((const int32_t *)table->data)[b * table->stride[0] + page * table->stride[1]];
}

/* Returns true for the types whose elements are in blocks of 32. */
static bool is_blocks(mha_dtype dtype)
{
    return dtype == MHA_Q8_0 || dtype == MHA_Q4_0;
}

static double element(const reader *r, int64_t b, int64_t h, int64_t l, int64_t d)
{
    if (r->table) {
        b = page_of(r->table, b, l / r->page_size);
        l %= r->page_size;
    }
    const int64_t column = is_blocks(r->dtype) ? d / Q8_ELEMENTS : d;
    int64_t at = b * r->stride[0] + h * r->stride[1] + l * r->stride[2] + column * r->stride[3];
    const void *data = r->data;
    switch (r->dtype) {
    case MHA_Q8_0:
        return q8_value((const char *)data + at * Q8_BYTES, (int)(d % Q8_ELEMENTS));
    case MHA_Q4_0:
        return q4_value((const char *)data + at * Q4_BYTES, (int)(d % Q4_ELEMENTS));
    case MHA_F8_E4M3:
        return e4m3_value(((const uint8_t *)data)[at]);
    case MHA_F64:
        return ((const double *)data)[at];
    case MHA_BF16:
        return half_value(((const uint16_t *)data)[at], BF16_FRACTION);
    case MHA_F16:
        return half_value(((const uint16_t *)data)[at], F16_FRACTION);
    default:
        return (double)((const float *)data)[at];
    }
}

static reader read_view(const mha_cview *view, mha_dtype dtype, int64_t heads, int64_t length, int64_t width)
{
    reader r = {.data = view->data, .dtype = dtype};
    memcpy(r.stride, view->stride, sizeof r.stride);
    if (is_blocks(dtype)) width = (width + Q8_ELEMENTS - 1) / Q8_ELEMENTS;
    if (!r.stride[0] && !r.stride[1] && !r.stride[2] && !r.stride[3]) {
        r.stride[3] = 1;
        r.stride[2] = width;
        r.stride[1] = width * length;
        r.stride[0] = width * length * heads;
    }
    return r;
}

static mha_dtype either(mha_dtype given, mha_dtype otherwise)
{
    return given == MHA_DTYPE_DEFAULT ? otherwise : given;
}

static problem_view resolve(const mha_attn_desc *desc, const mha_attn_args *args)
{
    problem_view p = {.desc = desc, .args = args, .Lk = desc->kv_len, .D = desc->head_dim};
    p.Hkv = desc->kv_heads ? desc->kv_heads : desc->heads;
    p.Dv = desc->v_head_dim ? desc->v_head_dim : desc->head_dim;
    p.scale = desc->scale != 0 ? desc->scale : 1 / sqrt((double)desc->head_dim);
    mha_dtype dtype = either(desc->dtype, MHA_F32), kv = either(desc->kv_dtype, dtype);
    p.q = read_view(&args->q, dtype, desc->heads, desc->q_len, p.D);
    const bool paged = desc->inputs & MHA_ATTN_BLOCK_TABLE;
    p.k = read_view(&args->k, kv, p.Hkv, paged ? desc->page_size : p.Lk, p.D);
    p.v = read_view(&args->v, kv, p.Hkv, paged ? desc->page_size : p.Lk, p.Dv);
    p.k.table = p.v.table = paged ? &args->block_table : NULL;
    p.k.page_size = p.v.page_size = desc->page_size;
    if (desc->inputs & MHA_ATTN_BIAS) {
        p.bias =
            (reader){.data = args->bias.data, .dtype = either(desc->bias_dtype, dtype == MHA_F64 ? dtype : MHA_F32)};
        memcpy(p.bias.stride, args->bias.stride, sizeof p.bias.stride);
    }
    return p;
}

/* Returns the position of row 0 of sequence b relative to key 0. */
static int64_t offset_of(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t rows, int64_t keys)
{
    switch (desc->align) {
    case MHA_ALIGN_BOTTOM_RIGHT:
        return keys - rows;
    case MHA_ALIGN_OFFSETS:
        return args->offsets[b];
    default:
        return 0;
    }
}

static int64_t rows_of(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b)
{
    return desc->inputs & MHA_ATTN_Q_LENS ? args->q_lens[b] : desc->q_len;
}

static int64_t keys_of(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b)
{
    return desc->inputs & MHA_ATTN_KV_LENS ? args->kv_lens[b] : desc->kv_len;
}

double ref_function_term(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i,
                         int64_t j)
{
    return functions_term(b, h, i + offset_of(desc, args, b, rows_of(desc, args, b), keys_of(desc, args, b)), j);
}

double ref_distance(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t i, int64_t j)
{
    int64_t offset = offset_of(desc, args, b, rows_of(desc, args, b), keys_of(desc, args, b));
    return fabs((double)i + (double)offset - (double)j);
}

/* Returns the head count of the results. */
static int64_t results_of(const mha_attn_desc *desc)
{
    return desc->inputs & MHA_ATTN_HEAD_LIST ? desc->listed_heads : desc->heads;
}

/* Returns the slope, sink or gate of head h in batch entry b. */
static double per_head(const mha_attn_desc *desc, const mha_cview *view, int64_t b, int64_t h)
{
    const int64_t n = b * view->stride[0] + h * view->stride[1];
    return desc->dtype == MHA_F64 ? ((const double *)view->data)[n] : (double)((const float *)view->data)[n];
}

static bool byte_at(const mha_cview *v, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t *stride = v->stride;
    return ((const uint8_t *)v->data)[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]] != 0;
}

/* Returns the first of the four words of Philox4x32-10 for a counter (c0, c1, c2, c3). */
static uint32_t philox(uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

/* Returns the factor by which dropout multiplies a probability. */
static double dropout_factor(const mha_attn_desc *desc, const mha_attn_args *args, const row_at *at, int64_t j)
{
    bool kept = true;
    if (desc->inputs & MHA_ATTN_DROPOUT_KEEP)
        kept = byte_at(&args->dropout_keep, at->b, at->h, at->i, j);
    else if (desc->dropout > 0)
        kept = philox(args->dropout_seed, (uint32_t)at->b, (uint32_t)at->h, (uint32_t)at->i, (uint32_t)j) >=
               desc->dropout * 0x1p32;
    return kept && desc->dropout < 1 ? 1 / (1 - desc->dropout) : 0;
}

double ref_dropout(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const row_at at = {b, h, 0, i};
    return dropout_factor(desc, args, &at, j);
}

static bool in_band(const mha_attn_desc *desc, int64_t position, int64_t j)
{
    const mha_window *w = &desc->window;
    if (desc->causal && j > position) return false;
    if (w->on && w->left >= 0 && j < position - w->left) return false;
    if (w->on && w->right >= 0 && j > position + w->right) return false;
    return true;
}

static bool kept(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t described = desc->keep_keys ? desc->keep_keys : desc->kv_len;
    return j < described && byte_at(&args->keep, b, h, i, j);
}

/* Returns true if row i and key j of sequence b exist: both are within the lengths, and the page of key j is present.
 */
static bool exists(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t i, int64_t j)
{
    if (i >= rows_of(desc, args, b) || j >= keys_of(desc, args, b)) return false;
    return !(desc->inputs & MHA_ATTN_BLOCK_TABLE) || page_of(&args->block_table, b, j / desc->page_size) >= 0;
}

bool ref_visible(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t rows = rows_of(desc, args, b), keys = keys_of(desc, args, b);
    if (i >= rows || j >= keys) return false;
    if ((desc->inputs & MHA_ATTN_BLOCK_TABLE) && page_of(&args->block_table, b, j / desc->page_size) < 0) return false;
    bool ahead = (desc->inputs & MHA_ATTN_PREFIX_LENS) && j < args->prefix_lens[b];
    if (!ahead && !in_band(desc, i + offset_of(desc, args, b, rows, keys), j)) return false;
    if ((desc->inputs & MHA_ATTN_BLOCK_KEEP) && !byte_at(&args->block_keep, b, h, i / desc->block_q, j / desc->block_k))
        return false;
    if ((desc->inputs & MHA_ATTN_KEEP) && !kept(desc, args, b, h, i, j)) return false;
    const int64_t position = i + offset_of(desc, args, b, rows, keys);
    if ((desc->inputs & MHA_ATTN_FUNCTIONS) && (functions_hide(b, h, position, j) || functions_drop(b, h, position, j)))
        return false;
    if (!(desc->inputs & MHA_ATTN_BIAS)) return true;
    problem_view p = resolve(desc, args);
    double bias = element(&p.bias, b, h, i, j);
    return !(isinf(bias) && bias < 0);
}

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define FN(name) JOIN(name, SUFFIX)
#define ROW FN(row)

#define SUFFIX f32
#define REAL float
#define EXP expf
#define LOG logf
#define TANH tanhf
#define UNIT 0x1p-24
#include "support/reference/ref.inc"
#undef SUFFIX
#undef REAL
#undef EXP
#undef LOG
#undef TANH

/* double: the reference of f32 problems, and the plain computation of f64 problems (without floors) */
#define SUFFIX f64
#define REAL double
#define EXP exp
#define LOG log
#define TANH tanh
#include "support/reference/ref.inc"
#undef SUFFIX
#undef REAL
#undef EXP
#undef LOG
#undef TANH
#undef UNIT

#define SUFFIX wide
#define REAL long double
#define EXP expl
#define LOG logl
#define TANH tanhl
#define UNIT 0x1p-53
#include "support/reference/ref.inc"

double ref_rounding(mha_dtype dtype, double x)
{
    if (dtype == MHA_BF16) return ldexp(fabs(x), -1 - BF16_FRACTION);
    if (dtype == MHA_F16) return ldexp(fabs(x), -1 - F16_FRACTION) + 0x1p-25; /* half of the smallest subnormal */
    return 0;
}

static double *numbers(size_t count)
{
    double *p = calloc(count + 1, sizeof *p);
    if (!p) abort();
    return p;
}

static void prepare(const problem_view *p, ref_result *r, bool floors)
{
    *r = (ref_result){.rows = (size_t)(p->desc->batch * results_of(p->desc) * p->desc->q_len),
                      .width = (size_t)p->Dv,
                      .keys = (size_t)p->Lk};
    r->out = numbers(r->rows * r->width);
    r->lse = numbers(r->rows);
    r->probs = numbers(r->rows * r->keys);
    r->scores = numbers(r->rows * r->keys);
    if (!floors) return;
    r->out_floor = numbers(r->rows * r->width);
    r->weights_floor = numbers(r->rows * r->width);
    r->lse_floor = numbers(r->rows);
    r->probs_floor = numbers(r->rows * r->keys);
    r->scores_floor = numbers(r->rows * r->keys);
}

void ref_truth(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result)
{
    problem_view p = resolve(desc, args);
    prepare(&p, result, true);
    (desc->dtype == MHA_F64 ? attend_wide : attend_f64)(&p, result);
    for (size_t n = 0; n < result->rows * result->width; n++)
        result->out_floor[n] += ref_rounding(desc->dtype, result->out[n]);
}

void ref_plain(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result)
{
    problem_view p = resolve(desc, args);
    prepare(&p, result, false);
    (desc->dtype == MHA_F64 ? attend_f64 : attend_f32)(&p, result);
}

void ref_free(ref_result *r)
{
    free(r->out);
    free(r->lse);
    free(r->probs);
    free(r->scores);
    free(r->out_floor);
    free(r->weights_floor);
    free(r->lse_floor);
    free(r->probs_floor);
    free(r->scores_floor);
    *r = (ref_result){0};
}
