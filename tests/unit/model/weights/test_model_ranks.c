/* test_model_ranks.c - models whose weights are divided among ranks (mha/model_ranks.h), which are threads here. All
 * results must be bitwise identical on all ranks and for 1 to 8 ranks, and agree with the whole model within
 * rounding. */
#include "mha/generate.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/thread_exchange.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 4, L = 33, NEW = 6, VOCAB_MAX = 1100, E_MAX = 256, TEXTS = 12 };

/* The results of one rank. */
typedef struct results {
    float hidden[B * L * E_MAX], logits[B * L * VOCAB_MAX], last[B * VOCAB_MAX], pooled[B * E_MAX], score[B * L];
    float vectors[4][TEXTS * E_MAX]; /* of texts, with either pooling, normalized and not */
    int32_t out[B * NEW];
    int32_t pools, embeds; /* 1 if the model has a pooler; 1 if it has a tokenizer */
    int64_t lengths[B];
    char fingerprint[17];
    size_t cache_bytes;
} results;

typedef struct trial {
    const char *folder;
    mha_dtype dtype;
    int no_tokenizer; /* 1 if the folder has no tokenizer.json */
    results *of[MHA_RANK_GROUPS];
    mha_error error[MHA_RANK_GROUPS];
} trial;

/* ---- one rank ---- */

static mha_status run_decoder(const mha_model *model, const int32_t *ids, results *r, mha_error *e)
{
    mha_model_cache *cache = NULL;
    const mha_model_cache_options room = {.size = sizeof room, .batch = B, .tokens = L};
    const mha_prompt prompts[B] = {{ids, L - NEW}, {ids + L, 3}, {ids, L - NEW}, {ids + 5, 1}};
    const mha_generate_options how = {.size = sizeof how, .max_new = NEW, .eos_count = -1};
    mha_status status = mha_model_score(model, ids, L, r->score, e);
    if (status == MHA_OK) status = mha_model_generate(model, prompts, B, &how, r->out, r->lengths, e);
    if (status == MHA_OK) status = mha_model_cache_create(model, &room, &cache, e);
    r->cache_bytes = mha_model_cache_bytes(cache);
    mha_model_cache_free(cache);
    return status;
}

/* Computes the pooled vectors, if the model has a pooler. */
static mha_status run_pooler(const mha_model *model, const mha_model_input *in, results *r, mha_error *e)
{
    const mha_model_output out = {.size = sizeof out, .pooled = r->pooled};
    const mha_status status = mha_model_forward(model, in, &out, e);
    r->pools = status == MHA_OK;
    return status == MHA_ERR_UNSUPPORTED ? MHA_OK : status;
}

/* Embeds texts of different lengths, if the model has a tokenizer. */
static mha_status run_texts(const mha_model *model, results *r, mha_error *e)
{
    static const char story[] = "the train to the coast leaves at noon, and a cat waits on the mat until it comes back";
    const char *texts[TEXTS];
    mha_status status = MHA_OK;
    r->embeds = mha_model_tokenizer(model) != NULL;
    for (int i = 0; i < TEXTS; i++)
        texts[i] = story + 7 * i;
    for (int n = 0; r->embeds && n < 4 && status == MHA_OK; n++) {
        const mha_embed_options o = {
            .size = sizeof o, .pool = n / 2 ? MHA_POOL_CLS : MHA_POOL_MEAN, .no_normalize = n % 2};
        status = mha_model_embed(model, texts, TEXTS, &o, r->vectors[n], e);
    }
    return status;
}

