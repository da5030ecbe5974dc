/* test_attn_cache_attend.c - mha_cache_attend, and rotation of appended keys: results and stored keys must be bitwise
 * identical to those of mha_rope_turn, mha_cache_append, mha_cache_bind and mha_attention, for every stored type; a
 * failed call must store nothing. */
#include "mha/cache.h"
#include "mha/rope.h"
#include "support/check.h"
#include "support/reference/half.h"
#include <stdlib.h>
#include <string.h>

enum { B = 2, HKV = 2, H = 4, D = 64, R = 24, N = 5, STEPS = 9, POSITIONS = B * N * STEPS };

static int64_t width = 40; /* of heads, at most D; q4_0 requires a multiple of 32 */
static float cosines[POSITIONS * R / 2], sines[POSITIONS * R / 2];
static mha_rope_options options = {.size = sizeof options, .head_dim = 40, .rotary_dim = R};
static mha_attn_rope rope = {
    .size = sizeof rope, .rotary_dim = R, .positions = POSITIONS, .cos = cosines, .sin = sines};

static void fill(float *x, int64_t count, int64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((i * 7919 + seed * 104729) % 2003) / 1001 - 1;
}

static mha_cache *create(mha_dtype dtype, int64_t window, int64_t capacity)
{
    mha_cache *cache = NULL;
    mha_error err = {0};
    const mha_cache_desc desc = {.size = sizeof desc,
                                 .batch = B,
                                 .kv_heads = HKV,
                                 .head_dim = width,
                                 .dtype = dtype,
                                 .page_size = 16,
                                 .window = window,
                                 .capacity = capacity};
    if (mha_cache_create(NULL, &desc, &cache, &err) != MHA_OK) fail_msg("%s", err.message);
    return cache;
}

/* Rotates q and k [B, heads, N, D], whose sequences begin at the given positions. */
static void turn(float *x, int64_t heads, const int64_t *begin)
{
    mha_error err = {0};
    for (int64_t b = 0; b < B; b++) {
        const float *c = cosines + begin[b] * R / 2, *s = sines + begin[b] * R / 2;
        float *to = x + b * heads * N * width;
        assert_int_equal(mha_rope_turn(NULL, &options, c, s, N, heads, to, width, N * width, 0, &err), MHA_OK);
    }
}

static size_t bytes_of(const mha_named_tensor *t)
{
    size_t bytes = mha_dtype_size(t->dtype);
    for (int n = 0; n < t->rank; n++)
        bytes *= (size_t)t->shape[n];
    return bytes;
}

static void same_caches(const mha_cache *x, const mha_cache *y)
{
    mha_named_tensor a[MHA_CACHE_TENSORS], b[MHA_CACHE_TENSORS];
    mha_cache_save(x, a);
    mha_cache_save(y, b);
    for (int n = 0; n < MHA_CACHE_TENSORS; n++) {
        assert_int_equal(bytes_of(&a[n]), bytes_of(&b[n]));
        assert_memory_equal(a[n].data, b[n].data, bytes_of(&a[n]));
    }
}

typedef struct step {
    float q[B * H * N * D], k[B * HKV * N * D], v[B * HKV * N * D], out[B * H * N * D];
} step;

static const int64_t counts[STEPS][B] = {{5, 2}, {1, 1}, {1, 0}, {1, 1}, {5, 5}, {5, 1}, {1, 5}, {0, 1}, {1, 1}};

/* Attends with the separate functions. Rows beyond the counts are rotated too, and have no effect. */
static void attend_apart(mha_cache *cache, int n, step *s)
{
    mha_error err = {0};
    int64_t begin[B];
    for (int b = 0; b < B; b++)
        begin[b] = mha_cache_length(cache, b);
    turn(s->q, H, begin);
    turn(s->k, HKV, begin);
    const mha_cache_tokens t = {
        .size = sizeof t, .count = N, .counts = counts[n], .dtype = MHA_F32, .k.data = s->k, .v.data = s->v};
    mha_attn_desc d = {.size = sizeof d, .heads = H, .q_len = N, .causal = 1, .dtype = MHA_F32};
    mha_attn_args a = {.size = sizeof a, .q.data = s->q, .out.data = s->out};
    if (mha_cache_append(cache, MHA_CACHE_ALL, &t, &err) != MHA_OK ||
        mha_cache_bind(cache, MHA_CACHE_ALL, counts[n], &d, &a, &err) != MHA_OK ||
        mha_attention(NULL, &d, &a, &err) != MHA_OK)
        fail_msg("%s", err.message);
}

static mha_status attend(mha_cache *cache, int n, step *s, void *out, mha_error *err)
{
    const mha_cache_tokens t = {.size = sizeof t,
                                .count = N,
                                .counts = counts[n],
                                .dtype = MHA_F32,
                                .k.data = s->k,
                                .v.data = s->v,
                                .rope = &rope};
    const mha_attn_desc d = {
        .size = sizeof d, .heads = H, .q_len = N, .causal = 1, .dtype = MHA_F32, .inputs = MHA_ATTN_ROPE_Q};
    const mha_attn_args a = {.size = sizeof a, .q.data = s->q, .out.data = out, .rope = &rope};
    return mha_cache_attend(NULL, cache, MHA_CACHE_ALL, &t, &d, &a, err);
}

