/* test_attn_cached.c - attention over a KV cache must be bitwise identical to one dense call on every ISA, for any
 * sequence of appends and freed pages. */
#include "math/half.h"
#include "math/types/e4m3.h"
#include "math/types/element.h"
#include "mha/cache.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <string.h>

/* A dense problem, and the options of the cache with which attention must give the same result. */
typedef struct law {
    mha_attn_desc dense;
    int64_t page_size, capacity, window, keep_first;
} law;

#define SIZES .size = sizeof(mha_attn_desc), .batch = 2, .heads = 4, .kv_heads = 2, .outputs = MHA_ATTN_LSE, .causal = 1
static const law laws[] = {
    {{SIZES, .q_len = 300, .kv_len = 300, .head_dim = 32, .align = MHA_ALIGN_TOP_LEFT}, 0, 0, 0, 0},
    {{SIZES, .q_len = 290, .kv_len = 290, .head_dim = 24, .v_head_dim = 40, .align = MHA_ALIGN_TOP_LEFT}, 16, 0, 0, 0},
    {{SIZES, .q_len = 300, .kv_len = 300, .head_dim = 16, .align = MHA_ALIGN_TOP_LEFT, .window = {1, 69, -1}},
     32,
     1000,
     70,
     0},
    {{SIZES, .q_len = 400, .kv_len = 400, .head_dim = 16, .align = MHA_ALIGN_TOP_LEFT, .window = {1, 129, -1}},
     0,
     0,
     130,
     0},
    {{SIZES, .q_len = 150, .kv_len = 150, .head_dim = 8, .align = MHA_ALIGN_TOP_LEFT, .dtype = MHA_F64}, 64, 0, 0, 0},
};
enum { LAWS = sizeof laws / sizeof *laws };

static mha_cache *create(mha_ctx *ctx, const law *l)
{
    const mha_cache_desc d = {.size = sizeof d,
                              .batch = l->dense.batch,
                              .kv_heads = l->dense.kv_heads,
                              .head_dim = l->dense.head_dim,
                              .v_head_dim = l->dense.v_head_dim,
                              .dtype = l->dense.dtype,
                              .page_size = l->page_size,
                              .capacity = l->capacity,
                              .window = l->window,
                              .keep_first = l->keep_first};
    mha_cache *cache;
    mha_error err = {0};
    if (mha_cache_create(ctx, &d, &cache, &err) != MHA_OK) fail_msg("%s", err.message);
    return cache;
}

/* Returns a view of `t` that begins at row `first` of every batch entry. */
static mha_cview from_row(const tensor *t, int64_t first)
{
    mha_cview view = tensor_cview(t);
    view.data = (const char *)view.data + first * t->stride[2] * (int64_t)(t->dtype == MHA_F64 ? 8 : 4);
    return view;
}

static void append(mha_cache *cache, const problem *dense, int64_t first, int64_t count)
{
    mha_error err = {0};
    const mha_cache_tokens tokens = {
        .size = sizeof tokens, .count = count, .k = from_row(&dense->k, first), .v = from_row(&dense->v, first)};
    if (mha_cache_append(cache, MHA_CACHE_ALL, &tokens, &err) != MHA_OK) fail_msg("append: %s", err.message);
}

/* Computes rows [first, first + count) with the cache and stores them in the same rows of `got`. */
static void attend(mha_ctx *ctx, mha_cache *cache, problem *got, int64_t first, int64_t count)
{
    mha_error err = {0};
    mha_attn_desc d = {.size = sizeof d,
                       .heads = got->desc.heads,
                       .q_len = count,
                       .dtype = got->desc.dtype,
                       .causal = 1,
                       .outputs = MHA_ATTN_LSE};
    mha_attn_args a = {.size = sizeof a, .q = from_row(&got->q, first)};
    const mha_cview out = from_row(&got->out, first), lse = from_row(&got->lse, first);
    a.out.data = (void *)(uintptr_t)out.data;
    a.lse.data = (void *)(uintptr_t)lse.data;
    memcpy(a.out.stride, out.stride, sizeof a.out.stride);
    memcpy(a.lse.stride, lse.stride, sizeof a.lse.stride);
    if (mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &d, &a, &err) != MHA_OK) fail_msg("bind: %s", err.message);
    if (mha_attention(ctx, &d, &a, &err) != MHA_OK) fail_msg("attention: %s", err.message);
}

