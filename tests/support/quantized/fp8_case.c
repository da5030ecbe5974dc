/* fp8_case.c - see fp8_case.h. */
#include "support/quantized/fp8_case.h"

#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 64, WIDTH = 32, CODES = VOCAB * WIDTH, HEADER = 1 << 14, DATA = 1 << 15 };

static const char *const tables[] = {"model.embed_tokens.weight", "lm_head.weight"};

/* A safetensors file in memory: its header as text, and its data. */
typedef struct written {
    char header[HEADER];
    size_t n, bytes;
    unsigned char data[DATA];
} written;

static void put(written *w, const char *name, const char *type, int rank, const int64_t *shape, const void *data,
                size_t bytes)
{
    w->n += (size_t)sprintf(w->header + w->n, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", w->n ? ',' : '{', name, type);
    for (int n = 0; n < rank; n++)
        w->n += (size_t)sprintf(w->header + w->n, "%s%lld", n ? "," : "", (long long)shape[n]);
    w->n += (size_t)sprintf(w->header + w->n, "],\"data_offsets\":[%zu,%zu]}", w->bytes, w->bytes + bytes);
    assert_true(w->n < HEADER - 512 && w->bytes + bytes <= DATA);
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

static void put_table(written *w, const char *name, float scale)
{
    uint8_t codes[CODES];
    char own[64];
    for (int i = 0; i < CODES; i++)
        codes[i] = (uint8_t)((i * 37 + i / 64) % 64 | i % 3 % 2 << 7); /* magnitudes below 2 */
    put(w, name, "F8_E4M3", 2, (int64_t[]){VOCAB, WIDTH}, codes, sizeof codes);
    snprintf(own, sizeof own, "%s_scale", name);
    put(w, own, "F32", 1, (int64_t[]){1}, &scale, sizeof scale);
}

static void put_others(written *w, const char *path)
{
    mha_file *file = case_file(path);
    for (int64_t n = 0; n < mha_file_count(file); n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        if (strcmp(t->name, tables[0]) == 0 || strcmp(t->name, tables[1]) == 0) continue;
        put(w, t->name, t->dtype_name, t->rank, t->shape, t->data, t->bytes);
    }
    mha_file_free(file);
}

const char *fp8_tables(float words_scale, float head_scale)
{
    const char *folder = case_copy("quantized/llama-compressed");
    const char *path = files_path(folder, "model.safetensors");
    written *w = calloc(1, sizeof *w);
    put_table(w, tables[0], words_scale);
    put_table(w, tables[1], head_scale);
    put_others(w, path);
    w->header[w->n++] = '}';
    const uint64_t n = w->n;
    unsigned char *whole = malloc(sizeof n + w->n + w->bytes);
    memcpy(whole, &n, sizeof n);
    memcpy(whole + sizeof n, w->header, w->n);
    memcpy(whole + sizeof n + w->n, w->data, w->bytes);
    files_write(path, whole, sizeof n + w->n + w->bytes);
    free(whole);
    free(w);
    return folder;
}
