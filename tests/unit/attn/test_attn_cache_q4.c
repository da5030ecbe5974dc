/* test_attn_cache_q4.c - tests attention over caches in q4_0, whose rows are rotated: results against attention in
 * double on the restored keys and values, and bitwise identical results for any number of queries per call, page size
 * and thread count; and rotation of the keys of caches of 4 and 8 bits in the call. */
#include "math/half.h"
#include "math/types/e4m3.h"
#include "math/types/element.h"
#include "mha/cache.h"
#include "support/check.h"
#include "support/isas.h"
#include "support/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { H = 4, HKV = 2, D = 64, DV = 96, N = 200 };
typedef struct rows {
    float q[H * N * D], k[HKV * N * D], v[HKV * N * DV], out[H * N * DV], lse[H * N];
} rows;

static rows *make(uint64_t seed)
{
    rows *x = calloc(1, sizeof *x);
    rng r = rng_make(seed, 1);
    assert_non_null(x);
    for (int64_t i = 0; i < H * N * D; i++)
        x->q[i] = (float)rng_normal(&r);
    for (int64_t i = 0; i < HKV * N * D; i++)
        x->k[i] = (float)rng_normal(&r) + (i % D == 5 ? 12 : 0); /* one large element, as in trained models */
    for (int64_t i = 0; i < HKV * N * DV; i++)
        x->v[i] = (float)rng_normal(&r);
    return x;
}

static mha_cache *create(mha_ctx *ctx, mha_dtype dtype, int64_t page_size, int64_t window)
{
    const mha_cache_desc d = {.size = sizeof d,
                              .batch = 1,
                              .kv_heads = HKV,
                              .head_dim = D,
                              .v_head_dim = DV,
                              .dtype = dtype,
                              .page_size = page_size,
                              .window = window};
    mha_cache *cache;
    mha_error err = {0};
    if (mha_cache_create(ctx, &d, &cache, &err) != MHA_OK) fail_msg("%s", err.message);
    return cache;
}

