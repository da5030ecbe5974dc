/* test_model_latent.c - tests caches of latent vectors (DeepSeek-V3): their size, the logits of decoding in chunks, of
 * batches and of copied sequences, and storage types. */
#include "mha/model_create.h"
#include "mha/prune.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { L = 21, MIN = 64 };

static const char *const folders[] = {"families2/deepseek-v3", "families2/deepseek-v3-plain"}; /* with, without q_a */

static int32_t token(int64_t n)
{
    return (int32_t)(4 + n * 7 % 59);
}

static mha_model *open_model(const char *folder, mha_dtype dtype)
{
    return case_model(NULL, folder,
                      &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1, .dtype = dtype});
}

static mha_model_cache *cache_of(const mha_model *m, int64_t batch, mha_dtype dtype, int expanded)
{
    mha_model_cache *cache = NULL;
    mha_error err = {0};
    const mha_model_cache_options o = {
        .size = sizeof o, .batch = batch, .tokens = MIN, .dtype = dtype, .page_size = 16, .expanded = expanded};
    if (mha_model_cache_create(m, &o, &cache, &err) != MHA_OK) fail_msg("%s", err.message);
    return cache;
}

/* Runs tokens [first, first + count) of one sequence; cache NULL = without a cache. */
static void run(const mha_model *m, mha_model_cache *cache, int64_t sequence, int64_t first, int64_t count,
                float *logits)
{
    int32_t ids[L];
    mha_error err = {0};
    for (int64_t n = 0; n < count; n++)
        ids[n] = token(first + n);
    const mha_model_input in = {
        .size = sizeof in, .batch = 1, .length = count, .ids = ids, .cache = cache, .sequence = sequence};
    const mha_model_output out = {.size = sizeof out, .logits = logits};
    if (mha_model_forward(m, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
}

static float *room(const mha_model *m)
{
    return calloc((size_t)(L * mha_model_describe(m)->vocab), sizeof(float));
}

/* Decodes L tokens in chunks that end at `cut` [cuts]. */
static float *decode(const mha_model *m, mha_dtype dtype, int expanded, const int64_t *cut, int cuts)
{
    const int64_t V = mha_model_describe(m)->vocab;
    mha_model_cache *cache = cache_of(m, 1, dtype, expanded);
    float *logits = room(m);
    for (int n = 0; n < cuts; n++) {
        const int64_t first = n ? cut[n - 1] : 0;
        run(m, cache, 0, first, cut[n] - first, logits + first * V);
    }
    mha_model_cache_free(cache);
    return logits;
}

static float *decode_each(const mha_model *m, mha_dtype dtype, int expanded)
{
    int64_t cut[L];
    for (int n = 0; n < L; n++)
        cut[n] = n + 1;
    return decode(m, dtype, expanded, cut, L);
}

/* Logits of a latent cache must be close to those of the pass without a cache, and bitwise identical for all divisions
 * into chunks; those of an expanded cache must be bitwise identical to the pass without a cache. */
static void test_decode(void **state)
{
    (void)state;
    static const int64_t once[] = {L}, thrice[] = {5, 6, L};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        mha_model *m = open_model(folders[f], MHA_F32);
        const int64_t count = L * mha_model_describe(m)->vocab;
        float *whole = room(m), *each = decode_each(m, MHA_F32, 0), *expanded = decode_each(m, MHA_F32, 1);
        float *prefill = decode(m, MHA_F32, 0, once, 1), *chunks = decode(m, MHA_F32, 0, thrice, 3);
        run(m, NULL, 0, 0, L, whole);
        assert_memory_equal(whole, expanded, (size_t)count * sizeof *whole);
        assert_memory_equal(each, prefill, (size_t)count * sizeof *whole);
        assert_memory_equal(each, chunks, (size_t)count * sizeof *whole);
        case_near(folders[f], whole, each, count, 5e-5);
        float *const all[] = {whole, each, expanded, prefill, chunks};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            free(all[n]);
        mha_model_free(m);
    }
}

/* Returns the norm of a - b relative to that of a. */
static double distance(const float *a, const float *b, int64_t count)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        off += pow((double)a[i] - (double)b[i], 2);
        norm += pow((double)a[i], 2);
    }
    return sqrt(off / norm);
}

