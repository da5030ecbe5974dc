/* test_heads_route.c - routers: what is fitted, what files of them are refused, and memory that is short. */
#include "mha/head_data.h"
#include "mha/io.h"
#include "mha/route.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 12, LENGTH = 9, LAYERS_MOST = 4, HEADS_MOST = 8, WIDTH_MOST = 128, TENSORS_MOST = 2 * LAYERS_MOST + 1 };
enum { VALUES = HEADS_MOST * WIDTH_MOST };

static mha_error err;

static void must(mha_status status)
{
    if (status != MHA_OK) fail_msg("%s", err.message);
}

static mha_model *open_bare(mha_ctx *ctx, const char *folder)
{
    return case_model(ctx, folder, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1});
}

static mha_head_data *random_data(const mha_model *model, int64_t texts, int64_t batch_tokens)
{
    int32_t ids[TEXTS * LENGTH];
    int64_t starts[TEXTS + 1] = {0};
    rng r = rng_make(11, 2);
    for (int i = 0; i < TEXTS * LENGTH; i++)
        ids[i] = (int32_t)rng_range(&r, 0, mha_model_describe(model)->vocab - 1);
    for (int i = 0; i < TEXTS; i++)
        starts[i + 1] = starts[i] + LENGTH - i % 4;
    const mha_head_data_options o = {.size = sizeof o, .batch_tokens = batch_tokens};
    mha_head_data *data = NULL;
    must(mha_head_data_of_ids(model, ids, starts, texts, &o, &data, &err));
    return data;
}

static mha_router *fit(const mha_model *model, const mha_head_data *data)
{
    mha_router *router = NULL;
    must(mha_router_fit(model, data, NULL, &router, NULL, &err));
    return router;
}

/* ---- fitting ---- */

static void expect_same(const mha_router *a, const mha_router *b)
{
    int64_t count = 0, other = 0;
    const mha_named_tensor *x = mha_router_tensors(a, &count), *y = mha_router_tensors(b, &other);
    assert_int_equal(count, other);
    for (int64_t n = 0; n < count; n++) {
        const int64_t numbers = x[n].rank == 1 ? x[n].shape[0] : x[n].shape[0] * x[n].shape[1];
        assert_string_equal(x[n].name, y[n].name);
        assert_memory_equal(x[n].data, y[n].data, (size_t)numbers * sizeof(float));
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/bert-tiny", "models/gpt2-tiny", "families/llama"};
    for (int f = 0; f < 3; f++) {
        mha_router *first = NULL;
        for (int threads = 1; threads <= 3; threads++) {
            mha_ctx *ctx = NULL;
            const mha_ctx_options o = {.size = sizeof o, .threads = threads};
            must(mha_ctx_create(&o, &ctx, &err));
            mha_model *model = open_bare(ctx, folders[f]);
            mha_head_data *data = random_data(model, TEXTS, threads == 2 ? 20 : 0);
            mha_router *router = fit(model, data);
            if (first) expect_same(first, router);
            if (threads == 1) {
                int64_t count = 0;
                mha_model *own = open_bare(NULL, folders[f]);
                const mha_named_tensor *list = mha_router_tensors(router, &count);
                must(mha_router_create(own, list, count, &first, &err));
                mha_model_free(own);
            }
            mha_router_free(router);
            mha_head_data_free(data);
            mha_model_free(model);
            mha_ctx_free(ctx);
        }
        mha_router_free(first);
    }
}

/* The unit vector of a text's last states, with gates, and the mean of what each layer reads. */
typedef struct reading {
    double e[WIDTH_MOST], mean[LAYERS_MOST * WIDTH_MOST];
} reading;

static int take_means(void *user, const mha_model_activations *a)
{
    reading *r = user;
    const int64_t E = a->heads * a->head_dim;
    for (int64_t i = 0; i < a->rows * E; i++)
        r->mean[a->layer * E + i % E] += (double)a->input[i] / (double)a->rows;
    return 0;
}

static reading read_text(const mha_model *model, const int32_t *ids, int64_t length, const float *gates)
{
    const int64_t E = mha_model_describe(model)->hidden;
    float x[LENGTH * WIDTH_MOST];
    reading r = {{0}, {0}};
    double square = 0;
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = ids, .gates = gates};
    const mha_model_output out = {.size = sizeof out, .last_hidden = x, .on_activations = take_means, .user = &r};
    must(mha_model_forward(model, &in, &out, &err));
    for (int64_t i = 0; i < length * E; i++)
        r.e[i % E] += (double)x[i];
    for (int64_t e = 0; e < E; e++)
        square += r.e[e] * r.e[e];
    for (int64_t e = 0; e < E; e++)
        r.e[e] /= sqrt(square);
    return r;
}

