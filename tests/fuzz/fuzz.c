/* fuzz.c - implements fuzz.h. The bytes are written to a file, which the library then reads. */
#include "fuzz.h"

#include "mha/model_create.h"
#include "support/files.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fuzz_check(int ok, const char *rule)
{
    if (ok) return;
    dprintf(STDERR_FILENO, "check failed: %s\n", rule); /* stderr may be a memory stream */
    abort();
}

void fuzz_refusal(mha_status status, const mha_error *err, const char *file)
{
    if (status == MHA_OK) return;
    fuzz_check(err->status == status, "the error must contain the status");
    if (!strstr(err->message, file)) fprintf(stderr, "%s: %s\n", file, err->message);
    fuzz_check(strstr(err->message, file) != NULL, "an error message must name the file");
    for (const char *p = err->message; *p; p++)
        fuzz_check((unsigned char)*p >= 32 && *p != 127, "an error message must not contain control characters");
}

/* Path of the file to which every input is written; removed at exit. */
static char path[64];

static void remove_file(void)
{
    unlink(path);
}

const char *fuzz_file(const void *bytes, size_t n)
{
    static int fd = -1;
    if (fd < 0) {
        snprintf(path, sizeof path, "%s/mha-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        fd = mkstemp(path);
        atexit(remove_file);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, bytes, n, 0) != (ssize_t)n) {
        perror(path);
        exit(1);
    }
    return path;
}

static const char *folder;

static void remove_folder(void)
{
    files_remove(folder);
}

const char *fuzz_folder(void)
{
    if (!folder) {
        folder = files_folder();
        atexit(remove_folder);
    }
    return folder;
}

/* Returns the folder "data" next to the program, where build.sh copies it, or else the golden data of the source tree.
 */
static const char *data_folder(void)
{
    static char beside[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", beside, sizeof beside - sizeof "data");
    if (n < 0) return MHA_TEST_DATA;
    beside[n] = '\0';
    strcpy(strrchr(beside, '/') + 1, "data");
    return access(beside, X_OK) == 0 ? beside : MHA_TEST_DATA;
}

const char *fuzz_data(const char *name)
{
    static const char *folder_of_data;
    static char paths[4][2 * PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    if (!folder_of_data) folder_of_data = data_folder();
    snprintf(path, sizeof paths[0], "%s/%s", folder_of_data, name);
    return path;
}

mha_ctx *fuzz_ctx(void)
{
    static mha_ctx *ctx;
    const mha_ctx_options one = {.size = sizeof one, .threads = 1};
    if (!ctx) fuzz_check(mha_ctx_create(&one, &ctx, NULL) == MHA_OK, "creating a context must succeed");
    return ctx;
}

mha_model *fuzz_model(const char *config_json)
{
    mha_model *model = NULL;
    mha_error err = {0};
    fuzz_check(mha_model_create(fuzz_ctx(), config_json, NULL, &model, &err) == MHA_OK, err.message);
    return model;
}

uint8_t *fuzz_copy(const uint8_t *bytes, size_t n, char mark, const char *by)
{
    char marks[16];
    uint8_t *copy = malloc(n + 1);
    fuzz_check(copy != NULL, "out of memory");
    memset(marks, mark, sizeof marks);
    memcpy(copy, bytes, n);
    for (size_t at = 0; at + sizeof marks <= n; at++)
        if (memcmp(copy + at, marks, sizeof marks) == 0) memcpy(copy + at, by, sizeof marks);
    return copy;
}

mha_file *fuzz_open(const void *bytes, size_t n, int no_map)
{
    const mha_file_options options = {.size = sizeof options, .no_map = no_map};
    mha_error err = {0};
    mha_file *file = NULL;
    mha_status status = mha_file_open(NULL, fuzz_file(bytes, n), &options, &file, &err);
    fuzz_check((status == MHA_OK) == (file != NULL), "file must be set only on success");
    fuzz_refusal(status, &err, path);
    return file;
}

static void read_tensor(const mha_tensor *t)
{
    static const mha_dtype kinds[] = {MHA_F32, MHA_F64, MHA_I64};
    fuzz_check(t->name && t->dtype_name && t->shape && t->data, "pointers of a tensor must not be NULL");
    unsigned sum = 0;
    for (size_t i = 0; i < t->bytes; i++)
        sum += ((const unsigned char *)t->data)[i];
    static volatile unsigned sink; /* keeps the loop from being optimized away */
    sink = sum;
    (void)sink;
    double *out = malloc((size_t)t->elements * sizeof *out + 1);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        mha_tensor_read(t, kinds[k], out, NULL);
    free(out);
}

void fuzz_read(const mha_file *file)
{
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        read_tensor(t);
        fuzz_check(mha_file_find(file, t->name) == t, "a tensor must be found by its name");
    }
    for (int64_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        size_t n;
        fuzz_check(mha_file_metadata(file, i, &key, &value, &n) == MHA_OK, "metadata must be readable");
        fuzz_check(strlen(value) <= n && value[n] == '\0', "a value must end with NUL");
    }
}
