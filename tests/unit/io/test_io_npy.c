/* test_io_npy.c - tests writing of .npy files: bytes identical to those of numpy.save, round trips of every type and
 * rank, and errors. */
#include "mha/io.h"
#include "support/check.h"
#include "support/files.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static mha_error err;

/* Files must be bytewise identical to those of numpy.save for numpy.array([[1, -2, 0.5]], dtype=numpy.float32) and
 * numpy.int8(7) (NumPy 2.4). */
static void as_numpy_writes_it(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x.npy");
    const float numbers[] = {1, -2, 0.5f};
    const int8_t seven = 7;
    const struct {
        mha_tensor array;
        const char *text;
    } cases[] = {
        {{.dtype = MHA_F32, .rank = 2, .shape = (int64_t[]){1, 3}, .data = numbers},
         "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }"},
        {{.dtype = MHA_I8, .rank = 0, .data = &seven}, "{'descr': '|i1', 'fortran_order': False, 'shape': (), }"},
        {{.dtype = MHA_F32, .rank = 1, .shape = (int64_t[]){3}, .data = numbers},
         "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[128];
        size_t n, text = strlen(cases[i].text), data = i == 1 ? 1 : sizeof numbers;
        assert_int_equal(mha_npy_write(path, &cases[i].array, 1, &err), MHA_OK);
        char *bytes = files_read(path, &n);
        memset(want, ' ', sizeof want);
        memcpy(want, "\x93NUMPY\x01\x00\x76\x00", 10);
        memcpy(want + 10, cases[i].text, text);
        want[127] = '\n';
        assert_int_equal(n, sizeof want + data);
        assert_memory_equal(bytes, want, sizeof want);
        assert_memory_equal(bytes + sizeof want, cases[i].array.data, data);
        free(bytes);
    }
    files_remove(folder);
}

static void round_trip(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BOOL, MHA_U8,  MHA_I8,  MHA_U16, MHA_I16, MHA_F16,
                                      MHA_U32,  MHA_I32, MHA_F32, MHA_U64, MHA_I64, MHA_F64};
    const char *folder = files_folder(), *path = files_path(folder, "x.npy");
    char data[6 * 8];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)i;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int rank = 0; rank <= 32; rank += 1 + 7 * (rank > 3)) {
            int64_t shape[32] = {0};
            for (int k = 0; k < rank; k++)
                shape[k] = k == 0 ? 2 : k == rank - 1 ? 3 : 1;
            const mha_tensor array = {.dtype = types[i], .rank = rank, .shape = shape, .data = data};
            mha_file *file = NULL;
            assert_int_equal(mha_npy_write(path, &array, 1, &err), MHA_OK);
            assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_OK);
            const mha_tensor *t = mha_file_tensor(file, 0);
            assert_int_equal(t->dtype, types[i]);
            assert_int_equal(t->rank, rank);
            if (rank) assert_memory_equal(t->shape, shape, (size_t)rank * sizeof *shape);
            assert_int_equal(t->bytes, mha_dtype_size(types[i]) * (rank == 0 ? 1 : rank == 1 ? 2 : 6));
            assert_memory_equal(t->data, data, t->bytes);
            mha_file_free(file);
        }
    const mha_tensor none = {.dtype = MHA_F32, .rank = 2, .shape = (int64_t[]){0, INT64_MAX}};
    mha_file *file = NULL;
    assert_int_equal(mha_npy_write(path, &none, 1, &err), MHA_OK);
    assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_OK);
    assert_int_equal(mha_file_tensor(file, 0)->elements, 0);
    mha_file_free(file);
    files_remove(folder);
}

static void unwritable_tensors(void **state)
{
    (void)state;
    static const int64_t shape[] = {2, -1}, large[] = {INT64_MAX / 4};
    static const char data[8];
    const char *folder = files_folder(), *path = files_path(folder, "x.npy");
    const struct {
        mha_tensor array;
        mha_status status;
        const char *sentence;
    } wrong[] = {
        {{.name = "w", .dtype = MHA_BF16, .data = data},
         MHA_ERR_UNSUPPORTED,
         "array \"w\": dtype must be supported by the .npy format (got bf16)"},
        {{.dtype = MHA_DTYPE_OTHER, .data = data},
         MHA_ERR_UNSUPPORTED,
         "array \"\": dtype must be supported by the .npy format (got other)"},
        {{.data = data}, MHA_ERR_UNSUPPORTED, "array \"\": dtype must be supported by the .npy format (got default)"},
        {{.dtype = MHA_F32, .rank = 33, .shape = shape, .data = data},
         MHA_ERR_ARG,
         "array \"\": rank must be from 0 to 32, and 0 if shape is NULL (got 33)"},
        {{.dtype = MHA_F32, .rank = 1, .data = data},
         MHA_ERR_ARG,
         "array \"\": rank must be from 0 to 32, and 0 if shape is NULL (got 1)"},
        {{.dtype = MHA_F32, .rank = 2, .shape = shape, .data = data},
         MHA_ERR_ARG,
         "array \"\": shape must not be negative or too large"},
        {{.dtype = MHA_F64, .rank = 1, .shape = large, .data = data},
         MHA_ERR_ARG,
         "array \"\": shape must not be negative or too large"},
        {{.dtype = MHA_F32}, MHA_ERR_ARG, "array \"\": data must not be NULL"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        assert_int_equal(mha_npy_write(path, &wrong[n].array, 0, &err), wrong[n].status);
        assert_string_equal(err.message, wrong[n].sentence);
    }
    assert_int_equal(mha_npy_write(NULL, &wrong[0].array, 0, &err), MHA_ERR_ARG);
    assert_int_equal(mha_npy_write(path, NULL, 0, &err), MHA_ERR_ARG);
    assert_int_equal(files_count(folder), 0);
    files_remove(folder);
}

/* If the disk is full, writing must fail and leave the old file. A limit on the file size simulates a full disk; it is
 * set in a child process, because it cannot be raised again. */
static void full_disk(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x.npy");
    static const char data[100000];
    const mha_tensor array = {.dtype = MHA_U8, .rank = 1, .shape = (int64_t[]){sizeof data}, .data = data};
    files_write(path, "old", 3);
    assert_int_equal(mha_npy_write(path, &array, 0, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "it already exists"));
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {5000, 5000};
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &limit) != 0;
        bad |= mha_npy_write(path, &array, 1, &err) != MHA_ERR_IO || !strstr(err.message, "File too large");
        _exit(bad);
    }
    int status = -1;
    size_t n;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    char *bytes = files_read(path, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "old", 3);
    free(bytes);
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_numpy_writes_it),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(unwritable_tensors),
        cmocka_unit_test(full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
