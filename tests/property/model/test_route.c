/* test_route.c - heads per sequence: what a router does not choose is not computed, which has the bits of gates of 0;
 * and a sequence is alone with its choice, whatever runs beside it. */
#include "mha/generate.h"
#include "mha/model_grads.h"
#include "mha/route.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 5, TOKENS = 44, LONGEST = 16, LAYERS_MOST = 8, HEADS_MOST = 16, WIDTH_MOST = 128, VOCAB_MOST = 700 };
enum { KEPT_MOST = LAYERS_MOST * SEQUENCES * HEADS_MOST };

static const int64_t starts[SEQUENCES + 1] = {0, 9, 10, 26, 33, TOKENS};
static const char *const folders[] = {"models/bert-tiny",       "models/gpt2-tiny", "models/gemma2-tiny",
                                      "families/gpt2-hubnames", "families/llama",   "families/mistral",
                                      "families/qwen2-window",  "families/qwen3",   "families/llama-f16"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static mha_error err;

static void must(mha_status status)
{
    if (status != MHA_OK) fail_msg("%s", err.message);
}

/* ---- a model, and a router of random numbers ---- */

typedef struct fixture {
    mha_model *model, *whole; /* the second without a router */
    const mha_model_info *info;
    mha_router *router;
    int64_t group; /* of the heads of a layer: the same in all of these models */
    int32_t ids[TOKENS];
} fixture;

static mha_router *random_router(const mha_model *model, int64_t units, uint64_t seed)
{
    const mha_model_info *info = mha_model_describe(model);
    static float numbers[LAYERS_MOST * HEADS_MOST * (WIDTH_MOST + 1)];
    char names[2 * LAYERS_MOST][32];
    mha_named_tensor list[2 * LAYERS_MOST];
    mha_router *router = NULL;
    rng r = rng_make(seed, 3);
    float *at = numbers;
    for (int64_t n = 0; n < 2 * info->layers; n++) {
        const int64_t count = units * (n % 2 ? 1 : info->hidden);
        snprintf(names[n], sizeof names[n], "router.%d.%s", (int)n / 2, n % 2 ? "bias" : "weight");
        list[n] = (mha_named_tensor){
            .name = names[n], .dtype = MHA_F32, .rank = n % 2 ? 1 : 2, .shape = {units, info->hidden}, .data = at};
        for (int64_t i = 0; i < count; i++)
            *at++ = (float)(rng_uniform(&r) - 0.5);
    }
    must(mha_router_create(model, list, 2 * info->layers, &router, &err));
    return router;
}

static fixture fixture_open(mha_ctx *ctx, const char *folder)
{
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    fixture f = {.model = case_model(ctx, folder, &bare), .whole = case_model(ctx, folder, &bare)};
    rng r = rng_make(17, 1);
    f.info = mha_model_describe(f.model);
    assert_true(f.info->layers <= LAYERS_MOST && f.info->heads <= HEADS_MOST && f.info->hidden <= WIDTH_MOST);
    f.group = f.info->heads / f.info->kv_heads;
    f.router = random_router(f.model, f.info->kv_heads, 5);
    for (int i = 0; i < TOKENS; i++)
        f.ids[i] = (int32_t)rng_range(&r, 0, f.info->vocab - 1);
    return f;
}

static void fixture_close(fixture *f)
{
    mha_model_free(f->model);
    mha_model_free(f->whole);
    mha_router_free(f->router);
}

static mha_model_input packed(const fixture *f)
{
    return (mha_model_input){.size = sizeof(mha_model_input), .batch = SEQUENCES, .ids = f->ids, .starts = starts};
}

static void run(const mha_model *model, const mha_model_input *in, float *x, uint8_t *kept)
{
    const mha_model_output out = {.size = sizeof out, .last_hidden = x, .kept = kept};
    must(mha_model_forward(model, in, &out, &err));
}

/* ---- what is not kept ---- */

/* As many heads as asked for, in whole groups; and not the same ones everywhere. */
static void check_kept(const fixture *f, const uint8_t *kept, int64_t heads)
{
    bool differ = false;
    for (int64_t n = 0; n < f->info->layers * SEQUENCES; n++) {
        const uint8_t *row = kept + n * f->info->heads;
        int64_t sum = 0;
        for (int64_t h = 0; h < f->info->heads; h++) {
            sum += row[h];
            assert_int_equal(row[h], row[h / f->group * f->group]);
        }
        assert_int_equal(sum, heads);
        differ |= memcmp(row, kept, (size_t)f->info->heads) != 0;
    }
    assert_true(differ || heads == f->info->heads);
}

static void test_gates_of_zero(void **state)
{
    (void)state;
    for (int m = 0; m < FOLDERS; m++) {
        fixture f = fixture_open(NULL, folders[m]);
        float x[TOKENS * WIDTH_MOST], want[TOKENS * WIDTH_MOST], gates[KEPT_MOST];
        uint8_t kept[KEPT_MOST];
        mha_model_input in = packed(&f);
        for (int64_t heads = f.group; heads <= f.info->heads; heads += f.group) {
            must(mha_model_route(f.model, f.router, heads, &err));
            run(f.model, &in, x, kept);
            check_kept(&f, kept, heads);
            for (int64_t n = 0; n < f.info->layers * SEQUENCES * f.info->heads; n++)
                gates[n] = (float)kept[n];
            in.gates = heads < f.info->heads ? gates : NULL; /* all heads: the whole model */
            run(f.whole, &in, want, NULL);
            in.gates = NULL;
            assert_memory_equal(x, want, (size_t)(TOKENS * f.info->hidden) * sizeof *x);
        }
        must(mha_model_route(f.model, NULL, 0, &err));
        run(f.model, &in, x, kept);
        assert_memory_equal(x, want, (size_t)(TOKENS * f.info->hidden) * sizeof *x);
        fixture_close(&f);
    }
}

/* ---- what is not read ---- */

enum { POISONED = 2 }; /* the head of every layer that no sequence keeps */

/* The checkpoint's tensors with NaN wherever the head is alone, in malloc's memory. */
static mha_named_tensor *poisoned(const mha_file *file, int64_t head_dim, int64_t *count)
{
    mha_named_tensor *list = calloc((size_t)mha_file_count(file), sizeof *list);
    *count = 0;
    for (int64_t n = 0; n < mha_file_count(file); n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        const bool rows = strstr(t->name, "attention.self.") != NULL;
        if (!rows && !strstr(t->name, "attention.output.dense.weight")) continue;
        float *data = case_floats(file, t->name);
        const int64_t columns = t->rank == 2 ? t->shape[1] : 1;
        for (int64_t i = 0; i < t->elements; i++)
            if ((rows ? i / columns : i % columns) / head_dim == POISONED) data[i] = NAN;
        list[*count] = (mha_named_tensor){.name = t->name, .dtype = MHA_F32, .rank = t->rank, .data = data};
        memcpy(list[*count].shape, t->shape, (size_t)t->rank * sizeof *t->shape);
        ++*count;
    }
    return list;
}

static void test_nothing_of_them_is_read(void **state)
{
    (void)state;
    static const char folder[] = "models/bert-tiny";
    fixture f = fixture_open(NULL, folder);
    mha_file *file = case_file(MHA_TEST_DATA "/models/bert-tiny/model.safetensors");
    float want[TOKENS * WIDTH_MOST], x[TOKENS * WIDTH_MOST];
    int64_t count = 0, tensors = 0;
    mha_named_tensor *list = poisoned(file, f.info->head_dim, &count);
    assert_int_equal(count, 7 * f.info->layers);
    const mha_named_tensor *router = mha_router_tensors(f.router, &tensors);
    for (int64_t n = 1; n < tensors; n += 2)
        ((float *)router[n].data)[POISONED] = -1e6F;
    mha_router *never = NULL;
    must(mha_router_create(f.model, router, tensors, &never, &err));
    const mha_model_options with = {.size = sizeof with, .no_tokenizer = 1, .tensors = list, .tensor_count = count};
    mha_model *bad = case_model(NULL, folder, &with);
    const mha_model_input in = packed(&f);
    for (int64_t heads = 1; heads < f.info->heads; heads++) {
        must(mha_model_route(f.model, never, heads, &err));
        must(mha_model_route(bad, never, heads, &err));
        run(f.model, &in, want, NULL);
        run(bad, &in, x, NULL);
        assert_memory_equal(x, want, (size_t)(TOKENS * f.info->hidden) * sizeof *x);
    }
    mha_model_free(bad);
    mha_router_free(never);
    for (int64_t n = 0; n < count; n++)
        free(list[n].data);
    free(list);
    mha_file_free(file);
    fixture_close(&f);
}

/* ---- the choice ---- */

typedef struct chooser {
    const fixture *f;
    const uint8_t *kept;
} chooser;

/* The kept heads are those of the formula. */
static int check_choice(void *user, const mha_model_activations *a)
{
    const chooser *c = user;
    const fixture *f = c->f;
    const int64_t E = f->info->hidden, units = f->info->kv_heads;
    const mha_named_tensor *list = mha_router_tensors(f->router, NULL) + 2 * a->layer;
    const float *weight = list[0].data, *bias = list[1].data;
    for (int64_t b = 0; b < SEQUENCES; b++) {
        const uint8_t *kept = c->kept + (a->layer * SEQUENCES + b) * f->info->heads;
        double least = 1e300, most = -1e300;
        for (int64_t u = 0; u < units; u++) {
            double s = (double)bias[u];
            for (int64_t r = starts[b]; r < starts[b + 1]; r++)
                for (int64_t e = 0; e < E; e++)
                    s += (double)weight[u * E + e] * (double)a->input[r * E + e] / (double)(starts[b + 1] - starts[b]);
            if (kept[u * f->group] && s < least) least = s;
            if (!kept[u * f->group] && s > most) most = s;
        }
        assert_true(least >= most - 1e-9);
    }
    return 0;
}

static void test_formula(void **state)
{
    (void)state;
    for (int m = 0; m < FOLDERS; m++) {
        fixture f = fixture_open(NULL, folders[m]);
        uint8_t kept[KEPT_MOST];
        chooser c = {&f, kept};
        const mha_model_input in = packed(&f);
        const mha_model_output out = {.size = sizeof out, .kept = kept, .on_activations = check_choice, .user = &c};
        must(mha_model_route(f.model, f.router, f.group, &err));
        must(mha_model_forward(f.model, &in, &out, &err));
        fixture_close(&f);
    }
}

/* ---- neighbours, padding and threads ---- */

/* One sequence at row `at` of `length`: 0 before it and behind it is masked, and holds other tokens. */
static void expect_padded(const fixture *f, int64_t b, int64_t at, const float *want)
{
    const int64_t n = starts[b + 1] - starts[b], E = f->info->hidden;
    int32_t ids[2 * LONGEST], positions[2 * LONGEST] = {0};
    uint8_t mask[2 * LONGEST] = {0};
    float x[2 * LONGEST * WIDTH_MOST];
    for (int64_t i = 0; i < 2 * LONGEST; i++)
        ids[i] = (int32_t)(i * 7 % f->info->vocab);
    for (int64_t i = 0; i < n; i++) {
        ids[LONGEST + at + i] = f->ids[starts[b] + i];
        positions[LONGEST + at + i] = (int32_t)i;
        mask[LONGEST + at + i] = 1;
    }
    mask[0] = 1;
    const mha_model_input in = {
        .size = sizeof in, .batch = 2, .length = LONGEST, .ids = ids, .mask = mask, .positions = positions};
    run(f->model, &in, x, NULL);
    assert_memory_equal(x + (LONGEST + at) * E, want + starts[b] * E, (size_t)(n * E) * sizeof *x);
}

static void test_alone_and_padded(void **state)
{
    (void)state;
    for (int m = 0; m < FOLDERS; m++) {
        fixture f = fixture_open(NULL, folders[m]);
        const int64_t E = f.info->hidden;
        const bool causal = f.info->causal;
        float want[TOKENS * WIDTH_MOST], x[TOKENS * WIDTH_MOST];
        mha_model_input in = packed(&f);
        must(mha_model_route(f.model, f.router, f.group, &err));
        run(f.model, &in, want, NULL);
        for (int64_t b = 0; b < SEQUENCES; b++) {
            const int64_t n = starts[b + 1] - starts[b];
            const mha_model_input alone = {.size = sizeof alone, .batch = 1, .length = n, .ids = f.ids + starts[b]};
            run(f.model, &alone, x, NULL);
            assert_memory_equal(x, want + starts[b] * E, (size_t)(n * E) * sizeof *x);
            expect_padded(&f, b, 0, want);
            if (!causal) expect_padded(&f, b, LONGEST - n, want); /* a causal window counts rows, not positions */
        }
        fixture_close(&f);
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (int m = 0; m < FOLDERS; m++) {
        float want[TOKENS * WIDTH_MOST], x[TOKENS * WIDTH_MOST];
        for (int threads = 1; threads <= 4; threads++) {
            mha_ctx *ctx = NULL;
            const mha_ctx_options o = {.size = sizeof o, .threads = threads};
            must(mha_ctx_create(&o, &ctx, &err));
            fixture f = fixture_open(ctx, folders[m]);
            const mha_model_input in = packed(&f);
            must(mha_model_route(f.model, f.router, f.group, &err));
            run(f.model, &in, threads == 1 ? want : x, NULL);
            if (threads > 1) assert_memory_equal(x, want, (size_t)(TOKENS * f.info->hidden) * sizeof *x);
            fixture_close(&f);
            mha_ctx_free(ctx);
        }
    }
}

/* ---- decoding ---- */

/* Logits of tokens [first, first + count) of sequence `to` of the cache. */
static void feed(const fixture *f, mha_model_cache *cache, int64_t to, int64_t first, int64_t count, float *logits)
{
    const mha_model_input in = {
        .size = sizeof in, .batch = 1, .length = count, .ids = f->ids + first, .cache = cache, .sequence = to};
    const mha_model_output out = {.size = sizeof out, .logits = logits};
    must(mha_model_forward(f->model, &in, &out, &err));
}

/* What the first call chose stays: the rest has the bits of the whole text with gates of 0 for the other heads. */
static void check_decoding(const fixture *f, int64_t prompt, int64_t all)
{
    static float want[TOKENS * VOCAB_MOST], got[TOKENS * VOCAB_MOST];
    float gates[LAYERS_MOST * HEADS_MOST];
    uint8_t kept[LAYERS_MOST * HEADS_MOST];
    const int64_t vocab = f->info->vocab;
    const mha_model_cache_options o = {.size = sizeof o, .batch = 3, .tokens = 64, .page_size = 16};
    mha_model_cache *cache = NULL;
    mha_model_input in = {.size = sizeof in, .batch = 1, .length = prompt, .ids = f->ids};
    run(f->model, &in, NULL, kept);
    for (int64_t n = 0; n < f->info->layers * f->info->heads; n++)
        gates[n] = (float)kept[n];
    in.length = all;
    in.gates = gates;
    const mha_model_output out = {.size = sizeof out, .logits = want};
    must(mha_model_forward(f->whole, &in, &out, &err));
    must(mha_model_cache_create(f->model, &o, &cache, &err));
    feed(f, cache, 1, 0, prompt, got);
    must(mha_model_cache_fork(cache, 1, 2, prompt, &err));
    for (int64_t at = prompt; at < all; at++)
        feed(f, cache, 1, at, 1, got + at * vocab);
    assert_memory_equal(got, want, (size_t)(all * vocab) * sizeof *got);
    feed(f, cache, 2, prompt, all - prompt, got);
    assert_memory_equal(got, want + prompt * vocab, (size_t)((all - prompt) * vocab) * sizeof *got);
    mha_model_cache_free(cache);
}

static void test_decoding(void **state)
{
    (void)state;
    for (int m = 0; m < FOLDERS; m++) {
        fixture f = fixture_open(NULL, folders[m]);
        must(mha_model_route(f.model, f.router, f.group, &err));
        if (f.info->causal && f.info->logits && f.info->vocab <= VOCAB_MOST) check_decoding(&f, 11, 15);
        fixture_close(&f);
    }
}

/* Prompts that begin alike do not share what one of them chose; each gets what it gets alone. */
static void test_generation(void **state)
{
    (void)state;
    enum { NEW = 6 };
    fixture f = fixture_open(NULL, "models/gpt2-tiny");
    const mha_prompt prompts[] = {{f.ids, 20}, {f.ids, 24}, {f.ids + 3, 9}, {f.ids, 20}};
    const mha_generate_options o = {.size = sizeof o, .max_new = NEW, .eos_count = -1, .at_once = 2};
    int32_t together[4 * NEW], alone[NEW];
    int64_t lengths[4];
    must(mha_model_route(f.model, f.router, f.group, &err));
    must(mha_model_generate(f.model, prompts, 4, &o, together, lengths, &err));
    for (int n = 0; n < 4; n++) {
        must(mha_model_generate(f.model, &prompts[n], 1, &o, alone, lengths, &err));
        assert_memory_equal(alone, together + n * NEW, sizeof alone);
    }
    const mha_generate_options again = {.size = sizeof again, .max_new = NEW, .no_cache = 1};
    assert_int_equal(mha_model_generate(f.model, prompts, 1, &again, alone, lengths, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "router"));
    fixture_close(&f);
}

/* ---- refusals ---- */

static void expect_refused(mha_model *model, const mha_router *router, int64_t heads, const char *word)
{
    assert_int_equal(mha_model_route(model, router, heads, &err), MHA_ERR_ARG);
    if (!strstr(err.message, word)) fail_msg("%s: no \"%s\"", err.message, word);
}

static void test_refusals(void **state)
{
    (void)state;
    fixture f = fixture_open(NULL, "families/llama"), other = fixture_open(NULL, "models/gpt2-tiny");
    mha_model_cache *cache = NULL;
    mha_model_grads *grads = NULL;
    float x[TOKENS * WIDTH_MOST];
    expect_refused(NULL, f.router, 1, "model is NULL");
    expect_refused(f.model, f.router, 0, "0 heads");
    expect_refused(f.model, f.router, f.info->heads + f.group, "the model has 1..");
    expect_refused(f.model, f.router, f.group + 1, "groups of");
    expect_refused(f.model, other.router, f.group, "the router is of");
    must(mha_model_cache_create(f.model, NULL, &cache, &err));
    must(mha_model_grads_create(f.model, NULL, &grads, &err));
    must(mha_model_route(f.model, f.router, f.group, &err));
    mha_model_input in = {.size = sizeof in, .batch = 1, .length = 4, .ids = f.ids, .cache = cache};
    const mha_model_output out = {.size = sizeof out, .last_hidden = x};
    assert_int_equal(mha_model_forward(f.model, &in, &out, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "before the model's router was set"));
    in.cache = NULL;
    assert_int_equal(mha_model_grads_forward(grads, &in, NULL, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "a router"));
    mha_model_grads_free(grads);
    mha_model_cache_free(cache);
    fixture_close(&f);
    fixture_close(&other);
}

static void test_other_dtype(void **state)
{
    (void)state;
    const mha_model_options half = {.size = sizeof half, .no_tokenizer = 1, .dtype = MHA_BF16};
    mha_model *model = case_model(NULL, "models/bert-tiny", &half);
    mha_router *router = random_router(model, mha_model_describe(model)->heads, 1);
    assert_int_equal(mha_model_route(model, router, 1, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "only f32"));
    mha_model_free(model);
    mha_router_free(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gates_of_zero), cmocka_unit_test(test_nothing_of_them_is_read),
        cmocka_unit_test(test_formula),       cmocka_unit_test(test_alone_and_padded),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_generation),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_other_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
