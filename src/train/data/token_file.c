/* token_file.c - reads files of token ids: .npy, and raw 16-bit ids with or without the header of llm.c. */
#include "base/ctx.h"
#include "io/files/input_file.h"
#include "io/tensor_file.h"
#include "train/data/train_data_struct.h"
#include <string.h>

/* The header of llm.c files: 256 32-bit integers. The first three are the magic number, the version and the token
 * count. */
enum { HEADER = 1024, MAGIC = 20240520, VERSION = 1 };

static mha_status refuse(const char *path, const char *why, mha_error *err)
{
    mha__quoted q;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s", mha__quote(&q, path, strlen(path)), why);
}

static mha_status open_npy(const mha_train_data *d, const char *path, mha__token_run *run, mha_error *err)
{
    const mha_file_options how = {.size = sizeof how, .no_map = d->o.no_map};
    mha__quoted q, type;
    MHA__TRY(mha_file_open(d->ctx, path, &how, &run->file, err));
    const mha_tensor *t = mha_file_count(run->file) == 1 ? mha_file_tensor(run->file, 0) : NULL;
    if (!t || strcmp(mha_file_format(run->file), "npy") != 0)
        return refuse(path, "must be an .npy file of token ids", err);
    if (t->dtype != MHA_U16 && t->dtype != MHA_I32 && t->dtype != MHA_I64)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: the element type must be one of uint16, int32, int64 (got %s)",
                         mha__quote(&q, path, strlen(path)), mha__quote(&type, t->dtype_name, strlen(t->dtype_name)));
    run->ids = t->data;
    run->count = t->elements;
    run->dtype = t->dtype;
    return MHA_OK;
}

/* Returns the size of the header [bytes]; 0 if the file has no header; -1 if the header does not match the file. */
static int64_t header_bytes(const char *data, size_t bytes)
{
    int32_t head[3];
    if (bytes < HEADER) return 0;
    memcpy(head, data, sizeof head);
    if (head[0] != MAGIC) return 0;
    const bool fits = head[1] == VERSION && head[2] >= 0 && (size_t)head[2] * 2 == bytes - HEADER;
    return fits ? HEADER : -1;
}

static mha_status open_bin(const mha_train_data *d, const char *path, mha__token_run *run, mha_error *err)
{
    const char *data;
    size_t bytes;
    MHA__TRY(mha__file_open_bytes(d->ctx, path, d->o.no_map != 0, &run->file, &data, &bytes, err));
    if (bytes == 0) return refuse(path, "must contain at least one token (got an empty file)", err);
    const int64_t header = header_bytes(data, bytes);
    if (header < 0) return refuse(path, "the llm.c header must have version 1 and the token count of the file", err);
    if ((bytes - (size_t)header) % 2)
        return refuse(path, "ids must be 16-bit integers (got an odd number of bytes)", err);
    run->ids = data + header;
    run->count = (int64_t)(bytes - (size_t)header) / 2;
    run->dtype = MHA_U16;
    return MHA_OK;
}

mha_status mha_train_data_add_file(mha_train_data *d, const char *path, mha_error *err)
{
    if (!d || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_data_add_file: %s must not be NULL", d ? "path" : "data");
    if (d->finished) return mha__fail(err, MHA_ERR_ARG, "mha_train_data_add_file: data must not be finished");
    const bool npy = mha__name_ends(path, ".npy");
    if (!npy && !mha__name_ends(path, ".bin"))
        return refuse(path, "the file name must end in .npy, or in .bin for 16-bit ids", err);
    mha__token_run run = {0};
    mha_status status = npy ? open_npy(d, path, &run, err) : open_bin(d, path, &run, err);
    if (status == MHA_OK) status = mha__train_data_append(d, &run, path, err);
    mha__token_run_free(d->ctx, &run);
    return status;
}
