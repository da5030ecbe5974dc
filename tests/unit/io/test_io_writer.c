/* test_io_writer.c - tests writing of safetensors files in pieces: round trips of every type, bytewise identical files
 * for any order of the list, and no temporary files after errors. */
#include "mha/io.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static mha_error err;

/* One tensor of four elements per type that files can store. Its bytes are consecutive values that differ between
 * tensors. */
enum { KINDS = 15, ELEMENTS = 4, BYTES_MAX = ELEMENTS * 8 };
static const int64_t shape[] = {2, 1, 2};
static const struct {
    const char *name, *dtype_name;
    mha_dtype dtype;
    size_t bytes;
} kinds[KINDS] = {
    {"bool", "BOOL", MHA_BOOL, 4}, {"u8", "U8", MHA_U8, 4},          {"i8", "I8", MHA_I8, 4},
    {"u16", "U16", MHA_U16, 8},    {"i16", "I16", MHA_I16, 8},       {"f16", "F16", MHA_F16, 8},
    {"bf16", "BF16", MHA_BF16, 8}, {"u32", "U32", MHA_U32, 16},      {"i32", "I32", MHA_I32, 16},
    {"f32", "F32", MHA_F32, 16},   {"u64", "U64", MHA_U64, 32},      {"i64", "I64", MHA_I64, 32},
    {"f64", "F64", MHA_F64, 32},   {"f4", "F4", MHA_DTYPE_OTHER, 2}, {"f8", "F8_E4M3", MHA_DTYPE_OTHER, 4},
};

static mha_tensor tensor_of(int kind)
{
    return (mha_tensor){.name = kinds[kind].name,
                        .dtype = kinds[kind].dtype,
                        .dtype_name = kinds[kind].dtype == MHA_DTYPE_OTHER ? kinds[kind].dtype_name : NULL,
                        .rank = 3,
                        .shape = shape};
}

static const char *bytes_of(int kind)
{
    static char bytes[KINDS][BYTES_MAX];
    for (int i = 0; i < BYTES_MAX; i++)
        bytes[kind][i] = (char)(kind * 16 + i);
    return bytes[kind];
}

/* Writes one tensor of each type, in a list rotated by `turn`, in pieces of `piece` bytes, one piece of each tensor in
 * turn. */
static void write_all(const char *path, int turn, size_t piece)
{
    mha_tensor list[KINDS];
    mha_tensors_writer *writer = NULL;
    const mha_metadata meta[] = {{"made by", "a test", 0}, {"nul", "a\0b", 3}};
    const mha_tensors_writer_options o = {.size = sizeof o, .overwrite = 1, .metadata = meta, .metadata_count = 2};
    for (int i = 0; i < KINDS; i++)
        list[i] = tensor_of((i + turn) % KINDS);
    assert_int_equal(mha_tensors_writer_create(NULL, path, list, KINDS, &o, &writer, &err), MHA_OK);
    for (size_t at = 0; at < BYTES_MAX; at += piece)
        for (int i = 0; i < KINDS; i++) {
            const int kind = (i + turn) % KINDS;
            if (at >= kinds[kind].bytes) continue;
            const size_t left = kinds[kind].bytes - at;
            assert_int_equal(mha_tensors_writer_put(writer, i, bytes_of(kind) + at, left < piece ? left : piece, &err),
                             MHA_OK);
        }
    assert_int_equal(mha_tensors_writer_finish(writer, &err), MHA_OK);
    mha_tensors_writer_free(writer);
}

