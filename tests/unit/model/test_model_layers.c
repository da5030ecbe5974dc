/* test_model_layers.c - tests layers that are composed with the project's own config keys. Results are compared with a
 * decoder in double that implements the formulas directly, and gradients with finite differences of that decoder. All
 * operations of other models must also be supported. */
#include "mha/generate.h"
#include "mha/heads.h"
#include "mha/model_create.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "mha/train.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include "support/model/train_case.h"
#include "support/reference/naive_decoder.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, L = 12, V = 64, LAYERS = 3, HEADS = 4 };

#define SIZES                                                                                                      \
    "\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":3,\"num_attention_heads\":4,\"head_dim\":8,"       \
    "\"max_position_embeddings\":48,\"intermediate_size\":40,\"n_inner\":40,\"initializer_range\":0.2,\"rms_norm_" \
    "eps\":1e-5,"

/* Keys to add to the config of a family, and the expected options of each layer. */
typedef struct composed {
    const char *keys;
    naive_layer layer[LAYERS];
} composed;

static const composed cases[] = {
    {"\"mha.feed_forward\":true", {{0}}},
    {"\"mha.feed_forward\":false", {{.alone = true}, {.alone = true}, {.alone = true}}},
    {"\"mha.feed_forward\":[false,true,false]", {{.alone = true}, {.alone = false}, {.alone = true}}},
    {"\"mha.feed_forward\":[true,false,true],\"mha.heads\":[[0,1],[0,1,2,3],[2]],\"mha.kv_heads\":{\"keys\":[1,2,1],"
     "\"values\":[2,4,1]}",
     {{.heads = 2, .k_heads = 1, .v_heads = 2},
      {.k_heads = 2, .v_heads = 4, .alone = true},
      {.heads = 1, .k_heads = 1, .v_heads = 1}}},
    {"\"mha.attention\":{\"window\":3}", {{.window = 3}, {.window = 3}, {.window = 3}}},
    {"\"mha.attention\":[{\"softcap\":0.7,\"scale\":1.5},null,{\"window\":null,\"alibi\":true}]",
     {{.softcap = 0.7, .scale = 1.5}, {0}, {.alibi = true}}},
    {"\"mha.attention\":[{\"rotary\":false,\"qk_norm\":true},{\"rotary\":true},{\"qk_norm\":true,\"rotary\":true}]",
     {{.turning = TURN_NOT, .normed = true}, {.turning = TURN}, {.turning = TURN, .normed = true}}},
    {"\"mha.attention\":[{\"alibi\":true,\"window\":5,\"rotary\":false},{\"alibi\":true,\"qk_norm\":true,\"scale\":2},{"
     "}],"
     "\"mha.feed_forward\":[false,true,false],\"mha.heads\":[[3,1],[0,1,2,3],[2]],\"mha.kv_heads\":{\"keys\":[1,4,1],"
     "\"values\":1}",
     {{.heads = 2,
       .k_heads = 1,
       .v_heads = 1,
       .number = {3, 1},
       .alone = true,
       .window = 5,
       .turning = TURN_NOT,
       .alibi = true},
      {.v_heads = 1, .scale = 2, .normed = true, .alibi = true},
      {.heads = 1, .k_heads = 1, .v_heads = 1, .alone = true}}},
};
enum { CASES = sizeof cases / sizeof *cases };

static const char *config_of(const composed *c, bool gpt2)
{
    static char text[2048];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"," SIZES "%s}", gpt2 ? "gpt2" : "llama", c->keys);
    return text;
}

static mha_model *create(mha_ctx *ctx, const char *config)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 11};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_create(ctx, config, &o, &model, &err) != MHA_OK) fail_msg("%s: %s", config, err.message);
    return model;
}

static mha_trainer *teach(const mha_model *model)
{
    const mha_train_options o = {.size = sizeof o, .rate = 1e-2};
    mha_trainer *trainer = NULL;
    mha_error err = {0};
    if (mha_trainer_create(model, &o, &trainer, &err) != MHA_OK) fail_msg("%s", err.message);
    return trainer;
}