/* Types smaller than f32, of the weights and of the cache: decoding in any chunks must be bitwise identical, and at
 * most twice as far from the pass in f32 as with expanded keys and values, or within 2^-8. */
static void test_types(void **state)
{
    (void)state;
    static const mha_dtype types[][2] = {{MHA_F32, MHA_BF16},
                                         {MHA_F32, MHA_F16},
                                         {MHA_F32, MHA_Q8_0},
                                         {MHA_BF16, MHA_DTYPE_DEFAULT},
                                         {MHA_Q8_0, MHA_F32}};
    static const int64_t once[] = {L};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
            mha_model *exact = open_model(folders[f], MHA_F32), *m = open_model(folders[f], types[n][0]);
            const int64_t count = L * mha_model_describe(m)->vocab;
            float *whole = room(m), *each = decode_each(m, types[n][1], 0);
            float *prefill = decode(m, types[n][1], 0, once, 1), *expanded = decode_each(m, types[n][1], 1);
            run(exact, NULL, 0, 0, L, whole);
            assert_memory_equal(each, prefill, (size_t)count * sizeof *whole);
            const double off = distance(whole, each, count), usual = distance(whole, expanded, count);
            if (!(off <= fmax(2 * usual, 1.0 / 256)))
                fail_msg("%s, %s cache: distance %g, expanded %g", folders[f], mha_dtype_name(types[n][1]), off, usual);
            float *const all[] = {whole, each, prefill, expanded};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
            mha_model_free(m);
            mha_model_free(exact);
        }
}

/* kv_bytes_per_token must be (kv_lora_rank + qk_rope_head_dim) f32 elements per layer. A latent cache must store only
 * these elements and its tables; an expanded cache must store keys and values of 14 elements of all heads. */
static void test_bytes(void **state)
{
    (void)state;
    mha_model *m = open_model(folders[0], MHA_F32);
    const mha_model_info *info = mha_model_describe(m);
    mha_model_cache *latent = cache_of(m, 1, MHA_F32, 0), *expanded = cache_of(m, 1, MHA_F32, 1);
    const size_t pages = MIN / 16 + 1, keys = pages * 16; /* a page for the copy of a shared page */
    assert_int_equal(info->kv_bytes_per_token, info->layers * (12 + 4) * 4);
    const size_t want = keys * (size_t)info->kv_bytes_per_token, got = mha_model_cache_bytes(latent);
    assert_true(got >= want && got < want + (size_t)info->layers * 1000);
    assert_true(mha_model_cache_bytes(expanded) > keys * (size_t)(info->layers * info->heads * 2 * 14 * 4));
    mha_model_cache_free(latent);
    mha_model_cache_free(expanded);
    mha_model_free(m);
}

/* Sequences of a batch, copies and truncated sequences must have the logits of one sequence. */
static void test_sequences(void **state)
{
    (void)state;
    enum { FIRST = 9 };
    mha_model *m = open_model(folders[0], MHA_F32);
    const int64_t V = mha_model_describe(m)->vocab;
    mha_model_cache *cache = cache_of(m, 3, MHA_F32, 0);
    float *want = decode_each(m, MHA_F32, 0), *got = room(m);
    int32_t ids[3 * FIRST];
    uint8_t mask[3 * FIRST];
    for (int n = 0; n < 3 * FIRST; n++)
        ids[n] = token(n % FIRST), mask[n] = n / FIRST != 1 || n % FIRST < 4; /* sequence 1 has 4 tokens */
    float *all = calloc((size_t)(3 * FIRST * V), sizeof *all);
    const mha_model_input in = {
        .size = sizeof in, .batch = 3, .length = FIRST, .ids = ids, .mask = mask, .cache = cache};
    const mha_model_output out = {.size = sizeof out, .logits = all};
    assert_int_equal(mha_model_forward(m, &in, &out, NULL), MHA_OK);
    for (int b = 0; b < 3; b++)
        assert_memory_equal(want, all + b * FIRST * V, (size_t)((b == 1 ? 4 : FIRST) * V) * sizeof *want);
    run(m, cache, 1, 4, L - 4, got);
    assert_memory_equal(want + 4 * V, got, (size_t)((L - 4) * V) * sizeof *want);
    assert_int_equal(mha_model_cache_fork(cache, 1, 2, 18, NULL), MHA_OK); /* a partly filled page is copied */
    assert_int_equal(mha_model_cache_truncate(cache, 1, 17, NULL), MHA_OK);
    run(m, cache, 2, 18, L - 18, got);
    assert_memory_equal(want + 18 * V, got, (size_t)((L - 18) * V) * sizeof *want);
    run(m, cache, 1, 17, L - 17, got);
    assert_memory_equal(want + 17 * V, got, (size_t)((L - 17) * V) * sizeof *want);
    free(all);
    free(want);
    free(got);
    mha_model_cache_free(cache);
    mha_model_free(m);
}

