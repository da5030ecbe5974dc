/* head_data.h - the texts that heads are measured on, as tokens: made once, read by every measure.
 *
 * Tokens of all texts are in memory, 9 bytes each. Texts are run packed one behind another, the longest first and
 * equals in their order, so that nothing is computed for padding and what does not fit into memory says so at once. How
 * they are cut into batches changes no bit of any result.
 *
 *     mha_head_data *data;
 *     mha_head_data_of_texts(model, texts, count, NULL, &data, &err);
 *     mha_heads_measure_data(model, data, NULL, &heads, &err);
 */
#ifndef MHA_HEAD_DATA_H
#define MHA_HEAD_DATA_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Immutable: any number of threads and measures may read it at once. */
typedef struct mha_head_data mha_head_data;

typedef struct mha_head_data_options {
    size_t size;
    int64_t max_tokens; /* cut of each text; 0 = the model's maximum, where a cut is a warning in the log */
    /* At most so many tokens run at once, or one longer text; 0 = 2048: what a layer writes stays near the caches. No
     * result depends on it. */
    int64_t batch_tokens;
    /* [special_count] Ids that count as special tokens beside those that the tokenizer puts around a text: what [CLS]
     * or BOS is, where ids are given for a model without a tokenizer. */
    const int32_t *special;
    int64_t special_count;
    /* [starts[count]] Of ids: the segment of each token (sentence, turn, document), any numbers; NULL = none. What
     * "block" of heads.h asks about, and the token types of a model that has more than one (BERT: 0 and 1). */
    const int32_t *segments;
} mha_head_data_options;

/* The tokens of `count` texts, terminated UTF-8 (so without NUL), with the special tokens of the model's tokenizer. The
 * model's context must outlive the data; the model and the texts need not. Any model of the same vocabulary may be
 * measured on it, say a pruned one. `options` may be NULL. Errors: MHA_ERR_ARG for no texts, for one that is NULL, not
 * UTF-8 or without tokens, naming it, and for a model without tokenizer; MHA_ERR_MEMORY. */
MHA_API mha_status mha_head_data_of_texts(const mha_model *model, const char *const *texts, int64_t count,
                                          const mha_head_data_options *options, mha_head_data **out, mha_error *err);

/* The same of token ids, which are copied: text i is ids[starts[i]] to ids[starts[i + 1] - 1], starts [count + 1]
 * ascending from 0, no text empty. A text that is too long loses its end. Which tokens are special, separators or
 * punctuation is asked of the model's tokenizer; without one no token is, but for options.special. Errors: MHA_ERR_ARG
 * for starts that do not ascend and for an id outside the vocabulary, naming text and value; MHA_ERR_MEMORY. */
MHA_API mha_status mha_head_data_of_ids(const mha_model *model, const int32_t *ids, const int64_t *starts,
                                        int64_t count, const mha_head_data_options *options, mha_head_data **out,
                                        mha_error *err);
MHA_API void mha_head_data_free(mha_head_data *data);

/* Texts, and tokens of all of them after cutting. */
MHA_API int64_t mha_head_data_count(const mha_head_data *data);
MHA_API int64_t mha_head_data_tokens(const mha_head_data *data);
/* The tokens of one text, numbered as given; *length (may be NULL) gets how many. NULL and 0 out of range. */
MHA_API const int32_t *mha_head_data_ids(const mha_head_data *data, int64_t text, int64_t *length);

#ifdef __cplusplus
}
#endif
#endif
