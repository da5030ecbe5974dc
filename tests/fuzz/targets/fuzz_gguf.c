/* fuzz_gguf.c - reads bytes as a GGUF file: all tensors, and every value under each type. Then opens the file as a
 * tokenizer, which must encode a text, and as a model. The first bytes are replaced with those of version 3, which most
 * mutations would damage. */
#include "fuzz.h"
#include "io/gguf/gguf.h"
#include "mha/text.h"
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

static void open_tokenizer(const char *path)
{
    mha_tokenizer *tokenizer = NULL;
    mha_encoding *encoding = NULL;
    mha_error err = {0};
    const mha_status status = mha_tokenizer_open(fuzz_ctx(), path, &tokenizer, &err);
    fuzz_refusal(status, &err, "");
    if (status == MHA_OK && mha_tokenizer_encode(tokenizer, "a b", 3, NULL, 0, NULL, &encoding, NULL) == MHA_OK)
        mha_encoding_free(encoding);
    mha_tokenizer_free(tokenizer);
}

static void open_model(const char *path)
{
    mha_model *model = NULL;
    mha_error err = {0};
    const mha_model_options o = {.size = sizeof o, .no_map = 1};
    fuzz_refusal(mha_model_open(fuzz_ctx(), path, &o, &model, &err), &err, "");
    mha_model_free(model);
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
        open_tokenizer(mha_file_path(file));
        open_model(mha_file_path(file));
    }
    mha_file_free(file);
    free(own);
    return 0;
}
