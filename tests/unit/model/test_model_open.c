/* test_model_open.c - tests opening of checkpoint folders: missing and truncated files, stored types, the description
 * of a model, and failed allocations. */
#include "math/half.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY "models/bert-tiny"
#define QUICK (&(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1})

/* ---- weight files ---- */

static void test_missing_files(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    remove(files_path(folder, "model.safetensors"));
    case_refused(folder, MHA_ERR_IO, "model.safetensors");
    files_write(files_path(folder, "model.safetensors.index.json"), "{}", 2);
    case_refused(folder, MHA_ERR_FORMAT, "weight_map");
    remove(files_path(folder, "config.json"));
    case_refused(folder, MHA_ERR_IO, "config.json");
    files_remove(folder);
    case_refused(folder, MHA_ERR_IO, "config.json");
}

static void test_cut_file(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    size_t n = 0;
    char *bytes = files_read(files_path(folder, "model.safetensors"), &n);
    for (size_t cut = 0; cut < n; cut += n / 23) {
        files_write(files_path(folder, "model.safetensors"), bytes, cut);
        case_refused(folder, MHA_ERR_FORMAT, "model.safetensors");
    }
    files_remove(folder);
    free(bytes);
}

typedef enum edit { KEEP, TO_BF16, TO_F16, ROUNDED_BF16, ROUNDED_F16, MISALIGNED, TO_F64, RENAMED } edit;

static uint16_t half_bits(edit how, float x)
{
    return how == TO_BF16 || how == ROUNDED_BF16 ? mha__f32_to_bf16(x) : mha__f32_to_f16(x);
}

/* Writes the weights of the tiny model in one of several forms: stored as another type, rounded to another type,
 * unaligned by one byte, or with a renamed tensor. */
static void write_weights(const char *folder, edit how)
{
    static const char *const types[] = {"F32", "BF16", "F16", "F32", "F32", "F32", "F64", "F32"};
    static const size_t sizes[] = {4, 2, 2, 4, 4, 4, 8, 4};
    mha_file *file = case_file(TINY "/model.safetensors");
    char *header = malloc(1 << 20), *data = calloc(1, 1 << 22);
    size_t used = 8, at = 0;
    used += (size_t)sprintf(header + used, "{%s",
                            how == MISALIGNED ? "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}," : "");
    at = how == MISALIGNED;
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        const size_t bytes = (size_t)t->elements * sizes[how];
        const bool renamed = how == RENAMED && strstr(t->name, "layer.1.output.dense.bias");
        used += (size_t)sprintf(header + used, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%lld", i ? "," : "", t->name,
                                renamed ? "x" : "", types[how], (long long)t->shape[0]);
        if (t->rank == 2) used += (size_t)sprintf(header + used, ",%lld", (long long)t->shape[1]);
        used += (size_t)sprintf(header + used, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
        for (int64_t e = 0; e < t->elements; e++) {
            const float x = ((const float *)t->data)[e];
            const uint16_t half = half_bits(how, x);
            const float rounded = how == ROUNDED_BF16  ? mha__bf16_to_f32(half)
                                  : how == ROUNDED_F16 ? mha__f16_to_f32(half)
                                                       : x;
            const double wide = (double)x;
            const void *from = sizes[how] == 2   ? (const void *)&half
                               : sizes[how] == 8 ? (const void *)&wide
                                                 : (const void *)&rounded;
            memcpy(data + at + (size_t)e * sizes[how], from, sizes[how]);
        }
        at += bytes;
    }
    used += (size_t)sprintf(header + used, "}");
    while (used % 8) /* spaces before the data, which the format permits */
        header[used++] = ' ';
    const uint64_t n = used - 8;
    memcpy(header, &n, 8);
    header = realloc(header, used + at);
    memcpy(header + used, data, at);
    files_write(files_path(folder, "model.safetensors"), header, used + at);
    mha_file_free(file);
    free(header);
    free(data);
}

/* Returns the last hidden states of fixed tokens, computed by a model opened with `options`. The type of the model must
 * be `dtype`. The caller must free them. */
static float *hidden_of(const char *folder, mha_dtype dtype, const mha_model_options *options)
{
    static const int32_t ids[9] = {2, 489, 152, 255, 30, 259, 237, 141, 3};
    mha_model *model = case_model(NULL, folder, options);
    assert_int_equal(mha_model_describe(model)->dtype, dtype);
    float *hidden = malloc(9 * 48 * sizeof *hidden);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 9, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    mha_model_free(model);
    return hidden;
}