static void every_type(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    mha_file *file = NULL;
    write_all(path, 0, 3);
    assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_OK);
    assert_int_equal(mha_file_count(file), KINDS);
    for (int i = 0; i < KINDS; i++) {
        char same[BYTES_MAX];
        const mha_tensor *t = mha_file_find(file, kinds[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, kinds[i].dtype);
        assert_string_equal(t->dtype_name, kinds[i].dtype_name);
        assert_int_equal(t->bytes, kinds[i].bytes);
        assert_int_equal(t->rank, 3);
        assert_memory_equal(t->shape, shape, sizeof shape);
        assert_memory_equal(t->data, bytes_of(i), t->bytes);
        if (t->dtype == MHA_DTYPE_OTHER) continue;
        assert_int_equal(mha_tensor_aligned(t), 1);
        assert_int_equal(mha_tensor_read(t, t->dtype, same, &err), MHA_OK);
        assert_memory_equal(same, bytes_of(i), t->bytes);
    }
    const char *want[][2] = {{"format", "pt"}, {"made by", "a test"}, {"nul", "a\0b"}}, *key, *value;
    size_t bytes;
    assert_int_equal(mha_file_metadata_count(file), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mha_file_metadata(file, i, &key, &value, &bytes), MHA_OK);
        assert_string_equal(key, want[i][0]);
        assert_memory_equal(value, want[i][1], bytes);
    }
    assert_int_equal(bytes, 3);
    mha_file_free(file);
    files_remove(folder);
}

static void one_layout(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    size_t n, m;
    write_all(path, 0, BYTES_MAX);
    char *first = files_read(path, &n);
    for (int turn = 1; turn < KINDS; turn += 3) {
        write_all(path, turn, (size_t)turn);
        char *again = files_read(path, &m);
        assert_int_equal(n, m);
        assert_memory_equal(first, again, n);
        free(again);
    }
    free(first);
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

/* A file without tensors and a file with an empty tensor must be valid. The writer must keep the metadata key "format"
 * of the caller. */
static void empty(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x"), *key, *value;
    const mha_tensor none = {.name = "", .dtype = MHA_F32, .rank = 2, .shape = (int64_t[]){0, 7}};
    const mha_metadata meta = {"format", "np", 0};
    const mha_tensors_writer_options o = {.size = sizeof o, .overwrite = 1, .metadata = &meta, .metadata_count = 1};
    for (int count = 0; count < 2; count++) {
        mha_tensors_writer *writer = NULL;
        mha_file *file = NULL;
        assert_int_equal(mha_tensors_writer_create(NULL, path, &none, count, &o, &writer, &err), MHA_OK);
        assert_int_equal(mha_tensors_writer_finish(writer, &err), MHA_OK);
        assert_int_equal(mha_tensors_writer_finish(writer, &err), MHA_ERR_ARG); /* a second call to finish must fail */
        assert_int_equal(mha_tensors_writer_put(writer, 0, "", 0, &err), MHA_ERR_ARG);
        mha_tensors_writer_free(writer);
        assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_OK);
        assert_int_equal(mha_file_count(file), count);
        assert_int_equal(mha_file_metadata_count(file), 1);
        assert_int_equal(mha_file_metadata(file, 0, &key, &value, NULL), MHA_OK);
        assert_string_equal(value, "np");
        mha_file_free(file);
    }
    mha_tensors_writer_free(NULL);
    files_remove(folder);
}