/* Computes the whole problem with a cache: first_step tokens in the first call, then `step` tokens per call. The result
 * must be bitwise identical to the dense call. */
static void check_steps(mha_ctx *ctx, const law *l, const problem *dense, int64_t first_step, int64_t step)
{
    problem got;
    problem_make(&got, &l->dense, NULL, 81);
    memcpy(got.kv_lens, dense->kv_lens, sizeof got.kv_lens);
    mha_cache *cache = create(ctx, l);
    const int64_t length = l->dense.q_len;
    for (int64_t at = 0, next; at < length; at = next) {
        next = at + (at ? step : first_step) < length ? at + (at ? step : first_step) : length;
        append(cache, dense, at, next - at);
        attend(ctx, cache, &got, at, next - at);
    }
    if (!problem_same_bits(dense, &got))
        fail_msg("%s: case %d: steps of %lld, then %lld tokens must not change the result", mha_ctx_isa(ctx),
                 (int)(l - laws), (long long)first_step, (long long)step);
    mha_cache_free(cache);
    problem_free(&got);
}

static void test_any_steps(void **state)
{
    (void)state;
    static const int64_t steps[][2] = {{1, 1}, {1000, 1}, {37, 37}, {128, 1}, {100, 150}};
    for (int n = 0; n < isa_count; n++)
        for (int k = 0; k < LAWS; k++) {
            problem dense;
            if (n >= isa_count_of(laws[k].dense.dtype)) continue;
            problem_make(&dense, &laws[k].dense, NULL, 81);
            problem_run(isa_contexts[n], &dense);
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
                check_steps(isa_contexts[n], &laws[k], &dense, steps[s][0], steps[s][1]);
            problem_free(&dense);
        }
}

/* With keep_first, a row attends to the first keep_first tokens and to its window. The dense call has the same mask as
 * a `keep` tensor. */
static void test_streaming(void **state)
{
    (void)state;
    static const law streaming = {
        {SIZES, .q_len = 200, .kv_len = 200, .head_dim = 16, .align = MHA_ALIGN_TOP_LEFT, .inputs = MHA_ATTN_KEEP},
        16,
        0,
        40,
        5};
    static const int64_t steps[][2] = {{1, 1}, {40, 160}, {7, 33}};
    for (int n = 0; n < isa_count_of(MHA_F32); n++) {
        problem dense;
        problem_make(&dense, &streaming.dense, NULL, 81);
        for (int64_t at = 0; at < 2 * 4 * 200 * 200; at++) {
            const int64_t i = at / 200 % 200, j = at % 200;
            tensor_set(&dense.keep, at / 160000, at / 40000 % 4, i, j, j < 5 || i - j < 40);
        }
        problem_run(isa_contexts[n], &dense);
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            check_steps(isa_contexts[n], &streaming, &dense, steps[s][0], steps[s][1]);
        problem_free(&dense);
    }
}

/* Fails unless all rows of one sequence in the cache are bitwise identical to `dense`. */
static void check_sequence(mha_ctx *ctx, mha_cache *cache, int64_t sequence, const problem *dense, const char *when)
{
    mha_error err = {0};
    problem got;
    problem_make(&got, &dense->desc, NULL, 1);
    tensor_copy(&got.q, &dense->q);
    mha_attn_desc call = {
        .size = sizeof call, .heads = 4, .q_len = dense->desc.q_len, .causal = 1, .outputs = MHA_ATTN_LSE};
    mha_attn_args args = got.args;
    assert_int_equal(mha_cache_bind(cache, sequence, NULL, &call, &args, &err), MHA_OK);
    assert_int_equal(call.batch, 1);
    if (mha_attention(ctx, &call, &args, &err) != MHA_OK) fail_msg("%s", err.message);
    if (!problem_same_bits(dense, &got))
        fail_msg("%s: %s must be bitwise identical to the dense call", mha_ctx_isa(ctx), when);
    problem_free(&got);
}

/* After a fork, both sequences must continue independently, each bitwise identical to a sequence in its own cache. The
 * same applies to a sequence that is truncated to the fork and then continued. */