/* A model of other widths, with random weights and removed heads; gates, maps and activations of a cached call. */
static const char config[] =
    "{\"model_type\":\"deepseek_v3\",\"vocab_size\":64,\"hidden_size\":48,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":6,\"intermediate_size\":40,"
    "\"q_lora_rank\":null,\"kv_lora_rank\":40,\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,"
    "\"v_head_dim\":24,\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"n_group\":1,"
    "\"topk_group\":1,\"moe_intermediate_size\":16,\"first_k_dense_replace\":1,"
    "\"max_position_embeddings\":64,\"initializer_range\":0.3}";

typedef struct shown {
    float maps[2][6 * L * L], qkv[2][L * 3 * 6 * 24];
} shown;

static int on_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    memcpy(((shown *)user)->maps[layer], probs, (size_t)(heads * L * L) * sizeof *probs);
    return 0;
}

static int on_activations(void *user, const mha_model_activations *a)
{
    shown *s = user;
    const float *const part[] = {a->q, a->k, a->v};
    for (int p = 0; p < 3; p++)
        for (int64_t r = 0; r < L; r++)
            memcpy(s->qkv[a->layer] + (r * 3 + p) * 6 * 24, part[p] + r * a->stride, (size_t)(6 * 24) * sizeof(float));
    return 0;
}

static void see(const mha_model *m, mha_model_cache *cache, const float *gates, shown *s, float *logits)
{
    int32_t ids[L];
    mha_error err = {0};
    for (int64_t n = 0; n < L; n++)
        ids[n] = token(n);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = L, .ids = ids, .cache = cache, .gates = gates};
    const mha_model_output out = {.size = sizeof out,
                                  .logits = logits,
                                  .on_attention = on_attention,
                                  .on_activations = on_activations,
                                  .user = s};
    if (mha_model_forward(m, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void test_random(void **state)
{
    (void)state;
    static const mha_model_create_options o = {.size = sizeof o, .seed = 3};
    uint8_t keep[12] = {1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1};
    float gates[12] = {1, 0.5F, 0, 1, 2, 1, 1, 0, 0, 1, 1, -1};
    mha_model *m = NULL, *less = NULL;
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    if (mha_model_create(NULL, config, &o, &m, &err) != MHA_OK) fail_msg("%s", err.message);
    shown *a = calloc(2, sizeof *a), *b = a + 1;
    float *want = room(m), *got = room(m);
    mha_model_cache *cache = cache_of(m, 1, MHA_F32, 0);
    see(m, NULL, gates, a, want);
    see(m, cache, gates, b, got);
    const double largest = fabs((double)want[0]) + 1;
    case_near("logits", want, got, L * 64, 1e-4 * largest);
    case_near("maps", a->maps[0], b->maps[0], 2 * 6 * L * L, 1e-5);
    case_near("q, k and v", a->qkv[0], b->qkv[0], 2 * L * 3 * 6 * 24, 1e-4);
    if (mha_prune(m, keep, NULL, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &less, &err) != MHA_OK)
        fail_msg("%s", err.message);
    for (int n = 0; n < 12; n++)
        gates[n] = keep[n];
    float *pruned = decode_each(less, MHA_F32, 0);
    see(m, NULL, gates, a, want);
    case_near("removed heads", want, pruned, L * 64, 1e-4 * largest);
    free(pruned);
    free(want);
    free(got);
    free(a);
    mha_model_cache_free(cache);
    mha_model_free(less);
    mha_model_edit_free(edit);
    mha_model_free(m);
}

static void test_memory(void **state)
{
    (void)state;
    case_create_without_memory(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),    cmocka_unit_test(test_types),  cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_sequences), cmocka_unit_test(test_random), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