/* Appends `count` tokens from token `first` on and computes their rows of out and lse. */
static void step(mha_ctx *ctx, mha_cache *cache, rows *x, int64_t first, int64_t count, const mha_attn_desc *options)
{
    static const float sinks[H] = {0.5F, -1, 2, 0};
    mha_error err = {0};
    const mha_cache_tokens t = {.size = sizeof t,
                                .count = count,
                                .dtype = MHA_F32,
                                .k = {x->k + first * D, {0, N * D, D, 1}},
                                .v = {x->v + first * DV, {0, N * DV, DV, 1}}};
    if (mha_cache_append(cache, 0, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_attn_desc d = *options;
    mha_attn_args a = {.size = sizeof a,
                       .q = {x->q + first * D, {0, N * D, D, 1}},
                       .out = {x->out + first * DV, {H * N * DV, N * DV, DV, 1}},
                       .lse = {x->lse + first, {H * N, N, 1, 0}},
                       .sinks = {d.inputs & MHA_ATTN_SINKS ? sinks : NULL, {0, 1, 0, 0}}};
    d.q_len = count;
    if (mha_cache_bind(cache, 0, NULL, &d, &a, &err) != MHA_OK || mha_attention(ctx, &d, &a, &err) != MHA_OK)
        fail_msg("%s", err.message);
}

static void run(mha_ctx *ctx, mha_dtype dtype, rows *x, int64_t page_size, int64_t each, const mha_attn_desc *options)
{
    mha_cache *cache = create(ctx, dtype, page_size, options->window.on ? options->window.left + 1 : 0);
    for (int64_t first = 0; first < N; first += each)
        step(ctx, cache, x, first, first + each < N ? each : N - first, options);
    mha_cache_free(cache);
}

static const mha_attn_desc options[] = {
    {.size = sizeof(mha_attn_desc), .heads = H, .causal = 1, .outputs = MHA_ATTN_LSE},
    {.size = sizeof(mha_attn_desc), .heads = H, .causal = 1, .outputs = MHA_ATTN_LSE, .window = {1, 69, -1}},
    {.size = sizeof(mha_attn_desc),
     .heads = H,
     .causal = 1,
     .outputs = MHA_ATTN_LSE,
     .softcap = 3,
     .inputs = MHA_ATTN_SINKS},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* One call for all tokens, chunks, and single tokens must be bitwise identical, with any page size and thread count. */
static void test_same_bits(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_Q4_0, MHA_F8_E4M3};
    static const int64_t steps[][2] = {{1, 16}, {3, 128}, {70, 32}};
    for (int n = 0; n < isa_count; n++)
        for (int at = 0; at < 2 * OPTIONS; at++) {
            rows *x = make(7), *y = make(7);
            run(isa_contexts[n], types[at % 2], x, 128, at / 2 == 1 ? 70 : N, &options[at / 2]);
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
                run(isa_contexts[n], types[at % 2], y, steps[s][1], steps[s][0], &options[at / 2]);
                if (memcmp(x->out, y->out, sizeof x->out) != 0 || memcmp(x->lse, y->lse, sizeof x->lse) != 0)
                    fail_msg("%s, %s: options %d in steps of %d must be bitwise identical to one call",
                             mha_ctx_isa(isa_contexts[n]), mha_dtype_name(types[at % 2]), at / 2, (int)steps[s][0]);
            }
            free(x), free(y);
        }
}

/* Restores element d of row j of head g of a cache whose pages are in the order of its tokens: dequantizes a block and
 * multiplies it by the Hadamard matrix, whose element (i, j) is negative if i and j have an odd number of common
 * bits. */
static double restored(const mha_named_tensor *t, int64_t g, int64_t j, int64_t d)
{
    const int64_t size = t->shape[2], blocks = t->shape[3] * 2 / (int64_t)sizeof(mha__q4);
    const mha__q4 *block =
        (const mha__q4 *)t->data + ((j / size * HKV + g) * size + j % size) * blocks + d / MHA__Q4_BLOCK;
    double sum = 0;
    for (int i = 0; i < MHA__Q4_BLOCK; i++)
        sum += (__builtin_popcount((unsigned)(i & (d % MHA__Q4_BLOCK))) % 2 ? -1 : 1) * mha__q4_at(block->q, i);
    return sum * (double)mha__f16_to_f32(block->scale) / sqrt(MHA__Q4_BLOCK);
}

/* Computes the last row of head h in double from the restored keys and values. */
static void reference(const mha_named_tensor *t, const rows *x, int64_t h, double out[DV])
{
    double s[N], max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < N; j++) {
        s[j] = 0;
        for (int64_t d = 0; d < D; d++)
            s[j] += (double)x->q[(h * N + N - 1) * D + d] * restored(&t[2], h / (H / HKV), j, d) / sqrt(D);
        max = fmax(max, s[j]);
    }
    memset(out, 0, DV * sizeof *out);
    for (int64_t j = 0; j < N; j++)
        sum += s[j] = exp(s[j] - max);
    for (int64_t j = 0; j < N; j++)
        for (int64_t d = 0; d < DV; d++)
            out[d] += s[j] / sum * restored(&t[3], h / (H / HKV), j, d);
}

static void test_reference(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count; n++) {
        rows *x = make(8);
        mha_cache *cache = create(isa_contexts[n], MHA_Q4_0, 16, 0);
        step(isa_contexts[n], cache, x, 0, N - 1, &options[0]);
        step(isa_contexts[n], cache, x, N - 1, 1, &options[0]);
        mha_named_tensor t[MHA_CACHE_TENSORS];
        mha_cache_save(cache, t);
        for (int64_t h = 0; h < H; h++) {
            double out[DV];
            reference(t, x, h, out);
            for (int64_t d = 0; d < DV; d++)
                assert_true(fabs((double)x->out[(h * N + N - 1) * DV + d] - out[d]) < 5e-6);
        }
        mha_cache_free(cache);
        free(x);
    }
}