static mha_status run_model(const mha_model *model, results *r, mha_error *e)
{
    int32_t ids[B * L];
    const mha_model_info *info = mha_model_describe(model);
    for (int i = 0; i < B * L; i++)
        ids[i] = (int32_t)((7 * i * i + 3 * i + 2) % info->vocab);
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const mha_model_output out = {.size = sizeof out,
                                  .last_hidden = r->hidden,
                                  .logits = info->logits ? r->logits : NULL,
                                  .last_logits = info->logits ? r->last : NULL};
    mha_status status = mha_model_forward(model, &in, &out, e);
    if (status == MHA_OK) status = run_pooler(model, &in, r, e);
    if (status == MHA_OK) status = run_texts(model, r, e);
    if (status == MHA_OK) status = mha_model_fingerprint(model, r->fingerprint, e);
    if (status == MHA_OK && info->causal) status = run_decoder(model, ids, r, e);
    return status;
}

static void run_rank(const mha_model_ranks *ranks, void *user)
{
    trial *t = user;
    const int rank = ranks ? ranks->rank : 0;
    mha_error *e = &t->error[rank];
    mha_ctx *ctx = NULL;
    mha_model *model = NULL;
    const mha_ctx_options alone = {.size = sizeof alone, .threads = 1};
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = t->no_tokenizer, .dtype = t->dtype, .ranks = ranks};
    t->of[rank] = calloc(1, sizeof *t->of[rank]);
    mha_status status = mha_ctx_create(&alone, &ctx, e);
    if (status == MHA_OK) status = mha_model_open(ctx, t->folder, &o, &model, e);
    if (status == MHA_OK) status = run_model(model, t->of[rank], e);
    if (status == MHA_OK) *e = (mha_error){0};
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static trial begin(const char *folder, mha_dtype dtype)
{
    size_t bytes = 0;
    char *const tokenizer = files_read(files_path(folder, "tokenizer.json"), &bytes);
    const trial t = {.folder = folder, .dtype = dtype, .no_tokenizer = !tokenizer};
    free(tokenizer);
    return t;
}

static void release(trial *t)
{
    for (int r = 0; r < MHA_RANK_GROUPS; r++)
        free(t->of[r]);
}

/* ---- comparisons ---- */

static void check_error(const trial *t, int ranks, int rank)
{
    if (t->error[rank].status != MHA_OK || t->error[rank].message[0])
        fail_msg("%s, rank %d of %d: %s", t->folder, rank, ranks, t->error[rank].message);
}

/* Fails unless all results except the size of the cache, which depends on the rank, are bitwise identical to those of
 * one rank. */
static void check_same(const trial *t, int ranks, int rank, const results *want)
{
    check_error(t, ranks, rank);
    const results *got = t->of[rank];
    if (memcmp(got, want, offsetof(results, cache_bytes)) != 0)
        fail_msg("%s, %s: rank %d of %d must have the results of one rank (1 = different: hidden %d, logits %d, "
                 "vectors %d, score %d, tokens %d)",
                 t->folder, mha_dtype_name(t->dtype), rank, ranks,
                 memcmp(got->hidden, want->hidden, sizeof got->hidden) != 0,
                 memcmp(got->logits, want->logits, sizeof got->logits) != 0,
                 memcmp(got->vectors, want->vectors, sizeof got->vectors) != 0,
                 memcmp(got->score, want->score, sizeof got->score) != 0,
                 memcmp(got->out, want->out, sizeof got->out) != 0);
}

/* Returns the largest difference, relative to the largest element. */
static double distance(const float *a, const float *b, size_t count)
{
    double max = 1e-30, apart = 0;
    for (size_t i = 0; i < count; i++) {
        max = fmax(max, fabs((double)b[i]));
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
    }
    return apart / max;
}