/* Returns the reference decoder of case `c`, with the weights of `model`. */
static naive_decoder naive_of(const composed *c, bool gpt2, const mha_model *model)
{
    naive_decoder d = {gpt2, V, 32, LAYERS, HEADS, HEADS, 8, 1e-5, {{0}}, NULL, 0};
    mha_trainer *trainer = teach(model);
    int64_t count;
    const mha_named_tensor *weights = mha_trainer_weights(trainer, &count);
    memcpy(d.layer, c->layer, sizeof c->layer);
    naive_take(&d, weights, count);
    mha_trainer_free(trainer);
    return d;
}

static void texts(int32_t *ids)
{
    for (int n = 0; n < B * L; n++)
        ids[n] = (7 + 31 * n + n * n) % V;
}

/* Returns the logits [B, L, V] with gates [layers, B, H], or without gates if `gates` is NULL. The caller must free
 * them. */
static float *logits_of(const mha_model *model, const float *gates)
{
    int32_t ids[B * L];
    float *logits = malloc(sizeof(float[B * L * V]));
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids, .gates = gates};
    const mha_model_output out = {.size = sizeof out, .logits = logits};
    mha_error err = {0};
    texts(ids);
    if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    return logits;
}

static void expect_same(const float *a, const float *b, int64_t count, const char *what)
{
    if (memcmp(a, b, (size_t)count * sizeof *a) != 0) fail_msg("%s: both results must be bitwise identical", what);
}

/* ---- comparison with the reference decoder ---- */

static void check_logits(const composed *c, bool gpt2, const mha_model *model)
{
    naive_decoder d = naive_of(c, gpt2, model);
    int32_t ids[B * L];
    double *want = malloc(sizeof(double[L * V])), worst = 0;
    float *got = logits_of(model, NULL);
    texts(ids);
    for (int b = 0; b < B; b++) {
        naive_logits(&d, ids + b * L, L, want);
        for (int i = 0; i < L * V; i++)
            worst = fmax(worst, fabs(want[i] - (double)got[b * L * V + i]));
    }
    if (!(worst < 2e-5)) fail_msg("%s: error of the logits must be below 2e-5 (got %g)", config_of(c, gpt2), worst);
    free(want), free(got);
    naive_free(&d);
}

static void test_logits_against_the_formulas(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * CASES; n++) {
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        check_logits(&cases[n / 2], n % 2, model);
        mha_model_free(model);
    }
}