static double squares(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (b ? (double)b[i] : 0)) * ((double)a[i] - (b ? (double)b[i] : 0));
    return sum;
}

/* The error relative to a cache in f32 must be within the measured bounds of each type: 8 bits below 2 %, 8-bit
 * floating point below 8 %, 4 bits below 20 %, although the keys have a large element. */
static void test_error(void **state)
{
    (void)state;
    static const struct {
        mha_dtype dtype;
        double max;
    } types[] = {{MHA_Q8_0, 0.02}, {MHA_F8_E4M3, 0.08}, {MHA_Q4_0, 0.2}};
    rows *exact = make(9), *x = make(9);
    run(isa_contexts[0], MHA_F32, exact, 0, N, &options[0]);
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        run(isa_contexts[0], types[n].dtype, x, 0, N, &options[0]);
        const double error = sqrt(squares(x->out, exact->out, H * N * DV) / squares(exact->out, NULL, H * N * DV));
        if (!(error > 0 && error < types[n].max))
            fail_msg("%s: error must be below %g (got %g)", mha_dtype_name(types[n].dtype), types[n].max, error);
    }
    free(exact), free(x);
}

/* A token with NaN must not affect the rows of earlier tokens. */
static void test_nan_unread(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count; n++) {
        rows *x = make(10), *y = make(10);
        for (int64_t g = 0; g < HKV; g++)
            y->k[(g * N + N - 1) * D] = NAN, y->v[(g * N + N - 1) * DV] = INFINITY;
        run(isa_contexts[n], MHA_Q4_0, x, 64, N, &options[0]);
        run(isa_contexts[n], MHA_Q4_0, y, 64, N, &options[0]);
        for (int64_t h = 0; h < H; h++) {
            assert_memory_equal(x->out + h * N * DV, y->out + h * N * DV, (N - 1) * DV * sizeof(float));
            assert_true(isnan(y->out[(h * N + N - 1) * DV]));
        }
        free(x), free(y);
    }
}

/* Dequantizes the keys of a cache in the order in which they were appended. */
static void restore_keys(const mha_cache *cache, mha_dtype dtype, float *to)
{
    mha_named_tensor t[MHA_CACHE_TENSORS];
    mha_cache_save(cache, t);
    const int64_t size = t[2].shape[2], bytes = (int64_t)mha__element_size(dtype) * mha__element_count(dtype, D);
    for (int64_t g = 0; g < HKV; g++)
        for (int64_t j = 0; j < N; j++) {
            const char *row = (const char *)t[2].data + ((j / size * HKV + g) * size + j % size) * bytes;
            float *x = to + (g * N + j) * D;
            for (int64_t d = 0; d < D; d++) {
                const mha__q8 *q8 = (const mha__q8 *)(const void *)row + d / MHA__Q8_BLOCK;
                const mha__q4 *q4 = (const mha__q4 *)(const void *)row + d / MHA__Q4_BLOCK;
                x[d] = dtype == MHA_Q8_0 ? (float)q8->q[d % MHA__Q8_BLOCK] * mha__f16_to_f32(q8->scale)
                       : dtype == MHA_Q4_0
                           ? (float)mha__q4_at(q4->q, (int)(d % MHA__Q4_BLOCK)) * mha__f16_to_f32(q4->scale)
                           : mha__e4m3_to_f32((uint8_t)row[d]);
            }
            if (dtype == MHA_Q4_0) mha__rotate_rows(1, D, x, D);
        }
}