static void fill_step(step *s, int n)
{
    fill(s->q, B * H * N * D, 3 * n);
    fill(s->k, B * HKV * N * D, 3 * n + 1);
    fill(s->v, B * HKV * N * D, 3 * n + 2);
}

static void expect_nothing_stored(mha_cache *cache, int n, step *s)
{
    mha_error err = {0};
    const int64_t before[B] = {mha_cache_length(cache, 0), mha_cache_length(cache, 1)};
    assert_int_equal(attend(cache, n, s, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "out"));
    for (int b = 0; b < B; b++)
        assert_int_equal(mha_cache_length(cache, b), before[b]);
}

/* With a window, each step first makes a call that fails, which may change the order of the pages. */
static void test_one_call(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0, MHA_F8_E4M3, MHA_Q4_0};
    static step apart, together;
    for (int n = 0; n < 12; n++) {
        options.head_dim = width = types[n / 2] == MHA_Q4_0 ? D : 40;
        mha_cache *x = create(types[n / 2], n % 2 ? 6 : 0, 0), *y = create(types[n / 2], n % 2 ? 6 : 0, 0);
        for (int i = 0; i < STEPS; i++) {
            mha_error err = {0};
            fill_step(&apart, i);
            fill_step(&together, i);
            attend_apart(x, i, &apart);
            if (n % 2) expect_nothing_stored(y, i, &together);
            if (attend(y, i, &together, together.out, &err) != MHA_OK) fail_msg("%s", err.message);
            assert_memory_equal(apart.out, together.out, sizeof apart.out);
        }
        if (n % 2 == 0) same_caches(x, y);
        mha_cache_free(x);
        mha_cache_free(y);
    }
    options.head_dim = width = 40;
}

/* Keys in 16 bits are rotated in f32; keys in f64, with explicit positions, in f64. */
static void test_types(void **state)
{
    (void)state;
    static float k[B * HKV * N * D];
    static uint16_t half[B * HKV * N * D];
    static const int64_t zero[B];
    mha_error err = {0};
    mha_cache *x = create(MHA_BF16, 0, 0), *y = create(MHA_BF16, 0, 0);
    fill(k, B * HKV * N * D, 1);
    for (int64_t n = 0; n < B * HKV * N * D; n++) {
        uint32_t bits;
        memcpy(&bits, &k[n], sizeof bits);
        half[n] = (uint16_t)(bits >> 16);
        k[n] = (float)half_value(half[n], BF16_FRACTION);
    }
    mha_cache_tokens t = {.size = sizeof t, .count = N, .k.data = half, .v.data = half, .rope = &rope};
    assert_int_equal(mha_cache_append(x, MHA_CACHE_ALL, &t, &err), MHA_OK);
    turn(k, HKV, zero);
    mha_named_tensor saved[MHA_CACHE_TENSORS];
    mha_cache_save(x, saved);
    t = (mha_cache_tokens){.size = sizeof t, .count = N, .dtype = MHA_F32, .k.data = k, .v.data = k};
    assert_int_equal(mha_cache_append(y, MHA_CACHE_ALL, &t, &err), MHA_OK);
    mha_named_tensor want[MHA_CACHE_TENSORS];
    mha_cache_save(y, want);
    for (int n = 0; n < MHA_CACHE_TENSORS; n++)
        if (strcmp(saved[n].name, "k") == 0) assert_memory_equal(saved[n].data, want[n].data, bytes_of(&saved[n]));
    mha_cache_free(x);
    mha_cache_free(y);
}

static void test_f64(void **state)
{
    (void)state;
    static const double c[] = {1, 0, 0, 1}, s[] = {0, 1, 1, 0}; /* [2 positions, 2 pairs] */
    static const int64_t at[] = {1};
    const double k[] = {1, 2, 3, 4, 5};
    const mha_attn_rope given = {
        .size = sizeof given, .first = 1, .interleaved = 1, .positions = 2, .cos = c, .sin = s, .k_positions.data = at};
    const mha_cache_desc desc = {.size = sizeof desc, .batch = 1, .kv_heads = 1, .head_dim = 5, .dtype = MHA_F64};
    const mha_cache_tokens t = {.size = sizeof t, .count = 1, .k.data = k, .v.data = k, .rope = &given};
    mha_cache *cache = NULL;
    mha_error err = {0};
    mha_named_tensor saved[MHA_CACHE_TENSORS];
    assert_int_equal(mha_cache_create(NULL, &desc, &cache, &err), MHA_OK);
    assert_int_equal(mha_cache_append(cache, 0, &t, &err), MHA_OK);
    mha_cache_save(cache, saved);
    const double want[] = {1, -3, 2, 4, 5}; /* pair (2, 3) turns by 90 degrees, pair (4, 5) by 0 */
    for (int n = 0; n < MHA_CACHE_TENSORS; n++)
        if (strcmp(saved[n].name, "k") == 0) assert_memory_equal(saved[n].data, want, sizeof want);
    mha_cache_free(cache);
}

