/* test_io_checkpoint.c - tests sharded checkpoints, opened through their index as one file, and errors in the index. */
#include "mha/io.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDEX "model.safetensors.index.json"

static mha_error err;

/* Writes a shard with one tensor per letter in `names`. Each tensor has one element: its letter. */
static void write_shard(const char *folder, const char *file, const char *names, const mha_metadata *meta, int pairs)
{
    enum { MAX = 8 };
    char name[MAX][2] = {{0}};
    mha_tensor list[MAX];
    mha_tensors_writer *writer = NULL;
    const int64_t count = (int64_t)strlen(names);
    const mha_tensors_writer_options o = {.size = sizeof o, .metadata = meta, .metadata_count = pairs};
    for (int64_t n = 0; n < count; n++) {
        name[n][0] = names[n];
        list[n] = (mha_tensor){.name = name[n], .dtype = MHA_F32};
    }
    assert_int_equal(mha_tensors_writer_create(NULL, files_path(folder, file), list, count, &o, &writer, &err), MHA_OK);
    for (int64_t n = 0; n < count; n++) {
        const float number = (float)names[n];
        assert_int_equal(mha_tensors_writer_put(writer, n, &number, sizeof number, &err), MHA_OK);
    }
    assert_int_equal(mha_tensors_writer_finish(writer, &err), MHA_OK);
    mha_tensors_writer_free(writer);
}

static void write_index(const char *folder, const char *map)
{
    char text[512];
    const int n = snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": -1}, \"weight_map\": %s}", map);
    files_write(files_path(folder, INDEX), text, (size_t)n);
}

#define GOOD "{\"b\": \"2\", \"d\": \"1\", \"a\": \"2\", \"c\": \"1\"}"

static const char *shards(const char *map)
{
    const char *folder = files_folder();
    const mha_metadata first[] = {{"who", "1", 0}, {"x", "y", 0}}, second = {"who", "2", 0};
    write_shard(folder, "1", "cd", first, 2);
    write_shard(folder, "2", "ba", &second, 1);
    write_index(folder, map);
    return folder;
}

static void expect_letters(const mha_file *file, const char *letters)
{
    assert_int_equal(mha_file_count(file), strlen(letters));
    for (int64_t n = 0; letters[n]; n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        float number = 0;
        assert_int_equal(t->name[0], letters[n]);
        assert_ptr_equal(mha_file_find(file, t->name), t);
        assert_int_equal(mha_tensor_read(t, MHA_F32, &number, &err), MHA_OK);
        assert_true(number == (float)letters[n]);
    }
    assert_null(mha_file_find(file, "e"));
}

/* The folder, the path of its index and the relative path of its index must open the same file, mapped or copied. */
static void shards_are_one_file(void **state)
{
    (void)state;
    const char *folder = shards(GOOD), *names[] = {folder, files_path(folder, INDEX), INDEX};
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    for (int n = 0; n < 6; n++) {
        const mha_file_options o = {.size = sizeof o, .no_map = n / 3};
        const char *key, *value;
        mha_file *file = NULL;
        if (mha_checkpoint_open(NULL, names[n % 3], &o, &file, &err) != MHA_OK) fail_msg("%s", err.message);
        expect_letters(file, "abcd");
        assert_string_equal(mha_file_format(file), "safetensors");
        assert_string_equal(mha_file_path(file), n % 3 == 0 ? files_path(folder, INDEX) : names[n % 3]);
        /* merged from both shards, although the index lists shard 1 after shard 2 */
        const char *want[][2] = {{"format", "pt"}, {"who", "1"}, {"x", "y"}};
        assert_int_equal(mha_file_metadata_count(file), 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(mha_file_metadata(file, i, &key, &value, NULL), MHA_OK);
            assert_string_equal(key, want[i][0]);
            assert_string_equal(value, want[i][1]);
        }
        mha_file_free(file);
    }
    assert_int_equal(chdir(here), 0);
    files_remove(folder);
}