/* Compares 1 rank with the whole model, and 2 to 8 ranks with 1 rank. */
static void check_folder(const char *folder, mha_dtype dtype, double limit)
{
    trial whole = begin(folder, dtype), one = whole;
    run_rank(NULL, &whole);
    check_error(&whole, 0, 0);
    thread_exchange_run(1, run_rank, &one);
    check_error(&one, 1, 0);
    const double hidden = distance(one.of[0]->hidden, whole.of[0]->hidden, B * L * E_MAX);
    const double logits = distance(one.of[0]->logits, whole.of[0]->logits, B * L * VOCAB_MAX);
    const double pooled = distance(one.of[0]->pooled, whole.of[0]->pooled, B * E_MAX);
    const double vectors = distance(*one.of[0]->vectors, *whole.of[0]->vectors, (size_t)4 * TEXTS * E_MAX);
    if (!(hidden <= limit && logits <= limit && pooled <= limit && vectors <= limit))
        fail_msg("%s: relative differences must be at most %g (got hidden %g, logits %g, pooled %g, vectors %g)",
                 folder, limit, hidden, logits, pooled, vectors);
    assert_int_equal(one.of[0]->pools, whole.of[0]->pools);
    if (strcmp(folder, MHA_TEST_DATA "/models/bert-tiny") == 0) assert_true(one.of[0]->pools && one.of[0]->embeds);
    for (int ranks = 2; ranks <= MHA_RANK_GROUPS; ranks++) {
        trial t = begin(folder, dtype);
        thread_exchange_run(ranks, run_rank, &t);
        for (int rank = 0; rank < ranks; rank++)
            check_same(&t, ranks, rank, one.of[0]);
        release(&t);
    }
    release(&whole);
    release(&one);
}

/* ---- models of every family ---- */

static const char *const folders[] = {
    "models/gpt2-tiny",       "models/gemma2-tiny",     "models/bert-tiny",
    "models/bert-mlm-tiny",   "families/llama-f32",     "families/llama",
    "families/llama-sharded", "families/llama-dynamic", "families/mistral",
    "families/qwen2-window",  "families/qwen3",         "families/llama-longrope",
    "families2/opt",          "families2/opt-post",     "families2/bloom",
    "families2/gpt-neox",     "families2/phi",          "families2/gpt-neox-parallel",
    "families2/cohere",       "families2/gemma",        "families2/gemma3",
    "families2/phi3",         "families2/granite",      "families2/smollm3",
    "families2/roberta",      "families2/xlm-roberta",  "families2/distilbert",
    "families2/modernbert",   "families2/nomic-bert",   "families2/electra",
    "families2/albert",
};

static void test_families(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof folders / sizeof *folders; n++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", MHA_TEST_DATA, folders[n]);
        check_folder(path, MHA_F32, 1e-5);
    }
}

static void test_types(void **state)
{
    static const mha_dtype types[] = {MHA_BF16, MHA_F16, MHA_Q8_0};
    static const char *const of[] = {"models/gpt2-tiny", "models/gemma2-tiny", "families2/bloom"};
    (void)state;
    for (int n = 0; n < 9; n++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", MHA_TEST_DATA, of[n / 3]);
        check_folder(path, types[n % 3], 0.1);
    }
}

/* ---- head counts that do not divide evenly ---- */

#define WIDE "\"hidden_size\":256,\"vocab_size\":61,\"num_hidden_layers\":2,\"initializer_range\":0.2,"

/* Configs whose heads, key heads and feed-forward columns 2 to 8 ranks cannot divide evenly; with products wide enough
 * for two exchanges; with pruned layers; with layers that have different numbers of key heads and value heads, or no
 * feed-forward. */