/* Compares the gradients of a few elements of each tensor with finite differences of the loss of the reference. */
static void check_gradients(const composed *c, bool gpt2, const mha_model *model, int recompute)
{
    const double step = 1e-5;
    const mha_model_grads_options o = {.size = sizeof o, .recompute = recompute};
    const mha_model_loss_args args = {.size = sizeof args};
    naive_decoder d = naive_of(c, gpt2, model);
    mha_model_grads *grads = NULL;
    int32_t ids[B * L];
    int64_t count;
    double loss;
    mha_error err = {0};
    texts(ids);
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    assert_int_equal(mha_model_grads_create(model, &o, &grads, &err), MHA_OK);
    if (mha_model_grads_loss(grads, &in, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_true(fabs(loss - naive_loss(&d, ids, B, L)) < 1e-5);
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    assert_int_equal(count, d.count);
    for (int64_t n = 0; n < count; n++) {
        const int64_t all = list[n].shape[0] * (list[n].rank == 2 ? list[n].shape[1] : 1);
        assert_string_equal(list[n].name, d.weights[n].name);
        for (int64_t k = 0; k < 3; k++) {
            const int64_t at = (5 + 1 + 29 * k + k * all / 3) % all;
            double *w = (double *)d.weights[n].data + at, was = *w, difference;
            *w = was + step;
            difference = naive_loss(&d, ids, B, L);
            *w = was - step;
            difference -= naive_loss(&d, ids, B, L);
            *w = was;
            const double got = (double)((const float *)list[n].data)[at];
            if (!(fabs(difference / (2 * step) - got) < 2e-5))
                fail_msg("%s: %s[%lld]: gradient %g, expected %g by finite differences", config_of(c, gpt2),
                         list[n].name, (long long)at, got, difference / (2 * step));
        }
    }
    mha_model_grads_free(grads);
    naive_free(&d);
}

static void test_gradients_against_differences(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * CASES; n++) {
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        check_gradients(&cases[n / 2], n % 2, model, n / 2 % 2);
        mha_model_free(model);
    }
}

/* ---- packed, cached and threaded passes ---- */

/* The logits of packed sequences, and of sequences that are passed token by token with a cache, must be bitwise
 * identical to those of the batch. */
static void test_packed_and_cached_are_bitwise_identical(void **state)
{
    (void)state;
    const int64_t starts[] = {0, L, 2 * L};
    int32_t ids[B * L];
    texts(ids);
    for (int n = 0; n < 2 * CASES; n++) {
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        float *whole = logits_of(model, NULL), *other = calloc(B * L * V, sizeof *other);
        mha_model_input in = {.size = sizeof in, .batch = B, .ids = ids, .starts = starts};
        mha_model_output out = {.size = sizeof out, .logits = other};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        expect_same(whole, other, B * L * V, "packed");
        const mha_model_cache_options o = {.size = sizeof o, .page_size = 16};
        mha_model_cache *cache = NULL;
        assert_int_equal(mha_model_cache_create(model, &o, &cache, NULL), MHA_OK);
        for (int i = 0; i < L; i++) {
            in = (mha_model_input){.size = sizeof in, .batch = 1, .length = 1, .ids = ids + i, .cache = cache};
            out = (mha_model_output){.size = sizeof out, .logits = other};
            assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
            expect_same(whole + i * V, other, V, "cached");
        }
        mha_model_cache_free(cache);
        free(whole), free(other);
        mha_model_free(model);
    }
}

/* Greedy generation must give the same tokens with a cache and without one. */
static void test_generates(void **state)
{
    (void)state;
    const int32_t prompt[] = {5, 9, 1, 30, 5, 9};
    for (int n = 0; n < 2 * CASES; n++) {
        int32_t out[2][16];
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        const mha_prompt p = {prompt, 6};
        for (int again = 0; again < 2; again++) {
            const mha_generate_options o = {.size = sizeof o, .max_new = 16, .eos_count = -1, .no_cache = again};
            int64_t length = 0;
            assert_int_equal(mha_model_generate(model, &p, 1, &o, out[again], &length, NULL), MHA_OK);
            assert_int_equal(length, 16);
        }
        assert_memory_equal(out[0], out[1], sizeof *out);
        mha_model_free(model);
    }
}

/* ---- training and saving ---- */

static int64_t stored(const char *folder, const char *word)
{
    mha_file *file = case_file(files_path(folder, "model.safetensors"));
    int64_t found = 0;
    for (int64_t n = 0; n < mha_file_count(file); n++)
        found += strstr(mha_file_tensor(file, n)->name, word) != NULL;
    mha_file_free(file);
    return found;
}

static void test_learns_and_is_saved(void **state)
{
    (void)state;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    for (int n = 0; n < 2 * CASES; n++) {
        const char *folder = files_folder();
        mha_error err = {0};
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        mha_trainer *trainer = teach(model), *resumed = NULL;
        const double first = train_on(trainer, 8, 24).loss;
        for (int step = 1; step < 10; step++)
            train_on(trainer, 8, 24);
        if (mha_trainer_save(trainer, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_model *opened = case_model(NULL, folder, &bare);
        float *a = logits_of(mha_trainer_model(trainer), NULL), *b = logits_of(opened, NULL);
        expect_same(a, b, B * L * V, "model saved and opened again");
        int64_t feeding = 0;
        for (int layer = 0; layer < LAYERS; layer++) {
            const int64_t width = mha_model_describe(opened)->feed_forward_per_layer[layer];
            assert_int_equal(width, cases[n / 2].layer[layer].alone ? 0 : 40);
            feeding += width > 0;
        }
        assert_int_equal(stored(folder, "mlp."), feeding * (n % 2 ? 4 : 3));
        assert_int_equal(stored(folder, n % 2 ? "ln_2.weight" : "post_attention_layernorm.weight"), feeding);
        const mha_train_options o = {.size = sizeof o, .rate = 1e-2};
        if (mha_trainer_resume(NULL, folder, &o, &resumed, &err) != MHA_OK) fail_msg("%s", err.message);
        const double next = train_on(trainer, 8, 24).loss;
        assert_true(next == train_on(resumed, 8, 24).loss);
        if (!(next < first - 1))
            fail_msg("%s: the loss must fall by at least 1 (got %g, then %g)", config_of(&cases[n / 2], n % 2), first,
                     next);
        free(a), free(b);
        mha_trainer_free(trainer), mha_trainer_free(resumed);
        mha_model_free(model), mha_model_free(opened);
        files_remove(folder);
    }
}

/* For any composition of layers, models opened as bf16, f16 and q8_0 must give logits close to those of f32. */
static void test_opened_in_shorter_types(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BF16, MHA_F16, MHA_Q8_0};
    for (int n = 0; n < 2 * CASES * 3; n++) {
        const char *config = config_of(&cases[n / 6], n / 3 % 2);
        mha_model_options o = {.size = sizeof o, .dtype = types[n % 3], .memory_only = 1, .config_json = config};
        mha_model *model = create(NULL, config), *rounded = NULL;
        mha_trainer *trainer = teach(model); /* lists the weights of the model */
        o.tensors = mha_trainer_weights(trainer, &o.tensor_count);
        assert_int_equal(mha_model_open(NULL, NULL, &o, &rounded, NULL), MHA_OK);
        float *want = logits_of(model, NULL), *got = logits_of(rounded, NULL);
        double squares = 0, errors = 0;
        for (int i = 0; i < B * L * V; i++) {
            squares += pow((double)want[i], 2);
            errors += pow((double)(want[i] - got[i]), 2);
        }
        if (!(errors > 0 && errors < 0.0025 * squares))
            fail_msg("%s in %s: norm of the errors of the logits must be above 0 and below %g (got %g)", config,
                     mha_dtype_name(types[n % 3]), 0.05 * sqrt(squares), sqrt(errors));
        free(want), free(got);
        mha_model_free(rounded), mha_model_free(model);
        mha_trainer_free(trainer);
    }
}

/* Training in bf16, with dropout at every site and recomputation in the backward pass, must reduce the loss. */
static void test_learns_with_every_option(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * CASES; n++) {
        const mha_train_options o = {.size = sizeof o,
                                     .rate = 1e-2,
                                     .recompute = 1,
                                     .dropout = {.embedding = 0.05, .attention = 0.05, .residual = 0.05},
                                     .dtype = MHA_BF16};
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        mha_trainer *trainer = NULL;
        mha_error err = {0};
        if (mha_trainer_create(model, &o, &trainer, &err) != MHA_OK) fail_msg("%s", err.message);
        const double first = train_on(trainer, 8, 24).loss;
        for (int step = 1; step < 10; step++)
            train_on(trainer, 8, 24);
        const double last = train_on(trainer, 8, 24).loss;
        if (!(last < first - 0.8))
            fail_msg("%s: the loss must fall by at least 0.8 (got %g, then %g)", config_of(&cases[n / 2], n % 2), first,
                     last);
        mha_trainer_free(trainer);
        mha_model_free(model);
    }
}

/* ---- removal of heads ---- */

static void test_heads_are_measured(void **state)
{
    (void)state;
    int32_t ids[B * L];
    const int64_t starts[] = {0, L, 2 * L};
    texts(ids);
    for (int n = 0; n < 2 * CASES; n++) {
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        mha_head_data *data = NULL;
        mha_heads *heads = NULL;
        assert_int_equal(mha_head_data_of_ids(model, ids, starts, B, NULL, &data, NULL), MHA_OK);
        assert_int_equal(mha_heads_measure_data(model, data, NULL, &heads, NULL), MHA_OK);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int head = 0; head < mha_model_describe(model)->heads_per_layer[layer]; head++) {
                const double entropy = mha_heads_value(heads, layer, head, MHA_HEAD_ENTROPY);
                assert_true(entropy > 0 && entropy < log2(L));
                assert_true(mha_heads_value(heads, layer, head, MHA_HEAD_INDUCTION_PROBE) >= 0);
            }
        mha_heads_free(heads);
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

/* Removing the first group of heads of every layer except the last must equal gates of 0 for these heads. */
static void test_heads_are_pruned(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * CASES; n++) {
        const char *folder = files_folder();
        mha_model *model = create(NULL, config_of(&cases[n / 2], n % 2));
        const mha_model_info *info = mha_model_describe(model);
        const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
        uint8_t keep[LAYERS * HEADS];
        float gates[LAYERS * B * HEADS];
        for (int i = 0; i < LAYERS * HEADS; i++) {
            const int layer = i / HEADS, keys = (int)info->key_heads_per_layer[layer];
            const int values = (int)info->value_heads_per_layer[layer], least = keys < values ? keys : values;
            const int group = (int)info->heads_per_layer[layer] / least;
            keep[i] = least == 1 || i % HEADS >= group;
            for (int b = 0; b < B; b++)
                gates[(layer * B + b) * HEADS + i % HEADS] = keep[i];
        }
        save_pruned(model, keep, NULL, folder);
        mha_model *pruned = case_model(NULL, folder, &bare);
        float *want = logits_of(model, gates), *got = logits_of(pruned, NULL);
        case_near("pruned", got, want, B * L * V, 2e-5);
        assert_int_equal(mha_model_describe(pruned)->parameters < info->parameters,
                         memchr(keep, 0, sizeof keep) != NULL);
        free(want), free(got);
        mha_model_free(pruned), mha_model_free(model);
        files_remove(folder);
    }
}

/* Removing or regrouping heads with `compatible` must fail for these models, which other programs do not support. */
static void test_compatible_is_rejected(void **state)
{
    (void)state;
    static const char *const keys[] = {"mha.feed_forward", "mha.attention"};
    for (int n = 0; n < 2; n++) {
        const mha_prune_options prune = {.size = sizeof prune, .compatible = 1};
        const mha_regroup_options regroup = {.size = sizeof regroup, .value_heads = 2, .compatible = 1};
        mha_model *model = create(NULL, config_of(&cases[n ? 4 : 1], true));
        mha_model_edit *edit = NULL;
        mha_error err = {0};
        uint8_t keep[LAYERS * HEADS];
        memset(keep, 1, sizeof keep);
        assert_int_equal(mha_prune(model, keep, &prune, &edit, &err), MHA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, keys[n]));
        assert_int_equal(mha_regroup(model, &regroup, &edit, &err), MHA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, keys[n]));
        mha_model_free(model);
    }
}

