/* vocabulary_rows.c - reads rows of the tables whose rows are tokens. */
#include "circuits/logits/vocabulary_rows.h"

#include "base/error.h"

const mha_tensor *mha__output_table(const mha_model *m)
{
    return mha__weights_tensor(&m->outer, m->config.tied ? MHA__WORDS : MHA__LM_HEAD, -1, false);
}

mha_status mha__vocabulary_rows(const mha_tensor *table, int64_t width, int64_t first, int64_t rows, float *room,
                                const float **out, mha_error *err)
{
    const size_t element = table->bytes / (size_t)table->elements;
    mha_tensor some = *table;
    some.data = (const char *)some.data + (size_t)(first * width) * element;
    some.elements = rows * width;
    some.bytes = (size_t)some.elements * element;
    some.shape = (const int64_t[]){rows, width};
    if (some.dtype == MHA_F32 && mha_tensor_aligned(&some)) {
        *out = some.data;
        return MHA_OK;
    }
    *out = room;
    return mha_tensor_read(&some, MHA_F32, room, err);
}
