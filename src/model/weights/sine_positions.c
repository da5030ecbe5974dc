/* sine_positions.c - position tables that are computed, not stored: row p has the sines of p / 10000^(2j / E), then the
 * cosines (Marian, Pegasus). Older files store the table, and transformers reads it; so a table with other elements is
 * refused. */
#include "base/ctx.h"
#include "base/error.h"
#include "io/derived_tensor.h"
#include "model/weights/weights.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 1 << 17 }; /* no tensor limits the table, so config.json alone must not request much memory */

static bool same_table(const float *stored, const float *table, int64_t count)
{
    const float rounding = 1.0f / 256; /* of a 16-bit type, for elements of at most 1 */
    for (int64_t n = 0; n < count; n++)
        if (!(fabsf(stored[n] - table[n]) <= rounding)) return false;
    return true;
}

/* Compares the computed table with the table of the same side in the file, if the file has one. */
static mha_status check_stored(mha__weights *w, const float *table, int64_t rows, int64_t width, mha_error *err)
{
    char name[MHA__TENSOR_NAME];
    const char *path = mha_file_path(w->shards->file);
    snprintf(name, sizeof name, "%s%s.embed_positions.weight", w->prefix,
             w->config->family->causal ? "decoder" : "encoder");
    const mha_tensor *t = mha__shards_find(w->shards, name);
    if (!t) return MHA_OK;
    bool same = t->rank == 2 && t->shape[0] == rows && t->shape[1] == width;
    float *stored = same ? mha__alloc(w->ctx, (size_t)t->elements * sizeof *stored) : NULL;
    if (same && !stored) return mha__no_memory(err, (size_t)t->elements * sizeof *stored, name);
    mha_status status = same ? mha_tensor_read(t, MHA_F32, stored, err) : MHA_OK;
    if (same && status == MHA_OK) same = same_table(stored, table, t->elements);
    mha__free(w->ctx, stored);
    if (status != MHA_OK || same) return status;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "%s: tensor \"%s\" must be the table [%lld, %lld] of sines and cosines (got another table)",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)), name, (long long)rows, (long long)width);
}

mha_status mha__sine_positions(mha__weights *w, mha_matrix *part, mha_error *err)
{
    const int64_t rows = w->config->position_rows, width = w->config->hidden, sines = (width + 1) / 2;
    if (rows > ROWS_MAX)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "max_position_embeddings must be at most %d in this family (got %lld)", ROWS_MAX,
                         (long long)rows);
    const size_t bytes = (size_t)(rows * width) * sizeof(float);
    *part = (mha_matrix){.out = rows};
    if (w->check_only) return MHA_OK;
    float *table = mha__weights_keep(w, bytes);
    if (!table) return mha__no_memory(err, bytes, "the position table");
    for (int64_t i = 0; i < width; i++) {
        const int64_t j = i < sines ? i : i - sines;
        const double period = pow(10000, 2 * (double)j / (double)width);
        for (int64_t p = 0; p < rows; p++)
            table[p * width + i] = (float)(i < sines ? sin((double)p / period) : cos((double)p / period));
    }
    part->weight = table;
    return check_stored(w, table, rows, width, err);
}