/* Callback: in an encoder, layer 1 must attend to a window of 3 tokens on each side including the query, and other
 * layers to all tokens. */
static int look_at_window(void *user, int64_t layer, int64_t heads, const float *p)
{
    const int64_t window = layer == 1 ? 3 : L;
    for (int64_t n = 0; n < B * heads * L * L; n++) {
        const int64_t i = n / L % L, j = n % L;
        assert_int_equal(p[n] > 0, (i < j ? j - i : i - j) < window);
    }
    ++*(int *)user;
    return 0;
}

static void test_an_encoder_has_a_window(void **state)
{
    (void)state;
    int32_t ids[B * L];
    int seen = 0;
    mha_error err = {0};
    mha_model *model = create(NULL, "{\"model_type\":\"bert\"," SIZES "\"mha.attention\":[null,{\"window\":3},{}]}");
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const mha_model_output out = {.size = sizeof out, .on_attention = look_at_window, .user = &seen};
    texts(ids);
    if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(seen, LAYERS);
    mha_model_free(model);
}

/* ---- composed layers in every family ---- */

/* The keys must be supported in all families: in encoders, in families with norms after a branch, and in families with
 * windows and q/k norms. */
static void test_other_families_learn(void **state)
{
    (void)state;
    static const char *const types[] = {"bert", "mistral", "qwen2", "qwen3", "gemma2"};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        char config[1024];
        snprintf(config, sizeof config, "{\"model_type\":\"%s\"," SIZES "\"num_key_value_heads\":4,%s}", types[t],
                 "\"mha.feed_forward\":[false,true,false],\"mha.attention\":[{\"window\":4,\"qk_norm\":true},"
                 "{\"alibi\":true,\"rotary\":false,\"qk_norm\":false},{\"softcap\":5,\"scale\":1,\"rotary\":true}]");
        mha_model *model = create(NULL, config);
        mha_trainer *trainer = teach(model);
        const double first = train_on(trainer, 8, 24).loss;
        for (int step = 1; step < 10; step++)
            train_on(trainer, 8, 24);
        const double last = train_on(trainer, 8, 24).loss;
        if (!(last < first - 0.4))
            fail_msg("%s: the loss must fall by at least 0.4 (got %g, then %g)", types[t], first, last);
        mha_trainer_free(trainer);
        mha_model_free(model);
    }
}

