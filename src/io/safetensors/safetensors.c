/* safetensors.c - the safetensors format: u64 length N | N bytes of JSON | tensor bytes.
 *
 *     {"__metadata__": {"format": "pt"}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *
 * The rules are those of the reference reader, except where the specification is stricter: the first byte must be '{',
 * and names and fields must be unique. The shape and the offsets both determine the size of a tensor and must agree,
 * and all tensors together must cover the data without gaps or overlaps. Every pointer into an accepted file is
 * therefore valid.
 *
 * safetensors_header.c reads the header; this source file checks the rules for the whole file. */
#include "base/ctx.h"
#include "io/files/file_fail.h"
#include "io/input_limits.h"
#include "io/tensor_file.h"
#include <stdlib.h>
#include <string.h>

/* State while opening a file. */
typedef struct reader {
    mha_file *file;
    const char *path;
    size_t data_bytes; /* size of the data after the header */
    mha_error *err;
} reader;

#define REFUSE(r, tensor, ...) mha__file_fail((r)->err, (r)->path, tensor, __VA_ARGS__)

/* ---- header length ---- */

static mha_status check_length(const reader *r, const mha__source *source, size_t *length)
{
    unsigned char head[9] = {0}; /* the length and the first byte of the JSON */
    if (source->size < 8)
        return REFUSE(r, NULL, "file must be safetensors, .npy or GGUF (got %zu bytes; safetensors has at least 8)",
                      source->size);
    size_t rest = source->size - 8;
    MHA__TRY(mha__source_read(source, 0, head, rest > 0 ? 9 : 8, r->err));
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | head[i];
    if (n == 0) return REFUSE(r, NULL, "header length must be positive (got 0)");
    if (n > rest && rest > 0 && head[8] != '{')
        return REFUSE(r, NULL,
                      "file must be safetensors, .npy or GGUF (as safetensors, the header length would be %llu, but "
                      "only %zu bytes follow)",
                      (unsigned long long)n, rest);
    if (n > rest)
        return REFUSE(r, NULL, "header length must be at most the %zu bytes that follow (got %llu)", rest,
                      (unsigned long long)n);
    if (n > MHA__HEADER_BYTES)
        return REFUSE(r, NULL, "header length must be at most %zu (got %llu)", MHA__HEADER_BYTES,
                      (unsigned long long)n);
    if (head[8] != '{') return REFUSE(r, NULL, "header must begin with { (got byte 0x%02X)", head[8]);
    *length = (size_t)n;
    return MHA_OK;
}

/* Reads the header into the tables of the file, and frees its text. */
static mha_status read_header(const reader *r, const mha__source *source, size_t length)
{
    char *text = mha__alloc(r->file->ctx, length + 1);
    if (!text) return mha__no_memory(r->err, length, "a safetensors header");
    text[length] = '\0';
    mha_status status = mha__source_read(source, 8, text, length, r->err);
    if (status == MHA_OK) status = mha__safetensors_header(r->file, r->path, text, length, r->data_bytes, r->err);
    mha__free(r->file->ctx, text);
    return status;
}

/* ---- rules for all tensors ---- */

static int by_place(const void *a, const void *b)
{
    const mha__record *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->tensor.bytes > y->tensor.bytes) - (x->tensor.bytes < y->tensor.bytes);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const mha__metadata *)a)->key, ((const mha__metadata *)b)->key);
}

static void sort_by_name(mha_file *file)
{
    if (file->count > 1) qsort(file->records, (size_t)file->count, sizeof *file->records, mha__record_by_name);
    if (file->metadata_count > 1) qsort(file->metadata, (size_t)file->metadata_count, sizeof *file->metadata, by_key);
}

/* Checks that names and metadata keys are unique. */
static mha_status check_names(const reader *r)
{
    const mha_file *file = r->file;
    sort_by_name(r->file);
    for (int64_t i = 1; i < file->count; i++)
        if (mha__record_by_name(&file->records[i - 1], &file->records[i]) == 0)
            return REFUSE(r, file->records[i].tensor.name, "duplicate object key: two entries have this name");
    for (int64_t i = 1; i < file->metadata_count; i++)
        if (by_key(&file->metadata[i - 1], &file->metadata[i]) == 0)
            return REFUSE(r, NULL, "__metadata__: duplicate object key \"%s\"",
                          mha__quote(&(mha__quoted){0}, file->metadata[i].key, strlen(file->metadata[i].key)));
    return MHA_OK;
}

/* Checks that, in file order, each tensor begins where the previous tensor ends, and the last tensor ends at the end of
 * the file. */
static mha_status check_tiling(const reader *r)
{
    mha_file *file = r->file;
    if (file->count > 1) qsort(file->records, (size_t)file->count, sizeof *file->records, by_place);
    size_t end = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const mha__record *record = &file->records[i];
        if (record->begin != end)
            return REFUSE(r, record->tensor.name, "must begin at %zu, the %s (got %zu)", end,
                          i ? "end of the previous tensor" : "start of the data", record->begin);
        end += record->tensor.bytes; /* at most data_bytes, as read_offsets ensures */
    }
    if (end != r->data_bytes)
        return REFUSE(r, NULL, "data must end with the last tensor (got %zu bytes, tensors end at %zu)", r->data_bytes,
                      end);
    return MHA_OK;
}

static mha_status place_tensors(reader *r, const mha__source *source)
{
    mha_file *file = r->file;
    const char *data = NULL;
    MHA__TRY(mha__data_load(file, source, source->size - r->data_bytes, r->data_bytes, &data, r->err));
    for (int64_t i = 0; i < file->count; i++)
        file->records[i].tensor.data = data + file->records[i].begin;
    return MHA_OK;
}

mha_status mha__safetensors_open(mha_file *file, const mha__source *source, mha_error *err)
{
    reader r = {.file = file, .path = source->name, .err = err};
    size_t length = 0;
    MHA__TRY(check_length(&r, source, &length));
    r.data_bytes = source->size - 8 - length;
    MHA__TRY(read_header(&r, source, length));
    MHA__TRY(check_names(&r));
    MHA__TRY(check_tiling(&r));
    sort_by_name(file);
    file->format = "safetensors";
    return place_tensors(&r, source);
}