static const char *const configs[] = {
    "{\"model_type\":\"llama\"," WIDE "\"num_attention_heads\":7,\"head_dim\":6,\"intermediate_size\":101}",
    "{\"model_type\":\"llama\"," WIDE
    "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"head_dim\":6,\"intermediate_size\":5}",
    "{\"model_type\":\"llama\"," WIDE
    "\"num_attention_heads\":24,\"num_key_value_heads\":8,\"head_dim\":8,\"intermediate_size\":64}",
    "{\"model_type\":\"phi3\"," WIDE
    "\"num_attention_heads\":16,\"num_key_value_heads\":4,\"intermediate_size\":31,\"pad_token_id\":0}",
    "{\"model_type\":\"llama\"," WIDE "\"num_attention_heads\":8,\"head_dim\":8,\"intermediate_size\":24,"
    "\"mha.heads\":[[0,2,5],[0,1,2,3,4,5,6]]}",
    "{\"model_type\":\"gpt2\",\"n_embd\":48,\"vocab_size\":61,\"n_layer\":2,\"n_head\":12,\"n_positions\":64,"
    "\"initializer_range\":0.2,\"mha.kv_heads\":{\"keys\":2,\"values\":3}}",
    "{\"model_type\":\"llama\"," WIDE "\"num_attention_heads\":5,\"head_dim\":8,\"intermediate_size\":24,"
    "\"mha.feed_forward\":[false,true],\"mha.attention\":[{\"alibi\":true,\"rotary\":false},{\"qk_norm\":true}]}",
    "{\"model_type\":\"bloom\",\"hidden_size\":36,\"vocab_size\":61,\"n_layer\":1,\"n_head\":9}",
};

static void test_uneven(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof configs / sizeof *configs; n++) {
        const char *folder = case_created(configs[n], n % 2 ? MHA_BF16 : MHA_F32);
        check_folder(folder, MHA_F32, 1e-5);
        files_remove(folder);
    }
}

/* The cache of a rank must contain only the key heads that its query heads read. */
static void test_cache(void **state)
{
    const char *folder = case_created(configs[2], MHA_F32);
    const int64_t kv_heads[][4] = {{8, 0, 0, 0}, {4, 4, 0, 0}, {2, 3, 3, 0}, {2, 2, 2, 2}};
    (void)state;
    size_t one = 0;
    for (int ranks = 1; ranks <= 4; ranks++) {
        trial t = begin(folder, MHA_F32);
        thread_exchange_run(ranks, run_rank, &t);
        for (int rank = 0; rank < ranks; rank++) {
            check_error(&t, ranks, rank);
            if (ranks == 1) one = t.of[0]->cache_bytes / 8;
            const double copies = (double)t.of[rank]->cache_bytes / (double)one; /* also counts a small struct */
            assert_true(fabs(copies - (double)kv_heads[ranks - 1][rank]) < 0.05);
        }
        release(&t);
    }
    files_remove(folder);
}

/* ---- fingerprints ---- */

/* Writes the fingerprint of a model on 3 ranks, which must be the same on each rank. */
static void fingerprint_of(const char *folder, char text[17])
{
    trial t = begin(folder, MHA_F32);
    thread_exchange_run(3, run_rank, &t);
    for (int rank = 0; rank < 3; rank++) {
        check_error(&t, 3, rank);
        assert_string_equal(t.of[rank]->fingerprint, t.of[0]->fingerprint);
    }
    memcpy(text, t.of[0]->fingerprint, 17);
    release(&t);
}

/* The fingerprint must depend on each element of each tensor, whether or not a rank reads the element. */
static void test_fingerprint(void **state)
{
    char first[17], other[17];
    size_t bytes = 0;
    const char *folder = case_created(configs[0], MHA_F32);
    char *const text = files_read(files_path(folder, "model.safetensors"), &bytes);
    uint64_t header;
    (void)state;
    memcpy(&header, text, sizeof header);
    fingerprint_of(folder, first);
    const size_t begin = sizeof header + (size_t)header, step = (bytes - begin) / 23 & ~(size_t)3;
    for (size_t at = begin + 1; at < bytes; at += step) {
        text[at] ^= 64; /* mantissa of an element */
        files_write(files_path(folder, "model.safetensors"), text, bytes);
        fingerprint_of(folder, other);
        if (strcmp(first, other) == 0) fail_msg("the fingerprint must depend on byte %zu of %zu", at, bytes);
        text[at] ^= 64;
    }
    free(text);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_types),       cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_cache),    cmocka_unit_test(test_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