/* ---- error messages ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *message;
        mha_status status;
    } wrong[] = {
        {"\"mha.feed_forward\":0", "mha.feed_forward must be true or false (got 0)", MHA_ERR_FORMAT},
        {"\"mha.feed_forward\":\"no\"", "mha.feed_forward must be true or false (got \"no\")", MHA_ERR_FORMAT},
        {"\"mha.feed_forward\":[true,false]", "mha.feed_forward must have 3 elements, true or false per layer (got 2)",
         MHA_ERR_FORMAT},
        {"\"mha.feed_forward\":[true,null,false]", "mha.feed_forward[1] must be true or false (got null)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":[{},{}]", "mha.attention must have 3 elements, one entry per layer (got 2)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":7", "mha.attention must be an object, or null for the default of the family (got 7)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":[{},\"gqa\",{}]",
         "mha.attention[1] must be an object, or null for the default of the family (got \"gqa\")", MHA_ERR_FORMAT},
        {"\"mha.attention\":[{},{},{\"moe_heads\":{}}]",
         "mha.attention[2].moe_heads must be absent in a decoder, because heads are selected by the mean over all "
         "tokens, which would leak later tokens (got model_type gpt2)",
         MHA_ERR_UNSUPPORTED},
        {"\"mha.attention\":{\"heads\":4}",
         "mha.attention.heads: unknown key (known: adaptive_heads, alibi, head_pruning, moe_heads, qk_norm, rotary, "
         "scale, "
         "softcap and window; head counts are in mha.heads and mha.kv_heads)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":[{\"window\":0},{},{}]",
         "mha.attention[0].window must be an integer from 1 to 2147483648 (got 0)", MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"window\":2.5}", "mha.attention.window must be an integer from 1 to 2147483648 (got 2.5)",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"scale\":-1}", NULL, MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"scale\":1e39}", NULL, MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"softcap\":0}", NULL, MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"alibi\":1}", "mha.attention.alibi must be true or false (got 1)", MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"rotary\":\"yes\"}", "mha.attention.rotary must be true or false (got \"yes\")",
         MHA_ERR_FORMAT},
        {"\"mha.attention\":{\"qk_norm\":[]}", "mha.attention.qk_norm must be true or false (got an array)",
         MHA_ERR_FORMAT},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        const composed c = {wrong[n].keys, {{0}}};
        mha_model *model = NULL;
        mha_error err = {0};
        assert_int_equal(mha_model_create(NULL, config_of(&c, true), NULL, &model, &err), wrong[n].status);
        assert_null(model);
        assert_true(strncmp(err.message, "config.json: mha.", 17) == 0);
        if (wrong[n].message) assert_string_equal(err.message + strlen("config.json: "), wrong[n].message);
    }
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    case_create_without_memory(config_of(&cases[CASES - 1], false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_against_the_formulas),
        cmocka_unit_test(test_gradients_against_differences),
        cmocka_unit_test(test_packed_and_cached_are_bitwise_identical),
        cmocka_unit_test(test_generates),
        cmocka_unit_test(test_learns_and_is_saved),
        cmocka_unit_test(test_learns_with_every_option),
        cmocka_unit_test(test_opened_in_shorter_types),
        cmocka_unit_test(test_heads_are_measured),
        cmocka_unit_test(test_heads_are_pruned),
        cmocka_unit_test(test_compatible_is_rejected),
        cmocka_unit_test(test_an_encoder_has_a_window),
        cmocka_unit_test(test_other_families_learn),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