/* log(1 - cos + 1e-7) of the text without head h of a layer. */
static double worth(const mha_model *model, const int32_t *ids, int64_t length, int64_t h, const reading *whole)
{
    const mha_model_info *info = mha_model_describe(model);
    float gates[LAYERS_MOST * HEADS_MOST];
    double cosine = 0;
    for (int64_t n = 0; n < info->layers * info->heads; n++)
        gates[n] = n != h;
    const reading r = read_text(model, ids, length, gates);
    for (int64_t e = 0; e < info->hidden; e++)
        cosine += r.e[e] * whole->e[e];
    return log(fmax(1 - cosine, 0) + 1e-7);
}

/* A regression with an intercept goes through the means: the mean score of a head is the mean of what it is asked to
 * foresee. And it foresees no worse than that mean does. */
static void test_fit_foresees_worth(void **state)
{
    (void)state;
    mha_model *model = open_bare(NULL, "models/bert-tiny");
    const mha_model_info *info = mha_model_describe(model);
    mha_head_data *data = random_data(model, TEXTS, 0);
    mha_router *router = NULL, *fixed = NULL;
    must(mha_router_fit(model, data, NULL, &router, &fixed, &err));
    const int64_t E = info->hidden, H = info->heads;
    double before = 0, after = 0;
    for (int64_t h = 0; h < info->layers * H; h++) {
        const mha_named_tensor *list = mha_router_tensors(router, NULL) + 2 * (h / H);
        const float *weight = (const float *)list[0].data + h % H * E, *bias = list[1].data;
        double score[TEXTS], want[TEXTS], score_sum = 0, want_sum = 0;
        for (int64_t n = 0; n < TEXTS; n++) {
            int64_t length = 0;
            const int32_t *ids = mha_head_data_ids(data, n, &length);
            const reading whole = read_text(model, ids, length, NULL);
            want_sum += want[n] = worth(model, ids, length, h, &whole);
            score[n] = (double)bias[h % H];
            for (int64_t e = 0; e < E; e++)
                score[n] += (double)weight[e] * whole.mean[h / H * E + e];
            score_sum += score[n];
        }
        if (fabs(score_sum - want_sum) > 2e-2 * TEXTS) fail_msg("%g, want %g", score_sum, want_sum);
        const mha_named_tensor *same = mha_router_tensors(fixed, NULL) + 2 * (h / H);
        assert_true(fabs((double)((const float *)same[1].data)[h % H] - want_sum / TEXTS) < 2e-2);
        for (int64_t e = 0; e < E; e++)
            assert_true(((const float *)same[0].data)[h % H * E + e] == 0);
        for (int64_t n = 0; n < TEXTS; n++) {
            before += pow(want[n] - want_sum / TEXTS, 2);
            after += pow(want[n] - score[n], 2);
        }
    }
    print_message("squares that are not foreseen: %g of %g\n", after, before);
    assert_true(after <= before * 1.001);
    mha_router_free(fixed);
    mha_router_free(router);
    mha_head_data_free(data);
    mha_model_free(model);
}

