/* test_heads_memory.c - the measurement of heads on a long text must need little memory in addition to the weights.
 *
 * The model has 12 layers of 12 heads with random weights; complete maps of 4,096 tokens would need 9.7 GB. The heads
 * are narrow to save time: the test concerns memory per head and per token, while the memory per column is known (x, q,
 * k, v and a chunk of the feed-forward network). */
#include "mha/heads.h"
#include "mha/io.h"
#include "support/check.h"
#include "support/files.h"
#include "support/rng.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 12, HEADS = 12, DIM = 4, WIDTH = HEADS * DIM, INNER = 64, VOCAB = 64, TOKENS = 4096 };

/* ---- an allocator that tracks the memory in use ---- */

typedef struct metered {
    atomic_llong now, max;
} metered;

enum { HEADER = 64 };

static void *meter_alloc(void *user, size_t bytes, size_t align)
{
    metered *m = user;
    char *memory = NULL;
    if (align > HEADER || posix_memalign((void **)&memory, HEADER, bytes + HEADER) != 0) return NULL;
    memcpy(memory, &bytes, sizeof bytes);
    const long long now = atomic_fetch_add(&m->now, (long long)bytes) + (long long)bytes;
    long long max = atomic_load(&m->max);
    while (now > max && !atomic_compare_exchange_weak(&m->max, &max, now)) {
    }
    return memory + HEADER;
}

static void meter_free(void *user, void *memory)
{
    metered *m = user;
    size_t bytes;
    memcpy(&bytes, (char *)memory - HEADER, sizeof bytes);
    atomic_fetch_sub(&m->now, (long long)bytes);
    free((char *)memory - HEADER);
}

/* ---- the measured model ---- */

static rng noise;

static void add(mha_named_tensor *list, int *count, char *name, int64_t rows, int64_t columns)
{
    const int64_t n = rows * (columns ? columns : 1);
    float *data = malloc((size_t)n * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = columns ? (float)rng_normal(&noise) * 0.3F : 1;
    list[(*count)++] = (mha_named_tensor){
        .name = name, .dtype = MHA_F32, .rank = columns ? 2 : 1, .shape = {rows, columns}, .data = data};
}

static void write_weights(const char *path)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } parts[] = {
        {"self_attn.q_proj", WIDTH, WIDTH}, {"self_attn.k_proj", WIDTH, WIDTH}, {"self_attn.v_proj", WIDTH, WIDTH},
        {"self_attn.o_proj", WIDTH, WIDTH}, {"mlp.gate_proj", INNER, WIDTH},    {"mlp.up_proj", INNER, WIDTH},
        {"mlp.down_proj", WIDTH, INNER},    {"input_layernorm", WIDTH, 0},      {"post_attention_layernorm", WIDTH, 0}};
    enum { PARTS = sizeof parts / sizeof *parts };
    static mha_named_tensor list[LAYERS * PARTS + 2];
    static char names[LAYERS * PARTS][80];
    mha_error err = {0};
    int count = 0;
    noise = rng_make(3, 1);
    for (int n = 0; n < LAYERS * PARTS; n++) {
        snprintf(names[n], sizeof names[n], "model.layers.%d.%s.weight", n / PARTS, parts[n % PARTS].name);
        add(list, &count, names[n], parts[n % PARTS].rows, parts[n % PARTS].columns);
    }
    add(list, &count, "model.embed_tokens.weight", VOCAB, WIDTH);
    add(list, &count, "model.norm.weight", WIDTH, 0);
    if (mha_tensors_write(NULL, path, list, count, 0, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int n = 0; n < count; n++)
        free(list[n].data);
}

static const char *make_model(void)
{
    const char *folder = files_folder();
    char config[1024];
    const int n = snprintf(config, sizeof config,
                           "{\"model_type\": \"llama\", \"architectures\": [\"LlamaModel\"], \"hidden_size\": %d, "
                           "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
                           "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-05, "
                           "\"hidden_act\": \"silu\", \"tie_word_embeddings\": true}",
                           WIDTH, INNER, LAYERS, HEADS, VOCAB, TOKENS);
    files_write(files_path(folder, "config.json"), config, (size_t)n);
    write_weights(files_path(folder, "model.safetensors"));
    return folder;
}

/* ---- measurement of memory ---- */

static long long measure(const char *folder, int64_t tokens)
{
    static int32_t ids[TOKENS];
    metered meter = {0};
    mha_ctx *ctx;
    mha_model *model;
    mha_head_data *data;
    mha_heads *heads;
    mha_error err = {0};
    const int64_t starts[2] = {0, tokens};
    const mha_ctx_options options = {.size = sizeof options, .allocator = {meter_alloc, meter_free, &meter}};
    const mha_model_options untold = {.size = sizeof untold, .no_tokenizer = 1};
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)rng_range(&noise, 0, VOCAB - 1);
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    if (mha_model_open(ctx, folder, &untold, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    const long long weights = atomic_load(&meter.now);
    if (mha_head_data_of_ids(model, ids, starts, 1, NULL, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_heads_measure_data(model, data, NULL, &heads, &err) != MHA_OK) fail_msg("%s", err.message);
    const double entropy = mha_heads_value(heads, LAYERS - 1, HEADS - 1, MHA_HEAD_ENTROPY);
    assert_true(entropy > 0 && entropy < 12);
    mha_heads_free(heads);
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&meter.now), 0);
    return atomic_load(&meter.max) - weights;
}

/* 4,096 tokens must need less than 50 MB, and less than four times the memory of 1,024 tokens. */
static void long_texts(void **state)
{
    (void)state;
    const char *folder = make_model();
    const long long quarter = measure(folder, TOKENS / 4), whole = measure(folder, TOKENS);
    printf("%.1f MB for %d tokens, %.1f MB for %d tokens\n", (double)whole / 1e6, TOKENS, (double)quarter / 1e6,
           TOKENS / 4);
    assert_true(whole < 50 * 1000 * 1000);
    assert_true(whole < 4 * quarter);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