static void wrong_byte_counts(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    const mha_tensor list[] = {tensor_of(9), tensor_of(0)};
    mha_tensors_writer *writer = NULL;
    assert_int_equal(mha_tensors_writer_create(NULL, path, list, 2, NULL, &writer, &err), MHA_OK);
    assert_int_equal(mha_tensors_writer_put(writer, 0, bytes_of(9), 10, &err), MHA_OK);
    assert_int_equal(mha_tensors_writer_put(writer, 0, bytes_of(9), 7, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "tensor \"f32\": data must be at most 16 bytes (got 7 after the first 10)");
    assert_int_equal(mha_tensors_writer_put(writer, 2, bytes_of(9), 1, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_tensors_writer_put: index must be at least 0 and below 2 (got 2)");
    assert_int_equal(mha_tensors_writer_put(writer, -1, bytes_of(9), 1, &err), MHA_ERR_ARG);
    assert_int_equal(mha_tensors_writer_put(writer, 0, NULL, 1, &err), MHA_ERR_ARG);
    assert_int_equal(mha_tensors_writer_put(writer, 0, bytes_of(9) + 10, 6, &err), MHA_OK);
    assert_int_equal(mha_tensors_writer_finish(writer, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "tensor \"bool\": data must have 4 bytes (got 0)");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(mha_tensors_writer_put(writer, 1, bytes_of(0), 4, &err), MHA_OK);
    assert_int_equal(mha_tensors_writer_finish(writer, &err), MHA_OK);
    mha_tensors_writer_free(writer);
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

static void unlistable_files(void **state)
{
    (void)state;
    static const int64_t huge[] = {INT64_MAX, 2}, negative[] = {3, -1}, odd[] = {3}, max[] = {INT64_MAX / 4};
    const char *folder = files_folder(), *path = files_path(folder, "x");
    const struct {
        mha_tensor tensor;
        const char *sentence;
    } wrong[] = {
        {{.name = NULL, .dtype = MHA_F32}, "tensors to write: names must not be NULL"},
        {{.name = "u8", .dtype = MHA_F32}, "tensors to write: name \"u8\" must be unique and not reserved"},
        {{.name = "__metadata__", .dtype = MHA_F32},
         "tensors to write: name \"__metadata__\" must be unique and not reserved"},
        {{.name = "a\377", .dtype = MHA_F32}, "tensors to write: name \"a\\xFF\" must be UTF-8"},
        {{.name = "t"}, "tensor \"t\": dtype must be supported by safetensors (got default)"},
        {{.name = "t", .dtype = MHA_Q8_0}, "tensor \"t\": dtype must be supported by safetensors (got q8_0)"},
        {{.name = "t", .dtype = MHA_DTYPE_OTHER}, "tensor \"t\": dtype must be supported by safetensors (got other)"},
        {{.name = "t", .dtype = MHA_DTYPE_OTHER, .dtype_name = "F8"},
         "tensor \"t\": dtype must be supported by safetensors (got other)"},
        {{.name = "t", .dtype = MHA_F32, .rank = 33, .shape = shape},
         "tensor \"t\": rank must be from 0 to 32, and 0 if shape is NULL (got 33)"},
        {{.name = "t", .dtype = MHA_F32, .rank = 1},
         "tensor \"t\": rank must be from 0 to 32, and 0 if shape is NULL (got 1)"},
        {{.name = "t", .dtype = MHA_F32, .rank = 2, .shape = negative},
         "tensor \"t\": shape must not be negative or too large, and must fill whole bytes"},
        {{.name = "t", .dtype = MHA_F32, .rank = 2, .shape = huge},
         "tensor \"t\": shape must not be negative or too large, and must fill whole bytes"},
        {{.name = "t", .dtype = MHA_DTYPE_OTHER, .dtype_name = "F4", .rank = 1, .shape = odd},
         "tensor \"t\": shape must not be negative or too large, and must fill whole bytes"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        const mha_tensor list[] = {tensor_of(1), wrong[n].tensor};
        mha_tensors_writer *writer = NULL;
        assert_int_equal(mha_tensors_writer_create(NULL, path, list, 2, NULL, &writer, &err), MHA_ERR_ARG);
        assert_string_equal(err.message, wrong[n].sentence);
        assert_null(writer);
    }
    mha_tensor list[3];
    mha_tensors_writer *writer = NULL;
    for (int i = 0; i < 3; i++)
        list[i] = (mha_tensor){.name = kinds[i].name, .dtype = MHA_U8, .rank = 1, .shape = max};
    assert_int_equal(mha_tensors_writer_create(NULL, path, list, 3, NULL, &writer, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "tensors to write: total size must be at most 2^62 - 1 bytes");
    assert_int_equal(files_count(folder), 0);
    files_remove(folder);
}

static void invalid_metadata(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    const struct {
        mha_metadata pairs[2];
        const char *sentence;
    } wrong[] = {
        {{{"a", "1", 0}, {"a", "2", 0}}, "metadata to write: duplicate key \"a\""},
        {{{"a", "1", 0}, {NULL, "2", 0}}, "metadata to write: keys and values must not be NULL"},
        {{{"a", "1", 0}, {"b", NULL, 0}}, "metadata to write: keys and values must not be NULL"},
        {{{"a", "1", 0}, {"b", "\377", 0}}, "metadata to write: \"b\": key and value must be UTF-8"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        mha_tensors_writer *writer = NULL;
        const mha_tensors_writer_options o = {.size = sizeof o, .metadata = wrong[n].pairs, .metadata_count = 2};
        assert_int_equal(mha_tensors_writer_create(NULL, path, NULL, 0, &o, &writer, &err), MHA_ERR_ARG);
        assert_string_equal(err.message, wrong[n].sentence);
    }
    assert_int_equal(files_count(folder), 0);
    files_remove(folder);
}

/* ---- limits of mha_file_open, which the writer must also enforce ---- */

static void refused(const mha_tensor *list, int64_t count, const mha_metadata *pairs, int64_t pair_count,
                    const char *sentence)
{
    const char *folder = files_folder();
    mha_tensors_writer *writer = NULL;
    const mha_tensors_writer_options o = {.size = sizeof o, .metadata = pairs, .metadata_count = pair_count};
    assert_int_equal(mha_tensors_writer_create(NULL, files_path(folder, "x"), list, count, &o, &writer, &err),
                     MHA_ERR_ARG);
    assert_string_equal(err.message, sentence);
    assert_null(writer);
    assert_int_equal(files_count(folder), 0);
    files_remove(folder);
}

static void too_many_pairs(void **state)
{
    (void)state;
    enum { PAIRS = 1 << 18 };
    mha_metadata *pairs = calloc(PAIRS, sizeof *pairs);
    for (int n = 0; n < PAIRS; n++)
        /* the number of pairs must be checked before the pairs, which are duplicates */
        pairs[n] = (mha_metadata){"same", "", 0};
    refused(NULL, 0, pairs, PAIRS, "metadata to write: metadata_count must be at most 262143 (got 262144)");
    free(pairs);
}

/* A string in the header may have at most 16777216 bytes, including escapes. A newline is escaped as 2 bytes, other
 * control characters as 6. */
static void too_long_a_string(void **state)
{
    (void)state;
    enum { MAX = 16 << 20 };
    char *text = malloc(MAX + 2);
    memset(text, 'x', MAX + 1);
    text[MAX + 1] = '\0';
    const mha_metadata pair = {"key", text, 0};
    const char *one_more = "metadata to write: \"key\": key and value must have at most 16777216 bytes (got 16777217)";
    refused(NULL, 0, &pair, 1, one_more);
    text[MAX] = '\0', text[0] = '\n';
    refused(NULL, 0, &pair, 1, one_more);
    text[MAX - 4] = '\0', text[0] = '\1';
    refused(NULL, 0, &pair, 1, one_more);
    free(text);
}

static void too_many_dimensions(void **state)
{
    (void)state;
    enum { COUNT = (1 << 16) + 1, RANK = 32 };
    static char names[COUNT][8];
    static const int64_t ones[RANK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                       1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    mha_tensor *list = calloc(COUNT, sizeof *list);
    for (int n = 0; n < COUNT; n++) {
        snprintf(names[n], sizeof names[n], "%d", n);
        list[n] = (mha_tensor){.name = names[n], .dtype = MHA_U8, .rank = RANK, .shape = ones};
    }
    refused(list, COUNT, NULL, 0,
            "tensors to write: all tensors together must have at most 2097152 dimensions (got 2097184)");
    free(list);
}

/* ---- errors while writing ---- */

static void expect_old(const char *path)
{
    size_t n;
    char *bytes = files_read(path, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "old", 3);
    free(bytes);
}

static void freed_before_everything_is_written(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    const mha_tensor t = tensor_of(9);
    const mha_tensors_writer_options force = {.size = sizeof force, .overwrite = 1};
    mha_tensors_writer *writer = NULL;
    files_write(path, "old", 3);
    assert_int_equal(mha_tensors_writer_create(NULL, path, &t, 1, NULL, &writer, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "it already exists"));
    assert_int_equal(mha_tensors_writer_create(NULL, path, &t, 1, &force, &writer, &err), MHA_OK);
    assert_int_equal(mha_tensors_writer_put(writer, 0, bytes_of(9), 16, &err), MHA_OK);
    mha_tensors_writer_free(writer);
    expect_old(path);
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

/* If the limit on the file size is below the header size, mha_tensors_writer_create must fail; if it is above, writing
 * a piece must fail. Without the limit, writing the same piece again must succeed. The test runs in a child process. */
static void full_disk(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    files_write(path, "old", 3);
    const pid_t child = fork();
    if (child == 0) {
        static char data[100000];
        const struct rlimit none = {10, RLIM_INFINITY}, some = {5000, RLIM_INFINITY},
                            all = {RLIM_INFINITY, RLIM_INFINITY};
        const mha_tensor t = {.name = "t", .dtype = MHA_U8, .rank = 1, .shape = (int64_t[]){sizeof data}};
        const mha_tensors_writer_options o = {.size = sizeof o, .overwrite = 1};
        mha_tensors_writer *writer = NULL;
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &none) != 0;
        bad |= mha_tensors_writer_create(NULL, path, &t, 1, &o, &writer, &err) != MHA_ERR_IO || writer;
        bad |= files_count(folder) != 1 || setrlimit(RLIMIT_FSIZE, &some) != 0;
        bad |= mha_tensors_writer_create(NULL, path, &t, 1, &o, &writer, &err) != MHA_OK;
        bad |= mha_tensors_writer_put(writer, 0, data, sizeof data, &err) != MHA_ERR_IO;
        bad |= !strstr(err.message, path) || !strstr(err.message, "File too large");
        bad |= mha_tensors_writer_finish(writer, &err) != MHA_ERR_ARG || setrlimit(RLIMIT_FSIZE, &all) != 0;
        bad |= mha_tensors_writer_put(writer, 0, data, sizeof data, &err) != MHA_OK;
        mha_tensors_writer_free(writer);
        _exit(bad);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_old(path);
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

static void killed(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    files_write(path, "old", 3);
    const pid_t child = fork();
    if (child == 0) {
        const mha_tensor t = tensor_of(9);
        const mha_tensors_writer_options o = {.size = sizeof o, .overwrite = 1};
        mha_tensors_writer *writer = NULL;
        if (mha_tensors_writer_create(NULL, path, &t, 1, &o, &writer, NULL) != MHA_OK) _exit(1);
        if (mha_tensors_writer_put(writer, 0, bytes_of(9), 8, NULL) != MHA_OK) _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    expect_old(path);
    write_all(path, 0, BYTES_MAX); /* the temporary file of the killed process must not prevent writing */
    files_remove(folder);
}

static void no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    const char *folder = files_folder(), *path = files_path(folder, "x");
    float data[4] = {1, 2, 3, 4};
    const mha_named_tensor list[] = {{"a", MHA_F32, 1, {4}, data}, {"b", MHA_F16, 2, {4, 2}, data}};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        memory.budget = memory.calls + n;
        status = mha_tensors_write(ctx, path, list, 2, 0, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
        assert_int_equal(files_count(folder), status == MHA_OK);
    }
    /* seven allocations: the list, the writer, its order, the order of the metadata, the header and the names */
    assert_int_equal(n, 7);
    mha_ctx_free(ctx);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(one_layout),
        cmocka_unit_test(empty),
        cmocka_unit_test(wrong_byte_counts),
        cmocka_unit_test(freed_before_everything_is_written),
        cmocka_unit_test(unlistable_files),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(invalid_metadata),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(killed),
        cmocka_unit_test(too_many_pairs),
        cmocka_unit_test(too_long_a_string),
        cmocka_unit_test(too_many_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