static void test_fork_and_truncate(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_attn_desc d = laws[0].dense;
    d.batch = 1;
    d.q_len = d.kv_len = 200;
    law two = {d, 32, 0, 0, 0};
    two.dense.batch = 2;
    for (int n = 0; n < isa_count_of(d.dtype); n++) {
        problem a, b;
        problem_make(&a, &d, NULL, 82);
        problem_make(&b, &d, NULL, 83);
        for (int64_t at = 0; at < 2 * 90 * 32; at++) { /* b begins with the first 90 tokens of a */
            const int64_t g = at / (90 * 32), j = at / 32 % 90, x = at % 32;
            tensor_set(&b.k, 0, g, j, x, tensor_get(&a.k, 0, g, j, x));
            tensor_set(&b.v, 0, g, j, x, tensor_get(&a.v, 0, g, j, x));
        }
        problem_run(isa_contexts[n], &a);
        problem_run(isa_contexts[n], &b);
        mha_cache *cache = create(isa_contexts[n], &two);
        const mha_cache_tokens start_of_a = {
            .size = sizeof start_of_a, .count = 90, .k = tensor_cview(&a.k), .v = tensor_cview(&a.v)};
        const mha_cache_tokens rest_of_a = {
            .size = sizeof rest_of_a, .count = 110, .k = from_row(&a.k, 90), .v = from_row(&a.v, 90)};
        const mha_cache_tokens rest_of_b = {
            .size = sizeof rest_of_b, .count = 110, .k = from_row(&b.k, 90), .v = from_row(&b.v, 90)};
        assert_int_equal(mha_cache_append(cache, 0, &start_of_a, &err), MHA_OK);
        assert_int_equal(mha_cache_fork(cache, 0, 1, 90, &err), MHA_OK);
        assert_int_equal(mha_cache_append(cache, 0, &rest_of_a, &err), MHA_OK);
        assert_int_equal(mha_cache_append(cache, 1, &rest_of_b, &err), MHA_OK);
        check_sequence(isa_contexts[n], cache, 0, &a, "the forked sequence");
        check_sequence(isa_contexts[n], cache, 1, &b, "the fork");
        /* sequence 0 is truncated to the fork, then continued with the tokens of b */
        assert_int_equal(mha_cache_truncate(cache, 0, 90, &err), MHA_OK);
        assert_int_equal(mha_cache_append(cache, 0, &rest_of_b, &err), MHA_OK);
        check_sequence(isa_contexts[n], cache, 0, &b, "the truncated sequence");
        mha_cache_free(cache);
        problem_free(&a);
        problem_free(&b);
    }
}

/* Converts the cached keys or values to f32 and copies them to `to` [1, Hkv, L, width]. The pages of a new cache are in
 * the order of its tokens. */
static void read_back(tensor *to, const mha_named_tensor *stored, mha_dtype dtype, int64_t width)
{
    const int64_t elements = mha__element_count(dtype, width);
    for (int64_t g = 0; g < to->dim[1]; g++)
        for (int64_t j = 0; j < to->dim[2]; j++)
            for (int64_t d = 0; d < width; d++) {
                const int64_t size = stored->shape[2], row = (j / size * to->dim[1] + g) * size + j % size;
                const mha__q8 *block = (const mha__q8 *)stored->data + row * elements + d / MHA__Q8_BLOCK;
                const uint16_t *half = (const uint16_t *)stored->data + row * width + d;
                const uint8_t *code = (const uint8_t *)stored->data + row * width + d;
                const float value = dtype == MHA_F8_E4M3 ? mha__e4m3_to_f32(*code)
                                    : dtype == MHA_Q8_0  ? mha__f16_to_f32(block->scale) * block->q[d % MHA__Q8_BLOCK]
                                    : dtype == MHA_BF16  ? mha__bf16_to_f32(*half)
                                                         : mha__f16_to_f32(*half);
                tensor_set(to, 0, g, j, d, value);
            }
}

/* Attention with a cache of a 16-bit or 8-bit type must be bitwise identical to a dense f32 call on the rounded keys
 * and values. */
