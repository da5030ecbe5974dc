/* head_data.h - internals of tokenized texts: the batches that measures run. Public header: mha/head_data.h. */
#ifndef MHA_HEADS_DATA_HEAD_DATA_H
#define MHA_HEADS_DATA_HEAD_DATA_H

#include "heads/data/tokens/special_tokens.h"
#include "heads/data/tokens/token_list.h"
#include "mha/head_data.h"

/* Reads and checks the arguments that all functions share which create data: sets *own, with a copy of its `work`, and
 * *out to NULL. */
mha_status mha__head_data_read(const mha_model *model, int64_t count, const void *given,
                               const mha_head_data_options *options, mha_head_data_options *own, mha_work *work,
                               mha_head_data **out, mha_error *err);
/* Builds the data set from the collected tokens; `sources` are those of pairs, or NULL. */
mha_status mha__head_data_make(const mha_model *model, const mha__gather *tokens, const mha__gather *sources,
                               const mha_head_data_options *options, mha_head_data **out, mha_error *err);
/* Creates a copy of the data, which must not be pairs. */
mha_status mha__head_data_copy(const mha_head_data *data, mha_head_data **out, mha_error *err);
/* Replaces a token of a text and its kind. Data that measures can already read must not change. */
void mha__head_data_replace(mha_head_data *data, int64_t text, int64_t at, int32_t id, uint8_t kind);
/* Sets the tokenizer of the tokens, after they have been replaced. */
void mha__head_data_tokenized(mha_head_data *data, const mha_tokenizer *tokenizer);

/* Computes a fingerprint of all texts and their batches: 16 digits. */
mha_status mha__head_data_mark(const mha_head_data *data, char mark[17], mha_error *err);
/* Returns the number of batches. The longest texts come first, ties in the given order; the division into batches
 * depends only on lengths and batch_tokens. */
int64_t mha__head_data_batches(const mha_head_data *data);
/* Return the maximum number of tokens in a batch, of tokens in a text, and of texts in a batch, to allocate buffers. */
int64_t mha__head_data_batch_tokens(const mha_head_data *data);
int64_t mha__head_data_longest(const mha_head_data *data);
int64_t mha__head_data_batch_texts(const mha_head_data *data);

/* Returns the number of tokens in the batches before `batch`. */
int64_t mha__tokens_before(const mha_head_data *data, int64_t batch);

/* Sets batch, ids, type_ids and starts of `input` to the packed texts of a batch. Sets *texts to the index that each
 * text had in the call to mha_head_data_of_... Sums over texts must not depend on the order of texts in a batch: store
 * the result of each text, and add the results in the order of the indices. */
mha_status mha__head_data_batch(const mha_head_data *data, int64_t batch, mha_model_input *input, const int64_t **texts,
                                mha_error *err);

/* Returns MHA_ERR_UNSUPPORTED for images and pairs, which a measure of texts does not accept. */
mha_status mha__head_data_texts(const mha_head_data *data, mha_error *err);
/* Return MHA_ERR_UNSUPPORTED for images, and for pairs. */
mha_status mha__head_data_no_images(const mha_head_data *data, mha_error *err);
mha_status mha__head_data_alone(const mha_head_data *data, mha_error *err);
/* Returns a hash of the texts of all tokens in the vocabulary of a tokenizer; 0 if it is NULL. */
uint64_t mha__head_data_texts_hash(const mha_head_data *data, const mha_tokenizer *tokenizer);
/* Returns MHA_ERR_ARG for images or pairs that the model does not read, for texts if it reads images or pairs, and for
 * tokens that have other texts in its tokenizer than in that of the model of the data. Without one of the tokenizers,
 * tokens are not compared. */
mha_status mha__head_data_matches(const mha_model *model, const mha_head_data *data, mha_error *err);
/* Same as mha__head_data_batch, which rejects images and pairs. For images, sets `pixels` instead of ids and type_ids.
 * For pairs, sets `source`. */
mha_status mha__head_data_any(const mha_head_data *data, int64_t batch, mha_model_input *input, const int64_t **texts,
                              mha_error *err);
/* Returns the tokens of the source of a pair; NULL for texts. */
const int32_t *mha__head_data_source(const mha_head_data *data, int64_t text, int64_t *length);
/* Returns the maximum number of tokens in a source; 0 for texts. */
int64_t mha__head_data_max_source(const mha_head_data *data);
/* Returns the pixels of an image; NULL for texts. */
const float *mha__head_data_pixels(const mha_head_data *data, int64_t text);
/* Returns the size of the pixels of one image; 0 for texts. */
size_t mha__head_data_image_bytes(const mha_head_data *data);

/* Return, for each token of a text, its kind (MHA_TOKEN_SPECIAL ...) or its token type. */
const uint8_t *mha__head_data_kinds(const mha_head_data *data, int64_t text);
const int32_t *mha__head_data_types(const mha_head_data *data, int64_t text);

/* Returns the segment of each token of a text; NULL if there are no segments. */
const int32_t *mha__head_data_segments(const mha_head_data *data, int64_t text);

/* Returns the special tokens around a text; none without a tokenizer. */
const mha__frame *mha__head_data_frame(const mha_head_data *data);

/* Returns mha_head_data_options.work. */
const mha_work *mha__head_data_work(const mha_head_data *data);

#endif