static void test_fit_refusals(void **state)
{
    (void)state;
    mha_model *model = open_bare(NULL, "models/bert-tiny");
    mha_head_data *few = random_data(model, 7, 0), *data = random_data(model, TEXTS, 0);
    mha_router *router = NULL, *none = NULL;
    assert_int_equal(mha_router_fit(model, NULL, NULL, &router, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_router_fit(model, few, NULL, &router, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "7 texts"));
    router = fit(model, data);
    must(mha_model_route(model, router, 1, &err));
    assert_int_equal(mha_router_fit(model, data, NULL, &none, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "has a router"));
    mha_router_free(router);
    mha_head_data_free(few);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- files ---- */

static void expect_refused(const mha_model *model, const char *path, mha_status status, const char *word)
{
    mha_router *router = NULL;
    assert_int_equal(mha_router_open(model, path, NULL, &router, &err), status);
    assert_null(router);
    if (!strstr(err.message, word)) fail_msg("%s: no \"%s\"", err.message, word);
}

static void test_saved_and_opened(void **state)
{
    (void)state;
    const char *folder = case_copy("models/bert-tiny"), *path = files_path(folder, "router.safetensors");
    mha_model *model = open_bare(NULL, folder), *other = open_bare(NULL, "models/bert-mlm-tiny");
    mha_head_data *data = random_data(model, TEXTS, 0);
    mha_router *router = fit(model, data), *again = NULL;
    expect_refused(model, NULL, MHA_ERR_IO, "router.safetensors");
    must(mha_router_save(router, model, path, 0, &err));
    assert_int_equal(mha_router_save(router, model, path, 0, &err), MHA_ERR_IO);
    must(mha_router_save(router, model, path, 1, &err));
    must(mha_router_open(model, NULL, NULL, &again, &err));
    expect_same(router, again);
    mha_router_free(again);
    if (mha_router_save(router, other, files_path(folder, "x.safetensors"), 0, &err) == MHA_OK)
        expect_refused(model, files_path(folder, "x.safetensors"), MHA_ERR_FORMAT, "fitted to other weights");
    mha_router_free(router);
    mha_head_data_free(data);
    mha_model_free(model);
    mha_model_free(other);
    files_remove(folder);
}

/* A router file with one thing wrong. */
typedef struct wrong {
    const char *version, *weights; /* metadata; NULL: without */
    int64_t tensor;                /* which one */
    const char *name;              /* another name; "" leaves it out */
    mha_dtype dtype;
    int rank;
    int64_t extra; /* rows too many */
    float number;  /* its first */
    bool more;     /* one tensor more */
    const char *word;
} wrong;

static void write_wrong(const mha_router *router, const char *path, const char *weights, const wrong *w)
{
    static float numbers[2 * VALUES];
    int64_t count = 0, written = 0;
    const mha_named_tensor *own = mha_router_tensors(router, &count);
    mha_tensor list[TENSORS_MOST];
    int64_t shapes[TENSORS_MOST][2];
    mha_metadata metadata[2];
    mha_tensors_writer_options o = {.size = sizeof o, .overwrite = 1, .metadata = metadata};
    mha_tensors_writer *writer = NULL;
    if (w->version) metadata[o.metadata_count++] = (mha_metadata){.key = "mha.router", .value = w->version};
    if (weights) metadata[o.metadata_count++] = (mha_metadata){.key = "mha.weights", .value = weights};
    for (int64_t n = 0; n < count + w->more; n++) {
        const bool is_it = n == w->tensor;
        const mha_named_tensor *t = &own[n % count];
        if (is_it && w->name && !*w->name) continue;
        memcpy(shapes[written], t->shape, sizeof shapes[written]);
        if (is_it) shapes[written][0] += w->extra;
        list[written] = (mha_tensor){.name = n >= count         ? "more"
                                             : is_it && w->name ? w->name
                                                                : t->name,
                                     .dtype = is_it && w->dtype ? w->dtype : MHA_F32,
                                     .rank = is_it && w->rank ? w->rank : t->rank,
                                     .shape = shapes[written]};
        written++;
    }
    must(mha_tensors_writer_create(NULL, path, list, written, &o, &writer, &err));
    for (int64_t n = 0; n < written; n++) {
        const int64_t rows = list[n].shape[0], columns = list[n].rank == 2 ? list[n].shape[1] : 1;
        const size_t real = list[n].dtype == MHA_F64 ? sizeof(double) : sizeof(float);
        numbers[0] = n == w->tensor ? w->number : 0;
        must(mha_tensors_writer_put(writer, n, numbers, (size_t)(rows * columns) * real, &err));
    }
    must(mha_tensors_writer_finish(writer, &err));
    mha_tensors_writer_free(writer);
}

static void test_hostile_files(void **state)
{
    (void)state;
    const char *folder = case_copy("models/bert-tiny"), *path = files_path(folder, "x.safetensors");
    mha_model *model = open_bare(NULL, folder);
    mha_head_data *data = random_data(model, TEXTS, 0);
    mha_router *router = fit(model, data);
    const wrong cases[] = {
        {.tensor = -1, .weights = "{}", .word = "no router"},
        {.tensor = -1, .version = "2", .weights = "{}", .word = "mha.router is \"2\""},
        {.tensor = -1, .version = "1", .word = "no \"mha.weights\""},
        {.tensor = -1, .version = "1", .weights = "{\"model", .word = "mha.weights"},
        {.tensor = -1, .version = "1", .weights = "{}", .word = "of sha256 unknown"},
        {.tensor = -1, .version = "1", .weights = "{\"model.safetensors\": 7}", .word = "of sha256 unknown"},
        {.tensor = -1, .version = "1", .weights = "{\"model.safetensors\": \"00\"}", .word = "of sha256 00"},
        {.tensor = 0, .version = "1", .weights = "{}", .name = "", .word = "tensors, a router of"},
        {.tensor = 1, .version = "1", .weights = "{}", .name = "router.0.other", .word = "there is no router.0.bias"},
        {.tensor = -1, .version = "1", .weights = "{}", .more = true, .word = "tensors, a router of"},
        {.tensor = 0, .version = "1", .weights = "{}", .dtype = MHA_F64, .word = "no matrix or vector of f32"},
        {.tensor = 0, .version = "1", .weights = "{}", .rank = 1, .word = "router.0.weight is not f32 ["},
        {.tensor = 0, .version = "1", .weights = "{}", .extra = 1, .word = "router.0.weight is not f32 ["},
        {.tensor = 1, .version = "1", .weights = "{}", .extra = 1, .word = "router.0.bias is not f32 ["},
        {.tensor = 1, .version = "1", .weights = "{}", .number = NAN, .word = "number 0 of router.0.bias is"},
        {.tensor = 0, .version = "1", .weights = "{}", .number = INFINITY, .word = "router.0.weight is inf"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        write_wrong(router, path, cases[n].weights, &cases[n]);
        expect_refused(model, path, MHA_ERR_FORMAT, cases[n].word);
        assert_true(strncmp(err.message, path, strlen(path)) == 0 || strstr(err.message, "mha.weights"));
    }
    files_write(path, "not a file of tensors", 21);
    expect_refused(model, path, MHA_ERR_FORMAT, "x.safetensors");
    mha_router_free(router);
    mha_head_data_free(data);
    mha_model_free(model);
    files_remove(folder);
}

/* ---- memory ---- */

static mha_status all_of_it(mha_ctx *ctx, const char *folder)
{
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    static const int32_t ids[] = {5, 6, 7, 8};
    mha_model *model = NULL;
    mha_router *router = NULL;
    mha_status status = mha_model_open(ctx, folder, &bare, &model, &err);
    if (status == MHA_OK) status = mha_router_open(model, NULL, NULL, &router, &err);
    if (status == MHA_OK) status = mha_model_route(model, router, 1, &err);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = 4, .ids = ids};
    if (status == MHA_OK) status = mha_model_forward(model, &in, NULL, &err);
    mha_model_free(model);
    mha_router_free(router);
    return status;
}

static mha_status fit_it(mha_ctx *ctx, const char *folder)
{
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    mha_model *model = NULL;
    mha_router *router = NULL;
    mha_head_data *data = NULL;
    int32_t ids[4 * TEXTS];
    int64_t starts[TEXTS + 1];
    for (int i = 0; i < 4 * TEXTS; i++)
        ids[i] = i % 31;
    for (int i = 0; i <= TEXTS; i++)
        starts[i] = 4 * i;
    mha_status status = mha_model_open(ctx, folder, &bare, &model, &err);
    if (status == MHA_OK) status = mha_head_data_of_ids(model, ids, starts, TEXTS, NULL, &data, &err);
    if (status == MHA_OK) status = mha_router_fit(model, data, NULL, &router, NULL, &err);
    if (status == MHA_OK) status = mha_router_save(router, model, files_path(folder, "router.safetensors"), 1, &err);
    mha_router_free(router);
    mha_head_data_free(data);
    mha_model_free(model);
    return status;
}

static void starve(mha_status (*work)(mha_ctx *, const char *), const char *folder)
{
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .allocator = counting_allocator(&count), .threads = 1};
    mha_ctx *ctx;
    must(mha_ctx_create(&options, &ctx, &err));
    const long live = count.live;
    int failed = 0;
    for (long budget = 0;; budget++, failed++) {
        count.budget = count.calls + budget;
        const mha_status status = work(ctx, folder);
        count.budget = -1;
        assert_int_equal(count.live, live);
        if (status == MHA_OK) break;
        assert_int_equal(status, MHA_ERR_MEMORY);
    }
    assert_true(failed > 20);
    mha_ctx_free(ctx);
}

static void test_without_memory(void **state)
{
    (void)state;
    const char *folder = case_copy("models/bert-tiny");
    must(fit_it(NULL, folder));
    starve(all_of_it, folder);
    starve(fit_it, folder);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_fit_foresees_worth),
        cmocka_unit_test(test_fit_refusals),  cmocka_unit_test(test_saved_and_opened),
        cmocka_unit_test(test_hostile_files), cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
