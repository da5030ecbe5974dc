/* fuzz_gguf.c - reads bytes as a GGUF file: all tensors, and every value under each type. The first bytes are replaced
 * with those of version 3, which most mutations would damage. */
#include "fuzz.h"
#include "io/gguf/gguf.h"
#include <stdlib.h>
#include <string.h>

static void read_value(const mha_file *file, const mha__gguf_value *v)
{
    mha_error err = {0};
    const mha__gguf_value *array;
    const char *text, *at = v->data;
    int64_t integer;
    double real;
    bool flag;
    size_t n;
    fuzz_refusal(mha__gguf_int(file, v->key, -5, 1000, &integer, &err), &err, mha_file_path(file));
    fuzz_refusal(mha__gguf_real(file, v->key, &real, &err), &err, mha_file_path(file));
    fuzz_refusal(mha__gguf_bool(file, v->key, &flag, &err), &err, mha_file_path(file));
    fuzz_refusal(mha__gguf_text(file, v->key, &text, &n, &err), &err, mha_file_path(file));
    fuzz_refusal(mha__gguf_array(file, v->key, MHA__GGUF_I32, &array, &err), &err, mha_file_path(file));
    for (uint64_t i = 0; i < v->count; i++)
        if (v->type == MHA__GGUF_STRING)
            mha__gguf_next_text(&at, &n);
        else
            mha__gguf_element(v, i, &integer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t *own = malloc(n + 8);
    memcpy(own, bytes, n);
    if (n >= 8) memcpy(own, "GGUF\3\0\0\0", 8);
    mha_file *file = fuzz_open(own, n, 1);
    if (file && strcmp(mha_file_format(file), "gguf") == 0) {
        fuzz_read(file);
        for (int64_t i = 0; i < file->gguf->count; i++)
            read_value(file, &file->gguf->values[i]);
    }
    mha_file_free(file);
    free(own);
    return 0;
}
