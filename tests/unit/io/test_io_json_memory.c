/* test_io_json_memory.c - tests failed allocations in the JSON reader and writer, and the size limits of the parser. */
#include "base/ctx.h"
#include "io/json/json_write.h"
#include "mha/io.h"
#include "support/alloc.h"
#include "support/files.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char text[] = "{\"a\":[1,2.5,\"x\\u00e9y\"],\"o\":{\"k\":null,\"l\":[true,false]},\"s\":\"\\\"\\n\"}";

/* A function under test, which allocates memory in `ctx` and frees its results. */
typedef mha_status (*work_fn)(mha_ctx *ctx, mha_error *err);

static mha_status parse(mha_ctx *ctx, mha_error *err)
{
    const mha__json *root = NULL;
    const mha_status status = mha__json_parse(ctx, "x.json", text, strlen(text), 0, &root, err);
    assert_true((root != NULL) == (status == MHA_OK));
    mha__json_free(root);
    return status;
}

/* Writes so many values that the buffer must grow several times. */
static mha_status write_much(mha_ctx *ctx, mha_error *err)
{
    mha__json_writer w = {.ctx = ctx, .indent = 2};
    char *written = NULL;
    size_t n = 0;
    mha__json_open(&w, '[');
    for (int i = 0; i < 1000; i++)
        mha__json_put_int(&w, i);
    mha__json_close(&w, ']');
    const mha_status status = mha__json_written(&w, "numbers", &written, &n, err);
    assert_true((written != NULL) == (status == MHA_OK));
    if (written) assert_int_equal(strlen(written), n);
    mha__free(ctx, written);
    return status;
}

static mha_status change(mha_ctx *ctx, mha_error *err)
{
    static const char *const removed[] = {"a", NULL};
    mha__json_writer changes = {.ctx = ctx};
    char *changed = NULL;
    mha__json_open(&changes, '{');
    mha__json_key(&changes, "o");
    mha_status status = mha__json_put_json(&changes, "more", "{\"m\":-1}", err);
    mha__json_close(&changes, '}');
    if (status == MHA_OK)
        status = mha__json_changed("x.json", text, removed, &changes, MHA__JSON_COMPACT, &changed, err);
    else
        mha__json_written(&changes, "x.json", NULL, NULL, NULL);
    if (status == MHA_OK) assert_string_equal(changed, "{\"o\":{\"m\":-1},\"s\":\"\\\"\\n\"}");
    mha__free(ctx, changed);
    return status;
}

static const char *folder;

static mha_status open_header(mha_ctx *ctx, mha_error *err)
{
    mha_file *file = NULL;
    const mha_status status = mha_file_open(ctx, files_path(folder, "x.safetensors"), NULL, &file, err);
    if (status == MHA_OK) assert_int_equal(mha_file_count(file), 2);
    mha_file_free(file);
    return status;
}

static mha_status open_index(mha_ctx *ctx, mha_error *err)
{
    mha_file *file = NULL;
    const mha_status status =
        mha_checkpoint_open(ctx, files_path(folder, "model.safetensors.index.json"), NULL, &file, err);
    if (status == MHA_OK) assert_int_equal(mha_file_count(file), 2);
    mha_file_free(file);
    return status;
}

static void write_files(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],"
        "\"more\":{\"x\":[1]}},\"u\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}";
    static const char index[] = "{\"weight_map\":{\"t\":\"x.safetensors\",\"u\":\"x.safetensors\"}}";
    char file[sizeof header + 16];
    const uint64_t n = strlen(header);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    memcpy(file + 8 + n, "ab", 2);
    files_write(files_path(folder, "x.safetensors"), file, n + 10);
    files_write(files_path(folder, "model.safetensors.index.json"), index, strlen(index));
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY, not a syntax error, and free
 * its memory. */
