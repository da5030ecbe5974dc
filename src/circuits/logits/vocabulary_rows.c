/* vocabulary_rows.c - reads rows of the tables whose rows are tokens. */
#include "circuits/logits/vocabulary_rows.h"

#include "base/error.h"
#include "io/block_types.h"

const mha_tensor *mha__output_table(const mha_model *m)
{
    return mha__weights_tensor(&m->outer, m->config.tied ? MHA__WORDS : MHA__LM_HEAD, -1, false);
}

mha_status mha__vocabulary_rows(const mha_tensor *table, int64_t width, int64_t first, int64_t rows, float *room,
                                const float **out, mha_error *err)
{
    const int64_t at = first * width;
    if (table->dtype == MHA_F32 && mha_tensor_aligned(table)) {
        *out = (const float *)table->data + at;
        return MHA_OK;
    }
    *out = room;
    return mha__tensor_read_part(table, at, rows * width, room, err); /* rows of quantized tables are whole blocks */
}
