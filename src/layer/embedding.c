/* embedding.c - copies the table row of each token id, and accumulates the gradient of the table. Ids are untrusted:
 * all ids are checked before any id is used. */
#include "base/error.h"
#include "base/size.h"
#include "mha/layer.h"

static mha_status check(const char *what, const float *table, int64_t count, int64_t width, const int32_t *ids,
                        int64_t rows, const float *y, mha_error *err)
{
    size_t bytes = 0;
    if (rows < 0 || width < 1 || count < 1 ||
        !mha__bytes((int64_t[]){mha__max64(rows, count), width}, 2, 2 * sizeof *y, &bytes))
        return mha__fail(err, MHA_ERR_ARG,
                         "embedding: rows must be at least 0, width and count at least 1, and all must fit "
                         "in memory (got %lld, %lld, %lld)",
                         (long long)rows, (long long)width, (long long)count);
    if (!what || !table || (rows && (!ids || !y)))
        return mha__fail(err, MHA_ERR_ARG, "embedding: what, table, ids and y must not be NULL");
    for (int64_t r = 0; r < rows; r++)
        if (ids[r] < 0 || ids[r] >= count)
            return mha__fail(err, MHA_ERR_ARG, "%s[%lld] must be from 0 to %lld (got %d)", what, (long long)r,
                             (long long)count - 1, (int)ids[r]);
    return MHA_OK;
}

mha_status mha_embedding_forward(const char *what, const float *table, int64_t count, int64_t width, const int32_t *ids,
                                 int64_t rows, int add, float *y, mha_error *err)
{
    MHA__TRY(check(what, table, count, width, ids, rows, y, err));
    for (int64_t r = 0; r < rows; r++) {
        const float *row = table + ids[r] * width;
        for (int64_t e = 0; e < width; e++)
            y[r * width + e] = add ? y[r * width + e] + row[e] : row[e];
    }
    return MHA_OK;
}

mha_status mha_embedding_backward(const char *what, float *dtable, int64_t count, int64_t width, const int32_t *ids,
                                  int64_t rows, const float *dy, mha_error *err)
{
    MHA__TRY(check(what, dtable, count, width, ids, rows, dy, err));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e < width; e++)
            dtable[ids[r] * width + e] += dy[r * width + e];
    return MHA_OK;
}