static void test_every_allocation(void **state)
{
    (void)state;
    static const work_fn works[] = {parse, write_much, change, open_header, open_index};
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    folder = files_folder();
    write_files();
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        const long live = memory.live;
        mha_status status = MHA_ERR_MEMORY;
        long n = 0;
        for (; status != MHA_OK; n++) {
            mha_error err = {0};
            memory.budget = memory.calls + n;
            status = works[i](ctx, &err);
            if (status != MHA_OK && (status != MHA_ERR_MEMORY || strncmp(err.message, "out of memory", 13) != 0))
                fail_msg("function %zu, allocation %ld: error must be MHA_ERR_MEMORY (got %s)", i, n, err.message);
            assert_int_equal(memory.live, live);
        }
        assert_true(n > 3);
    }
    mha_ctx_free(ctx);
    files_remove(folder);
}

/* ---- size limits ---- */

/* Returns the text {"a":[ITEM,ITEM,...]} with `count` items, and stores its length in *n. */
static char *list_of(const char *item, size_t count, size_t *n)
{
    const size_t bytes = strlen(item);
    char *list = malloc(count * (bytes + 1) + 16);
    assert_non_null(list);
    *n = (size_t)sprintf(list, "{\"a\":[");
    for (size_t i = 0; i < count; i++) {
        memcpy(list + *n, item, bytes);
        *n += bytes;
        list[(*n)++] = i + 1 < count ? ',' : ']';
    }
    list[(*n)++] = '}';
    return list;
}

static void test_node_limit(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        /* the root, its key and the array are 3 further nodes */
        const size_t items = MHA__JSON_NODES - 3 + (size_t)more;
        size_t n;
        char *list = list_of("1", items, &n);
        const mha__json *root = NULL;
        mha_error err = {0};
        const mha_status status = mha__json_parse(NULL, "x.json", list, n, 0, &root, &err);
        assert_int_equal(status, more ? MHA_ERR_FORMAT : MHA_OK);
        if (more) assert_non_null(strstr(err.message, "at most 6291456 values and keys"));
        if (!more) assert_int_equal(mha__json_size(mha__json_get(root, "a")), items);
        mha__json_free(root);
        free(list);
    }
}

/* A header must be rejected at its first invalid value, before any table is allocated for the remaining values. */
static void test_header_stream(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    mha_file *file = NULL;
    mha_error err = {0};
    size_t n;
    char *list = list_of("[]", 1000000, &n);
    char *whole = malloc(n + 8);
    const uint64_t length = n;
    memcpy(whole, &length, 8);
    memcpy(whole + 8, list, n);
    folder = files_folder();
    files_write(files_path(folder, "x.safetensors"), whole, n + 8);
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    const long calls = memory.calls;
    assert_int_equal(mha_file_open(ctx, files_path(folder, "x.safetensors"), NULL, &file, &err), MHA_ERR_FORMAT);
    assert_non_null(
        strstr(err.message, "tensor \"a\": entry must be an object with dtype, shape and data_offsets (got an array)"));
    assert_int_equal(memory.calls - calls, 3); /* allocations of the file, its path and the header text */
    mha_ctx_free(ctx);
    free(whole);
    free(list);
    files_remove(folder);
}

/* Parsing and looking up 300,000 keys must finish within the time limit of the test, which a quadratic-time algorithm
 * would exceed. */
static void test_many_keys(void **state)
{
    (void)state;
    enum { KEYS = 300000 };
    char *many = malloc((size_t)KEYS * 24 + 16), key[16];
    const mha__json *root = NULL;
    mha_error err = {0};
    size_t n = 0;
    for (int i = 0; i < KEYS; i++)
        n += (size_t)sprintf(many + n, "%c\"k%d\":%d", i ? ',' : '{', i, i);
    many[n++] = '}';
    assert_int_equal(mha__json_parse(NULL, "x.json", many, n, 0, &root, &err), MHA_OK);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(mha__json_as_int(mha__json_get(root, key)), i);
    }
    assert_null(mha__json_get(root, "k300000"));
    assert_true(mha__json_equal(root, root));
    mha__json_free(root);
    n -= 1;
    n += (size_t)sprintf(many + n, ",\"\\u006b7\":0}");
    assert_int_equal(mha__json_parse(NULL, "x.json", many, n, 0, &root, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "duplicate object key \"k7\""));
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_node_limit),
        cmocka_unit_test(test_header_stream),
        cmocka_unit_test(test_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