static void test_refusals(void **state)
{
    (void)state;
    static step s;
    mha_error err = {0};
    mha_cache *cache = create(MHA_F32, 0, 16 * B);
    fill_step(&s, 0);
    rope.positions = 4;
    assert_int_equal(attend(cache, 0, &s, s.out, &err), MHA_ERR_ARG);
    assert_non_null(
        strstr(err.message, "rope.positions must be above the position 4 of token 4 of sequence 0 (got 4)"));
    assert_int_equal(mha_cache_length(cache, 0), 0);
    rope.positions = POSITIONS;
    for (int n = 0; n < 3; n++)
        assert_int_equal(attend(cache, 0, &s, s.out, &err), MHA_OK);
    assert_int_equal(attend(cache, 0, &s, s.out, &err), MHA_ERR_MEMORY);
    assert_int_equal(mha_cache_length(cache, 0), 15);
    assert_int_equal(mha_cache_attend(NULL, NULL, 0, NULL, NULL, NULL, &err), MHA_ERR_ARG);
    mha_cache_free(cache);
}

/* q_lens and its flag must be given together; nothing may be stored otherwise. */
static void test_q_lens(void **state)
{
    (void)state;
    static step s;
    static const int64_t lens[1] = {1};
    mha_error err = {0};
    mha_cache *cache = create(MHA_F32, 0, 0);
    fill_step(&s, 0);
    const mha_cache_tokens t = {.size = sizeof t, .count = 1, .k.data = s.k, .v.data = s.v};
    mha_attn_desc d = {.size = sizeof d, .heads = H, .q_len = 1, .inputs = MHA_ATTN_Q_LENS};
    mha_attn_args a = {.size = sizeof a, .q.data = s.q, .out.data = s.out};
    assert_int_equal(mha_cache_attend(NULL, cache, 0, &t, &d, &a, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "q_lens must not be NULL with MHA_ATTN_Q_LENS in desc.inputs"));
    d.inputs = 0;
    a.q_lens = lens;
    assert_int_equal(mha_cache_attend(NULL, cache, 0, &t, &d, &a, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "q_lens must be NULL without MHA_ATTN_Q_LENS in desc.inputs"));
    assert_int_equal(mha_cache_length(cache, 0), 0);
    d.inputs = MHA_ATTN_Q_LENS;
    assert_int_equal(mha_cache_attend(NULL, cache, 0, &t, &d, &a, &err), MHA_OK);
    mha_cache_free(cache);
}

/* Appends one token with elements x to a new cache. */
static void refuse_rotated(const mha_cache_desc *desc, const mha_attn_rope *turned, float x, const char *words)
{
    float k[32];
    mha_cache *cache = NULL;
    mha_error err = {0};
    const mha_cache_tokens t = {.size = sizeof t, .count = 1, .k.data = k, .v.data = k, .rope = turned};
    for (int i = 0; i < 32; i++)
        k[i] = x;
    assert_int_equal(mha_cache_create(NULL, desc, &cache, &err), MHA_OK);
    assert_int_equal(mha_cache_append(cache, 0, &t, &err), MHA_ERR_ARG);
    if (!strstr(err.message, words)) fail_msg("the message must contain \"%s\" (got \"%s\")", words, err.message);
    mha_cache_free(cache);
}

/* The limit of q4_0 applies to rotated keys, and values that are parts of the keys must not be rotated. */
static void test_rotated_refusals(void **state)
{
    (void)state;
    static const float c[] = {0.6f}, s[] = {0.8f};
    static mha_cache_desc desc = {.size = sizeof desc, .batch = 1, .kv_heads = 1, .head_dim = 32, .dtype = MHA_Q4_0};
    mha_attn_rope turned = {.size = sizeof turned, .first = 16, .rotary_dim = 2, .positions = 1, .cos = c, .sin = s};
    refuse_rotated(&desc, &turned, 80000, "k[0, 0, 0, 17] must be below 92655 in magnitude in q4_0 after the rotation");
    desc.dtype = MHA_F32;
    desc.v_from_k = 1;
    desc.v_head_dim = 17;
    refuse_rotated(&desc, &turned, 1, "rope.first must be at least v_head_dim = 17 with v_from_k (got 16)");
}

static int setup(void **state)
{
    (void)state;
    mha_error err = {0};
    return mha_rope_angles(&options, NULL, POSITIONS, cosines, sines, &err);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_call), cmocka_unit_test(test_types),
                                              cmocka_unit_test(test_f64),      cmocka_unit_test(test_refusals),
                                              cmocka_unit_test(test_q_lens),   cmocka_unit_test(test_rotated_refusals)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