/* Appends keys, rotated by `appended` unless it is NULL, and computes the last row of each head, rotated by `rope`. */
static mha_cache *attend_last(mha_ctx *ctx, mha_dtype dtype, const rows *x, const float *k,
                              const mha_attn_rope *appended, const mha_attn_rope *rope, float *out)
{
    mha_cache *cache = create(ctx, dtype, 16, 0);
    mha_error err = {0};
    const mha_cache_tokens t = {.size = sizeof t,
                                .count = N,
                                .dtype = MHA_F32,
                                .k = {k, {0, N * D, D, 1}},
                                .v = {x->v, {0, N * DV, DV, 1}},
                                .rope = appended};
    mha_attn_desc d = options[0];
    d.q_len = 1;
    d.outputs = 0;
    d.inputs = appended ? MHA_ATTN_ROPE_Q : MHA_ATTN_ROPE_Q | MHA_ATTN_ROPE_K;
    mha_attn_args a = {.size = sizeof a, .q = {x->q, {0, D, D, 1}}, .out = {out, {H * DV, DV, DV, 1}}, .rope = rope};
    if (mha_cache_append(cache, 0, &t, &err) != MHA_OK || mha_cache_bind(cache, 0, NULL, &d, &a, &err) != MHA_OK ||
        mha_attention(ctx, &d, &a, &err) != MHA_OK)
        fail_msg("%s", err.message);
    return cache;
}

/* Keys that a call rotates must be bitwise those of a cache to which the dequantized keys were appended, rotated. */
static void test_rotated_keys(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_Q8_0, MHA_Q4_0, MHA_F8_E4M3};
    static float cosines[N * D / 2], sines[N * D / 2], k[HKV * N * D], out[H * DV], want[H * DV];
    const mha_attn_rope rope = {.size = sizeof rope, .positions = N, .cos = cosines, .sin = sines};
    for (int64_t i = 0; i < N * D / 2; i++)
        cosines[i] = (float)cos(0.01 * (double)i), sines[i] = (float)sin(0.01 * (double)i);
    for (int n = 0; n < 3 * isa_count; n++) {
        mha_ctx *ctx = isa_contexts[n / 3];
        rows *x = make(11);
        mha_cache *stored = attend_last(ctx, types[n % 3], x, x->k, NULL, &rope, out);
        restore_keys(stored, types[n % 3], k);
        mha_cache_free(stored);
        mha_cache_free(attend_last(ctx, types[n % 3], x, k, &rope, &rope, want));
        assert_memory_equal(out, want, sizeof out);
        free(x);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_cache *cache;
    mha_cache_desc d = {.size = sizeof d, .batch = 1, .kv_heads = 1, .head_dim = 48, .dtype = MHA_Q4_0};
    assert_int_equal(mha_cache_create(NULL, &d, &cache, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "head_dim must be a multiple of 32 with keys and values in q4_0 (got 48)"));
    d.head_dim = 32, d.v_head_dim = 40;
    assert_int_equal(mha_cache_create(NULL, &d, &cache, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "v_head_dim must be a multiple of 32"));
    mha_attn_desc a = {
        .size = sizeof a, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 4, .head_dim = 32, .kv_dtype = MHA_Q4_0};
    a.outputs = MHA_ATTN_PARTIAL;
    mha_attn_plan *plan;
    assert_int_equal(mha_attn_plan_create(NULL, &a, &plan, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "kv_dtype must not be q4_0 if outputs contains MHA_ATTN_PARTIAL"));
    a.outputs = MHA_ATTN_GRADS;
    assert_int_equal(mha_attn_plan_create(NULL, &a, &plan, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "(got q4_0)"));
    d.v_head_dim = 32;
    assert_int_equal(mha_cache_create(NULL, &d, &cache, &err), MHA_OK);
    float row[32] = {0};
    row[3] = -93000;
    const mha_cache_tokens t = {.size = sizeof t, .count = 1, .k.data = row, .v.data = row};
    assert_int_equal(mha_cache_append(cache, 0, &t, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "k[0, 0, 0, 3] must be below 92655 in magnitude in q4_0 (got -93000)"));
    mha_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_error),        cmocka_unit_test(test_nan_unread),
                                       cmocka_unit_test(test_rotated_keys), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, isa_setup_two, isa_teardown);
}
