/* fuzz.c - see fuzz.h. The bytes reach the library the way a stranger's would: as a file. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fuzz_check(int holds, const char *law)
{
    if (holds) return;
    fprintf(stderr, "broken: %s\n", law);
    abort();
}

void fuzz_refusal(mha_status status, const mha_error *err, const char *file)
{
    if (status == MHA_OK) return;
    fuzz_check(err->status == status, "the error holds the status");
    fuzz_check(strstr(err->message, file) != NULL, "a refusal names the file");
    for (const char *p = err->message; *p; p++)
        fuzz_check((unsigned char)*p >= 32 && *p != 127, "a sentence holds no control character");
}

/* One file for all inputs, removed at the end. */
static char path[64];

static void remove_file(void)
{
    unlink(path);
}

static const char *as_file(const void *bytes, size_t n)
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

mha_file *fuzz_open(const void *bytes, size_t n, int no_map)
{
    const mha_file_options options = {.size = sizeof options, .no_map = no_map};
    mha_error err = {0};
    mha_file *file = NULL;
    mha_status status = mha_file_open(NULL, as_file(bytes, n), &options, &file, &err);
    fuzz_check((status == MHA_OK) == (file != NULL), "a file comes with success, and only then");
    fuzz_refusal(status, &err, path);
    return file;
}

static void read_tensor(const mha_tensor *t)
{
    static const mha_dtype kinds[] = {MHA_F32, MHA_F64, MHA_I64};
    fuzz_check(t->name && t->dtype_name && t->shape && t->data, "no pointer of a tensor is NULL");
    unsigned sum = 0;
    for (size_t i = 0; i < t->bytes; i++)
        sum += ((const unsigned char *)t->data)[i];
    static volatile unsigned sink; /* so that the loop stays */
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
        fuzz_check(mha_file_find(file, t->name) == t, "a tensor is found by its name");
    }
    for (int64_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        size_t n;
        fuzz_check(mha_file_metadata(file, i, &key, &value, &n) == MHA_OK, "metadata can be had");
        fuzz_check(strlen(value) <= n && value[n] == '\0', "a value is terminated");
    }
}