static void test_stored_types(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_Q8_0, MHA_BF16, MHA_F16, MHA_F8_E4M3};
    static const int64_t widths[][3] = {{32, 64, 16},    {40, 24, 128},   {7, 80, 64},
                                        {128, 128, 512}, {768, 1024, 32}, {1024, 768, 128}}; /* D, Dv, page_size */
    static const int64_t lengths[] = {1, 5, 140}; /* query counts: decode, a few queries, many queries */
    mha_error err = {0};
    for (int n = 0; n < isa_count_of(laws[0].dense.dtype); n++)
        for (int at = 0; at < 4 * 3 * 6; at++) {
            const int64_t D = widths[at / 12][0], Dv = widths[at / 12][1], rows = lengths[at / 4 % 3];
            const mha_dtype type = types[at % 4];
            problem p, stored;
            mha_attn_desc d = laws[0].dense;
            d.batch = 1, d.q_len = rows, d.kv_len = 300, d.head_dim = D, d.v_head_dim = Dv;
            d.align = MHA_ALIGN_BOTTOM_RIGHT;
            problem_make(&p, &d, NULL, 86);
            problem_make(&stored, &d, NULL, 86);
            const mha_cache_desc cd = {.size = sizeof cd,
                                       .batch = 1,
                                       .kv_heads = 2,
                                       .head_dim = D,
                                       .v_head_dim = Dv,
                                       .dtype = type,
                                       .page_size = widths[at / 12][2]};
            const mha_cache_tokens tokens = {.size = sizeof tokens,
                                             .count = 300,
                                             .dtype = MHA_F32,
                                             .k = tensor_cview(&p.k),
                                             .v = tensor_cview(&p.v)};
            mha_cache *cache;
            mha_named_tensor t[MHA_CACHE_TENSORS];
            assert_int_equal(mha_cache_create(isa_contexts[n], &cd, &cache, &err), MHA_OK);
            assert_int_equal(mha_cache_append(cache, 0, &tokens, &err), MHA_OK);
            mha_cache_save(cache, t);
            read_back(&stored.k, &t[2], type, D);
            read_back(&stored.v, &t[3], type, Dv);
            mha_cache *first = cache; /* a saved and loaded cache must give the same results */
            assert_int_equal(mha_cache_create(isa_contexts[n], &cd, &cache, &err), MHA_OK);
            if (mha_cache_load(cache, t, MHA_CACHE_TENSORS, &err) != MHA_OK) fail_msg("%s", err.message);
            mha_cache_free(first);
            problem_run(isa_contexts[n], &stored);
            mha_attn_desc call = {.size = sizeof call, .heads = 4, .q_len = rows, .causal = 1, .outputs = MHA_ATTN_LSE};
            mha_attn_args args = p.args;
            assert_int_equal(mha_cache_bind(cache, 0, NULL, &call, &args, &err), MHA_OK);
            if (mha_attention(isa_contexts[n], &call, &args, &err) != MHA_OK) fail_msg("%s", err.message);
            if (!problem_same_bits(&stored, &p))
                fail_msg("%s: D=%d Dv=%d: a cache of type %s must not change the result", mha_ctx_isa(isa_contexts[n]),
                         (int)D, (int)Dv, mha_dtype_name(type));
            mha_cache_free(cache);
            problem_free(&p);
            problem_free(&stored);
        }
}

/* Tests sequences of different lengths in one call, one of them empty. A plan for more keys than the cache contains
 * must be usable for many steps. */
