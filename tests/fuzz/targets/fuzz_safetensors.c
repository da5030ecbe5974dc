/* fuzz_safetensors.c - reads bytes as a safetensors file. An accepted file is read completely and written to a new
 * file. The new file must be accepted and have equal contents. Most mutations change the length of the header and would
 * be rejected for this reason, so every input is also tested with a length that ends the header at the last brace.
 */
#include "fuzz.h"
#include "mutate.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

FUZZ_MUTATES_HEADER

static json_t *header_of(const mha_file *file)
{
    json_t *header = json_object();
    int64_t at = 0;
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        json_t *shape = json_array();
        for (int k = 0; k < t->rank; k++)
            json_array_append_new(shape, json_integer(t->shape[k]));
        json_int_t end = at + (int64_t)t->bytes;
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I,I]}", "dtype", t->dtype_name, "shape", shape, "data_offsets",
                                      (json_int_t)at, end));
        at = end;
    }
    json_t *metadata = json_object();
    for (int64_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        size_t n;
        mha_file_metadata(file, i, &key, &value, &n);
        json_object_set_new(metadata, key, json_stringn(value, n));
    }
    json_object_set_new(header, "__metadata__", metadata);
    return header;
}

/* Returns the contents of a safetensors file with the tensors and metadata of `file`, in allocated memory. */
static char *save(const mha_file *file, size_t *bytes)
{
    json_t *header = header_of(file);
    char *text = json_dumps(header, JSON_COMPACT);
    fuzz_check(text != NULL, "accepted input must be writable");
    json_decref(header);
    uint64_t length = strlen(text);
    *bytes = 8 + length;
    for (int64_t i = 0; i < mha_file_count(file); i++)
        *bytes += mha_file_tensor(file, i)->bytes;
    char *out = malloc(*bytes), *p = out + 8 + length;
    memcpy(out, &length, 8);
    memcpy(out + 8, text, length);
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        memcpy(p, t->data, t->bytes);
        p += t->bytes;
    }
    free(text);
    return out;
}

static void compare(const mha_file *a, const mha_file *b)
{
    fuzz_check(mha_file_count(a) == mha_file_count(b), "tensor count must be equal after reload");
    fuzz_check(mha_file_metadata_count(a) == mha_file_metadata_count(b), "metadata count must be equal after reload");
    for (int64_t i = 0; i < mha_file_count(a); i++) {
        const mha_tensor *x = mha_file_tensor(a, i), *y = mha_file_tensor(b, i);
        fuzz_check(strcmp(x->name, y->name) == 0 && strcmp(x->dtype_name, y->dtype_name) == 0,
                   "names must be equal after reload");
        fuzz_check(x->rank == y->rank && memcmp(x->shape, y->shape, (size_t)x->rank * 8) == 0,
                   "shape must be equal after reload");
        fuzz_check(x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0, "data must be equal after reload");
    }
}

static void try_bytes(const uint8_t *bytes, size_t n)
{
    mha_file *file = fuzz_open(bytes, n, 1);
    if (file && strcmp(mha_file_format(file), "safetensors") == 0) {
        fuzz_read(file);
        size_t saved_bytes;
        char *saved = save(file, &saved_bytes);
        mha_file *again = fuzz_open(saved, saved_bytes, 0);
        fuzz_check(again != NULL, "a saved file must be accepted again");
        compare(file, again);
        mha_file_free(again);
        free(saved);
    }
    mha_file_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    try_bytes(bytes, n);
    size_t end = n;
    while (end > 8 && bytes[end - 1] != '}')
        end--;
    if (end <= 8) return 0;
    uint8_t *fitted = malloc(n);
    const uint64_t length = end - 8;
    memcpy(fitted, bytes, n);
    memcpy(fitted, &length, 8);
    try_bytes(fitted, n);
    free(fitted);
    return 0;
}