/* model.safetensors must be opened instead of an index in the same folder, by the path of the folder or of the file. */
static void whole_files(void **state)
{
    (void)state;
    const char *folder = shards(GOOD), *single = files_path(folder, "model.safetensors"), *names[] = {folder, single};
    mha_file *file = NULL;
    write_shard(folder, "model.safetensors", "z", NULL, 0);
    for (int n = 0; n < 2; n++) {
        assert_int_equal(mha_checkpoint_open(NULL, names[n], NULL, &file, &err), MHA_OK);
        expect_letters(file, "z");
        assert_string_equal(mha_file_path(file), single);
        mha_file_free(file);
    }
    assert_int_equal(mha_checkpoint_open(NULL, files_path(folder, "2"), NULL, &file, &err), MHA_OK);
    expect_letters(file, "ab");
    mha_file_free(file);
    files_remove(folder);
}

static void invalid_indexes(void **state)
{
    (void)state;
    const struct {
        const char *map, *sentence;
    } wrong[] = {
        {"{}", "weight_map must not be empty"},
        {"[]", "weight_map must be an object (got an array"},
        {"{\"a\": 2}", "weight_map.a must be a file name (got 2"},
        {"{\"a\": \"../2\"}", "weight_map must name files in this folder (got \"../2\")"},
        {"{\"a\": \"/etc/passwd\"}", "weight_map must name files in this folder (got \"/etc/passwd\")"},
        {"{\"a\": \"..\"}", "weight_map must name files in this folder (got \"..\")"},
        {"{\"a\": \"in/2\"}", "weight_map must name files in this folder (got \"in/2\")"},
        {"{\"a\": \"in\\\\2\"}", "weight_map must name files in this folder"},
        {"{\"a\": \"2\\u00002\"}", "weight_map must name files in this folder"},
        {"{\"a\": \"\"}", "weight_map must name files in this folder (got \"\")"},
        {"{\"a\": \"2\"}", "weight_map[\"b\"] must be \"2\", which contains the tensor (got no entry)"},
        {"{\"a\": \"2\", \"b\": \"1\"}", "weight_map[\"b\"] must be \"2\", which contains the tensor (got \"1\")"},
        {"{\"a\": \"2\", \"b\": \"2\", \"e\": \"2\"}", "tensor \"e\" must be in the file that weight_map names"},
    };
    const char *folder = shards(GOOD), *index = files_path(folder, INDEX);
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        mha_file *file = NULL;
        write_index(folder, wrong[n].map);
        assert_int_equal(mha_checkpoint_open(NULL, folder, NULL, &file, &err), MHA_ERR_FORMAT);
        assert_null(file);
        if (strncmp(err.message, index, strlen(index)) != 0 || !strstr(err.message, wrong[n].sentence))
            fail_msg("%s: message must contain \"%s\" (got \"%s\")", wrong[n].map, wrong[n].sentence, err.message);
    }
    files_remove(folder);
}

static void missing_tensors(void **state)
{
    (void)state;
    const char *folder = shards(GOOD);
    mha_file *file = NULL;
    unlink(files_path(folder, "1"));
    assert_int_equal(mha_checkpoint_open(NULL, folder, NULL, &file, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, files_path(folder, "1")));
    unlink(files_path(folder, INDEX));
    assert_int_equal(mha_checkpoint_open(NULL, folder, NULL, &file, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, files_path(folder, "model.safetensors")));
    assert_int_equal(mha_checkpoint_open(NULL, NULL, NULL, &file, &err), MHA_ERR_ARG);
    assert_int_equal(mha_checkpoint_open(NULL, folder, NULL, NULL, &err), MHA_ERR_ARG);
    files_remove(folder);
}

static void no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    const char *folder = shards(GOOD);
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        mha_file *file = NULL;
        memory.budget = memory.calls + n;
        status = mha_checkpoint_open(ctx, folder, NULL, &file, &err);
        assert_true(status == MHA_OK ? file != NULL : status == MHA_ERR_MEMORY && !file);
        mha_file_free(file);
        assert_int_equal(memory.live, live);
    }
    assert_true(n > 15);
    mha_ctx_free(ctx);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_one_file), cmocka_unit_test(whole_files), cmocka_unit_test(invalid_indexes),
        cmocka_unit_test(missing_tensors),     cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