static void assert_same(const char *folder, edit a, mha_dtype type_a, edit b, mha_dtype type_b)
{
    write_weights(folder, a);
    float *x = hidden_of(folder, type_a, QUICK);
    write_weights(folder, b);
    float *y = hidden_of(folder, type_b, QUICK);
    assert_memory_equal(x, y, 9 * 48 * sizeof *x);
    free(x);
    free(y);
}

static void test_stored_types(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    assert_same(folder, TO_BF16, MHA_BF16, ROUNDED_BF16, MHA_F32);
    assert_same(folder, TO_F16, MHA_F16, ROUNDED_F16, MHA_F32);
    assert_same(folder, MISALIGNED, MHA_F32, KEEP, MHA_F32);
    const mha_model_options copied = {.size = sizeof copied, .no_tokenizer = 1, .no_map = 1};
    float *x = hidden_of(folder, MHA_F32, QUICK), *y = hidden_of(folder, MHA_F32, &copied);
    assert_memory_equal(x, y, 9 * 48 * sizeof *x);
    free(x);
    free(y);
    write_weights(folder, TO_F64);
    case_refused(folder, MHA_ERR_UNSUPPORTED, "must be one of F32, F16, BF16 (got F64)");
    write_weights(folder, RENAMED);
    case_refused(folder, MHA_ERR_FORMAT, "\"encoder.layer.1.output.dense.bias\" is missing");
    files_remove(folder);
}

/* ---- mha_model_info ---- */

static void test_info(void **state)
{
    (void)state;
    const mha_model_options check_only = {.size = sizeof check_only, .no_tokenizer = 1, .no_weights = 1};
    for (int light = 0; light < 2; light++) {
        mha_model *model = case_model(NULL, TINY, light ? &check_only : QUICK);
        const mha_model_info *info = mha_model_describe(model);
        assert_string_equal(info->family, "bert");
        assert_int_equal(info->layers, 3);
        assert_int_equal(info->heads, 4);
        assert_int_equal(info->kv_heads, 4);
        assert_int_equal(info->head_dim, 12);
        assert_int_equal(info->hidden, 48);
        assert_int_equal(info->intermediate, 112);
        assert_int_equal(info->vocab, 600);
        assert_int_equal(info->max_positions, 96);
        assert_int_equal(info->type_vocab, 2);
        assert_int_equal(info->parameters, 97488); /* the parameter count in the golden index.json */
        assert_int_equal(info->bytes, 4 * 97488);
        assert_int_equal(info->kv_bytes_per_token, 0);
        assert_int_equal(info->causal, 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(info->heads_per_layer[i], 4);
        assert_null(mha_model_tokenizer(model));
        assert_null(mha_model_ctx(model));
        if (light) {
            const int32_t id = 2;
            mha_error err = {0};
            const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 1, .ids = &id};
            assert_int_equal(mha_model_forward(model, &input, NULL, &err), MHA_ERR_ARG);
            assert_non_null(strstr(err.message, "no_weights"));
        }
        mha_model_free(model);
    }
    mha_model_free(NULL);
}

/* ---- failed allocations ---- */

/* With a budget of 0, 1, 2, ... allocations, opening the model in `folder` must return MHA_ERR_MEMORY, free its memory,
 * and fail at least `min` times before it succeeds. */
static void starve(const char *folder, int min)
{
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = memory.live;
    int failures = 0;
    for (long n = 0;; n++, failures++) {
        mha_model *model = NULL;
        mha_error err = {0};
        memory.budget = memory.calls + n;
        const mha_status status = mha_model_open(ctx, files_path(MHA_TEST_DATA, folder), NULL, &model, &err);
        if (status == MHA_OK) {
            mha_model_free(model);
            assert_int_equal(memory.live, live);
            break;
        }
        if (status != MHA_ERR_MEMORY)
            fail_msg("without allocation %ld, the call must return MHA_ERR_MEMORY (got status %d, %s)", n, (int)status,
                     err.message);
        assert_null(model);
        assert_int_equal(memory.live, live);
    }
    assert_true(failures >= min);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    starve(TINY, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_files), cmocka_unit_test(test_cut_file),  cmocka_unit_test(test_stored_types),
        cmocka_unit_test(test_info),          cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
