/* fuzz_index.c - reads bytes as model.safetensors.index.json of a folder with two real shards, and bytes after the
 * first NUL as the second shard. An accepted checkpoint must list each tensor once, sorted by name, with the same
 * contents whether its files are mapped or copied.
 */
#include "fuzz.h"
#include "mutate.h"
#include "support/files.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FUZZ_MUTATES_JSON

#define SHARDS "hostile/base/shards/"
#define FIRST "model-00001-of-00002.safetensors"
#define SECOND "model-00002-of-00002.safetensors"

/* Writes both shards to the folder. If `second` is NULL, the second shard is the one of the golden data. */
static void put_shards(const void *second, size_t n)
{
    static int begun, real;
    const char *path = files_path(fuzz_folder(), SECOND);
    if (!begun++)
        fuzz_check(symlink(fuzz_data(SHARDS FIRST), files_path(fuzz_folder(), FIRST)) == 0,
                   "symlink to a shard must succeed");
    if (second || !real) unlink(path);
    if (second) files_write(path, second, n);
    if (!second && !real) fuzz_check(symlink(fuzz_data(SHARDS SECOND), path) == 0, "symlink to a shard must succeed");
    real = !second;
}

static mha_file *open_folder(int no_map, int *status)
{
    const mha_file_options options = {.size = sizeof options, .no_map = no_map};
    mha_error err = {0};
    mha_file *file = NULL;
    *status = mha_checkpoint_open(fuzz_ctx(), fuzz_folder(), &options, &file, &err);
    fuzz_check((*status == MHA_OK) == (file != NULL), "file must be set only on success");
    fuzz_refusal((mha_status)*status, &err, fuzz_folder());
    return file;
}

static void check(const mha_file *file, const mha_file *copied)
{
    const int64_t count = mha_file_count(file);
    fuzz_check(mha_file_count(copied) == count, "mapped and copied files must be equal");
    for (int64_t i = 0; i < count; i++) {
        const mha_tensor *x = mha_file_tensor(file, i), *y = mha_file_tensor(copied, i);
        fuzz_check(i == 0 || strcmp(mha_file_tensor(file, i - 1)->name, x->name) < 0,
                   "tensors must be sorted by unique names");
        fuzz_check(x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0,
                   "mapped and copied files must be equal");
    }
    fuzz_read(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    int status, other;
    const uint8_t *nul = n ? memchr(bytes, '\0', n) : NULL;
    const size_t own = nul ? (size_t)(nul - bytes) : n;
    put_shards(nul ? nul + 1 : NULL, nul ? n - own - 1 : 0);
    files_write(files_path(fuzz_folder(), "model.safetensors.index.json"), bytes, own);
    mha_file *file = open_folder(0, &status), *copied = open_folder(1, &other);
    fuzz_check(status == other, "the status must not depend on mapping");
    if (file) check(file, copied);
    mha_file_free(file);
    mha_file_free(copied);
    return 0;
}
