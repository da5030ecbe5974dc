/* head_data.h - texts as tokens, inside: the batches that measures run. Public side: mha/head_data.h. */
#ifndef MHA_HEADS_DATA_HEAD_DATA_H
#define MHA_HEADS_DATA_HEAD_DATA_H

#include "heads/data/special_tokens.h"
#include "mha/head_data.h"

/* Batches, the longest texts first; equally long ones in the given order. The cut depends on lengths and batch_tokens
 * alone. */
int64_t mha__head_data_batches(const mha_head_data *data);
/* The tokens of the longest batch, and of the longest text: what buffers must hold. Texts of a batch, at most. */
int64_t mha__head_data_batch_tokens(const mha_head_data *data);
int64_t mha__head_data_longest(const mha_head_data *data);
int64_t mha__head_data_batch_texts(const mha_head_data *data);

/* Fills `input` with the packed texts of a batch (batch, ids, type_ids, starts, and nothing else); *texts gets the
 * number of each, as the caller of mha_head_data_of_... counts. What is summed over texts must not depend on this
 * order: keep the result of each text, and add them up by its number. */
mha_status mha__head_data_batch(const mha_head_data *data, int64_t batch, mha_model_input *input, const int64_t **texts,
                                mha_error *err);

/* MHA_TOKEN_SPECIAL ... of each token of a text, and their token types. */
const uint8_t *mha__head_data_kinds(const mha_head_data *data, int64_t text);
const int32_t *mha__head_data_types(const mha_head_data *data, int64_t text);

/* The segment of each token of a text; NULL if there are none. */
const int32_t *mha__head_data_segments(const mha_head_data *data, int64_t text);

/* The special tokens around a text; none without a tokenizer. */
const mha__frame *mha__head_data_frame(const mha_head_data *data);

#endif