static void test_ragged(void **state)
{
    (void)state;
    mha_error err = {0};
    static const law ragged = {{SIZES, .q_len = 6, .kv_len = 64, .head_dim = 16}, 16, 256, 0, 0};
    for (int n = 0; n < isa_count_of(MHA_F32); n++) {
        problem p, alone;
        problem_make(&p, &ragged.dense, NULL, 84);
        mha_cache *cache = create(isa_contexts[n], &ragged);
        const int64_t counts[2] = {0, 6};
        mha_cache_tokens tokens = {
            .size = sizeof tokens, .count = 6, .counts = counts, .k = tensor_cview(&p.k), .v = tensor_cview(&p.v)};
        assert_int_equal(mha_cache_append(cache, MHA_CACHE_ALL, &tokens, &err), MHA_OK);
        mha_attn_desc d = {
            .size = sizeof d, .heads = 4, .q_len = 6, .kv_len = 100, .causal = 1, .outputs = MHA_ATTN_LSE};
        problem_bind(&p);
        mha_attn_args args = p.args;
        assert_int_equal(mha_cache_bind(cache, MHA_CACHE_ALL, counts, &d, &args, &err), MHA_OK);
        assert_int_equal(d.kv_len, 100);
        if (mha_attention(isa_contexts[n], &d, &args, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t i = 0; i < 6; i++)
            assert_true(tensor_get(&p.out, 0, 1, i, 3) == 0 && isfinite(tensor_get(&p.lse, 1, 1, i, 0)));
        mha_attn_desc dense = ragged.dense;
        dense.kv_len = 6;
        dense.align = MHA_ALIGN_TOP_LEFT;
        problem_make(&alone, &dense, NULL, 84);
        for (int64_t at = 0; at < 2 * 2 * 6 * 16; at++) {
            const int64_t b = at / 192, g = at / 96 % 2, j = at / 16 % 6, x = at % 16;
            tensor_set(&alone.k, b, g, j, x, tensor_get(&p.k, b, g, j, x));
            tensor_set(&alone.v, b, g, j, x, tensor_get(&p.v, b, g, j, x));
        }
        problem_run(isa_contexts[n], &alone);
        for (int64_t at = 0; at < 4 * 6 * 16; at++)
            assert_true(tensor_get(&p.out, 1, at / 96, at / 16 % 6, at % 16) ==
                        tensor_get(&alone.out, 1, at / 96, at / 16 % 6, at % 16));
        mha_cache_free(cache);
        problem_free(&p);
        problem_free(&alone);
    }
}

static void expect(mha_status status, const mha_error *err, const char *word)
{
    assert_int_equal(status, MHA_ERR_ARG);
    if (!strstr(err->message, word)) fail_msg("message must contain \"%s\" (got \"%s\")", word, err->message);
}

/* mha_cache_bind must reject rows whose keys were dropped or never appended, and invalid arguments. */
static void test_bind_refusals(void **state)
{
    (void)state;
    mha_error err = {0};
    problem p;
    law l = laws[2];
    l.keep_first = 9;
    problem_make(&p, &l.dense, NULL, 85);
    mha_cache *cache = create(NULL, &l);
    mha_attn_desc d = {.size = sizeof d, .heads = 4, .q_len = 100, .causal = 1};
    mha_attn_args a = {.size = sizeof a};
    append(cache, &p, 0, 100);
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "keep_first = 9");
    append(cache, &p, 100, 100);
    assert_int_equal(mha_cache_bind(cache, 0, NULL, &d, &a, &err), MHA_OK);
    assert_true(d.window.on && d.window.left == 69 && d.kv_len == 200 && d.page_size == 32);
    append(cache, &p, 200, 100);
    d.q_len = 180;
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "(got position 120 in sequence 0");
    d.q_len = 301;
    expect(mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &d, &a, &err), &err, "300");
    d.q_len = -1;
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "q_len must be at least 0 (got -1)");
    d.q_len = 4;
    expect(mha_cache_bind(cache, 0, (const int64_t[]){5}, &d, &a, &err), &err, "(got 5)");
    expect(mha_cache_bind(cache, 2, NULL, &d, &a, &err), &err, "(got 2)");
    d.window = (mha_window){1, 70, 0};
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "(got 70)");
    d.window = (mha_window){1, 12, 0};
    assert_int_equal(mha_cache_bind(cache, 0, NULL, &d, &a, &err), MHA_OK);
    assert_int_equal(d.window.left, 12);
    expect(mha_cache_bind(cache, 0, NULL, NULL, &a, &err), &err, "desc");
    expect(mha_cache_bind(cache, 0, NULL, &d, NULL, &err), &err, "args");
    expect(mha_cache_bind(NULL, 0, NULL, &d, &a, &err), &err, "cache");
    expect(mha_cache_describe(cache, 0, INT64_MAX, &d, &err), &err, "(got 9223372036854775807)");
    expect(mha_cache_describe(cache, 0, -1, &d, &err), &err, "(got -1)");
    d.inputs |= MHA_ATTN_CU_SEQLENS;
    a.cu_seqlens_q = (const int64_t[]){INT64_MIN, INT64_MAX};
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "cu_seqlens_q[0]");
    a.cu_seqlens_q = (const int64_t[]){3, 2};
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "(got 3, next 2)");
    a.size = 5;
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "mha_attn_args.size must be");
    d.size = 7;
    expect(mha_cache_bind(cache, 0, NULL, &d, &a, &err), &err, "mha_attn_desc.size must be");
    expect(mha_cache_describe(cache, 0, 1, &d, &err), &err, "mha_attn_desc.size must be");
    mha_cache_free(cache);
    problem_free(&p);
}

