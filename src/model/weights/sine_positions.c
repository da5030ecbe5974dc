/* sine_positions.c - position tables that are computed, not stored: row p has the sines of p / 10000^(2j / E), then the
 * cosines (Marian). */
#include "base/ctx.h"
#include "base/error.h"
#include "model/weights/weights.h"
#include <math.h>

enum { MOST_ROWS = 1 << 17 }; /* no tensor limits the table, so config.json alone must not request much memory */

mha_status mha__sine_positions(mha__weights *w, mha_matrix *part, mha_error *err)
{
    const int64_t rows = w->config->position_rows, width = w->config->hidden, sines = (width + 1) / 2;
    if (rows > MOST_ROWS)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "max_position_embeddings must be at most %d in this family (got %lld)", MOST_ROWS,
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
    return MHA_OK;
}