/* A failed bind must leave the previous binding unchanged. A bind without q_lens must remove the q_lens of an earlier
 * bind. */
static void test_bound_again(void **state)
{
    (void)state;
    const mha_cache_desc desc = {.size = sizeof desc, .batch = 2, .kv_heads = 1, .head_dim = 4};
    static const float x[10 * 4 * 2];
    const int64_t counts[2] = {10, 4}, rows[2] = {1, 2};
    const mha_cache_tokens tokens = {
        .size = sizeof tokens, .count = 10, .counts = counts, .k = {x, {0}}, .v = {x, {0}}};
    mha_cache *cache;
    mha_error err = {0};
    assert_int_equal(mha_cache_create(NULL, &desc, &cache, &err), MHA_OK);
    assert_int_equal(mha_cache_append(cache, MHA_CACHE_ALL, &tokens, &err), MHA_OK);
    mha_attn_desc d = {.size = sizeof d, .heads = 1, .q_len = 3, .causal = 1};
    mha_attn_args a = {.size = sizeof a};
    assert_int_equal(mha_cache_bind(cache, MHA_CACHE_ALL, rows, &d, &a, &err), MHA_OK);
    assert_true((d.inputs & MHA_ATTN_Q_LENS) && a.q_lens == rows);
    assert_true(a.offsets[0] == 9 && a.offsets[1] == 2);
    mha_attn_desc more = {.size = sizeof more, .heads = 1, .q_len = 6, .causal = 1};
    mha_attn_args other = {.size = sizeof other};
    expect(mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &more, &other, &err), &err, "at most its 4 tokens (got 6)");
    assert_true(a.offsets[0] == 9 && a.offsets[1] == 2 && a.kv_lens[0] == 10 && a.kv_lens[1] == 4);
    assert_true(more.batch == 0 && more.inputs == 0 && !other.offsets);
    assert_int_equal(mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &d, &a, &err), MHA_OK);
    assert_true(!(d.inputs & MHA_ATTN_Q_LENS) && !a.q_lens);
    assert_true(a.offsets[0] == 7 && a.offsets[1] == 1);
    mha_cache_free(cache);
}

/* Rows of an empty sequence must have offset 0 and attend to no keys. */
static void check_empty_sequence(mha_ctx *ctx)
{
    const mha_cache_desc desc = {.size = sizeof desc, .batch = 2, .kv_heads = 1, .head_dim = 4};
    float x[4] = {1, 2, 3, 4}, q[2 * 4] = {1, 1, 1, 1, 1, 1, 1, 1},
          out[2 * 4] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    const mha_cache_tokens token = {.size = sizeof token, .count = 1, .k = {x, {0}}, .v = {x, {0}}};
    mha_cache *cache;
    mha_error err = {0};
    assert_int_equal(mha_cache_create(ctx, &desc, &cache, &err), MHA_OK);
    for (int n = 0; n < 2; n++) {
        mha_attn_desc d = {.size = sizeof d, .heads = 1, .q_len = 1, .causal = 1};
        mha_attn_args a = {.size = sizeof a, .q.data = q, .out.data = out};
        assert_int_equal(mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &d, &a, &err), MHA_OK);
        assert_int_equal(a.offsets[0], 0);
        assert_int_equal(a.offsets[1], 0);
        if (mha_attention(ctx, &d, &a, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int i = 0; i < 8; i++)
            assert_true(out[i] == (n == 1 && i < 4 ? x[i] : 0));
        if (n == 0) assert_int_equal(mha_cache_append(cache, 0, &token, &err), MHA_OK);
    }
    mha_cache_free(cache);
}

static void test_empty_sequence(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count_of(MHA_F32); n++)
        check_empty_sequence(isa_contexts[n]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_steps),
                                              cmocka_unit_test(test_streaming),
                                              cmocka_unit_test(test_fork_and_truncate),
                                              cmocka_unit_test(test_stored_types),
                                              cmocka_unit_test(test_ragged),
                                              cmocka_unit_test(test_bind_refusals),
                                              cmocka_unit_test(test_bound_again),
                                              cmocka_unit_test(test_empty_sequence)};
    return cmocka_run_group_tests(tests, isa_setup_two, isa_teardown);
}
